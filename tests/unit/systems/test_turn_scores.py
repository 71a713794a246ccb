"""turn_scores.py against one completion at a time, read from its beginning without a cache."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny

from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems.preferences import turn_scores
from jaxmarl_llm.team import Member, Team

SAMPLING = SamplingParams(max_new_tokens=4, temperature=0.7)
# By agent and item: a prompt (the second agent's begin alike, and long enough to be shared), two completions.
COMPLETIONS = {
    ("a", 0): ([7, 8, 9], ([10, 11, 12, 13], [14])),
    ("b", 0): ([*range(20, 38), 4], ([15, 16], [17, 18, 19])),
    ("a", 1): ([30], ([31, 32], [33, 34, 35])),
    ("b", 1): ([*range(20, 38), 9, 6], ([21], [22, 23])),
}


def made_forest(items=2):
    turns = []
    for (agent, item), (prompt, completions) in COMPLETIONS.items():
        for g, completion in enumerate(completions if item < items else ()):
            nothing = np.zeros(len(completion), np.float32)
            content = (np.array(prompt), np.array(completion), nothing, "", True)
            turns.append(Turn(len(turns), len(turns) // 2, agent, item, 0, g, *content))
    return Forest(("x", "y", "z"), tuple(turns), ())  # one item more than there are answers to: fills up


def member(mode="adapters", base=True):
    trainable = tiny.lora()
    if mode == "full":
        trainable = jax.tree.map(lambda x: np.stack([x, 2 * x]), tiny.params())
    return Member(tiny.stack(mode=mode), tiny.params() if base else None, trainable, tiny.Tokenizer(), "tiny")


def oracle(turn, variables, sampling):
    scores = tiny.np_log_probs(tiny.completion_logits(variables, turn.prompt, turn.completion), sampling)
    return scores[np.arange(len(turn.completion)), turn.completion]


@pytest.mark.slow
@pytest.mark.parametrize("reference", [False, True])
def test_each_completion_has_the_log_probabilities_of_its_tokens(reference):
    one = member()
    actual = turn_scores.of_forest(made_forest(), Team((one,)), [one.trainable], SAMPLING, reference=reference)
    for turn in made_forest().turns:
        own = tiny.params() if reference else tiny.own(one.trainable, tiny.AGENTS.index(turn.agent))
        np.testing.assert_allclose(actual[turn.id], oracle(turn, own, SAMPLING), rtol=2e-4, atol=2e-4)


def test_turns_of_a_conversation_have_their_own():
    """The second turn of item 0 alone, and its turns come before those of the first in the forest."""
    first, one = made_forest(), member()
    later = [turn for turn in first.turns if turn.item == 0]
    changed = [(turn, {"turn": 1, "prompt": np.array([3, 5, 8])}) for turn in later]
    turns = [(turn, {}) for turn in first.turns]
    turns = [dataclasses.replace(turn, id=i, request=i // 2, **new) for i, (turn, new) in enumerate(changed + turns)]
    forest = Forest(first.items, tuple(turns), ())
    actual = turn_scores.of_forest(forest, Team((one,)), [one.trainable], SAMPLING)
    for turn in forest.turns:
        own = tiny.own(one.trainable, tiny.AGENTS.index(turn.agent))
        np.testing.assert_allclose(actual[turn.id], oracle(turn, own, SAMPLING), rtol=2e-4, atol=2e-4)


@pytest.mark.slow
def test_copies_of_the_model_and_several_stacks():
    whole = member("full")
    alone = dataclasses.replace(member(), stack=tiny.stack(agents=("a",)), trainable=tiny.lora(agents=1))
    other = dataclasses.replace(whole, stack=tiny.stack(agents=("b",), mode="full"))
    other.trainable = jax.tree.map(lambda x: x[1:], whole.trainable)
    plain = SamplingParams(4)
    actual = turn_scores.of_forest(made_forest(1), Team((alone, other)), [alone.trainable, other.trainable], plain)
    for turn in made_forest(1).turns:
        doubled = jax.tree.map(lambda x: 2 * x, tiny.params())
        own = tiny.own(alone.trainable, 0) if turn.agent == "a" else doubled
        np.testing.assert_allclose(actual[turn.id], oracle(turn, own, plain), rtol=2e-4, atol=2e-4)


def test_a_reference_that_was_not_kept_is_named():
    one = member("full", base=False)
    with pytest.raises(ValueError, match=r"agents \('a', 'b'\) have no reference"):
        turn_scores.of_forest(made_forest(), Team((one,)), [one.trainable], SAMPLING, reference=True)
