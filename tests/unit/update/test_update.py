"""Updates against full forward passes, finite differences and one agent at a time."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from update_cases import CLIPPED, ENDS, PLAIN, PROMPTS, assert_close, oracle_loss, sampled, step

from jaxmarl_llm import losses, update
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.update import LossConfig, batches, comlrl_compat, gradient

TRUNCATED = SamplingParams(6, temperature=0.8, top_k=30, top_p=0.9)
gradients = tiny.gradients


def only(n, tree):
    """Agent n alone, its axis kept."""
    return jax.tree.map(lambda x: x[n : n + 1], tree)


@pytest.mark.parametrize(
    "config", [LossConfig(PLAIN), pytest.param(LossConfig(TRUNCATED, clip=0.2), marks=pytest.mark.slow)]
)
def test_the_first_ratio_is_one(config):
    _, metrics = step(tiny.lora(), sampled(config.sampling), config=config)
    assert metrics["ratio_max_deviation"].shape == (2,)
    assert metrics["ratio_max_deviation"].max() < 1e-5 and metrics["clip_fraction"].max() == 0


def test_another_policy_has_another_ratio():
    _, metrics = step(tiny.lora(noise=0.21), sampled(PLAIN))
    assert metrics["ratio_max_deviation"].min() > 1e-3


@pytest.mark.parametrize("entropy_coef, drop_truncated", [(0.0, False), (0.5, False), (0.5, True)])
def test_loss_and_gradient_against_finite_differences_of_full_forward_passes(entropy_coef, drop_truncated):
    batch, lora = sampled(PLAIN), tiny.lora()
    config = LossConfig(PLAIN, entropy_coef=entropy_coef, drop_truncated=drop_truncated)
    grads, (pg, _, _) = gradients(tiny.stack(), config, tiny.params(), lora, batch)
    rows_N = [np.flatnonzero(batch.finished_NR[n] | (not drop_truncated)) for n in range(2)]
    assert all((len(rows) < 6) == drop_truncated for rows in rows_N)
    for n in range(2):
        expected = oracle_loss(tiny.own(lora, n), batch, n, 0.7, rows=rows_N[n])
        np.testing.assert_allclose(pg.mean()[n], expected, rtol=1e-5, atol=1e-5)
    flat, tree = jax.tree.flatten(jax.device_get(lora))
    for leaf, grad in list(enumerate(jax.tree.leaves(grads)))[::3]:
        n, *rest = at = np.unravel_index(np.abs(grad).argmax(), grad.shape)
        values = []
        for shift in (0.01, -0.01):
            moved = [x.copy() for x in flat]
            moved[leaf][at] += shift
            variables = tiny.own(tree.unflatten(moved), n)
            values.append(oracle_loss(variables, batch, n, 0.7, entropy_coef, rows_N[n]))
        assert abs(grad[at]) > 0.01
        np.testing.assert_allclose(grad[at], (values[0] - values[1]) / 0.02, rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["token", "sequence", "sequence_mean", "constant"])
def test_what_was_cut_off_is_in_no_divisor(aggregation):
    """At a ratio of 1 the loss is minus the sum of A_r per token, over the count of what has ended."""
    batch = sampled(PLAIN)
    config = LossConfig(PLAIN, clip=0.2, drop_truncated=True, aggregation=aggregation)
    _, metrics = step(tiny.lora(), batch, config=config)
    for n in range(2):
        ended_R = np.asarray(batch.finished_NR[n])
        lengths_R, advantages_R = batch.lengths_NR[n][ended_R], batch.advantages_NR[n][ended_R]
        sums = {"sequence_mean": advantages_R}.get(aggregation, advantages_R * lengths_R).sum()
        count = {"token": lengths_R.sum(), "constant": 6 * len(lengths_R)}.get(aggregation, len(lengths_R))
        assert 0 < len(lengths_R) < 6
        np.testing.assert_allclose(metrics["loss"][n], -sums / count, rtol=1e-4)


def test_tokens_may_have_advantages_of_their_own():
    """The loss of log-probs from full forward passes; and with equal ones what completions have, bit for bit."""
    batch, lora, config = sampled(PLAIN), tiny.lora(noise=0.22), LossConfig(PLAIN, clip=0.1, aggregation="token")
    advantages_NRL = np.random.default_rng(0).normal(size=batch.tokens_NRL.shape).astype(np.float32)
    own = batch.replace(advantages_NR=advantages_NRL)
    _, (pg, _, seen) = gradients(tiny.stack(), config, tiny.params(), lora, own)
    for n in range(2):
        now_RL = np.zeros((6, 6))
        for r, length in enumerate(batch.lengths_NR[n]):
            completion = batch.tokens_NRL[n, r, :length]
            scores = tiny.completion_logits(tiny.own(lora, n), PROMPTS[r // 3], completion)
            now_RL[r, :length] = tiny.np_log_probs(scores, PLAIN)[np.arange(length), completion]
        mask_RL = losses.length_mask(batch.lengths_NR[n], 6)
        options = dict(behaviour_logprobs_BL=batch.logprobs_NRL[n], clip=0.1, aggregation="token")
        expected = losses.policy_gradient(now_RL, advantages_NRL[n], mask_RL, **options)
        np.testing.assert_allclose(pg.sum[n], expected.sum, rtol=1e-3)
        assert 0 < seen.clip_fraction.sum[n] < seen.clip_fraction.count[n]
    equal = batch.replace(advantages_NR=np.repeat(batch.advantages_NR[..., None], 6, axis=2))
    for part, whole in zip(*(tiny_leaves(each, lora, config) for each in (equal, batch)), strict=True):
        np.testing.assert_array_equal(part, whole)


def tiny_leaves(batch, lora, config):
    return jax.tree.leaves(gradients(tiny.stack(), config, tiny.params(), lora, batch)[0])


def test_prompts_whose_tokens_have_no_advantage_are_not_read():
    batch = sampled(PLAIN)
    advantages_NRL = np.zeros(batch.tokens_NRL.shape, np.float32)
    advantages_NRL[:, 3, 1] = 1.0  # one token of a completion of the second prompt
    packed = LossConfig(PLAIN).pack(batch.replace(advantages_NR=advantages_NRL))
    read_NB = np.asarray(packed.rows.lengths_MS).sum((0, 1, 3, 4, 5))
    assert (read_NB == batch.lengths_NR[:, 3:].sum(1)).all()


def test_a_completion_that_was_cut_off_gives_no_gradient():
    """Whatever its tokens, log-probs and advantage; and an agent that finished none does not move."""
    batch, config = sampled(PLAIN), LossConfig(PLAIN, clip=0.2, drop_truncated=True)
    cut_NR = ~np.asarray(batch.finished_NR)
    assert cut_NR.any(1).all()
    other = batch.replace(
        tokens_NRL=np.where(cut_NR[..., None], 33, batch.tokens_NRL),
        logprobs_NRL=np.where(cut_NR[..., None], np.nan, batch.logprobs_NRL),
        advantages_NR=np.where(cut_NR, 1e6, batch.advantages_NR),
    )
    before, metrics = step(tiny.lora(), batch, config=config)
    assert_close(before, step(tiny.lora(), other, config=config)[0], atol=0)
    assert (metrics["grad_norm"] > 0.1).all()
    none = batch.replace(finished_NR=np.array([[False], [True]]) & batch.finished_NR)
    after, metrics = step(tiny.lora(), none, config=config)
    assert_close(only(0, after), only(0, tiny.lora()), atol=0)
    assert_close(only(1, after), only(1, before), atol=1e-6)
    assert metrics["loss"][0] == metrics["grad_norm"][0] == 0 and metrics["ratio_mean"][0] == 1
    with pytest.raises(ValueError, match="drop_truncated=True: finished_NR of the batch is None"):
        config.pack(batch.replace(finished_NR=None))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        dict(clip=(0.05, 0.1), dual_clip=1.2, aggregation="token"),
        dict(clip=(0.01, 0.02), ratio_level="sequence_normalised", aggregation="constant"),
        dict(importance_cap=1.2),
        dict(importance_cap=1.2, importance_bound=0.1),
    ],
)
def test_the_options_of_the_loss_reach_it(options):
    """The same losses of log-probs from full forward passes, away from the policy that drew."""
    batch, lora = sampled(PLAIN), tiny.lora(noise=0.22)
    _, (pg, _, seen) = gradients(tiny.stack(), LossConfig(PLAIN, **options), tiny.params(), lora, batch)
    for n in range(2):
        now_RL = np.full((6, 6), np.nan)
        for r, length in enumerate(batch.lengths_NR[n]):
            completion = batch.tokens_NRL[n, r, :length]
            scores = tiny.completion_logits(tiny.own(lora, n), PROMPTS[r // 3], completion)
            now_RL[r, :length] = tiny.np_log_probs(scores, PLAIN)[np.arange(length), completion]
        mask_RL, then_RL = losses.length_mask(batch.lengths_NR[n], 6), batch.logprobs_NRL[n]
        fixed = now_RL, batch.advantages_NR[n], mask_RL
        expected = losses.policy_gradient(*fixed, behaviour_logprobs_BL=then_RL, token_budget=6, **options)
        np.testing.assert_allclose(pg.sum[n], expected.sum, rtol=1e-3)
        assert pg.count[n] == expected.count
        if "importance_bound" in options:
            log_ratio_RL = losses.log_ratio(now_RL, then_RL, mask_RL)
            outside = np.abs(np.exp(log_ratio_RL) - 1)[mask_RL] > 0.1
            assert 0 < outside.mean() < 1
            np.testing.assert_allclose(seen.outside_bound.mean()[n], outside.mean(), atol=0.051)  # near the bound
        if "clip" not in options:
            continue
        level = options.get("ratio_level", "token")
        units = losses.units(now_RL, then_RL, *fixed[1:], level)
        clipped_RU = losses.clipped(units, options["clip"], options.get("dual_clip"))
        assert 0 < seen.clip_fraction.sum[n] == clipped_RU.sum()
        assert seen.clip_fraction.count[n] == units.used_BU.sum()


def test_micro_batches_change_nothing():
    def cut(size):
        config = LossConfig(PLAIN, prompts_per_microbatch=size)
        return gradients(tiny.stack(), config, tiny.params(), tiny.lora(), sampled(PLAIN))

    assert_close(cut(1), cut(2), atol=2e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="prompts_per_microbatch=3 does not divide 2"):
        cut(3)


@pytest.mark.slow
def test_rows_of_one_prompt_share_its_keys_and_copy_none():
    """With several prompts keys and values are gathered for each row, and their gradients scattered back."""

    def moved(size):
        config = LossConfig(PLAIN, prompts_per_microbatch=size)
        inputs = tiny.params(), tiny.lora(), config.pack(sampled(PLAIN))
        learn = functools.partial(gradient.gradients, tiny.stack(), config)
        text = jax.jit(learn).lower(*inputs).as_text()
        ends = re.findall(r"stablehlo\.(?:gather|scatter).*?-> tensor<([\dx]+)x[a-z]", text, re.DOTALL)
        return [shape for shape in ends if shape.count("x") >= 4]  # layers, (agents,) rows, heads, width, slots

    assert moved(1) == [] and moved(2) != []


@pytest.mark.slow
def test_a_stack_learns_as_its_agents_alone():
    batch = sampled(PLAIN)
    together, metrics = step(tiny.lora(), batch)
    for n in range(2):
        alone, single = step(only(n, tiny.lora()), only(n, batch), stack=tiny.stack(("a",)))
        assert_close(alone, only(n, together), atol=1e-6)
        for name, value in single.items():
            np.testing.assert_allclose(value[0], metrics[name][n], atol=1e-5, rtol=1e-4, err_msg=name)


def test_one_agents_batch_does_not_touch_the_other():
    batch = sampled(PLAIN)
    louder = np.array([[1.0], [300.0]], np.float32) * batch.advantages_NR
    quiet, _ = step(tiny.lora(), batch)
    loud, metrics = step(tiny.lora(), dataclasses.replace(batch, advantages_NR=louder))
    assert_close(only(0, quiet), only(0, loud), atol=0)
    # Clipping is per agent: both norms are above 0.5, and each update has norm 0.5 exactly.
    assert metrics["grad_norm"][1] > 100 * metrics["grad_norm"][0] > 50
    np.testing.assert_allclose(metrics["update_norm"], 0.5, rtol=1e-5)


def test_padding_does_not_matter():
    batch = sampled(PLAIN)
    beyond = np.arange(6) >= batch.lengths_NR[..., None]
    other = dataclasses.replace(
        batch,
        tokens_NRL=np.where(beyond, 33, batch.tokens_NRL),
        logprobs_NRL=np.where(beyond, np.nan, batch.logprobs_NRL),
    )
    assert (other.tokens_NRL != batch.tokens_NRL).any()
    assert_close(step(tiny.lora(), batch), step(tiny.lora(), other), atol=0)


def test_the_ending_token_is_trained():
    """Without the last token of a row the loss lacks - A log pi(end) / R, and the gradient follows."""
    batch, lora = sampled(PLAIN), tiny.lora()
    r = int(np.flatnonzero((batch.lengths_NR[0] > 1) & (batch.lengths_NR[0] < 6))[0])
    length = int(batch.lengths_NR[0, r])
    assert batch.tokens_NRL[0, r, length - 1] in ENDS
    shorter = batch.lengths_NR.copy()
    shorter[0, r] -= 1
    inputs = (tiny.stack(), LossConfig(PLAIN), tiny.params(), lora)
    whole, (pg, _, _) = gradients(*inputs, batch)
    less, (pg_less, _, _) = gradients(*inputs, dataclasses.replace(batch, lengths_NR=shorter))
    completion = batch.tokens_NRL[0, r, :length]
    scores_V = tiny.completion_logits(tiny.own(lora, 0), PROMPTS[r // 3], completion)[-1]
    log_pi = tiny.np_log_probs(scores_V[None], SamplingParams(1, 0.7))[0, completion[-1]]
    expected = -batch.advantages_NR[0, r] * log_pi / 6
    np.testing.assert_allclose(pg.mean()[0] - pg_less.mean()[0], expected, rtol=1e-3, atol=1e-5)
    assert optax.tree.norm(jax.tree.map(lambda a, b: (a - b)[0], whole, less)) > 0.01
    assert_close(only(1, whole), only(1, less), atol=0)


@pytest.mark.slow
def test_training_improves_the_objective_and_leaves_the_base():
    """On a fixed batch, starting at the base itself (b = 0), where the KL to it is 0."""
    fresh = jax.tree.map_with_path(lambda p, x: x * (p[-1].key == "a"), tiny.lora())
    config = LossConfig(PLAIN, kl_coef=0.01)
    optimizer = update.make_optimizer(lr=1e-2, steps=4)
    state, losses, kls = update.init_state(fresh, optimizer), [], []
    for _ in range(4):
        state, metrics = update.train_step(
            tiny.stack(), config, optimizer, tiny.params(), state, (config.pack(sampled(PLAIN)),)
        )
        losses.append(np.asarray(metrics["loss"]))
        kls.append(np.asarray(metrics["kl"]))
    assert (np.diff(losses, axis=0) < 0).all() and int(state.step) == 4
    np.testing.assert_allclose(kls[0], 0.0, atol=1e-6)
    assert (kls[1] > 1e-6).all() and (kls[3] > kls[1]).all()


@pytest.mark.slow
def test_the_compat_loss_is_the_compat_modules():
    batch, lora = sampled(TRUNCATED), tiny.lora()
    config = LossConfig(TRUNCATED, comlrl_compat=True, prompts_per_microbatch=2)
    _, (pg, _, _) = gradients(tiny.stack(), config, tiny.params(), lora, batch)
    for n in range(2):
        raw_RL = np.empty((6, 6))
        for r, tokens in enumerate(batch.tokens_NRL[n]):
            scores = tiny.completion_logits(tiny.own(lora, n), PROMPTS[r // 3], tokens)
            raw_RL[r] = tiny.np_log_probs(scores, SamplingParams(1))[np.arange(6), tokens]
        expected = comlrl_compat.policy_gradient(
            raw_RL, batch.advantages_NR[n], batch.lengths_NR[n], np.repeat([0, 1], 3), num_groups=2
        )
        np.testing.assert_allclose(pg.sum[n], expected.sum, rtol=1e-4)
        assert pg.count[n] == expected.count == 2


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["sequence", "token"])
def test_groups_without_signal_change_nothing_but_the_count(aggregation):
    """The second of two prompts has advantages 0: as if it were not there, but for the divisor."""
    config = LossConfig(PLAIN, aggregation=aggregation)
    one = sampled(PLAIN)
    whole = dataclasses.replace(one, advantages_NR=one.advantages_NR.copy())
    whole.advantages_NR[:, 3:] = 0.0  # the second prompt
    part = batches.split_minibatches(whole, 2)[0]
    (grads, (pg, _, seen)), (alone, (pg_alone, _, seen_alone)) = (
        gradients(tiny.stack(), config, tiny.params(), tiny.lora(), batch) for batch in (whole, part)
    )
    np.testing.assert_allclose(pg.sum, pg_alone.sum, rtol=1e-6)
    counted = one.lengths_NR if aggregation == "token" else np.ones_like(one.lengths_NR)
    np.testing.assert_array_equal(pg.count, counted.sum(1))
    share = counted[:, :3].sum(1) / counted.sum(1)
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a, b * share.reshape(-1, *[1] * (b.ndim - 1)), rtol=1e-5, atol=1e-7)
    # The model did not read the second prompt: what is diagnosed are the tokens of the first.
    np.testing.assert_array_equal(seen.ratio.count, one.lengths_NR[:, :3].sum(1))
    np.testing.assert_array_equal(seen_alone.ratio.count, seen.ratio.count)


def test_the_diagnostics_of_a_batch_without_any_signal_are_those_of_its_first_group():
    batch = dataclasses.replace(sampled(PLAIN), advantages_NR=np.zeros((2, 6), np.float32))
    before = tiny.lora()
    after, metrics = step(tiny.lora(), batch)
    assert_close(after, before, rtol=0)
    assert (metrics["grad_norm"] == 0).all() and abs(metrics["ratio_mean"] - 1).max() < 1e-5


@pytest.mark.slow
def test_the_losses_of_several_turns_are_added():
    """Each is a mean of its own, whatever the number of its prompts."""
    first = sampled(PLAIN)
    second = batches.split_minibatches(first, 2)[1]  # half as many prompts
    config, sgd = LossConfig(PLAIN), optax.sgd(1.0)
    state = update.init_state(tiny.lora(), sgd)
    inputs = (tiny.stack(), config, tiny.params(), tiny.lora())
    alone = [gradients(*inputs, batch) for batch in (first, second)]
    expected = jax.tree.map(lambda x, a, b: x - a - b, tiny.lora(), alone[0][0], alone[1][0])
    packed = (config.pack(first), config.pack(second))
    new, metrics = update.train_step(tiny.stack(), config, sgd, tiny.params(), state, packed)
    assert_close(new.trainable, expected, atol=1e-6)
    np.testing.assert_allclose(metrics["loss"], sum(pg.mean() for _, (pg, *_) in alone), rtol=1e-5)


@pytest.mark.slow
def test_groups_that_only_fill_up_the_batch_count_nowhere():
    batch = sampled(PLAIN)
    empty = jax.tree.map(jnp.zeros_like, batch).replace(prompt_lengths_NB=batch.prompt_lengths_NB)
    filled = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), batch, empty)
    inputs = (tiny.stack(), LossConfig(PLAIN), tiny.params(), tiny.lora())
    (grads, (pg, _, _)), (more, (pg_more, _, _)) = (gradients(*inputs, b) for b in (batch, filled))
    assert_close(grads, more, atol=1e-6)
    np.testing.assert_allclose(pg.count, pg_more.count)


@pytest.mark.slow
def test_another_gradient_is_added_before_clipping():
    """The same once more, with the other sign and without: no step, and one that is cut to 0.5."""
    batch, config, stack = sampled(PLAIN), LossConfig(PLAIN), tiny.stack()
    grads, *_ = gradients(stack, config, tiny.params(), tiny.lora(), batch)

    def moved(more):
        inputs = stack, config, CLIPPED, tiny.params(), update.init_state(tiny.lora(), CLIPPED)
        state, metrics = update.train_step(*inputs, (config.pack(batch),), more=more)
        return jax.tree.map(lambda a, b: np.asarray(a - b), state.trainable, tiny.lora()), metrics

    norms = jax.vmap(optax.tree.norm)(grads)
    assert norms.min() > 0.5  # each would be cut to 0.5 by itself
    nothing, metrics = moved(jax.tree.map(jnp.negative, grads))
    assert_close(nothing, jax.tree.map(jnp.zeros_like, grads), atol=1e-5)
    assert metrics["grad_norm"].max() < 1e-4
    twice, metrics = moved(grads)
    np.testing.assert_allclose(metrics["grad_norm"], 2 * norms, rtol=1e-4)
    np.testing.assert_allclose(jax.vmap(optax.tree.norm)(twice), [0.5, 0.5], rtol=1e-4)
