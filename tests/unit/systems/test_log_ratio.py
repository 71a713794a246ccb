"""The log-ratio critic against one text at a time read from its beginning, and its gradient by finite differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
import tiny_learners

from jaxmarl_llm import update
from jaxmarl_llm.systems.critics import log_ratio
from jaxmarl_llm.systems.critics.log_ratio import LogRatio
from jaxmarl_llm.team import Member, Team

BETA = 0.7
STACK = tiny.stack(agents=("critic",))
# Sequences of different numbers of turns, prompts and texts of different lengths.
FIRST = [([7, 8, 9], [10, 11]), ([7, 8, 9, 10, 11, 12], [13]), ([14], [15, 16, 17])]
SECOND = [([7, 8, 9], [20])]
THIRD = [([21, 22], [23, 24, 25, 26]), ([27] * 5, [28])]


def arrays(sequence):
    return [tuple(np.array(ids, np.int32) for ids in text) for text in sequence]


SEQUENCES = [arrays(sequence) for sequence in (FIRST, SECOND, THIRD)]
SIZES = log_ratio.sizes_of(SEQUENCES)
PAIRS = [(SEQUENCES[0], SEQUENCES[1]), (SEQUENCES[1], SEQUENCES[2]), (SEQUENCES[2], SEQUENCES[0])]


def nothing():
    return jax.tree.map(jnp.zeros_like, tiny.lora(1))


def one_by_one(params, sequence) -> np.ndarray:
    """The score of every turn of a sequence, each text read alone, with adapters merged in."""
    values = []
    for prompt, completion in sequence:
        own, base = (tiny.completion_logits(v, prompt, completion) for v in (tiny.own(params, 0), tiny.params()))
        logprobs = [np.asarray(jax.nn.log_softmax(logits.astype(np.float64))) for logits in (own, base)]
        rows = np.arange(len(completion))
        values.append(BETA * np.mean(logprobs[0][rows, completion] - logprobs[1][rows, completion]))
    return np.array(values)


def critic(rows=1, optimizer=None):
    member = Member(STACK, tiny.params(), nothing(), tiny.Tokenizer(), "tiny")
    made = LogRatio(Team((member,)), optimizer or optax.sgd(1.0), beta=BETA, rows=rows)
    made.states[0] = update.init_state(tiny.lora(1), optimizer or optax.sgd(1.0))  # no longer as it began
    return made


def test_sizes_hold_every_sequence():
    assert SIZES == (3, 32, 4)
    turns = log_ratio.pad_turns(SEQUENCES, SIZES, 4)
    assert turns.lengths_BT.tolist() == [[2, 1, 3], [1, 0, 0], [4, 1, 0], [0, 0, 0]]
    assert turns.prompt_lengths_BT.tolist() == [[3, 6, 1], [3, 1, 1], [2, 5, 1], [1, 1, 1]]
    assert turns.prompts_BTP[0, 1, -6:].tolist() == FIRST[1][0]


@pytest.mark.usefixtures("programs_shared")
def test_scores_are_mean_log_ratios_of_each_text_alone():
    texts = [text for sequence in SEQUENCES for text in sequence]
    actual = critic(rows=2).scores(texts, SIZES)
    expected = np.concatenate([one_by_one(tiny.lora(1), sequence) for sequence in SEQUENCES])
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)
    assert len(set(actual.tolist())) == len(texts) and critic().scores([], SIZES).shape == (0,)
    member = Member(STACK, tiny.params(), nothing(), tiny.Tokenizer(), "tiny")
    begun = LogRatio(Team((member,)), optax.sgd(1.0), beta=BETA, rows=2)
    assert begun.scores(texts, SIZES).tolist() == [0] * len(texts)  # as likely as under itself


def loss_of(params) -> float:
    """Bradley and Terry's loss of the pairs on sums of scores, by `one_by_one`."""
    sums = [(one_by_one(params, w).sum(), one_by_one(params, l).sum()) for w, l in PAIRS]
    return float(np.mean([np.log1p(np.exp(l - w)) for w, l in sums]))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2, 3])  # of two, one pair fills up
def test_an_update_is_the_gradient_of_the_loss_by_finite_differences(rows):
    made = critic(rows)
    metrics = jax.device_get(made.learn(PAIRS, SIZES))
    assert metrics["loss"] == pytest.approx(loss_of(tiny.lora(1)), rel=1e-3)
    ranked = [one_by_one(tiny.lora(1), w).sum() > one_by_one(tiny.lora(1), l).sum() for w, l in PAIRS]
    assert metrics["accuracy"] == pytest.approx(np.mean(ranked))
    grads = jax.tree.map(lambda old, new: np.asarray(old - new), tiny.lora(1), made.states[0].trainable)
    random = np.random.default_rng(0)
    for _ in range(2):
        direction = jax.tree.map(lambda x: random.standard_normal(x.shape).astype(np.float32), grads)
        ends = [loss_of(jax.tree.map(lambda x, d, s=s: x + s * d, tiny.lora(1), direction)) for s in (1e-3, -1e-3)]
        slopes = jax.tree.map(lambda g, d: (g * d).sum(), grads, direction)
        assert sum(jax.tree.leaves(slopes)) == pytest.approx((ends[0] - ends[1]) / 2e-3, rel=1e-2)


@pytest.mark.slow
@pytest.mark.usefixtures("programs_shared")
def test_fitted_to_pairs_it_ranks_them_and_the_reference_stays():
    made = critic(rows=3, optimizer=optax.adam(3e-2))
    rows = jax.device_get([made.learn(PAIRS[:2], SIZES) for _ in range(20)])
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"] and rows[-1]["accuracy"] == 1
    sums = [made.scores(sequence, SIZES).sum() for sequence in SEQUENCES]
    assert sums[0] > sums[1] > sums[2]
    expected = np.concatenate([one_by_one(made.states[0].trainable, sequence) for sequence in SEQUENCES])
    texts = [text for sequence in SEQUENCES for text in sequence]
    np.testing.assert_allclose(made.scores(texts, SIZES), expected, rtol=1e-3, atol=1e-4)


def test_a_critic_has_adapters_of_its_own_or_a_copy_of_the_agent():
    team = tiny_learners.team()
    (member,) = team.members
    made = log_ratio.build(team, "b", jax.random.key(0), rank=2, targets=("q",)).members[0]
    assert made.stack.agents == ("critic",) and made.base is member.base
    shapes = {x.shape[0] for x in jax.tree.leaves(made.trainable)}
    assert shapes == {1} and not any(np.any(x) for path, x in jax.tree.leaves_with_path(made.trainable)
                                     if path[-1].key == "b")  # fmt: skip
    copies = jax.tree.map(lambda x: jnp.stack([x, x + 1]), tiny.params())
    full = Team((Member(tiny.stack(mode="full"), None, copies, tiny.Tokenizer(), "tiny"),))
    copied = log_ratio.build(full, "b", jax.random.key(0), rank=1).members[0]
    same = functools.partial(jax.tree.map, lambda x, y: bool((x[0] == y[1]).all()))
    assert all(jax.tree.leaves(same(copied.trainable, copies)))


def test_a_critic_of_an_agent_that_is_no_model_of_ours_is_refused():
    remote = tiny.stack(agents=("far",), mode="remote")
    team = Team((Member(remote, None, None, tiny.Tokenizer(), "expert:x"),))
    with pytest.raises(ValueError, match="a critic needs a model of ours; agent 'far' speaks through 'expert:x'"):
        log_ratio.build(team, "far", jax.random.key(0), rank=1)
