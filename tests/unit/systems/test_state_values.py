"""With an exact critic the actor-critics' expected gradient is the true one, whoever hears whom.

Two agents say one of two words. Every rollout of a protocol is enumerated with its probability; the critic is
a table with the exact expected reward after everything that it reads; the expected gradient of the lessons'
advantages is compared with finite differences of the expected reward.
"""

import collections
import itertools

import all_rollouts
import numpy as np
import pytest
from all_rollouts import expected_gradient, logits_of, spoken, true_gradient
from toolboxes import BOX, call

from jaxmarl_llm.protocols import Discussion, Pipeline, Simultaneous, Tree
from jaxmarl_llm.protocols.with_tools import WithTools
from jaxmarl_llm.systems import actor_critic
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.td_targets import ReturnOptions

AGENTS, CALL = ("a", "b"), call("add", a=0)
REWARDS = (0.0, 1.0, 3.0, 2.5, 0.5, 4.0, 1.5, 2.0, 6.0, 0.3, 1.1, 2.2, 5.0, 0.1, 0.7, 2.9)


def prompts(item):
    return {agent: [{"role": "user", "content": f"{agent} {item}"}] for agent in AGENTS}


def again(answers):
    """What both agents are told between two turns; a word of their own stays in what they read."""
    return [dict.fromkeys(AGENTS, "again") for _ in answers]


# With the number of completions of a rollout.
PROTOCOLS = {
    "simultaneous": (Simultaneous(prompts, 1), 2),
    "pipeline": (Pipeline(prompts, 1), 2),
    "pipeline of two": (Pipeline(prompts, 2), 4),
    "discussion": (Discussion(prompts, 1), 4),
    "tree": (Tree(prompts, (2, 2)), 6),
    "simultaneous, two turns": (Simultaneous(prompts, 1, 2, again), 4),
    "pipeline, two turns": (Pipeline(prompts, 1, 2, again), 4),
    "discussion, two turns": (Discussion(prompts, 1, 2, again), 8),
}


def reward(item, words):
    """Any function of the words and their places."""
    return REWARDS[sum(word * 2**n for n, word in enumerate(words))]


def every(name):
    protocol, number = PROTOCOLS[name]
    return [spoken(protocol, words, reward) for words in itertools.product((0, 1), repeat=number)]


def earned(forest):
    """The sum over the turns of the mean reward."""
    turn_J = np.array([joint.turn for joint in forest.joints])
    return sum(float(forest.totals()[turn_J == turn].mean()) for turn in set(turn_J.tolist()))


class Exact:
    """The expected reward from here on after each text that it reads, of all rollouts."""

    def __init__(self, recipe, rollouts, logits, later):
        values = {}
        for _ in range(later.turns):  # of the last turn they are right at once, then of the one before
            self._table = self._taught(recipe, rollouts, logits, later, values)
            values = self._table

    def _taught(self, recipe, rollouts, logits, later, before):
        mass, earned = collections.Counter(), collections.Counter()
        for rollout in rollouts:
            read, chance = recipe.read(rollout.forest), rollout.probability(logits)
            pairs = [(k, (c, tuple(ids))) for c, texts in read.items() for k, ids in texts.items()]
            values = {k: before.get(text, 0.0) for k, text in pairs}
            _, targets = recipe.credit(rollout.forest, values, later)
            for critic, texts in read.items():
                for number, ids in texts.items():
                    mass[critic, tuple(ids)] += chance
                    earned[critic, tuple(ids)] += chance * targets[number]
        return {key: earned[key] / mass[key] for key in mass}

    def values(self, read):
        return {k: self._table[c, tuple(ids)] for c, texts in read.items() for k, ids in texts.items()}


@pytest.mark.slow
@pytest.mark.parametrize("system", ["maac", "iac"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_expected_gradient_is_the_true_one(name, system):
    rollouts, recipe = every(name), actor_critic.RECIPES[system, "v"]
    logits, turns = logits_of(rollouts), getattr(PROTOCOLS[name][0], "turns", 1)
    exact = Exact(recipe, rollouts, logits, ReturnOptions(turns=turns))
    learner = actor_critic.ActorCritic(recipe, exact, CreditConfig(turns=turns))
    actual = expected_gradient(rollouts, logits, lambda forest: learner.assign(forest).advantages)
    for context in logits:
        true = true_gradient(rollouts, logits, lambda r: earned(r.forest), context)
        assert actual[context] == pytest.approx(true, abs=2e-6), context
    assert max(abs(value) for value in actual.values()) > 0.01


@pytest.mark.parametrize("system", ["maac", "iac"])
@pytest.mark.parametrize("agents", [("a",), AGENTS])
def test_the_value_after_an_answer_is_that_before_any_call(system, agents):
    """Whoever calls a tool in the second turn reads another prompt, whose value already says that it called."""

    def asked(item):
        return {agent: prompts(item)[agent] for agent in agents}

    def told(answers):
        return [dict.fromkeys(agents, "again") for _ in answers]

    protocol = WithTools(Simultaneous(asked, 1, 2, told), BOX, 1, agents)
    rollouts = [*all_rollouts.every(protocol, of_any_length, ("item",), lambda agent, word: ("1", CALL)[word])]
    logits, recipe = logits_of(rollouts), actor_critic.RECIPES[system, "v"]
    exact = Exact(recipe, rollouts, logits, ReturnOptions(turns=2))
    learner = actor_critic.ActorCritic(recipe, exact, CreditConfig(turns=2))
    actual = expected_gradient(rollouts, logits, lambda forest: learner.assign(forest).advantages)
    true = {context: true_gradient(rollouts, logits, lambda r: earned(r.forest), context) for context in logits}
    assert actual == pytest.approx(true, abs=2e-6)
    assert max(map(abs, true.values())) > 0.05


def of_any_length(item, words):
    """Another reward for every way to come to an answer."""
    return sum((1.5 + k) * word for k, word in enumerate(words)) - 0.7 * len(words)


def test_what_the_critic_of_all_reads_before_each_answer():
    def read(name):
        protocol, number = PROTOCOLS[name]
        forest = spoken(protocol, (0, 1, 0, 1, 0, 1)[:number], reward).forest
        texts = actor_critic.joint_requests(forest)
        return [bytes(ids.astype(np.uint8)).decode() for ids in texts["team"].values()]

    assert read("simultaneous") == ["a itemb item"]
    first, then = read("pipeline")
    assert first == "a item" and then == "a itema wrote:\nno\n\nb item"
    assert read("tree") == [first, then, then.replace("no", "yes")]
    both, again = read("discussion")
    assert both == "a itemb item" and again.startswith(both) and "yes" in again
