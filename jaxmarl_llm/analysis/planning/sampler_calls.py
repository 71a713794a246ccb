"""The calls of the sampler that a config makes, and the batches of its updates, for the jobs of a plan."""

from collections.abc import Callable, Sequence

from jaxmarl_llm.analysis.planning.job import Call
from jaxmarl_llm.config import agent_settings, experience, gate, programs, workload
from jaxmarl_llm.config.options import is_dotted
from jaxmarl_llm.factory.protocols import STEPS
from jaxmarl_llm.protocols.pipeline import one_by_one
from jaxmarl_llm.protocols.relay import turns_of
from jaxmarl_llm.utils.errors import UserError


def of_turns(
    config, agents, nodes: Sequence[int], group: int, later: int = 0, candidates: int = 1
) -> tuple[Call, ...]:
    """Calls of the sampler if each turn's ``nodes`` are answered ``group`` times, in later turns ``later`` if not 0.

    ``candidates``: texts that are drawn of a dialogue's agent for one that goes on.

    ValueError for a protocol of the user's own.
    """
    if is_dotted(config.train.protocol):
        raise UserError(
            f"train.protocol={config.train.protocol!r}: what a protocol of your own asks for is not known "
            "before it speaks; plan with the built-in one that is most like it"
        )
    if config.train.protocol == "tree":
        numbered = enumerate(config.team.agents)
        return tuple(Call((a,), config.train.prompts * group**n, group) for n, a in numbered if a in agents)
    if experience.of(config):
        instructor, assistant = (_among((agent,), agents) for agent in config.team.agents)
        later = [
            Call(assistant, nodes[0] * group, 1),
            Call(instructor, nodes[0] * group, 1),
        ] * config.train.turns
        return tuple(call for call in (Call(instructor, nodes[0], group), *later[:-1]) if call.agents)
    if config.train.protocol in programs.METHODS:  # one sample each after the first program or plan
        rest = config.train.turns + workload.remarks_of_chain(config) - 1
        return Call(agents, nodes[0], group), *[Call(agents, nodes[0] * group, 1)] * rest
    if config.train.protocol == "planner":
        planner, caller, summarizer = (_among((agent,), agents) for agent in config.team.agents)
        steps = [planner, *(caller, planner) * config.tools.calls, summarizer]
        return tuple(Call(step, nodes[0] * group, 1) for step in steps if step)
    if config.train.protocol == "dialogue":
        actor, partner = (_among((agent,), agents) for agent in config.team.agents)
        calls = [Call(actor, nodes[0], group * candidates)]
        for n in nodes[1:]:
            calls += [Call(partner, n, 1), Call(actor, n, candidates)]
        return tuple(call for call in calls if call.agents)
    samples = [group] + [later or group] * (len(nodes) - 1)
    if (steps := _steps(config)) is not None:
        first, *rest = [_among(step, agents) for step in steps(config.team.agents)]
        calls = []
        for n, g in zip(nodes, samples, strict=True):
            calls += [Call(first, n, g), *(Call(step, n * g, 1) for step in rest)]
        return tuple(call for call in calls if call.agents)
    if config.train.protocol == "relay":
        groups = [_among(group, agents) for group in turns_of(config.team.agents, config.train.turns)]
        calls = [Call(group, n, g) for group, n, g in zip(groups, nodes, samples, strict=True)]
        return tuple(call for call in calls if call.agents)
    if config.train.protocol == "advice":
        adviser, actor = (_among((agent,), agents) for agent in config.team.agents)
        calls = []
        for turn, n in enumerate(nodes):
            calls += [] if turn % config.advice.every else [Call(adviser, n, group if turn == 0 else 1)]
            calls.append(Call(actor, n * group if turn == 0 else n, 1))
        return tuple(call for call in calls if call.agents)
    if config.train.protocol == "discussion":
        rounds = [(Call(agents, n, g), Call(agents, n * g, 1)) for n, g in zip(nodes, samples, strict=True)]
        return tuple(call for pair in rounds for call in pair)
    return tuple(Call(agents, n, g) for n, g in zip(nodes, samples, strict=True))


def of_training(config, agents, group: int) -> tuple[Call, ...]:
    """Calls of the sampler in an iteration with ``group`` samples in the first turn; see `of_turns`."""
    later, candidates = config.train.later_samples, workload.candidates(config)
    calls = of_turns(config, agents, workload.nodes(config), group, later, candidates)
    number = experience.most_shortcuts(config) * config.train.prompts * group
    if number and (instructor := _among(config.team.agents[:1], agents)):
        calls += (Call(instructor, number, 1),)
    return calls


def _steps(config) -> Callable[[Sequence[str]], list[tuple[str, ...]]] | None:
    """Who answers at the same time, of protocols with an order; of a gate as if it refused nothing."""
    if gate.of(config):
        return one_by_one if config.gate.mode == "sequential" else None
    return STEPS.get(config.train.protocol)


def _among(step: Sequence[str], agents: Sequence[str]) -> tuple[str, ...]:
    """The agents of a step that are of one stack."""
    return tuple(agent for agent in step if agent in agents)


def of_update(config, agents) -> tuple[Call, ...]:
    """Batches of one update: the calls of an iteration; agents with equal numbers of answers share one."""
    learners_by_size: dict[tuple[int, int, int], tuple[str, ...]] = {}
    c = config.train
    calls = of_training(config, agents, c.group)
    for turn, call in enumerate(calls):
        learners = tuple(agent for agent in call.agents if agent_settings.trainable(config, agent))
        if not learners:
            continue
        # The agents of a pipeline answer one after the other in the same turn.
        number = turn * c.turns // len(calls) if _steps(config) is not None else turn
        key = (number, call.prompts, call.samples)
        learners_by_size[key] = learners_by_size.get(key, ()) + learners
    parts = config.train.minibatches
    return tuple(
        Call(names, prompts // parts, samples) for (_, prompts, samples), names in learners_by_size.items()
    )
