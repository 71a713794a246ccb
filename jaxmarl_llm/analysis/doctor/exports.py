"""Check that an exported agent computes the same as the agent in training."""

import dataclasses
import pathlib
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import adapters, weights
from jaxmarl_llm.analysis.doctor.choices import unmerged_variables
from jaxmarl_llm.analysis.doctor.result import check
from jaxmarl_llm.team import Member
from jaxmarl_llm.utils import quantised
from jaxmarl_llm.weights import peft

NOISE = 0.02  # added to the trained parameters, so that a lost adapter is detected
# Relative to the largest logit, by the dtype in which the model is written; both sides compute in float32.
TOLERANCES = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}

Write = Callable[[Member, str, pathlib.Path, str], None]


@check("export round trip")
def round_trip(
    member: Member, trainable: Any, agent: str, tokens_L: np.ndarray, write: Write
) -> tuple[str, str]:
    """Check that an agent, with noise added to its parameters, has the same logits after export and loading.

    Args:
      member, trainable: the agent's stack, and its current parameters.
      agent: the agent's name.
      tokens_L: token ids of the text on which logits are compared.
      write: ``write(member, agent, folder, form)``, form ``merged`` or ``adapter``.
    """
    if trainable is None:
        return "skipped", f"{agent} does not learn; what would be exported is its base model"
    moved = trained(member, trainable, agent)
    policy = member.stack.policy.clone(dtype=jnp.float32, remat="none", fetch=None, unused_ids=())
    wanted = _logits(policy, unmerged_variables(moved, moved.trainable, agent), tokens_L)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        needed, free = _size(moved, agent), shutil.disk_usage(folder).free
        if needed > free:
            return (
                "skipped",
                f"{needed / 1e9:.1f} GB are needed in {folder.parent}, {free / 1e9:.1f} GB are free",
            )
        logits_by_form = {"merged": _merged(moved, agent, folder / "merged", tokens_L, write)}
        if member.stack.mode == "adapters":
            logits_by_form["adapter"] = _adapter(moved, agent, policy, folder / "adapter", tokens_L, write)
    largest = float(np.abs(wanted).max())
    errors = {form: float(np.abs(logits - wanted).max()) / largest for form, logits in logits_by_form.items()}
    shown = ", ".join(f"{form} {error:.1e}" for form, error in errors.items())
    text = f"{agent}, moved from its base, differs after reading by (of the largest logit): {shown}"
    allowed = TOLERANCES[_narrowest(moved, agent)]
    if max(errors.values()) <= allowed:
        return "ok", text
    return "fail", f"{text}, allowed {allowed:g}: do not use what experiments.export writes for this model"


def trained(member: Member, trainable: Any, agent: str) -> Member:
    """A member with only this agent, with noise added to its parameters to imitate training."""
    stack, agent_trainable = member.stack.subset((agent,), trainable)
    random = np.random.default_rng(0)

    def move(x):
        moved = np.asarray(x, np.float32) + NOISE * random.standard_normal(x.shape, np.float32)
        return jnp.asarray(moved, x.dtype)

    return dataclasses.replace(member, stack=stack, trainable=jax.tree.map(move, agent_trainable))


def _merged(member: Member, agent: str, folder: pathlib.Path, tokens_L, write: Write) -> np.ndarray:
    write(member, agent, folder, "merged")
    model = weights.load(str(folder))
    return _logits(model.policy, model.params, tokens_L)


def _adapter(member: Member, agent: str, policy, folder: pathlib.Path, tokens_L, write: Write) -> np.ndarray:
    write(member, agent, folder, "adapter")
    read = peft.load_adapter(folder, policy.config)
    variables = {**member.base, "lora": adapters.scaled(read.lora, read.alpha / read.rank)}
    return _logits(policy, variables, tokens_L)


def _logits(policy, variables, tokens_L: np.ndarray) -> np.ndarray:
    tokens_1L = jnp.asarray(tokens_L)[None]
    positions_1L = jnp.arange(len(tokens_L))[None]
    return np.asarray(jax.jit(policy.apply)(variables, tokens_1L, positions_1L)[0][0])


def _narrowest(member: Member, agent: str) -> str:
    """The least precise dtype in which the agent's weights are kept and written."""
    return max({x.dtype.name for x in jax.tree.leaves(_in_full(member, agent))}, key=list(TOLERANCES).index)


def _size(member: Member, agent: str) -> int:
    """Bytes of the merged model."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(_in_full(member, agent)))


def _in_full(member: Member, agent: str) -> dict:
    """Shapes of an agent's variables; for a quantised base, the shapes after merging."""
    return jax.eval_shape(quantised.in_full, unmerged_variables(member, member.trainable, agent))
