"""With an exact critic the actor-critics' expected gradient is the true one, whoever hears whom.

Two agents say one of two words. Every rollout of a protocol is enumerated with its probability; the critic is
a table with the exact expected reward after everything that it reads; the expected gradient of the lessons'
advantages is compared with finite differences of the expected reward.
"""

import collections
import dataclasses
import itertools
import math
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.protocols import Discussion, Episode, Pipeline, Simultaneous, Tree
from jaxmarl_llm.systems import actor_critic
from jaxmarl_llm.systems.magrpo import CreditConfig

AGENTS, WORDS = ("a", "b"), ("no", "yes")
REWARDS = (0.0, 1.0, 3.0, 2.5, 0.5, 4.0, 1.5, 2.0, 6.0, 0.3, 1.1, 2.2, 5.0, 0.1, 0.7, 2.9)


def prompts(item):
    return {agent: [{"role": "user", "content": f"{agent} {item}"}] for agent in AGENTS}


# With the number of completions of a rollout.
PROTOCOLS = {
    "simultaneous": (Simultaneous(prompts, 1), 2),
    "pipeline": (Pipeline(prompts, 1), 2),
    "pipeline of two": (Pipeline(prompts, 2), 4),
    "discussion": (Discussion(prompts, 1), 4),
    "tree": (Tree(prompts, (2, 2)), 6),
}


@dataclasses.dataclass
class Rollout:
    """A forest, the context (agent and text) of each of its turns, and its words."""

    forest: Forest
    contexts: list[tuple[str, str]]
    words: tuple[int, ...]

    def probability(self, logits) -> float:
        chances = [1 / (1 + math.exp(-logits[context])) for context in self.contexts]
        return math.prod(p if word else 1 - p for p, word in zip(chances, self.words, strict=True))


def spoken(protocol, words) -> Rollout:
    """The rollout in which completion k is words[k]; the reward is any function of the words and places."""
    state, contexts, step, nodes = Episode(("item",)), [], 0, 0
    while requests := protocol.step(state):
        first = len(state.turns)
        for number, request in enumerate(requests, len(state.requests)):
            text = "|".join(message["content"] for message in request.messages)
            prompt = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
            for g in range(request.samples):
                word = words[len(state.turns)]
                said = np.array([word]), np.zeros(1), WORDS[word], True
                place = request.agent, request.item, request.turn, g, prompt
                state.turns.append(
                    Turn(len(state.turns), number, *place, *said, parent=request.parent, step=step)
                )
                contexts.append((request.agent, text))
        state.requests += requests
        for node in protocol.observe(state, state.turns[first:]):
            for g, ids in enumerate(zip(*node.turns.values(), strict=True)):
                heard = tuple(before[g] for before in node.heard)
                place = sum(words[i] * 2**n for n, i in enumerate((*heard, *ids)))
                total = SimpleNamespace(total=REWARDS[place])
                state.joints.append(Joint(0, ids, total, nodes, node.turn, heard=heard))
            nodes += 1
        step += 1
    assert len(state.turns) == len(words)
    return Rollout(Forest(("item",), tuple(state.turns), tuple(state.joints)), contexts, words)


def logits_of(rollouts) -> dict:
    """Any policy: a logit for each context that can come about."""
    contexts = sorted({context for rollout in rollouts for context in rollout.contexts})
    return {context: zlib.crc32(repr(context).encode()) % 100 / 50 - 1 for context in contexts}


def expected_reward(rollouts, logits) -> float:
    return sum(r.probability(logits) * r.forest.totals().astype(float).mean() for r in rollouts)


class Exact:
    """The expected reward after each text that it reads, of all rollouts."""

    def __init__(self, recipe, rollouts, logits):
        mass, earned = collections.Counter(), collections.Counter()
        for rollout in rollouts:
            read, chance = recipe.read(rollout.forest), rollout.probability(logits)
            numbers = [k for texts in read.values() for k in texts]
            _, targets = recipe.credit(rollout.forest, dict.fromkeys(numbers, 0.0), actor_critic.ONE_TURN)
            for critic, texts in read.items():
                for number, ids in texts.items():
                    mass[critic, tuple(ids)] += chance
                    earned[critic, tuple(ids)] += chance * targets[number]
        self._table = {key: earned[key] / mass[key] for key in mass}

    def values(self, read):
        return {k: self._table[c, tuple(ids)] for c, texts in read.items() for k, ids in texts.items()}


def expected_gradient(rollouts, logits, lesson) -> dict:
    """Of sum_turns A grad log pi, each agent's turns at a place of the conversation averaged."""
    found = collections.Counter()
    for rollout in rollouts:
        chance, advantages = rollout.probability(logits), lesson(rollout.forest).advantages
        places = collections.Counter((turn.agent, turn.turn) for turn in rollout.forest.turns)
        for turn, context, word in zip(rollout.forest.turns, rollout.contexts, rollout.words, strict=True):
            score = word - 1 / (1 + math.exp(-logits[context]))
            found[context] += chance * float(advantages[turn.id]) * score / places[turn.agent, turn.turn]
    return found


@pytest.mark.parametrize("system", ["maac", "iac"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_expected_gradient_is_the_true_one(name, system):
    protocol, number = PROTOCOLS[name]
    rollouts = [spoken(protocol, words) for words in itertools.product((0, 1), repeat=number)]
    logits, recipe = logits_of(rollouts), actor_critic.RECIPES[system, "v"]
    critic = Exact(recipe, rollouts, logits)
    learner = actor_critic.ActorCritic(recipe, critic, CreditConfig())
    found = expected_gradient(rollouts, logits, learner.lesson)
    step = 1e-5
    for context in logits:
        up, down = (
            expected_reward(rollouts, logits | {context: logits[context] + s}) for s in (step, -step)
        )
        true = (up - down) / (2 * step)
        assert found[context] == pytest.approx(true, abs=2e-6), context
    assert max(abs(value) for value in found.values()) > 0.01


def test_what_the_critic_of_all_reads_before_each_answer():
    def read(name):
        protocol, number = PROTOCOLS[name]
        texts = actor_critic.joint_requests(spoken(protocol, (0, 1, 0, 1, 0, 1)[:number]).forest)
        return [bytes(ids.astype(np.uint8)).decode() for ids in texts["team"].values()]

    assert read("simultaneous") == ["a itemb item"]
    first, then = read("pipeline")
    assert first == "a item" and then == "a itema wrote:\nno\n\nb item"
    assert read("tree") == [first, then, then.replace("no", "yes")]
    both, again = read("discussion")
    assert both == "a itemb item" and again.startswith(both) and "yes" in again
