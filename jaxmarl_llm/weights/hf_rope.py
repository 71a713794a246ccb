"""RoPE settings in Hugging Face's ``config.json`` <-> `RopeConfig`.

transformers 5 writes ``rope_parameters``, by kind of layer where a model has several; older versions write
``rope_theta`` and ``rope_scaling``, and ``rope_local_base_freq`` for layers with a window.
"""

import math

from jaxmarl_llm.policy import RopeConfig

FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers


def settings(raw: dict, layers: str = FULL) -> dict:
    """What a ``config.json`` says about layers of one kind."""
    parameters = raw.get("rope_parameters") or {}
    if FULL in parameters or SLIDING in parameters:
        return parameters.get(layers) or {}
    return (parameters or raw.get("rope_scaling") or {}) if layers == FULL else {}


def read(raw: dict, layers: str = FULL) -> RopeConfig:
    """The settings of layers of one kind."""
    given = settings(raw, layers)
    kind = given.get("rope_type") or given.get("type") or "default"
    base = raw.get("rope_theta" if layers == FULL else "rope_local_base_freq")
    theta = float(given.get("rope_theta") or base or 10_000.0)
    if kind == "default":
        return RopeConfig(theta=theta)
    length = given.get("original_max_position_embeddings")
    length = length or raw.get("original_max_position_embeddings") or raw.get("max_position_embeddings") or 0
    factor = float(given.get("factor") or raw["max_position_embeddings"] / length)
    names = ("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor")
    optional = {name: given[name] for name in names if given.get(name) is not None}
    if kind == "yarn" and given.get("mscale") and given.get("mscale_all_dim"):
        above, below = (0.1 * given[name] * math.log(factor) + 1 for name in ("mscale", "mscale_all_dim"))
        optional.setdefault("attention_factor", above / below if factor > 1 else 1.0)
    return RopeConfig(kind, theta, factor, int(length), **optional)


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
