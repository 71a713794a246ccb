"""RoPE settings in Hugging Face's ``config.json`` <-> `RopeConfig`.

transformers 5 writes ``rope_parameters``, per kind of layer if a model has several; older versions write
``rope_theta`` and ``rope_scaling``, and ``rope_local_base_freq`` for layers with a window. An unknown setting
could change the positions that the model sees, so it is refused.
"""

import math

from jaxmarl_llm.policy import RopeConfig
from jaxmarl_llm.utils import json_fields
from jaxmarl_llm.utils.errors import UserError

FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers
_THETA = {FULL: "rope_theta", SLIDING: "rope_local_base_freq"}
_LENGTH = "original_max_position_embeddings"
_OF_ALL = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
# Further fields that each type reads; transformers reads the same.
_READ = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", _LENGTH, "low_freq_factor", "high_freq_factor"),
    "yarn": (
        "factor", _LENGTH, "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate",
    ),
}  # fmt: skip


def entries(raw: dict, layers: str = FULL) -> dict[str, dict]:
    """The entries of a ``config.json`` about layers of one kind, by field; ``null`` is dropped."""
    parameters = json_fields.table(raw, "rope_parameters")
    own = {"rope_parameters": parameters, "rope_scaling": json_fields.table(raw, "rope_scaling")}
    if FULL in parameters or SLIDING in parameters:
        if other := [name for name in parameters if name not in (FULL, SLIDING)]:
            raise UserError(f"rope_parameters has {other[0]!r} beside the kinds of layers")
        own["rope_parameters"] = json_fields.table(parameters, layers)
    elif layers != FULL:
        del own["rope_parameters"]
    if layers != FULL:
        del own["rope_scaling"]
    given = {field: {k: v for k, v in entry.items() if v is not None} for field, entry in own.items()}
    return {field: entry for field, entry in given.items() if entry}


def read(raw: dict, layers: str = FULL) -> RopeConfig:
    """The settings of layers of one kind.

    Raises ValueError naming the field: a type that is not supported or is missing, a field that the type does
    not read, a number out of range, or a contradiction between ``rope_parameters`` and ``rope_scaling``.
    """
    given = {field: _read(field, entry, raw, layers) for field, entry in entries(raw, layers).items()}
    if len({*given.values()}) > 1:
        raise UserError("rope_parameters and rope_scaling contradict each other; remove one of them")
    return next(iter(given.values())) if given else RopeConfig(theta=_theta({}, raw, layers))


def check_theta(raw: dict) -> None:
    """ValueError if ``rope_parameters`` and the separate field in the same file give different bases."""
    for layers, key in _THETA.items():
        outer = raw.get(key)
        for field, entry in entries(raw, layers).items():
            inner = entry.get("rope_theta", outer)
            if outer is not None and inner != outer:
                raise UserError(
                    f"{key} is {outer!r} and rope_theta in {field} is {inner!r}; remove one of them"
                )


def _theta(entry: dict, raw: dict, layers: str) -> float:
    if entry.get("rope_theta") is not None:
        return json_fields.number(entry, "rope_theta", above=1.0)
    key = _THETA[layers]
    return 10_000.0 if raw.get(key) is None else json_fields.number(raw, key, above=1.0)


def _read(field: str, entry: dict, raw: dict, layers: str) -> RopeConfig:
    try:
        kind = _kind(entry)
        theta = _theta(entry, raw, layers)
        return RopeConfig(theta=theta) if kind == "default" else _scaled(kind, theta, entry, raw)
    except ValueError as error:
        raise UserError(f"{field}: {error}") from error


def _kind(entry: dict) -> str:
    """The type of an entry, after comparing its fields with those that the type reads."""
    named = {entry[name] for name in ("rope_type", "type") if isinstance(entry.get(name), str)}
    if len(named) > 1:
        raise UserError(
            f"rope_type is {entry['rope_type']!r} and type is {entry['type']!r}; remove one of them"
        )
    for name in ("rope_type", "type"):
        if name in entry and not isinstance(entry[name], str):
            raise json_fields.wrong(name, entry[name], f"one of {', '.join(_READ)}")
    rest = [name for name in entry if name not in _OF_ALL]
    if not named and rest:
        raise UserError(f"{', '.join(rest)} without a rope_type; allowed types: {', '.join(_READ)}")
    kind = next(iter(named), "default")
    if kind in _READ and (unread := [name for name in rest if name not in _READ[kind]]):
        allowed = ", ".join(_READ[kind]) or "no further fields"
        raise UserError(f"rope_type {kind!r} does not read {', '.join(unread)}; allowed: {allowed}")
    return kind


def _scaled(kind: str, theta: float, entry: dict, raw: dict) -> RopeConfig:
    if kind not in _READ:
        return RopeConfig(kind, theta)  # which refuses it
    longest = json_fields.count(raw, "max_position_embeddings")
    length = _original_length(entry, raw) or longest
    if kind == "yarn" and "factor" not in entry:
        entry = entry | {"factor": longest / length}
    factor = json_fields.number(entry, "factor", low=1.0)
    required = ("low_freq_factor", "high_freq_factor") if kind == "llama3" else ()
    names = (*required, "beta_fast", "beta_slow", "attention_factor")
    further = {name: json_fields.number(entry, name) for name in names if name in entry or name in required}
    for low, high in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
        bounds = {name: further.get(name, getattr(RopeConfig, name)) for name in (low, high)}
        if bounds[low] >= bounds[high]:
            raise UserError(f"{low} is {bounds[low]:g}; allowed: less than {high}, {bounds[high]:g}")
    if (scale := _mscale(entry, factor)) is not None:
        further.setdefault("attention_factor", scale)
    return RopeConfig(kind, theta, factor, length, **further)


def _original_length(entry: dict, raw: dict) -> int | None:
    """The context before its extension, in tokens; None where the file does not say."""
    given = [json_fields.count(part, _LENGTH) for part in (entry, raw) if part.get(_LENGTH) is not None]
    if len({*given}) > 1:
        raise UserError(f"{_LENGTH} is {given[0]} here and {given[1]} beside it; remove one of them")
    return given[0] if given else None


def _mscale(entry: dict, factor: float) -> float | None:
    """YaRN's scale of cos and sin where it is given by ``mscale`` and ``mscale_all_dim``."""
    names = ("mscale", "mscale_all_dim")
    given = [json_fields.number(entry, name) for name in names if name in entry]
    if len(given) == 1:
        raise UserError("only one of mscale and mscale_all_dim is there; allowed: both or neither")
    if not given:
        return None
    above, below = (0.1 * scale * math.log(factor) + 1 for scale in given)
    return above / below


def fields(rope: RopeConfig) -> dict:
    """The entry of ``rope_parameters``."""
    written = {"rope_type": rope.kind, "rope_theta": rope.theta}
    if rope.kind != "default":
        written["factor"] = rope.factor
    if rope.kind in ("llama3", "yarn"):
        written["original_max_position_embeddings"] = rope.original_max_positions
    if rope.kind == "llama3":
        written |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.kind == "yarn":
        written |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow}
        if rope.attention_factor is not None:
            written["attention_factor"] = rope.attention_factor
    return written
