"""Fingerprints of models: hashes of their files' content, independent of the path."""

from jaxmarl_llm.utils import content, user_cache
from jaxmarl_llm.utils.errors import StorageError
from jaxmarl_llm.weights import model_files

_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "special_tokens_map.json",
              "added_tokens.json", "generation_config.json")  # fmt: skip


def of_model(name: str) -> dict[str, str]:
    """Hashes of a model's parts: ``weights`` and ``tokenizer`` of a folder, ``file`` of a GGUF file.

    They exclude the chat template: a run writes prompts with the template of its own tokenizer.

    Args:
      name: as `weights.load` takes it.

    Raises:
      UserError: as `weights.load`, for a model that is not there.
    """
    path = user_cache.expanded(name)
    try:
        if name == model_files.DEFAULT and not path.exists():
            return {"file": content.of_file(model_files.bundled())}
        if path.suffix == ".gguf":
            return {"file": content.of_file(path)}
        folder = model_files.find(name)
        return {
            "weights": content.of_files(sorted(folder.glob("*.safetensors"))),
            "tokenizer": content.of_files(path for each in _TOKENIZER if (path := folder / each).is_file()),
        }
    except OSError as error:
        raise StorageError(f"model {name!r}: its files cannot be read ({error})") from error
