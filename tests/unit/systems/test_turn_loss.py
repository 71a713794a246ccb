"""The expected gradient of several turns is that of the expected return, by enumeration of all rollouts.

Of two problems one earns so much that it ends after the first turn, the other always goes on. One agent draws
two answers at every node. In a chain the answers of a node share what follows, which a baseline takes out:
there only the last turn has the gradient of the return.
"""

import itertools
from types import SimpleNamespace

import pytest
from all_rollouts import expected_gradient, logits_of, spoken, true_gradient

from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig

LAST = (0.5, 2.0)  # rewards of the problem that goes on
ITEMS = ("ends", "goes on")


def prompts(item):
    return {"a": [{"role": "user", "content": item}]}


def feedback(answers):
    return [{"a": f"earned {answer.judgement.total}"} for answer in answers]


def reward(item, words):
    return 9.0 if ITEMS[item] == "ends" else LAST[words[-1]]


def rollouts_of(hand_on):
    protocol = Simultaneous(prompts, 2, 2, feedback, hand_on, stop_above=5.0)
    number = 8 if hand_on == "all" else 6
    choices = (0, 1) if hand_on == "random" else (None,)
    return [
        spoken(protocol, words, reward, ITEMS, SimpleNamespace(integers=lambda n, k=k: k), 1 / len(choices))
        for words in itertools.product((0, 1), repeat=number)
        for k in choices
    ]


def gradients(hand_on, discount, baseline, **options):
    """By context: expected gradient of the lessons, true gradient of the return."""
    config = CreditConfig(baseline, discount=discount, chain=hand_on != "all", turns=2, **options)
    rollouts = rollouts_of(hand_on)
    logits = logits_of(rollouts)

    def value(rollout):
        returns = magrpo.joint_returns(rollout.forest, config).astype(float)
        first = [j for j, joint in enumerate(rollout.forest.joints) if joint.follows is None]
        return returns[first].mean()

    actual = expected_gradient(rollouts, logits, lambda forest: magrpo.advantages(forest, config))
    return {c: (actual[c], true_gradient(rollouts, logits, value, c)) for c in logits}


@pytest.mark.slow
@pytest.mark.parametrize("hand_on", ["all", "best", "random"])
@pytest.mark.parametrize("discount, baseline", [(1.0, "leave_one_out"), (0.7, "none")])
def test_the_expected_gradient_is_that_of_the_return(hand_on, discount, baseline):
    actual = gradients(hand_on, discount, baseline)
    last = [context for context in actual if "earned" in context[1]]
    assert len(last) == 2  # after either answer
    for context, (ours, true) in actual.items():
        if hand_on == "all" or context in last:
            assert ours == pytest.approx(true, abs=1e-5), context
    assert all(abs(actual[context][1]) > 0.01 for context in last)


def test_means_of_turns_weigh_those_that_go_on_as_all():
    """One problem of two goes on, so that the mean of its nodes is twice its share."""
    for context, (ours, true) in gradients("all", 1.0, "leave_one_out", turn_loss="mean").items():
        factor = 2 if "earned" in context[1] else 1
        assert ours == pytest.approx(factor * true, abs=1e-5), context
