"""Collab on a toy whose numbers are known: target xxyy, a reward for each right letter, two models that each write one.

Model 0 writes x with probability .9 and y else, model 1 y with .9. Expected rewards are computed exactly.
"""

import itertools
import math

import pytest

from jaxmarl_llm.decoding import switching
from jaxmarl_llm.decoding.switching import Candidate, Draft, Piece

TARGET = (0, 0, 1, 1)  # x is token 0, y token 1
WRITES = ((0.9, 0.1), (0.1, 0.9))  # by model and token


def letters(draft):
    return tuple(i for piece in draft.pieces for i in piece.ids)


def reward(drafts):
    return [sum(a == b for a, b in zip(letters(d), TARGET, strict=True)) / 4 for d in drafts]


def piece(draft, member, token):
    last = len(letters(draft)) == 3
    return Piece(member, (token,), math.log(WRITES[member][token]), last, last)


def propose(number):
    """The likeliest tokens of both, as many of each."""

    def of(draft):
        likeliest = [sorted((0, 1), key=lambda token, m=m: -WRITES[m][token])[:number] for m in (0, 1)]
        return [Candidate(piece(draft, m, token)) for m in (0, 1) for token in likeliest[m]]

    return lambda drafts: [of(draft) for draft in drafts]


def by_own(drafts):
    """Q_j exactly: the right letters so far, and of the rest as many as the last member writes on average."""
    values = []
    for draft in drafts:
        so_far = sum(a == b for a, b in zip(letters(draft), TARGET, strict=False))
        member = draft.pieces[-1].member
        values.append((so_far + sum(WRITES[member][t] for t in TARGET[len(letters(draft)):])) / 4)
    return values


def written(value, number=1, alpha=0.0):
    (draft,) = switching.write([Draft(0)], propose(number), value, alpha)
    return draft


def alone(member):
    """The greedy text of one model, by the same loop."""
    def own(drafts):
        return [[c for c in row if c.piece.member == member] for row in propose(1)(drafts)]

    return switching.write([Draft(0)], own, lambda drafts: pytest.fail("there is nothing to choose"))


def test_the_toy():
    assert [reward(alone(m)) for m in (0, 1)] == [[0.5], [0.5]]
    by_each = written(by_own)  # x, as .525 > .475, then y, as .70 > .55
    assert (letters(by_each), reward([by_each])) == ((0, 1, 1, 1), [0.75])
    # Roll-outs by the switcher itself see that it can still hand over.
    by_switcher = switching.of_switcher(propose(1), by_own, 0.0, reward, 1)
    best = written(by_switcher)
    assert (letters(best), reward([best])) == ((0, 0, 1, 1), [1.0])
    assert ([p.member for p in best.pieces], best.switches(), best.tokens()) == ([0, 0, 1, 1], 1, 4)


def test_both_tokens_as_candidates_of_both_are_optimal_too():
    best = written(by_own, number=2)
    assert (letters(best), [p.member for p in best.pieces[:2]]) == ((0, 0, 1, 1), [1, 1])  # x by model 1: .725


def test_the_values_of_the_toy():
    first = [d for own in [[Draft(0).with_piece(c.piece) for c in propose(2)([Draft(0)])[0]]] for d in own]
    assert by_own(first) == pytest.approx([0.525, 0.275, 0.475, 0.725])  # x and y by model 0, y and x by model 1


def test_rollouts_are_means_of_what_they_earn_and_come_to_the_exact_values():
    """Every text that a model can write on, as often as it would: the mean is Q_j."""
    draft = Draft(0).with_piece(piece(Draft(0), 1, 0))
    rest = list(itertools.product((0, 1), repeat=3))
    times = [round(1000 * math.prod(WRITES[1][t] for t in tail)) for tail in rest]
    tails = iter([tail for tail, n in zip(rest, times, strict=True) for _ in range(n)])

    def go_on(drafts):
        return [d.with_piece(Piece(1, next(tails), last=True)) for d in drafts]

    value = switching.of_rollouts(go_on, reward, 1000)
    assert value([draft]) == pytest.approx([0.725])
    ended = Draft(0, (Piece(0, TARGET, last=True),))
    assert switching.of_rollouts(lambda drafts: [], reward, 1000)([ended]) == [1.0]  # judged once, as it is


def test_what_the_divergence_costs():
    """Token y is worth .25 more, from a member that is 1 nat further from the mean of all."""

    first, second = Piece(0, (0,), -0.1, True), Piece(1, (1,), -0.2, True)

    def two(drafts):
        return [[Candidate(first, 0.5), Candidate(second, 1.5)] for _ in drafts]

    def value(drafts):
        return [0.25 * d.pieces[-1].member for d in drafts]

    chosen = [switching.write([Draft(0)], two, value, alpha)[0].pieces[0].member for alpha in (0.0, 0.24, 0.26)]
    assert chosen == [1, 1, 0]


@pytest.mark.parametrize("values, member", [
    ([0.5, 0.5], 1), ([math.nan, -9.0], 1), ([math.nan] * 2, 1), ([0.6, 0.5], 0),
])
def test_equal_values_and_rewards_that_do_not_apply(values, member):
    two = [Candidate(Piece(0, (0,), -0.7, True)), Candidate(Piece(1, (1,), -0.1, True))]
    (draft,) = switching.write([Draft(0)], lambda drafts: [two], lambda drafts: values)
    assert draft.pieces[0].member == member


def test_rollouts_without_a_reward_are_left_out():
    """Of four roll-outs one has none, of the next draft all: means 2, of 1, 2 and 3, and NaN."""
    rewards = [1.0, math.nan, 2.0, 3.0, *[math.nan] * 4]
    value = switching.of_rollouts(lambda drafts: drafts, lambda drafts: rewards, 4)
    first, second = value([Draft(0), Draft(1)])
    assert first == 2.0 and math.isnan(second)


def test_drafts_that_have_ended_stay_and_equal_candidates_are_not_valued():
    ended = Draft(4, (Piece(0, (5,), last=True),))

    def same(drafts):
        return [[Candidate(Piece(m, (7,), -1.0 - m, d.tokens() == 1)) for m in (1, 0)] for d in drafts]

    first, second = switching.write([ended, Draft(1)], same, lambda drafts: pytest.fail())
    assert first is ended and letters(second) == (7, 7) and second.row == 1
    assert [p.member for p in second.pieces] == [0, 0]  # who finds it likelier
