"""MADPO: weights by hand, and the update it makes against the gradient of its loss through the model."""

import functools
from types import SimpleNamespace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmarl_llm import adapters, losses
from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems import madpo
from jaxmarl_llm.systems.madpo import Madpo
from jaxmarl_llm.systems.preferences import Pool, turn_scores
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.update import LossConfig, collate

PROMPTS = {("a", 0): [7, 8], ("b", 0): [9], ("a", 1): [11, 12, 13], ("b", 1): [14, 15]}
# By item: rewards of three joint answers, and what each agent says in them.
REWARDS = ([0.0, 3.0, 1.0], [2.0, 2.0, 5.0])
COMPLETIONS = {
    "a": ([[20], [21, 22], [23]], [[24, 25, 26], [27], [28, 29]]),
    "b": ([[30, 31], [32], [33, 34]], [[35], [36, 37], [38]]),
}


def forest():
    turns, joints, first = [], [], {}
    for item, rewards in enumerate(REWARDS):
        for agent in tiny.AGENTS:
            first[agent] = len(turns)
            for g, completion in enumerate(COMPLETIONS[agent][item]):
                content = (np.array(PROMPTS[agent, item]), np.array(completion), np.zeros(len(completion)))
                place = (len(turns), len(turns) // 3, agent, item, 0, g)
                turns.append(Turn(*place, *content, "", True))
        for g, total in enumerate(rewards):
            joints.append(Joint(item, (first["a"] + g, first["b"] + g), SimpleNamespace(total=total), item))
    items = (SimpleNamespace(task_id="p0"), SimpleNamespace(task_id="p1"))
    return Forest(items, tuple(turns), tuple(joints))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_weights_by_hand():
    winner, loser = [[-1.0, -2.0], [-3.0, -1.0]], [[-2.0, -2.0], [-5.0, -4.0]]
    # Delta: 1 and 0 of one agent, 2 and 3 of the other: margins 0.5 * 3 and 0.5 * 3, P = 2
    actual, loss, margins = madpo.advantages(winner, loser, beta=0.5, mask_P=[True, True])
    weight = 0.5 * sigmoid(-1.5)
    np.testing.assert_allclose(actual, np.broadcast_to([2 * weight, -2 * weight], (2, 2, 2)), rtol=1e-5)
    np.testing.assert_allclose(margins, [1.5, 1.5], rtol=1e-6)
    assert loss == pytest.approx(-np.log(sigmoid(1.5)), rel=1e-5)
    # Less the reference's Delta, 1 of the first agent and pair: margins 0.5 * 2 and 1.5; a tie has no weight,
    # and the mean is over the other pair.
    reference = {"ref_winner_NP": np.array([[0.0, 0], [0, 0]]), "ref_loser_NP": np.array([[-1.0, 0], [0, 0]])}
    actual, loss, margins = madpo.advantages(winner, loser, beta=0.5, mask_P=[True, False], **reference)
    np.testing.assert_allclose(actual[:, 0], [[4 * 0.5 * sigmoid(-1), -4 * 0.5 * sigmoid(-1)]] * 2, rtol=1e-5)
    assert (actual[:, 1] == 0).all() and loss == pytest.approx(-np.log(sigmoid(1.0)), rel=1e-5)
    np.testing.assert_allclose(margins, [1.0, 1.5], rtol=1e-6)


pytestmark = pytest.mark.usefixtures("programs_shared")
SAMPLING = SamplingParams(4)


def system(of_team, **options):
    trainables = [of_team.members[0].trainable]

    def scores(forest, reference):
        return turn_scores.of_forest(forest, of_team, trainables, SAMPLING, reference=reference)

    return Madpo(Pool((0,), replay="current"), scores, **({"batch": 8, "beta": 0.7} | options))


def log_probabilities(variables, texts):
    """Of the completions of (prompt, completion) pairs, each read from its beginning without a cache."""
    width = max(len(prompt) + len(completion) for prompt, completion in texts)
    ids, completion_mask = np.zeros((len(texts), width), np.int32), np.zeros((len(texts), width), bool)
    for row, (prompt, completion) in enumerate(texts):
        end = len(prompt) + len(completion)
        ids[row, :end], completion_mask[row, len(prompt) : end] = [*prompt, *completion], True
    positions = jnp.broadcast_to(jnp.arange(width)[None], ids.shape)  # what follows cannot be seen
    logits, _ = tiny.POLICY.apply(variables, jnp.array(ids), positions)
    actual = jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), ids[:, 1:, None], -1)[..., 0]
    return jnp.where(completion_mask[:, 1:], actual, 0.0).sum(1)


def preferred():
    """(item, winner, loser) of every pair, from the rewards."""
    return [(i, w, l) for i, r in enumerate(REWARDS) for w in range(3) for l in range(3) if r[w] > r[l]]


@pytest.mark.slow
def test_the_update_is_the_gradient_of_the_loss_through_the_model():
    member = Member(tiny.stack(), tiny.params(), tiny.lora(), tiny.Tokenizer(), "tiny")
    credit = system(Team((member,)), reference=True).assign(forest())
    config = LossConfig(SAMPLING, prompts_per_microbatch=2)
    (batch,) = collate.collate(credit.forest, credit.advantages, member.stack, 4)
    assert batch.prompts_NBP.shape[1] == 8  # room for a batch; 3 + 2 pairs
    actual, (surrogate, *_) = tiny.gradients(member.stack, config, member.base, member.trainable, batch)
    assert surrogate.count.tolist() == [10, 10]

    def plain(trainable, n):
        return adapters.merge(tiny.params(), jax.tree.map(lambda x: x[n], trainable), tiny.SCALE)

    def sides(variables_of):
        actual = []
        for n, agent in enumerate(tiny.AGENTS):
            texts = [(PROMPTS[agent, i], COMPLETIONS[agent][i][g]) for i, *pair in preferred() for g in pair]
            actual.append(log_probabilities(variables_of(n), texts).reshape(-1, 2))
        actual = jnp.stack(actual)
        return actual[..., 0], actual[..., 1]

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def of_loss(trainable):
        names = ("ref_winner_NP", "ref_loser_NP")
        reference = dict(zip(names, sides(lambda n: tiny.params()), strict=True))
        each = losses.madpo(*sides(functools.partial(plain, trainable)), beta=0.7, **reference).mean()
        return each.sum(), each

    (_, each), expected = of_loss(member.trainable)
    scale = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(expected))
    assert scale > 1e-2
    chex.assert_trees_all_close(actual, expected, rtol=2e-3, atol=2e-4 * scale)
    assert credit.for_models["madpo/loss"] == pytest.approx(float(each[0]), rel=1e-4)
    assert credit.for_models["preference/gap"] == pytest.approx((3 + 2 + 1 + 3 + 3) / 5)
    # What is replayed carries the policy's own log-probabilities: the ratio is 1.
    for turn in (credit.forest.turns[1], credit.forest.turns[2]):
        own = plain(member.trainable, tiny.AGENTS.index(turn.agent))
        total = log_probabilities(own, [(turn.prompt, turn.completion)])
        assert turn.logprobs.sum() == pytest.approx(float(total[0]), rel=1e-4)


def fixed_scores(asked):
    """Every completion has log-probability -1; ``asked`` keeps the forests."""

    def scores(forest, reference):
        asked.append(forest)
        return [np.full(len(t.completion), -1 / len(t.completion), np.float32) for t in forest.turns]

    return scores


def test_offline_collects_first_and_draws_no_more():
    asked = []
    made = Madpo(Pool((0,)), fixed_scores(asked), batch=3, collect=2)
    for _ in range(2):
        credit = made.assign(forest())
        assert not credit.learn and not credit.advantages.any() and len(credit.forest.turns) == 12
        assert made.learn(credit) == {"preference/pairs": made.models.size}
    assert made.models.size == 2 * 5 and asked == []
    lessons = [made.assign(None)]
    assert lessons[0].learn and len(lessons[0].forest.joints) == 6 and len(asked) == 1
    assert made.learn(lessons[0])["madpo/loss"] == pytest.approx(np.log(2), rel=1e-5)
    lessons.append(made.assign(None))
    drawn = [[turn.completion.tolist() for turn in credit.forest.turns] for credit in lessons]
    assert drawn[0] != drawn[1]  # of ten; seeded
    # weight 2 * 0.1 * sigmoid(0)
    np.testing.assert_allclose(lessons[0].advantages, [0.1, -0.1] * 6, rtol=1e-5)


def test_without_any_pair():
    empty = Madpo(Pool((0,)), fixed_scores([]), batch=3, collect=1)
    empty.models.done = 1
    with pytest.raises(ValueError, match="after 1 iterations no two answers to a problem earned different"):
        empty.assign(None)
    ties = forest()
    ties = Forest(ties.items, ties.turns, tuple(Joint(j.item, j.turns, SimpleNamespace(total=1.0), j.node)
                                                for j in ties.joints))  # fmt: skip
    made = Madpo(Pool((0,), replay="current"), fixed_scores([]), batch=3)
    credit = made.assign(ties)
    assert credit.learn and credit.advantages.tolist() == [0] * 4  # one pair, which says nothing
    assert made.learn(credit) == {"preference/pairs": 0, "madpo/loss": 0}
