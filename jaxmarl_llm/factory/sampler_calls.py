"""The sampler calls of a config, in training and evaluation, and the batches of its updates."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxmarl_llm.config import agent_settings, experience, gate, imitation, programs, systems, workload
from jaxmarl_llm.factory.protocols import STEPS
from jaxmarl_llm.protocols.pipeline import one_by_one
from jaxmarl_llm.protocols.relay import turns_of


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of the sampler: some agents answer ``prompts`` prompts each, ``samples`` times."""

    agents: tuple[str, ...]
    prompts: int
    samples: int


class _Plan(NamedTuple):
    """The numbers that determine a protocol's calls; ``nodes`` and ``samples`` per turn, see `of_turns`."""

    config: Any
    agents: Sequence[str]
    nodes: Sequence[int]
    samples: Sequence[int]
    candidates: int

    @property
    def each(self) -> list[tuple[str, ...]]:
        """Every agent of the team as a tuple of one; () for an agent of another stack."""
        return [_among((agent,), self.agents) for agent in self.config.team.agents]


def of_turns(
    config, agents, nodes: Sequence[int], group: int, later: int = 0, candidates: int = 1
) -> tuple[Call, ...]:
    """Sampler calls if each turn's ``nodes`` get ``group`` answers, in later turns ``later`` if it is not 0.

    For a protocol of the user's own, all agents are assumed to answer in every turn.

    ``candidates``: texts sampled from a dialogue's agent per text that goes on.
    """
    samples = [group] + [later or group] * (len(nodes) - 1)
    return _calls(config.train.protocol, _Plan(config, agents, nodes, samples, candidates))


def of_evaluation(config, agents, items: int, answers: int) -> tuple[Call, ...]:
    """Sampler calls in an evaluation batch: ``answers`` chains for each of ``items`` problems.

    A tree is evaluated as a pipeline, see `protocols.build`.
    """
    rest, name = config.train.turns - 1, config.train.protocol
    plan = _Plan(config, agents, [items] + [items * answers] * rest, [answers] + [1] * rest, 1)
    return _calls("pipeline" if name == "tree" else name, plan)


def _calls(name: str, plan: _Plan) -> tuple[Call, ...]:
    """The calls of a protocol, without those that concern no agent of the stack."""
    if name in _OF_PROTOCOL:
        calls = _OF_PROTOCOL[name](plan)
    elif name in programs.METHODS:
        calls = _programs(plan)
    elif (steps := _steps(plan.config, name)) is not None:
        calls = _in_steps(plan, steps)
    else:
        calls = [Call(tuple(plan.agents), n, g) for n, g in zip(plan.nodes, plan.samples, strict=True)]
    return tuple(call for call in calls if call.agents)


def _tree(plan: _Plan) -> list[Call]:
    prompts, group = plan.config.train.prompts, plan.samples[0]
    return [Call(own, prompts * group**n, group) for n, own in enumerate(plan.each)]


def _experience(plan: _Plan) -> list[Call]:
    """Instructor and assistant alternate, instructor first; no instruction follows the last version."""
    (instructor, assistant), n, group = plan.each, plan.nodes[0], plan.samples[0]
    later = [Call(assistant, n * group, 1), Call(instructor, n * group, 1)] * plan.config.train.turns
    return [Call(instructor, n, group), *later[:-1]]


def _programs(plan: _Plan) -> list[Call]:
    """After the first program or plan, one sample per call."""
    rest = plan.config.train.turns + workload.remarks_of_chain(plan.config) - 1
    n, group = plan.nodes[0], plan.samples[0]
    return [Call(tuple(plan.agents), n, group), *[Call(tuple(plan.agents), n * group, 1)] * rest]


def _planner(plan: _Plan) -> list[Call]:
    planner, caller, summarizer = plan.each
    steps = [planner, *(caller, planner) * plan.config.tools.calls, summarizer]
    return [Call(step, plan.nodes[0] * plan.samples[0], 1) for step in steps]


def _dialogue(plan: _Plan) -> list[Call]:
    actor, partner = plan.each
    calls = [Call(actor, plan.nodes[0], plan.samples[0] * plan.candidates)]
    for n in plan.nodes[1:]:
        calls += [Call(partner, n, 1), Call(actor, n, plan.candidates)]
    return calls


def _in_steps(plan: _Plan, steps: Callable[[Sequence[str]], list[tuple[str, ...]]]) -> list[Call]:
    """The calls of agents that answer one after the other in a turn."""
    first, *rest = [_among(step, plan.agents) for step in steps(plan.config.team.agents)]
    calls = []
    for n, g in zip(plan.nodes, plan.samples, strict=True):
        calls += [Call(first, n, g), *(Call(step, n * g, 1) for step in rest)]
    return calls


def _relay(plan: _Plan) -> list[Call]:
    turns = turns_of(plan.config.team.agents, plan.config.train.turns)
    groups = [_among(group, plan.agents) for group in turns]
    return [Call(group, n, g) for group, n, g in zip(groups, plan.nodes, plan.samples, strict=True)]


def _advice(plan: _Plan) -> list[Call]:
    (adviser, actor), group, calls = plan.each, plan.samples[0], list[Call]()
    for turn, n in enumerate(plan.nodes):
        if turn % plan.config.advice.every == 0:
            calls.append(Call(adviser, n, group if turn == 0 else 1))
        calls.append(Call(actor, n * group if turn == 0 else n, 1))
    return calls


def _discussion(plan: _Plan) -> list[Call]:
    agents, calls = tuple(plan.agents), list[Call]()
    for n, g in zip(plan.nodes, plan.samples, strict=True):
        calls += [Call(agents, n, g), Call(agents, n * g, 1)]
    return calls


_OF_PROTOCOL: dict[str, Callable[[_Plan], list[Call]]] = {
    "tree": _tree,
    experience.NAME: _experience,
    "planner": _planner,
    "dialogue": _dialogue,
    "relay": _relay,
    "advice": _advice,
    "discussion": _discussion,
}


def of_training(config, agents, group: int) -> tuple[Call, ...]:
    """Sampler calls in an iteration with ``group`` samples in the first turn; see `of_turns`.

    () if the system learns from demonstrations alone.
    """
    if imitation.draws_nothing(config):
        return ()
    later, candidates = config.train.later_samples, workload.candidates(config)
    calls = of_turns(config, agents, workload.nodes(config), group, later, candidates)
    number = experience.most_shortcuts(config) * config.train.prompts * group
    if number and (instructor := _among(config.team.agents[:1], agents)):
        calls += (Call(instructor, number, 1),)
    return calls


def _steps(config, name: str) -> Callable[[Sequence[str]], list[tuple[str, ...]]] | None:
    """The groups that answer at the same time in an ordered protocol; a gate is assumed to refuse nothing."""
    if gate.of(config):
        return one_by_one if config.gate.mode == "sequential" else None
    return STEPS.get(name)


def _among(step: Sequence[str], agents: Sequence[str]) -> tuple[str, ...]:
    """The agents of a step that belong to the stack ``agents``."""
    return tuple(agent for agent in step if agent in agents)


def of_update(config, agents) -> tuple[Call, ...]:
    """Batches of one update, as calls of an iteration; agents with equal numbers of answers share a batch.

    Each demonstration counts as its own prompt; the two answers of a preference pair share one prompt.
    """
    learners = tuple(agent for agent in agents if agent_settings.trainable(config, agent))
    if imitation.draws_nothing(config):
        return (Call(learners, workload.learned(config), 1),) if learners else ()
    if config.train.system in systems.DIRECT:
        return (Call(learners, config.preference.batch, 2),) if learners else ()
    learners_by_size: dict[tuple[int, int, int], tuple[str, ...]] = {}
    c = config.train
    calls = of_training(config, agents, c.group)
    for turn, call in enumerate(calls):
        learners = tuple(agent for agent in call.agents if agent_settings.trainable(config, agent))
        if not learners:
            continue
        # The agents of a pipeline answer one after the other in the same turn.
        number = turn * c.turns // len(calls) if _steps(config, c.protocol) is not None else turn
        key = (number, call.prompts, call.samples)
        learners_by_size[key] = learners_by_size.get(key, ()) + learners
    parts = config.train.minibatches
    return tuple(
        Call(names, prompts // parts, samples) for (_, prompts, samples), names in learners_by_size.items()
    )
