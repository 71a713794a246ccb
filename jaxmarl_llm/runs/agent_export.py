"""One agent of a team as a folder that other libraries load."""

import pathlib

from jaxmarl_llm import resume_checks, weights
from jaxmarl_llm.team import Member
from jaxmarl_llm.utils import agent_axis
from jaxmarl_llm.weights import peft


def write(member: Member, agent: str, out: pathlib.Path, form: str) -> None:
    """Write one agent to a new folder.

    Args:
      member: the stack that the agent is part of.
      agent: its name.
      out: folder to create.
      form: ``merged`` (a Hugging Face model, adapters added to the base) or ``adapter`` (a PEFT folder).
    """
    stack = member.stack
    if form == "merged":
        params = member.agent_variables(agent)
        weights.save(weights.LoadedModel(stack.policy, params, member.tokenizer), out)
        return
    adapters = agent_axis.take(member.trainable, stack.agents.index(agent))
    rank = resume_checks.adapter_rank(adapters)
    peft.save_adapter(out, member.model_name, stack.policy.config, adapters, rank, stack.adapter_scale * rank)
