"""A loss of the user's, in a file of its own: against the built-in ones, by hand, and what is refused."""

import dataclasses
import doctest
import functools

import jax
import jax.numpy as jnp
import method_runs
import numpy as np
import pytest
import smoke_runs
import tiny
from update_cases import PLAIN, assert_close, oracle_loss, sampled, step

from configs import coding
from experiments import train
from jaxmarl_llm import losses
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import training
from jaxmarl_llm.losses import SumCount, aggregate
from jaxmarl_llm.update import LossConfig, custom_loss
from jaxmarl_llm.utils import dotted

pytestmark = pytest.mark.usefixtures("programs_shared")
FILE = '''
import functools
import jax
import jax.numpy as jnp
from jaxmarl_llm import losses
from jaxmarl_llm.losses import SumCount

def reinforce(logprobs_BL, advantages_B, mask_BL):
    return losses.aggregate(-advantages_B[:, None] * logprobs_BL, mask_BL, "sequence")

def clipped(logprobs_BL, advantages_B, mask_BL, *, behaviour_logprobs_BL):
    ratio = jnp.exp(losses.log_ratio(logprobs_BL, behaviour_logprobs_BL, mask_BL))
    gain = advantages_B[:, None]
    worth = jnp.minimum(ratio * gain, jnp.clip(ratio, 0.95, 1.1) * gain)
    return losses.aggregate(-worth, mask_BL, "token")

dr_grpo = functools.partial(losses.policy_gradient, clip=0.2, aggregation="sequence_mean")

def python_mean(logprobs_BL, advantages_B, mask_BL):
    return -(advantages_B[:, None] * logprobs_BL).mean()

def pair(logprobs_BL, advantages_B, mask_BL):
    return reinforce(logprobs_BL, advantages_B, mask_BL), 1.0

def per_row(logprobs_BL, advantages_B, mask_BL):
    return SumCount(losses.masked_sum(logprobs_BL, mask_BL), mask_BL.any(-1).astype(jnp.float32))

def counts_with_integers(logprobs_BL, advantages_B, mask_BL):
    return SumCount(jnp.sum(logprobs_BL), mask_BL.sum())

def branches(logprobs_BL, advantages_B, mask_BL):
    return SumCount(jnp.sum(logprobs_BL) if advantages_B[0] > 0 else 0.0, 1.0)

def turns(logprobs_BL, advantages_B, mask_BL, *, turns_BL):
    return reinforce(logprobs_BL, advantages_B, mask_BL)

def half(logprobs_BL, advantages_B, mask_BL):
    return SumCount(jnp.sum(logprobs_BL.astype(jnp.float16)), jnp.float32(1))

def stopped(logprobs_BL, advantages_B, mask_BL):
    return reinforce(jax.lax.stop_gradient(logprobs_BL), advantages_B, mask_BL)

def constant(logprobs_BL, advantages_B, mask_BL):
    return SumCount(advantages_B.sum(), jnp.float32(1))

def entropy_alone(logprobs_BL, advantages_B, mask_BL, *, entropy_BL):
    return losses.aggregate(entropy_BL, mask_BL, "token")

def linear(logprobs_BL, advantages_B, mask_BL):
    return SumCount(jnp.sum(logprobs_BL), jnp.float32(1))

class Family:
    @staticmethod
    def member(logprobs_BL, advantages_B, mask_BL):
        return reinforce(logprobs_BL, advantages_B, mask_BL)

class Weighted:
    __hash__ = None
    def __call__(self, logprobs_BL, advantages_B, mask_BL):
        return reinforce(logprobs_BL, advantages_B, mask_BL)

weighted = Weighted()
LEVEL = 3
'''


@pytest.fixture
def my_losses(tmp_path, monkeypatch):
    (tmp_path / "my_losses.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)


def config(**fields):
    made = coding.get_config("smoke")
    made.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return made


def of(function, **options):
    return LossConfig(PLAIN, custom=function, **options)


def actual(config, batch, lora=None):
    return tiny.gradients(tiny.stack(), config, tiny.params(), lora or tiny.lora(), batch)


def test_the_formula_of_a_built_in_loss_gives_its_update_bit_for_bit(my_losses):
    """Away from the policy that drew, so that some ratios are clipped."""
    own, batch = of(custom_loss.resolve("my_losses.clipped")), sampled(PLAIN)
    built_in = LossConfig(PLAIN, clip=(0.05, 0.1), aggregation="token")
    wanted, numbers = step(tiny.lora(noise=0.22), batch, config=built_in)
    got, own_numbers = step(tiny.lora(noise=0.22), batch, config=own)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)
    assert own_numbers.keys() == numbers.keys() - {"clip_fraction"}
    for key, value in own_numbers.items():
        np.testing.assert_array_equal(value, numbers[key], err_msg=key)
    assert (own_numbers["update_norm"] > 0.1).all() and (numbers["clip_fraction"] > 0).all()


def not_bad(logprobs_BL, advantages_B, mask_BL):
    """Imitates the answers that are not worse than expected; their number is the divisor."""
    return aggregate(-logprobs_BL, mask_BL & (advantages_B >= 0)[:, None], "sequence")


def test_another_formula_by_hand():
    """mean over rows with A >= 0 of - sum_l log pi, row by row in float64; also those of a silent group."""
    batch, lora = sampled(PLAIN), tiny.lora()
    batch = dataclasses.replace(batch, advantages_NR=batch.advantages_NR * (np.arange(6) < 3))
    ones = dataclasses.replace(batch, advantages_NR=np.ones_like(batch.advantages_NR))
    grads, (pg, _, _) = actual(of(not_bad), batch)
    for n in range(2):
        good_R = np.flatnonzero(batch.advantages_NR[n] >= 0)
        assert 3 < len(good_R) < 6  # the silent group's, and some of the other
        expected = oracle_loss(tiny.own(lora, n), ones, n, 0.7, rows=good_R)
        assert pg.count[n] == len(good_R)
        np.testing.assert_allclose(pg.mean()[n], expected, rtol=1e-5)
    # REINFORCE's gradient with advantage 1 for those and 0 for the others, times 6 / their number.
    chosen = dataclasses.replace(batch, advantages_NR=(batch.advantages_NR >= 0).astype(np.float32))
    plain, _ = actual(LossConfig(PLAIN), chosen)
    share_N = (batch.advantages_NR >= 0).mean(1)
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b / share_N.reshape(-1, *[1] * (b.ndim - 1)), rtol=1e-4, atol=1e-6)
    # Two prompts and a row at a time, instead of a prompt and all of its tokens: the same.
    other, _ = actual(of(not_bad, prompts_per_microbatch=2, tokens_per_microbatch=1), batch)
    assert_close(grads, other, atol=2e-5, rtol=1e-5)


def shaped(logprobs_BL, advantages_B, mask_BL, *, ref_logprobs_BL, entropy_BL):
    """REINFORCE with a KL term of 0.3 and an entropy bonus of 0.5."""
    parts = losses.policy_gradient(logprobs_BL, advantages_B, mask_BL)
    kl = losses.kl_loss(logprobs_BL, ref_logprobs_BL, mask_BL, kind="k2")
    return SumCount(parts.sum + 0.3 * kl.sum - 0.5 * aggregate(entropy_BL, mask_BL, "sequence").sum, kl.count)


def test_reference_and_entropy_are_given_to_those_who_ask():
    built_in = LossConfig(PLAIN, kl_coef=0.3, kl_kind="k2", entropy_coef=0.5)
    (wanted, (pg, kl, seen)), (got, (own, _, _)) = (actual(c, sampled(PLAIN)) for c in (built_in, of(shaped)))
    assert_close(got, wanted, rtol=1e-4, atol=1e-6)
    assert (kl.mean() > 1e-3).all() and not np.allclose(own.mean(), pg.mean() + 0.3 * kl.mean(), atol=1e-2)
    assert of(shaped).reads_reference and of(shaped).entropy_learns
    assert not of(not_bad).reads_reference and not of(not_bad).entropy_learns
    copies = jax.tree.map(lambda x: jnp.stack([x, x]), tiny.params())
    with pytest.raises(ValueError, match="a loss that names ref_logprobs_BL needs a reference"):
        tiny.gradients(tiny.stack(mode="full"), of(shaped), None, copies, sampled(PLAIN))


def no_mask(logprobs_BL, advantages_B, mask_BL):
    return SumCount(-jnp.sum(advantages_B[:, None] * logprobs_BL), mask_BL.any(-1).sum(dtype=jnp.float32))


def test_a_forgotten_mask_lets_nothing_in():
    """Of padding and of rows without tokens, which may be NaN."""
    mask_BL = np.array([[True, False], [False, False]])
    nan_BL = np.where(mask_BL, -1.0, np.nan)

    def loss(x_BL):
        actual = custom_loss.apply(no_mask, x_BL, np.array([2.0, np.nan]), mask_BL, {})
        return actual.sum, actual.count

    (value, count), grad_BL = jax.value_and_grad(loss, has_aux=True)(nan_BL)
    assert (value, count) == (2.0, 1.0) and grad_BL.tolist() == [[-2.0, 0.0], [0.0, 0.0]]


def test_what_a_loss_asks_for():
    assert custom_loss.named_arguments(shaped) == ("ref_logprobs_BL", "entropy_BL")
    clipped = functools.partial(losses.policy_gradient, clip=0.2)
    assert custom_loss.named_arguments(clipped) == ("behaviour_logprobs_BL",)
    assert doctest.testmod(custom_loss) == (0, 1)
    assert custom_loss.named_arguments(not_bad) == custom_loss.named_arguments(lambda *rows, **given: None) == ()


@pytest.mark.parametrize("name, message", [
    ("nothing", "expected 'package.module:function'"),
    ("no_such_module:loss", "cannot import 'no_such_module'"),
    ("my_losses:nothing", r"has no 'nothing'; it has \['Family', 'SumCount', 'Weighted', 'branches', "),
    ("my_losses:Family.nobody", "has no 'Family.nobody'; it has"),
    ("my_losses:stopped", "has no gradient: its sum depends neither on logprobs_BL nor on entropy_BL, or through stop"),
    ("my_losses:constant", "has no gradient: its sum depends neither on logprobs_BL"),
    ("my_losses:LEVEL", "is a int; expected a function"),
    ("my_losses:python_mean", r"returned a ShapeDtypeStruct; expected a losses.SumCount"),
    ("my_losses:pair", "returned a tuple; expected a losses.SumCount"),
    ("my_losses:per_row", r"sum is float32 of shape \(3,\); expected a float32 scalar"),
    ("my_losses:counts_with_integers", r"count is int32 of shape \(\); expected a float32 scalar"),
    ("my_losses:half", r"sum is float16 of shape \(\); expected"),
    ("my_losses:branches", r"raised on logprobs_BL \(3, 5\), .*\(TracerBoolConversionError: "),
    ("my_losses:turns", r"raised on .*\(TypeError: turns\(\) missing 1 required keyword-only .*'turns_BL'"),
    ("my_losses:weighted", "it is no constant of a program .*unhashable"),
])  # fmt: skip
def test_what_cannot_be_a_loss_is_refused(my_losses, name, message):
    with pytest.raises(ValueError, match=f"^train.loss '{name}'.*{message}"):
        training.loss_config(config(train__loss=name))


@pytest.mark.parametrize("name", ["entropy_alone", "linear", "Family.member", "dr_grpo"])
def test_what_can_be_a_loss(my_losses, name):
    assert training.loss_config(config(train__loss=f"my_losses:{name}")).custom is not None


def test_a_config_names_the_loss_and_gets_the_same_one_again(my_losses):
    c = config(train__loss="my_losses:dr_grpo", train__drop_truncated=True)
    validate(c)
    loss = training.loss_config(c)
    assert loss == training.loss_config(c) and hash(loss) == hash(training.loss_config(c))
    assert loss.custom.keywords == {"clip": 0.2, "aggregation": "sequence_mean"} and loss.drop_truncated
    assert training.loss_config(config()).custom is None


@pytest.mark.parametrize("field, value", [
    ("clip", 0.2), ("importance_cap", 2.0), ("ratio_level", "sequence"), ("aggregation", "token"),
    ("kl_coef", 0.1), ("kl_kind", "k2"), ("entropy_coef", 0.1), ("comlrl_compat", True),
])  # fmt: skip
def test_what_a_loss_of_ones_own_would_ignore_is_refused(field, value):
    as_published = dict(task__cooperation="paper", task__parsing="paper")
    c = config(train__loss="my_losses.reinforce", **as_published, **{f"train__{field}": value})
    with pytest.raises(ValueError) as caught:
        validate(c)
    (line,) = str(caught.value).splitlines()[1:]
    assert line.startswith(f"  train.{field}={value!r}: train.loss='my_losses.reinforce' takes its place")


@pytest.mark.parametrize("fields", [dict(train__overlap=True), dict(sampling__dtype="bfloat16")])
def test_answers_of_another_policy_need_a_loss_that_knows_it(my_losses, fields):
    validate(config(train__loss="my_losses:clipped", **fields))
    assert training.loss_config(config(train__loss="my_losses:clipped", **fields)).custom
    with pytest.raises(ValueError, match="train.loss 'my_losses:reinforce' does not name behaviour_logprobs"):
        training.loss_config(config(train__loss="my_losses:reinforce", **fields))


@pytest.mark.model
def test_a_run_with_a_loss_of_ones_own(my_losses, tmp_path):
    """The same formula as the config's own gives the same run, bit for bit."""
    small = method_runs.SMALL | {"train.steps": 2, "train.loss": "my_losses:reinforce"}
    made = {}
    for name, fields in (("own", small), ("built_in", small | {"train.loss": ""})):
        c = coding.get_config("smoke")
        c.update_from_flattened_dict(fields)
        train.train(c, tmp_path / name)
        made[name] = smoke_runs.saved_state(tmp_path / name, c), smoke_runs.rows(tmp_path / name)
    (own, rows), (built_in, wanted) = made["own"], made["built_in"]
    for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(built_in), strict=True):
        np.testing.assert_array_equal(a, b)
    for row, other in zip(rows, wanted, strict=True):
        assert row == {k: v for k, v in other.items() if not k.endswith("clip_fraction")}
    assert own.step == 2 and rows[0]["main/update_norm"] > 0


def test_one_that_raises_in_a_run_says_where():
    def short_only(logprobs_BL, advantages_B, mask_BL):
        raise LookupError("no row is that long")

    with pytest.raises(dotted.UserCodeError, match=r"^train.loss raised on .*7\) \(LookupError: no row") as e:
        custom_loss.apply(short_only, jnp.zeros((2, 7)), jnp.zeros(2), jnp.ones((2, 7), bool), {})
    (frame,) = e.value.user_frames()
    assert "in short_only" in frame
