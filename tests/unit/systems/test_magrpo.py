"""Returns, advantages and batches of MAGRPO from scripted forests, by hand."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
from hand_made_forests import forest

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest, Joint
from jaxmarl_llm.sampling.padding import bucket
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.update import collate

ALIGNED = forest("aligned", [1.0, 4.0], [2.0, 2.0])
CROSS = forest("cross", [0.0, 1.0, 3.0, 4.0], [2.0, 0.0, 2.0, 0.0])


def test_aligned_returns_and_advantages_by_hand():
    # item 0: joint answers (a0, b0) = 1 and (a1, b1) = 4, mean 2.5; item 1: 2 and 2, no signal
    assert magrpo.returns(ALIGNED).tolist() == [1, 4, 1, 4, 2, 2, 2, 2]
    assert magrpo.groups(ALIGNED).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert magrpo.advantages(ALIGNED, CreditConfig()).tolist() == [-1.5, 1.5, -1.5, 1.5, 0, 0, 0, 0]


def test_answers_that_each_follow_one_of_their_own_compete_by_round():
    """Chains that were begun apart, as the rounds of programs are: those of a round are one group."""
    turns, joints = list(ALIGNED.turns), list(ALIGNED.joints)
    for j, reward in enumerate((5.0, 1.0)):  # a second round after each answer to the first item
        ids = [len(turns) + n for n in range(2)]
        for i, before in zip(ids, ALIGNED.joints[j].turns, strict=True):
            turns.append(dataclasses.replace(turns[before], id=i, request=i, turn=1, follows=j))
        joints.append(Joint(0, tuple(ids), SimpleNamespace(total=reward), node=9 + j, turn=1, follows=j))
    chains = Forest(ALIGNED.items, tuple(turns), tuple(joints))
    assert magrpo.groups(chains).tolist()[8:] == [4, 5, 4, 5]
    actual = magrpo.advantages(chains, CreditConfig(turns=2, turn_loss="mean"))
    assert actual.tolist()[8:] == [2, 2, -2, -2]


def test_cross_returns_and_advantages_by_hand():
    # item 0: rewards of (a, b) = 00: 0, 01: 1, 10: 3, 11: 4
    #   a0 = (0 + 1) / 2, a1 = (3 + 4) / 2, b0 = (0 + 3) / 2, b1 = (1 + 4) / 2
    # item 1: 00: 2, 01: 0, 10: 2, 11: 0: only b matters; a0 = a1 = 1, b0 = 2, b1 = 0
    assert magrpo.returns(CROSS).tolist() == [0.5, 3.5, 1.5, 2.5, 1, 1, 2, 0]
    assert magrpo.advantages(CROSS, CreditConfig()).tolist() == [-1.5, 1.5, -0.5, 0.5, 0, 0, 1, -1]


def test_other_baselines_by_hand():
    # leave-one-out doubles at G = 2; the standard deviation of two values is half their distance
    assert magrpo.advantages(CROSS, CreditConfig("leave_one_out")).tolist() == [-3, 3, -1, 1, 0, 0, 2, -2]
    normalised = magrpo.advantages(CROSS, CreditConfig(normalise=True))
    np.testing.assert_allclose(normalised, [-1, 1, -1, 1, 0, 0, 1, -1], rtol=1e-6)
    for baseline in ("leave_one_out", "max", "none"):  # standardised, all are one
        same = magrpo.advantages(CROSS, CreditConfig(baseline, normalise=True))
        assert same.tolist() == normalised.tolist()
    assert magrpo.advantages(CROSS, CreditConfig("none")).tolist() == magrpo.returns(CROSS).tolist()


def test_normalised_per_agent_by_hand():
    # Advantages of a: -1.5, 1.5, 0, 0, of variance 4.5 / 4; of b: -0.5, 0.5, 1, -1, of variance 2.5 / 4
    actual = magrpo.advantages(CROSS, CreditConfig(normalise=True, normalise_by="agent"))
    a, b = np.sqrt(4.5 / 4), np.sqrt(2.5 / 4)
    np.testing.assert_allclose(actual, [-1.5 / a, 1.5 / a, -0.5 / b, 0.5 / b, 0, 0, 1 / b, -1 / b], rtol=1e-6)
    others = magrpo.advantages(CROSS, CreditConfig("leave_one_out", normalise=True, normalise_by="agent"))
    np.testing.assert_allclose(others, actual, rtol=1e-6)
    # Without normalise it says nothing.
    plain = magrpo.advantages(CROSS, CreditConfig(normalise_by="agent"))
    assert plain.tolist() == magrpo.advantages(CROSS, CreditConfig()).tolist()
    with pytest.raises(ValueError, match="normalise_by='team'; allowed: group, agent"):
        CreditConfig(normalise_by="team")


def test_samples_without_a_reward_have_no_part_in_an_agents_scale():
    # Of a there are -1.25, 1.25, 0 (a1 of item 1 has no return), of b 0.25, -0.25, 1, -1.
    made = forest("cross", [None, 1.0, 3.0, 4.0], [2.0, 0.0, None, None])
    actual = magrpo.advantages(made, CreditConfig(normalise=True, normalise_by="agent"))
    a, b = np.sqrt(2 * 1.25**2 / 3), np.sqrt((2 * 0.25**2 + 2) / 4)
    wanted = [-1.25 / a, 1.25 / a, 0.25 / b, -0.25 / b, 0, 0, 1 / b, -1 / b]
    np.testing.assert_allclose(actual, wanted, rtol=1e-6)


@pytest.mark.parametrize("agents, samples", [(("a", "b"), 4), (("a", "b", "c"), 3)])
def test_returns_equal_the_credit_functions_on_arrays(agents, samples):
    random = np.random.default_rng(0)
    shape = (2, *[samples] * len(agents))
    rewards = random.standard_normal(shape).astype(np.float32)
    made = forest("cross", *rewards.reshape(2, -1).tolist(), samples=samples, agents=agents)
    # [N, B, G] -> the forest's order: item, agent, sample
    expected = np.moveaxis(credit.cross_credit(rewards), 0, 1).ravel()
    np.testing.assert_allclose(magrpo.returns(made), expected, rtol=1e-5, atol=1e-6)

    shared = rewards.reshape(2, -1)[:, :samples]
    made = forest("aligned", *shared.tolist(), samples=samples, agents=agents)
    expected = np.moveaxis(credit.aligned_credit(shared, num_agents=len(agents)), 0, 1).ravel()
    np.testing.assert_allclose(magrpo.returns(made), expected, rtol=1e-6)


def test_rewards_that_do_not_apply_are_left_out():
    # a0 keeps (a0, b1) = 1, b0 keeps (a1, b0) = 3; in item 1 a1 has nothing left and a0 nobody to beat
    made = forest("cross", [None, 1.0, 3.0, 4.0], [2.0, 0.0, None, None])
    np.testing.assert_array_equal(magrpo.returns(made), [1, 3.5, 3, 2.5, 1, np.nan, 2, 0])
    assert magrpo.advantages(made, CreditConfig()).tolist() == [-1.25, 1.25, 0.25, -0.25, 0, 0, 1, -1]
    # A sum over fewer joint answers is no worse than one over all: twice the mean.
    sums = magrpo.returns(made, CreditConfig(reduce="sum"))
    np.testing.assert_array_equal(sums, [2, 7, 6, 5, 2, np.nan, 4, 0])


def test_collate_keeps_every_turn():
    advantages_R = np.arange(8) - 3.5
    (batch,) = collate.collate(CROSS, advantages_R, tiny.stack(), max_new_tokens=5)
    assert batch.tokens_NRL.shape == (2, 4, 5) and batch.prompts_NBP.shape[:2] == (2, 2)
    assert batch.prompts_NBP.shape[2] == bucket(3)
    seen = set()
    for n, agent in enumerate(tiny.AGENTS):
        for b in range(2):
            length = int(batch.prompt_lengths_NB[n, b])
            prompt = batch.prompts_NBP[n, b, -length:].tolist()
            for g in range(2):
                turn = CROSS.turns[4 * b + 2 * n + g]  # by hand: item, agent, sample
                assert (turn.agent, turn.item, turn.sample) == (agent, b, g)
                row, count = 2 * b + g, len(turn.completion)
                assert batch.lengths_NR[n, row] == count and prompt == turn.prompt.tolist()
                assert batch.tokens_NRL[n, row, :count].tolist() == turn.completion.tolist()
                np.testing.assert_allclose(batch.logprobs_NRL[n, row, :count], turn.logprobs, rtol=1e-6)
                assert batch.advantages_NR[n, row] == advantages_R[turn.id]
                assert batch.finished_NR[n, row] == turn.finished
                seen.add(turn.id)
    assert seen == set(range(8))


def test_collate_is_as_wide_as_completions_may_be():
    """Whatever was said: the width is a compilation."""
    assert collate.collate(CROSS, np.zeros(8), tiny.stack(), 17)[0].tokens_NRL.shape == (2, 4, 17)


def test_collate_takes_the_stacks_own_agents_and_pads_with_what_it_is_told():
    (batch,) = collate.collate(CROSS, np.zeros(8), tiny.stack(("b",)), max_new_tokens=4, pad_id=9)
    assert batch.tokens_NRL.shape == (1, 4, 4)
    # b's turns are 2, 3, 6, 7, of (1 + i % 3) tokens from 10 (i + 1)
    assert batch.tokens_NRL[0].tolist() == [[30, 31, 32, 9], [40, 9, 9, 9], [70, 9, 9, 9], [80, 81, 9, 9]]


@pytest.mark.parametrize("normalise_by", ["group", "agent"])
@pytest.mark.parametrize("rewards", [(10.1, 33.3, 66.7, 99.9), (0.1, 0.7, 1.3, 2.9)])
def test_equal_means_have_no_signal_however_they_are_rounded(rewards, normalise_by):
    """A Latin square: every row and every column has the same four rewards in another order."""
    square = [rewards[(i + j) % 4] for i in range(4) for j in range(4)]
    played = forest("cross", square, samples=4)
    for config in (CreditConfig(normalise=True, normalise_by=normalise_by), CreditConfig("max"), CreditConfig()):
        assigned = magrpo.assign(played, config)
        assert not assigned.advantages.any() and not assigned.has_signal(tiny.AGENTS).any()
        assert {v for name, v in assigned.metrics().items() if name.endswith("zero_signal")} == {1.0}
    other = forest("cross", [square[0] + 0.01, *square[1:]], samples=4)
    assert magrpo.assign(other, CreditConfig(normalise=True)).advantages.any()
