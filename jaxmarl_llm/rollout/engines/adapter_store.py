"""Adapters as PEFT folders under names made of the agent, the step, and a hash of the content.

A name always stands for the same content. So a server that knows a name has exactly these adapters, and its
prefix cache, which vLLM keys by the name, has no data of others. Adapters of an earlier step cannot pass as
new ones.
"""

import hashlib
import pathlib
import shutil
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxmarl_llm import resume_checks
from jaxmarl_llm.team import Member
from jaxmarl_llm.weights import model_files, peft

DIGITS = 16  # hexadecimal digits of a version


class AgentAdapters(NamedTuple):
    """One agent's adapters on the host, and their version, which depends on their content."""

    agent: str
    lora: dict
    version: str


def of_member(member: Member, trainable: Any) -> list[AgentAdapters]:
    """The adapters of each agent of a member, brought to the host once."""
    on_host, every = jax.device_get(trainable), []
    for n, agent in enumerate(member.stack.agents):
        lora = jax.tree.map(lambda x: np.asarray(x)[n], on_host)  # noqa: B023 - called before n changes
        every.append(AgentAdapters(agent, lora, _digest(member, lora)))
    return every


class AdapterStore:
    """The folder of a run's adapters.

    ``folder`` is visible to the servers under the same path; every name begins with ``run``, so several runs
    may share a server.
    """

    def __init__(self, folder: pathlib.Path, run: str):
        self.folder, self.prefix = pathlib.Path(folder).resolve(), f"jaxmarl-{run}-"

    def name(self, step: int, adapters: AgentAdapters) -> str:
        """The name of an agent's adapters after ``step`` iterations."""
        return f"{self.prefix}{adapters.agent}-v{step}-{adapters.version}"

    def path(self, name: str) -> pathlib.Path:
        """The PEFT folder of some adapters."""
        return self.folder / name

    def write(self, name: str, member: Member, adapters: AgentAdapters) -> None:
        """Write an agent's adapters again, completely or not at all."""
        self.remove(name)
        rank = resume_checks.adapter_rank(adapters.lora)
        base, scale = model_files.public_name(member.model_name), member.stack.adapter_scale
        config = member.stack.policy.config
        peft.save_adapter(self.path(name), base, config, adapters.lora, rank, scale * rank)

    def remove(self, name: str) -> None:
        """Remove the folder of some adapters, if it is there."""
        shutil.rmtree(self.path(name), ignore_errors=True)

    def forget(self) -> None:
        """Remove folders left by an earlier process of the run."""
        for path in self.folder.glob(f"{self.prefix}*"):
            self.remove(path.name)


def _digest(member: Member, lora: dict) -> str:
    """The beginning of the SHA-256 of an agent's adapters and their scale."""
    known = hashlib.sha256(repr(member.stack.adapter_scale).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(lora):
        array = np.ascontiguousarray(leaf)
        known.update(f"{jax.tree_util.keystr(path)} {array.shape} {array.dtype}".encode())
        known.update(array.tobytes())
    return known.hexdigest()[:DIGITS]
