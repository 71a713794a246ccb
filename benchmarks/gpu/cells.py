"""What `python -m benchmarks.gpu` measures: parts, and in each the cells, which can be measured alone."""

import dataclasses
import pathlib

from ml_collections import config_dict

from benchmarks import ours, random_folder
from jaxmarl_llm.analysis.planning import models
from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.weights import model_files

LARGE = "Qwen/Qwen2.5-Coder-3B"  # with random weights
# In place of every model with --small; the vocabulary is that of the default model's tokenizer.
SMALL = PolicyConfig(49_152, 32, 64, 2, n_heads=4, n_kv_heads=2, head_dim=8, max_positions=512, qkv_bias=True)


@dataclasses.dataclass(frozen=True)
class Case:
    """Two agents of one model, and the sizes of an iteration of theirs.

    Attributes:
      model: a name as of ``config.model``, or `LARGE`.
      mode, dtype, group, prompt_tokens, new_tokens, problems: see `ours.make_config`.
      together: whether a card has room for all sides at the same time, which then take turns.
      fields: further fields of the config with their values.
    """

    model: str = model_files.DEFAULT
    mode: str = "adapters"
    dtype: str = "float32"
    group: int = 8
    prompt_tokens: int = 768
    new_tokens: int = 64
    problems: int = 1
    together: bool = False
    fields: tuple[tuple[str, object], ...] = ()

    def made_small(self) -> "Case":
        """The same with sizes for a few seconds on a CPU."""
        return dataclasses.replace(
            self, group=2, prompt_tokens=21, new_tokens=4, problems=min(self.problems, 2), together=True
        )

    def config(self, model: str) -> config_dict.ConfigDict:
        """The config of our side, on a model that is there: a name or a folder."""
        config = ours.make_config(
            model=model,
            mode=self.mode,
            group=self.group,
            prompt_tokens=self.prompt_tokens,
            new_tokens=self.new_tokens,
            sampling_dtype=self.dtype,
            dtype=self.dtype,
            problems=self.problems,
        )
        config.update_from_flattened_dict(dict(self.fields))
        return config

    @property
    def drawn(self) -> int:
        """Tokens that both agents draw in an iteration, and learn from."""
        return 2 * self.problems * self.group * self.new_tokens


# SmolLM2 as the default config of coding has it; the large ones as the published experiments.
SMOLLM2 = Case(together=True)
ADAPTERS = Case(LARGE, "adapters", "bfloat16", group=4, prompt_tokens=2048, new_tokens=256)
FULL = dataclasses.replace(ADAPTERS, mode="full")
WIDE_ROWS = (("train.tokens_per_microbatch", 2048),)
ATTENTION_MODELS = {"smollm2": model_files.DEFAULT, "3b": LARGE}
LENGTHS = {"2k": 2048, "8k": 8192, "32k": 32768}
# policy.dtype and policy.precision; products of bfloat16 numbers are not changed by the latter.
PRECISIONS = (
    ("float32", "float32"),
    ("float32", "tensorfloat32"),
    ("float32", "bfloat16"),
    ("bfloat16", "float32"),
)

THROUGHPUT = {
    "smollm2-adapters": SMOLLM2,
    "smollm2-full": dataclasses.replace(SMOLLM2, mode="full"),
    "smollm2-adapters-4-problems": dataclasses.replace(SMOLLM2, problems=4),
    "3b-adapters": ADAPTERS,
    "3b-full": FULL,
    "3b-adapters-8-problems": dataclasses.replace(ADAPTERS, group=8, problems=8, fields=WIDE_ROWS),
}
MEMORY = {
    "smollm2-adapters": SMOLLM2,
    "3b-adapters": ADAPTERS,
    "3b-adapters-float32-base": dataclasses.replace(ADAPTERS, fields=(("model_options.dtype", "float32"),)),
    "3b-full": FULL,
}
AGREEMENT = {f"{dtype}-{precision}": (dtype, precision) for dtype, precision in PRECISIONS}
ATTENTION = {f"{model}-{length}": (model, length) for model in ATTENTION_MODELS for length in LENGTHS}
BASE = {"3b-adapters": ADAPTERS}
DECODE = {"smollm2-adapters": SMOLLM2, "3b-adapters": ADAPTERS}
PARTS = {
    "throughput": THROUGHPUT,
    "memory": MEMORY,
    "agreement": AGREEMENT,
    "attention": ATTENTION,
    "base": BASE,
    "decode": DECODE,
}
# With --small one cell shows that a part works.
OF_SMALL = {
    "throughput": "3b-adapters-8-problems",
    "memory": "3b-full",
    "agreement": "bfloat16-float32",
    "attention": "3b-2k",
    "base": "3b-adapters",
    "decode": "smollm2-adapters",
}


def chosen(text: str, small: bool = False) -> list[str]:
    """Cells, as ``part:case``, of a comma-separated list of parts and cells. ValueError for what is neither.

    ``small``: of a part only that of `OF_SMALL`.
    """
    every = [f"{part}:{case}" for part, cases in PARTS.items() for case in cases]
    of_parts = [f"{part}:{case}" for part, case in OF_SMALL.items()] if small else every
    cells = []
    for name in filter(None, map(str.strip, text.split(","))):
        named = [cell for cell in of_parts if name == cell.partition(":")[0]]
        named += [cell for cell in every if cell == name]
        if not named:
            raise ValueError(f"{name} is neither a part ({', '.join(PARTS)}) nor a cell such as {every[0]}")
        cells += named
    if not cells:
        raise ValueError(f"{text!r} names no part ({', '.join(PARTS)})")
    return list(dict.fromkeys(cells))


def needs_folder(cell: str, small: bool) -> str | None:
    """The architecture whose random weights a cell reads from a folder: `LARGE`, "small", or None."""
    part, _, case = cell.partition(":")
    if part == "attention":
        return None  # it has no model
    if small:
        return "small"
    model = getattr(PARTS[part][case], "model", model_files.DEFAULT)
    return LARGE if model == LARGE else None


def folder(place: pathlib.Path, architecture: str) -> pathlib.Path:
    """The model of `needs_folder` below a folder, written there if it is not yet."""
    config = SMALL if architecture == "small" else models.policy_config(architecture)
    return random_folder.write(place / architecture.rpartition("/")[2], config)
