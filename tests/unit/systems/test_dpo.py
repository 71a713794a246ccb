"""Pairs of siblings and DPO of turns: the tree by hand, the loss by finite differences, and MADPO of one agent."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import scripted_rounds
from hand_made_forests import named
from preference_trees import ROLES, VALUES, tree

from jaxmarl_llm import losses
from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.protocols import Tree
from jaxmarl_llm.systems import dpo, magrpo
from jaxmarl_llm.systems.madpo import Madpo
from jaxmarl_llm.systems.preferences import Pool, siblings


def find(made, **options):
    return siblings.pairs_of(made, np.random.default_rng(0), **options)


def ids(pairs, agent):
    return [(p.winner[0].id, p.loser[0].id) for p in pairs if p.winner[0].agent == agent]


def test_values_labels_and_pairs_of_a_tree_by_hand():
    values = magrpo.returns(tree())
    assert values.tolist() == sum(VALUES.values(), [])
    assert siblings.labels_of(values, 0.5).tolist() == [1, 0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1]
    pairs = find(tree(), threshold=0.5)
    assert [ids(pairs, agent) for agent in ROLES] == [[(0, 1)], [(3, 2)], [(6, 7), (13, 12)]]
    assert [pair.rewards for pair in pairs] == [(0.75, 0.25), (1, 0.5), (1, 0), (1, 0)]
    assert {pair.item for pair in pairs} == {"p0"}
    # Without a threshold the values are compared: the second node's verifiers differ too.
    assert ids(find(tree()), "verifier") == [(3, 2), (5, 4)]
    unjudged = tree(((((np.nan, 0.0), (1.0, 1.0))), ((np.nan, np.nan), (0.0, 1.0))))
    assert magrpo.returns(unjudged)[:6].tolist()[:3] == pytest.approx([2 / 3, 0.5, 0])
    assert [ids(find(unjudged, threshold=0.5), agent) for agent in ROLES] == [[(0, 1)], [(3, 2)], [(13, 12)]]


@pytest.mark.parametrize(
    "values, labels",
    [
        ([1.0, 0.75, 0.6, 0.0], [1, 1, 1, 0]),
        ([0.4, 0.2, 0.9, 0.0, 0.1], [0, 0, 1, 0, 0]),
        ([0.9, 0.1, 0.8, 0.2, 0.7, 0.6], [1, 0, 1, 0, 1, 1]),
        ([0.9, 0.8, 0.0, np.nan, 0.7], [1, 1, 0, np.nan, 1]),
        ([0.1, 0.9, 0.5], [1, 0, 0]),  # labels that do not follow the values
        ([0.9, 0.8], [1, 1]),
    ],
)
def test_halves_of_siblings_differ_in_their_labels_and_none_of_the_rarer_label_is_lost(values, labels):
    """However often the better label is, a pair has one turn of each, and no turn is in two pairs."""
    content = np.array([1]), np.array([2]), np.zeros(1), "", True
    turns = tuple(Turn(i, 0, "a", 0, 0, i, *content) for i in range(len(values)))
    made = Forest((SimpleNamespace(task_id="p0"),), turns, ())
    for seed in range(10):
        options = dict(most=0, selection="halves")
        pairs = siblings.pairs_by_label(
            made, np.array(values), np.array(labels), np.random.default_rng(seed), **options
        )
        sides = ids(pairs, "a")
        assert [(labels[w], labels[l]) for w, l in sides] == [(1, 0)] * min(labels.count(1), labels.count(0))
        assert len({i for pair in sides for i in pair}) == 2 * len(sides)


def test_pairs_of_a_rolled_out_tree_have_one_parent_and_one_prompt():
    task = scripted_rounds.ScriptedTask(scores={"a0": 2.0, "b1": 3.0, "b6": 5.0})
    made = scripted_rounds.play(Tree(task.prompts, (2, 3)), task, texts=lambda one, n: f"{one.agent}{n}").forest
    pairs = find(made)
    assert pairs and {pair.winner[0].agent for pair in pairs} == {"a", "b"}
    for pair in pairs:
        (w,), (l,) = pair.winner, pair.loser
        assert (w.agent, w.parent, w.prompt.tolist()) == (l.agent, l.parent, l.prompt.tolist())
        assert pair.rewards[0] > pair.rewards[1] and w.id != l.id


def test_at_most_so_many_pairs_of_each_prompt():
    made = named([1.0, 4.0, 2.0], [3.0, 3.0, None])
    assert [pair.rewards for pair in find(made)] == [(4, 1), (4, 2), (2, 1)] * 2
    assert [pair.rewards for pair in find(made, most=1)] == [(4, 1)] * 2
    with pytest.raises(ValueError, match="selection='best'; allowed: gap, random"):
        find(made, selection="best")


def test_advantages_are_the_gradient_of_the_loss_by_finite_differences():
    logprobs = np.array([[-1.0, -2.0], [-3.5, -1.0], [-2.0, -2.5]])
    reference = np.array([[-1.5, -1.0], [-2.0, -2.0], [-3.0, -1.0]])

    def loss(logprobs, ref):
        gaps = logprobs - ref
        return np.mean(np.log1p(np.exp(-0.7 * (gaps[:, 0] - gaps[:, 1]))))

    for ref in (None, reference):
        actual, mean, margins = dpo.advantages(logprobs, ref, beta=0.7)
        given = 0 * reference if ref is None else ref
        expected = np.zeros((3, 2))
        for place in np.ndindex(3, 2):
            step = np.zeros((3, 2))
            step[place] = 1e-5
            expected[place] = -6 * (loss(logprobs + step, given) - loss(logprobs - step, given)) / 2e-5
        np.testing.assert_allclose(actual, expected, rtol=1e-4)
        assert mean == pytest.approx(loss(logprobs, given), rel=1e-5)
        gaps = logprobs - given
        np.testing.assert_allclose(margins, 0.7 * (gaps[:, 0] - gaps[:, 1]), rtol=1e-5)


def scores(forest, reference):
    """Log-probabilities that follow from the tokens."""
    scale = 0.02 if reference else 0.03
    return [-scale * turn.completion.astype(np.float32) for turn in forest.turns]


def of_tree(forest=None, threshold=0.5, **options):
    """DPO after one iteration that drew a tree."""
    pool = Pool((0,), lambda *args, **kwargs: siblings.pairs_of(*args, threshold=threshold, **kwargs))
    made = dpo.Dpo(pool, ROLES, scores, **({"batch": 2, "collect": 1, "beta": 0.5} | options))
    first = made.assign(tree() if forest is None else forest)
    assert not first.learn and not first.advantages.any()
    return made, made.learn(first)


def test_every_agent_learns_from_its_own_pairs():
    made, metrics = of_tree(reference=True)
    assert metrics == {"preference/pairs": 4}
    credit = made.assign(None)
    turns = credit.forest.turns
    assert [turn.agent for turn in turns] == [role for role in ROLES for _ in range(2)] + ["refiner"] * 2
    assert [turn.item for turn in turns] == [0, 0, 0, 0, 0, 0, 1, 1] and len(credit.forest.items) == 2
    texts = [int(turn.text.split()[1]) for turn in turns]
    assert texts == [0, 1, 3, 2, 6, 7, 13, 12]
    summed, ref = (np.array([s.sum() for s in scores(credit.forest, of)]).reshape(-1, 2) for of in (False, True))
    for agent, rows in zip(ROLES, ([0], [1], [2, 3]), strict=True):
        sides = dict(ref_winner_P=ref[rows, 0], ref_loser_P=ref[rows, 1], beta=0.5)
        loss = float(losses.dpo(summed[rows, 0], summed[rows, 1], **sides).mean())
        assert credit.for_models[f"{agent}/dpo_loss"] == pytest.approx(loss, rel=1e-5)
        margins = 0.5 * ((summed - ref)[rows, 0] - (summed - ref)[rows, 1])
        weights = 2 * 0.5 / (1 + np.exp(margins))
        actual = credit.advantages.reshape(-1, 2)[rows]
        np.testing.assert_allclose(actual, np.stack([weights, -weights], 1), rtol=1e-5)
        assert credit.for_models[f"{agent}/dpo_accuracy"] == np.mean(margins > 0)
    assert credit.for_models["preference/gap"] == pytest.approx((0.5 + 0.5 + 1 + 1) / 4)


def test_with_one_agent_it_is_madpo():
    made = named([1.0, 4.0, 2.0], [3.0, 1.0, 0.0])
    turns = [turn for turn in made.turns if turn.agent == "a"]
    renumbered = [dataclasses.replace(turn, id=i, request=i // 3) for i, turn in enumerate(turns)]
    joints = [dataclasses.replace(joint, turns=(j,)) for j, joint in enumerate(made.joints)]
    alone = Forest(made.items, tuple(renumbered), tuple(joints))
    for options in ({}, {"reference": True}, {"batch": 3}):
        options = {"batch": 8, "beta": 0.4} | options
        both = []
        for system in (
            dpo.Dpo(Pool((3,), siblings.pairs_of), ("a",), scores, collect=1, **options),
            Madpo(Pool((3,)), scores, collect=1, **options),
        ):
            system.learn(system.assign(alone))
            both.append(system.assign(None))
        ours, other = both
        np.testing.assert_array_equal(ours.advantages, other.advantages)
        assert np.abs(ours.advantages).min() > 0
        for left, right in zip(ours.forest.turns, other.forest.turns, strict=True):
            assert (left.id, left.item, left.sample) == (right.id, right.item, right.sample)
            np.testing.assert_array_equal(left.completion, right.completion)
        for name in ("loss", "accuracy", "margin"):
            assert ours.for_models[f"a/dpo_{name}"] == pytest.approx(other.for_models[f"madpo/{name}"], rel=1e-6)


def test_agents_without_pairs_do_not_learn_and_without_any_pair_a_sentence_says_so():
    made, _ = of_tree(tree((((1.0, 1.0), (1.0, 1.0)), ((0.0, 0.0), (0.0, 0.0)))))
    credit = made.assign(None)
    assert {turn.agent for turn in credit.forest.turns} == {"generator"}  # siblings of the others are alike
    assert not {name for name in credit.for_models if name.startswith(("verifier", "refiner"))}
    made, metrics = of_tree(tree((((1.0, 1.0), (1.0, 1.0)), ((1.0, 1.0), (1.0, 1.0)))))
    assert metrics == {"preference/pairs": 0}
    with pytest.raises(ValueError, match="after 1 iterations no two answers to a problem earned different"):
        made.assign(None)


def test_files_give_back_pairs_of_turns(tmp_path):
    made, _ = of_tree()
    with made.models.kept_in(tmp_path):
        made.models.done = 0
        made.learn(made.assign(tree()))
    again, _ = of_tree()
    with again.models.kept_in(tmp_path):
        again.models.restore(1)
    left, right = made.assign(None), again.assign(None)
    np.testing.assert_array_equal(left.advantages, right.advantages)
    assert [t.text for t in left.forest.turns] == [t.text for t in right.forest.turns]
