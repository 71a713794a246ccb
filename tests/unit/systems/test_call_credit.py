"""Calls learn by the answer that they lead to: the expected gradient is that of the return, by enumeration."""

import collections
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from all_rollouts import every, expected_gradient, logits_of, true_gradient
from toolboxes import BOX, call

from jaxmarl_llm.forest import CALL
from jaxmarl_llm.protocols import Discussion, Pipeline, Simultaneous
from jaxmarl_llm.protocols.planner import Planner
from jaxmarl_llm.protocols.with_tools import WithTools
from jaxmarl_llm.systems import actor_critic, at_grpo, magrpo, maporl
from jaxmarl_llm.systems.magrpo import CreditConfig

TOOLS = ("1", call("add", a=0))


def prompts(*agents):
    return lambda item: {agent: [{"role": "user", "content": f"{agent}: {item}"}] for agent in agents}


def tooled(inner, agents, samples=2):
    return WithTools(inner(prompts(*agents), samples), BOX, 1, agents), lambda agent, word: TOOLS[word]


def planned():
    routes = ("Next: conclusion", "Next: caller")
    text = lambda agent, word: routes[word] if agent == "planner" else f"{agent} {word}"  # noqa: E731
    return Planner(prompts("planner", "caller", "summarizer"), BOX, 2, 1), text


def reward(item, words):
    """Another one for every way to come to an answer."""
    return 3.0 * item + sum((1.5 + k) * word for k, word in enumerate(words)) - 0.7 * len(words)


CASES = {
    "one agent": (*tooled(Simultaneous, ("a",)), ("p", "q")),
    "two agents": (*tooled(Simultaneous, ("a", "b")), ("p",)),
    "pipeline": (*tooled(Pipeline, ("a", "b")), ("p",)),
    "planner": (*planned(), ("p",)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("baseline", ["leave_one_out", "none"])
def test_the_expected_gradient_is_that_of_the_return(name, baseline):
    protocol, text, items = CASES[name]
    rollouts = list(every(protocol, reward, items, text))
    assert len({len(rollout.forest.turns) for rollout in rollouts}) > 2
    logits = logits_of(rollouts)
    assert sum(rollout.probability(logits) for rollout in rollouts) == pytest.approx(1)
    config = CreditConfig(baseline)
    actual = expected_gradient(rollouts, logits, lambda forest: magrpo.advantages(forest, config))
    value = lambda rollout: magrpo.joint_returns(rollout.forest, config).astype(float).mean()  # noqa: E731
    true = {context: true_gradient(rollouts, logits, value, context) for context in logits}
    assert actual == pytest.approx(true, abs=1e-5)
    assert max(map(abs, true.values())) > 0.05


def rollout_of(protocol, text, words, items=("p",)):
    return next(r for r in every(protocol, reward, items, text) if tuple(r.words) == words).forest


@pytest.mark.parametrize("assign", [magrpo.assign, at_grpo.assign])
def test_the_only_call_is_compared_with_those_who_did_not_call(assign):
    protocol, text = tooled(Simultaneous, ("a",), samples=3)
    forest = rollout_of(protocol, text, (0, 1, 0, 1))  # sample 1 calls, then answers
    credit = assign(forest, CreditConfig())
    assert [turn.kind for turn in forest.turns].index(CALL) == 1 and forest.turns[3].parent == 1
    # One call of one: it is a third of the conversations; its answer has the same advantage, as one of three.
    ends = credit.advantages[[0, 2, 3]]
    assert ends.sum() == pytest.approx(0, abs=1e-5) and ends[2] > 0.5
    weight = 1 / 3 if assign is magrpo.assign else 1  # AT-GRPO takes means of turns
    assert credit.advantages[1] == pytest.approx(weight * ends[2])
    assert credit.groups.tolist() == [credit.groups[0], -1, credit.groups[0], credit.groups[0]]


def test_without_calls_nothing_changes():
    """By hand: returns 0, 1.5, 0 less .7 each, so that the advantages are -.5, 1, -.5."""
    protocol, text = tooled(Simultaneous, ("a",), samples=3)
    plain = Simultaneous(prompts("a"), 3)
    with_tools = rollout_of(protocol, text, (0, 0, 0))
    forest = rollout_of(plain, text, (0, 1, 0))
    assert magrpo.advantages(forest) == pytest.approx(np.array([-0.5, 1.0, -0.5]), abs=1e-6)
    assert not magrpo.advantages(with_tools).any()


def test_calls_of_the_first_and_the_second_round_stay_apart():
    """A first answer of a discussion is a remark: a call before it competes with remarks, one after it with answers."""
    protocol, text = tooled(Discussion, ("a", "b"))
    forest = rollout_of(protocol, text, (0, 1, 0, 0, 0, 1, 0, 0, 0, 0))
    keys = magrpo.groups(forest)
    first_R, _ = forest.call_chains()
    places = {(forest.turns[i].agent, forest.turns[i].request_stage) for i in range(len(first_R))}
    assert len(places) == 4  # two agents, two rounds
    members = [np.flatnonzero(keys == key).tolist() for key in sorted(set(keys.tolist()) - {-1})]
    assert sorted(map(len, members)) == [2, 2, 2, 2]
    for own in members:
        assert len({(forest.turns[i].agent, forest.turns[i].kind) for i in own}) == 1


def test_a_call_in_a_chain_of_its_own_leaves_the_others_to_compete_with():
    """In the second turn each of three conversations follows an answer of its own, and one of them calls."""
    feedback = lambda answers: [{"a": "again"} for _ in answers]  # noqa: E731
    inner = Simultaneous(prompts("a"), 3, 2, feedback, later_samples=1)
    protocol = WithTools(inner, BOX, 1, ("a",))
    forest = rollout_of(protocol, lambda agent, word: TOOLS[word], (0, 0, 0, 1, 0, 0, 1))
    second = [turn.id for turn in forest.turns if turn.turn == 1]
    assert [forest.turns[i].kind == CALL for i in second] == [True, False, False, False]
    assert len({forest.turns[i].follows for i in second}) == 3
    credit = magrpo.assign(forest, CreditConfig(turns=2))
    assert credit.groups[second].tolist() == [-1, *[credit.groups[second[1]]] * 3]
    assert credit.advantages[second[-1]] > 0.1 and credit.advantages[second[0]] > 0.01


@pytest.mark.parametrize("name", ["one agent", "two agents"])
def test_exact_critics_of_answers_teach_whether_to_call(name):
    """A group's mean holds the own value too: of two samples half of the true gradient, everywhere."""
    protocol, text, items = CASES[name]
    rollouts, config = list(every(protocol, reward, items, text)), CreditConfig()
    logits = logits_of(rollouts)
    mass, earned = collections.Counter(), collections.Counter()
    spoken_in = {id(rollout.forest): [*zip(rollout.contexts, rollout.words, strict=True)] for rollout in rollouts}
    for rollout in rollouts:
        chance, returns_R = rollout.probability(logits), magrpo.returns(rollout.forest, config).tolist()
        for key, value in zip(spoken_in[id(rollout.forest)], returns_R, strict=True):
            mass[key] += chance
            earned[key] += chance * value

    def advantages(forest):
        values = {i: earned[key] / mass[key] for i, key in enumerate(spoken_in[id(forest)])}
        return actor_critic.independent_q(forest, values)[0] * magrpo.return_weights(forest, config)

    actual = expected_gradient(rollouts, logits, advantages)
    value = lambda rollout: rollout.forest.totals().astype(float).mean()  # noqa: E731
    true = {context: true_gradient(rollouts, logits, value, context) / 2 for context in logits}
    assert actual == pytest.approx(true, abs=1e-5)


def test_a_call_has_the_influence_of_the_answer_that_it_led_to():
    """As value models of tokens read returns, a call without one would not be learned."""
    feedback = lambda answers: [{"a": "again"} for _ in answers]  # noqa: E731
    protocol = WithTools(Simultaneous(prompts("a"), 2, 2, feedback, later_samples=1), BOX, 1, ("a",))
    forest = rollout_of(protocol, lambda agent, word: TOOLS[word], (0, 1, 0, 1, 0, 1))
    local = [SimpleNamespace(total=1.0, local={"a": 1.0 + j}) for j in range(len(forest.joints))]
    joints = tuple(dataclasses.replace(joint, judgement=own) for joint, own in zip(forest.joints, local, strict=True))
    forest = dataclasses.replace(forest, joints=joints)
    returns_R = maporl.returns(forest, maporl.Influence())
    calls = [turn.id for turn in forest.turns if turn.kind == CALL]
    assert len(calls) == 2 and np.isfinite(returns_R).all()
    assert returns_R[calls].tolist() == returns_R[forest.call_chains()[1][calls]].tolist()
