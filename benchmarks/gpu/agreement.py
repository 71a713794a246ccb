"""Whether sampler and trainer agree on log-probabilities, for each attention and precision of a device."""

import jax
import numpy as np

from benchmarks import ours
from benchmarks.gpu import rows
from benchmarks.gpu.cells import Case
from jaxmarl_llm.factory import teams
from jaxmarl_llm.policy.fused import choice
from jaxmarl_llm.rollout.engines.agreement import own_logprobs

EXACT = (("policy.attention", "xla"), ("policy.dtype", "float32"), ("policy.precision", "float32"),
         ("sampling.dtype", "float32"))  # fmt: skip


def measure(case: Case, model: str, dtype: str, precision: str) -> list[dict]:
    """A row for each attention that the device has, or the reason why it is not used."""
    measured = []
    for attention in dict.fromkeys((choice.kernel_of(jax.devices()[0]) or "xla", "xla")):
        start = {"attention": attention, "policy.dtype": dtype, "policy.precision": precision}
        values = _measure(case, model, attention, dtype, precision)
        measured.append(rows.machine() | start | values)
    return measured


def _measure(case: Case, model: str, attention: str, dtype: str, precision: str) -> dict:
    config = case.config(model)
    fields = {"policy.dtype": dtype, "sampling.dtype": dtype, "policy.precision": precision}
    config.update_from_flattened_dict(fields | {"policy.attention": attention})
    try:
        side = ours.Ours(config)
    except ValueError as error:  # the kernel cannot do it
        return {"note": str(error)}
    samples = side.sample(case.new_tokens)
    drawn = np.asarray(samples.logprobs_NRL)
    text_NRW = _texts(side, np.asarray(samples.tokens_NRL))
    params = side.loss.sampling
    trainer = np.asarray(own_logprobs(side.stack, side.base, side.state.trainable, text_NRW, params))
    trainer = trainer[:, :, -case.new_tokens :]
    _, metrics = side.update(samples)
    ratio0 = {name: float(np.max(np.abs(metrics[name] - offset))) for name, offset in RATIO0}
    exact = _exact(config, text_NRW, params)[:, :, -case.new_tokens :]
    return ratio0 | _distances("sampler", drawn, trainer) | _distances("float32", exact, trainer)


RATIO0 = (("ratio_max_deviation", 0.0), ("ratio_mean", 1.0))


def _texts(side: ours.Ours, tokens_NRL: np.ndarray) -> np.ndarray:
    """Prompt and completion of every row of the one problem, (N, R, W)."""
    prompts = np.asarray(side.prompts, np.int32)[:, None]
    return np.concatenate([np.repeat(prompts, tokens_NRL.shape[1], axis=1), tokens_NRL], axis=2)


def _exact(config, text_NRW, params) -> np.ndarray:
    """Log-probabilities in float32 throughout, by attention with masks."""
    config = config.copy_and_resolve_references()
    config.update_from_flattened_dict(dict(EXACT))
    (member,) = teams.build_team(config).members
    return np.asarray(own_logprobs(member.stack, member.base, member.trainable, text_NRW, params))


def _distances(name: str, one: np.ndarray, other: np.ndarray) -> dict[str, float]:
    distance = np.abs(one - other)
    return {
        f"trainer - {name}, mean": float(distance.mean()),
        f"trainer - {name}, most": float(distance.max()),
    }
