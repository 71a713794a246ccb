"""Every rollout of a protocol in which an agent says one of two words, with its probability."""

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import numpy as np

from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.protocols import Episode

WORDS = ("no", "yes")


@dataclasses.dataclass
class Rollout:
    """A forest, the context (agent and text) of each turn, its words, and the chance of its choices."""

    forest: Forest
    contexts: list[tuple[str, str]]
    words: Sequence[int]
    chance: float = 1.0

    def probability(self, logits) -> float:
        chances = [1 / (1 + math.exp(-logits[context])) for context in self.contexts]
        chances = [p if word else 1 - p for p, word in zip(chances, self.words, strict=True)]
        return self.chance * math.prod(chances)


class MoreWords(Exception):
    """A rollout has more completions than words were given."""


def text_of(agent: str, word: int) -> str:
    """What a word is as a text, whoever says it."""
    return WORDS[word]


def spoken(protocol, words, reward: Callable, items=("item",), random=None, chance=1.0, text=text_of) -> Rollout:
    """The rollout in which completion k is words[k]; MoreWords if it has more completions.

    ``reward(item, words)`` is of an item's place and the words of a joint answer and of what led to it;
    ``text(agent, word)`` what is written for a word.
    """
    state, contexts, step, nodes = Episode(items, random), [], 0, 0
    while requests := protocol.step(state):
        first = len(state.turns)
        for number, request in enumerate(requests, len(state.requests)):
            chat = "|".join(message["content"] for message in request.messages)
            prompt = np.frombuffer(chat.encode(), np.uint8).astype(np.int32)
            for g in range(request.samples):
                if len(state.turns) == len(words):
                    raise MoreWords
                word = words[len(state.turns)]
                place = len(state.turns), number, request.agent, request.item, request.turn, g, prompt
                written = text(request.agent, word)
                reply = np.array([word]), np.zeros(1), written, True
                state.turns.append(Turn(*place, *reply, request.parent, request.follows, step=step,
                                        kind=request.kind_of(written), request_kind=request.kind))
                contexts.append((request.agent, chat))
        state.requests += requests
        for node in protocol.observe(state, state.turns[first:]):
            for g, ids in enumerate(zip(*node.turns.values(), strict=True)):
                heard = tuple(before[g] for before in node.heard if before[g] >= 0)
                total = SimpleNamespace(total=reward(node.item, [words[i] for i in (*heard, *ids)]), local={})
                state.joints.append(Joint(node.item, ids, total, nodes, node.turn, node.follows, heard))
            nodes += 1
        step += 1
    assert len(state.turns) == len(words)
    return Rollout(Forest(tuple(items), tuple(state.turns), tuple(state.joints)), contexts, words, chance)


def every(protocol, reward: Callable, items, text=text_of) -> Iterator[Rollout]:
    """All rollouts of a protocol in which what is said decides how many completions there are."""
    begun: list[tuple[int, ...]] = [()]
    while begun:
        words = begun.pop()
        try:
            yield spoken(protocol, words, reward, items, text=text)
        except MoreWords:
            begun += [(*words, 0), (*words, 1)]


def logits_of(rollouts) -> dict:
    """Any policy: a logit for each context that can come about."""
    contexts = sorted({context for rollout in rollouts for context in rollout.contexts})
    return {context: zlib.crc32(repr(context).encode()) % 100 / 50 - 1 for context in contexts}


def expectation(rollouts, logits, value: Callable[[Rollout], float]) -> float:
    """Mean of a number over all rollouts."""
    return sum(rollout.probability(logits) * value(rollout) for rollout in rollouts)


def true_gradient(rollouts, logits, value, context, step=1e-5) -> float:
    """Derivative of `expectation` by the logit of a context, by finite differences."""
    up, down = (expectation(rollouts, logits | {context: logits[context] + s}, value) for s in (step, -step))
    return (up - down) / (2 * step)


def expected_gradient(rollouts, logits, advantages: Callable) -> dict:
    """Of sum_turns A grad log pi by context, each agent's turns at a place of the conversation averaged."""
    actual = dict.fromkeys(logits, 0.0)
    for rollout in rollouts:
        chance, advantages_R = rollout.probability(logits), advantages(rollout.forest)
        places = [(turn.agent, turn.stage) for turn in rollout.forest.turns]
        for turn, context, word in zip(rollout.forest.turns, rollout.contexts, rollout.words, strict=True):
            score = word - 1 / (1 + math.exp(-logits[context]))
            own = float(advantages_R[turn.id]) / places.count((turn.agent, turn.stage))
            actual[context] += chance * own * score
    return actual
