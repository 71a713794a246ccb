"""token_ppo.py: advantages of tokens by hand, and the value models that read every prefix of a text."""

import types

import jax
import numpy as np
import optax
import pytest
import tiny

from jaxmarl_llm.config import base_config, validate
from jaxmarl_llm.factory import systems
from jaxmarl_llm.systems import critics, token_ppo
from jaxmarl_llm.systems.critics import Critics, value_model
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.team import Member, Team

TEXTS = {"a": {0: np.array([7, 8, 9]), 3: np.array([9, 10])}, "b": {1: np.array([12, 11, 10, 9, 8])}}


def models(**options):
    members = (Member(tiny.stack(), tiny.params(), tiny.lora(), tiny.Tokenizer(), "tiny"),)
    built = critics.build(Team(members), jax.random.key(0), joint=False, rank=2)
    return Critics(built, optax.adam(0.02), rows=2, by_token=True, **options)


def test_values_are_those_of_every_prefix_alone():
    own = models()
    actual = own.values(TEXTS)
    (member,), params = own.team.members, own.states[0].trainable
    for n, texts in enumerate(TEXTS.values()):
        for number, ids in texts.items():
            prefixes = [[[ids[: end + 1].tolist()] for end in range(len(ids))]]
            padded = value_model.pad_texts([prefixes[0] if k == n else [[[1]]] for k in range(2)])
            wanted = value_model.values(member.stack, member.base, params, padded)[n, : len(ids), 0]
            assert actual[number].shape == ids.shape
            np.testing.assert_allclose(actual[number], wanted, rtol=1e-4, atol=1e-5)


def test_the_first_loss_counts_tokens_with_a_target_alone():
    own = models()
    old = own.values(TEXTS)
    targets = {0: np.array([np.nan, 1.0, -2.0], np.float32), 3: np.array([np.nan, 0.5], np.float32)}
    metrics = own.learn(TEXTS, old, targets)
    y, value = np.array([1.0, -2.0, 0.5]), np.array([old[0][1], old[0][2], old[3][1]])
    assert metrics["a/critic_loss"] == pytest.approx(((y - value) ** 2).mean(), rel=1e-4)
    assert metrics["a/critic_explained"] == pytest.approx(1 - (y - value).var() / y.var(), rel=1e-4)
    assert metrics["b/critic_loss"] == 0 and metrics["b/critic_explained"] == 0


@pytest.mark.slow
def test_value_models_learn_what_each_prefix_is_worth():
    own = models(updates=40)
    targets = {0: np.array([1.0, np.nan, -1.0], np.float32), 3: np.array([0.5, 0.0], np.float32)}
    for _ in range(2):
        own.learn(TEXTS, own.values(TEXTS), targets)
    values = own.values(TEXTS)
    for number, wanted in targets.items():
        known = ~np.isnan(wanted)
        np.testing.assert_allclose(values[number][known], wanted[known], atol=0.25)


class Fixed:
    """Value models that know their values: 0.5 after every token of a prompt, then 0.1 times the tokens before."""

    team = types.SimpleNamespace(
        members=(types.SimpleNamespace(stack=types.SimpleNamespace(agents=("a",))),)
    )
    done = 0

    def values(self, texts):
        return {number: 0.5 + 0.1 * np.arange(len(ids)) for number, ids in texts["a"].items()}


def turn(number, agent, prompt, completion, logprob=-1.0):
    completion = np.array(completion, np.int32)
    logprobs = np.full(len(completion), logprob, np.float32)
    fields = dict(id=number, agent=agent, item=0, request=number, sample=0, step=0, follows=None, parent=None)
    return types.SimpleNamespace(
        **fields, turn=0, stage=(0, "a"), extra=False, prompt=np.array(prompt, np.int32), completion=completion,
        logprobs=logprobs,
    )  # fmt: skip


def system(returns, turns, **options):
    forest = types.SimpleNamespace(turns=turns, joints=[], items=[None], memberships=lambda: (np.zeros(0, int),) * 2)
    n = len(turns)
    made = Credit(forest, np.zeros(n), np.array(returns, np.float32), np.zeros(n, np.int32))
    return forest, token_ppo.TokenPpo(lambda _: made, Fixed(), CreditConfig(turn_loss="mean"), **options)


TURNS = [
    turn(0, "a", [1, 2], [5, 6, 7]), turn(1, "partner", [1], [5]), turn(2, "a", [1], [8, 9]), turn(3, "a", [4], [3])
]  # fmt: skip


def test_advantages_by_hand():
    # Text 0 has 4 tokens before its last: V = .6, .7, .8 before the three of the completion.
    forest, ppo = system([1.0, 9.0, 2.0, np.nan], TURNS, lam=0.5)
    credit = ppo.assign(forest)
    deltas = np.array([0.7 - 0.6, 0.8 - 0.7, 1.0 - 0.8])
    wanted = [deltas[0] + 0.5 * deltas[1] + 0.25 * deltas[2], deltas[1] + 0.5 * deltas[2], deltas[2]]
    np.testing.assert_allclose(credit.token_advantages[0], wanted, rtol=1e-5)
    # Text 2: V = .5, .6 before its two tokens.
    np.testing.assert_allclose(credit.token_advantages[2], [0.1 + 0.5 * 1.4, 1.4], rtol=1e-5)
    np.testing.assert_allclose(credit.advantages[[0, 2]], [np.mean(wanted), (0.8 + 1.4) / 2], rtol=1e-5)
    for number in (1, 3):  # the partner is nobody's model, and the last turn has no return
        assert (credit.token_advantages[number] == 0).all() and credit.advantages[number] == 0
    _, _, targets = credit.for_models
    assert set(targets) == {0, 2} and np.isnan(targets[0][0])
    np.testing.assert_allclose(targets[0][1:], wanted + np.array([0.6, 0.7, 0.8]), rtol=1e-5)
    np.testing.assert_allclose(targets[2], [0.8 + 0.5, 1.4 + 0.6], rtol=1e-5)


def test_with_lambda_1_a_token_earns_what_its_prefix_did_not_promise():
    forest, ppo = system([1.0, 9.0, 2.0, np.nan], TURNS, lam=1.0)
    np.testing.assert_allclose(ppo.assign(forest).token_advantages[0], 1.0 - np.array([0.6, 0.7, 0.8]), rtol=1e-5)


def test_tokens_pay_for_leaving_the_reference():
    logprobs = [np.full(len(each.completion), -1.5) for each in TURNS]  # 0.5 nats below the sampler's
    forest, ppo = system([1.0, 9.0, 2.0, np.nan], TURNS, lam=1.0, kl=0.1, reference=lambda _: logprobs)
    wanted = 1.0 - np.array([0.6, 0.7, 0.8]) - 0.1 * 0.5 * np.array([3, 2, 1])
    np.testing.assert_allclose(ppo.assign(forest).token_advantages[0], wanted, rtol=1e-5)


def test_normalised_over_all_tokens_of_an_agent():
    forest, ppo = system([1.0, 9.0, 2.0, np.nan], TURNS)
    plain = ppo.assign(forest).token_advantages
    ppo = token_ppo.TokenPpo(ppo.of_returns, Fixed(), CreditConfig(turn_loss="mean", normalise=True))
    both = np.concatenate([plain[0], plain[2]])
    scaled = ppo.assign(forest).token_advantages
    np.testing.assert_allclose(np.concatenate([scaled[0], scaled[2]]), (both - both.mean()) / both.std(), rtol=1e-4)


def test_in_the_warm_up_only_value_models_learn():
    forest, ppo = system([1.0, 9.0, 2.0, np.nan], TURNS, warmup=1)
    credit = ppo.assign(forest)
    assert not credit.learn and not credit.advantages.any() and credit.for_models[2]


def test_where_no_reward_applies_nobody_learns():
    forest, ppo = system([np.nan] * 4, TURNS)
    credit = ppo.assign(forest)
    assert not credit.advantages.any() and credit.for_models[2] == {}


VALUES = {"task.kind": "reasoning", "task.source": "clues", "task.feedback": "heard", "train.joint_mode": "aligned",
          "train.turns": 2, "train.later_samples": 1, "train.system": "maporl", "maporl.value_model": True}  # fmt: skip


def test_credit_does_not_follow_from_the_forest_alone():
    config = base_config()
    config.update_from_flattened_dict(VALUES)
    assert systems.from_forest(config) is None  # such runs are not judged again as if they had no value models
    config.maporl.value_model = False
    assert systems.from_forest(config) is not None


@pytest.mark.parametrize("fields, sentence", [
    ({"train.loss": "my:loss"}, "train.loss='my:loss': with maporl.value_model=True allowed is ''"),
    ({"train.baseline": "none"}, "train.baseline='none': with maporl.value_model=True allowed is 'mean'"),
    ({"train.redraw": 2}, "train.redraw=2: with maporl.value_model=True allowed is 0"),
    ({"critic.warmup": 10**6}, "critic.warmup=1000000: must be below train.steps"),
    ({"critic.form": "q"}, "critic.form='q': only train.system='iac' and 'maac'"),
    ({"train.normalise": True}, "train.normalise=True: with a critic train.normalise_by='agent' is allowed only"),
    ({"maporl.gae_lambda": 1.5}, "maporl.gae_lambda=1.5: allowed is 0 to 1"),
    ({"maporl.value_model": False, "maporl.kl_reward": 0.1}, "maporl.kl_reward=0.1: only maporl.value_model=True"),
    ({"train.epochs": 4}, "train.epochs=4: from the second one on, answers were drawn by a policy before an update"),
    ({"train.epochs": 0}, "train.epochs=0: allowed is 1 to any larger number"),
    ({"team.models": ("smollm2-135m-instruct", "scripted:repeater"), "maporl.kl_reward": 0.1},
     "maporl.kl_reward=0.1: it reads what agents think, and the model of 'main' does not show it"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(fields, sentence):
    config = base_config()
    config.update_from_flattened_dict(VALUES)
    validate(config)
    config.update_from_flattened_dict(fields)
    with pytest.raises(ValueError) as caught:
        validate(config)
    assert sentence in str(caught.value)
