"""CoMLRL 1.4.3's loss against a NumPy loop that follows its trainer step by step (sizes, slices, skips).

The comparison with the package itself is benchmarks/comlrl_parity.py.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm.losses import policy_gradient
from jaxmarl_llm.policy import Policy, PolicyConfig
from jaxmarl_llm.update import comlrl_compat as compat
from jaxmarl_llm.weights.hf_config import hf_config, policy_config

LENGTHS_R = np.array([2, 4, 1, 3, 2, 2, 1, 1, 1])  # nodes 0 (longest 4), 1 (longest 3), 2 (longest 1)
GROUP_R = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
RETURNS_R = np.array([0.0, 1.0, 3.5, 2.0, 2.0, 2.5, 1.0, 0.0, 4.0])
PROMPT, TOKENS = 3, 6


def _oracle_node_loss(logprobs_RL, returns_G, longest):
    """`logprobs_RL[g, c]` = log pi of padded completion token c, read from logits row PROMPT - 1 + c."""
    advantages_G = returns_G - returns_G.mean()
    advantages_G = (advantages_G - advantages_G.mean()) / max(advantages_G.std(), 1e-6)
    total, rows = 0.0, 0
    for g, advantage in enumerate(advantages_G):
        logits_rows = list(range(PROMPT + longest - 1))[PROMPT - 1 : -1]  # input is prompt + completion[:-1]
        kept = [logprobs_RL[g, c] for c in range(longest) if c < len(logits_rows)]
        if kept:
            total -= sum(kept) * advantage
            rows += 1
    return total / rows if rows else 0.0


def _loss(logprobs_RL):
    advantages_R = compat.advantages(RETURNS_R, GROUP_R, num_groups=3)
    return compat.policy_gradient(logprobs_RL, advantages_R, LENGTHS_R, GROUP_R, num_groups=3)


def test_loss_equals_the_mean_of_their_node_losses():
    logprobs_RL = np.random.default_rng(0).uniform(-4, -0.1, size=(9, TOKENS))
    nodes = [
        _oracle_node_loss(logprobs_RL[GROUP_R == node], RETURNS_R[GROUP_R == node], longest)
        for node, longest in enumerate((4, 3, 1))
    ]
    assert nodes[0] != 0 and nodes[1] != 0 and nodes[2] == 0
    got = _loss(logprobs_RL)
    assert got.count == 3
    np.testing.assert_allclose(got.mean(), np.mean(nodes), rtol=1e-5)


def test_mask_trains_padding_and_drops_the_last_position():
    mask_RL = compat.token_mask(LENGTHS_R, GROUP_R, num_groups=3, num_tokens=TOKENS)
    # Every row of node 0 trains 4 - 1 tokens, whatever its own length; node 2 (length 1) trains none.
    np.testing.assert_array_equal(mask_RL.sum(axis=1), [3, 3, 3, 2, 2, 2, 0, 0, 0])
    assert mask_RL[2, 1] and not mask_RL[1, 3]  # a pad token of a short row; the EOS of the longest


def test_gradient_is_minus_advantage_over_rows_and_nodes():
    grad_RL = jax.grad(lambda x: _loss(x).mean())(jnp.full((9, TOKENS), -1.0))
    mask_RL = compat.token_mask(LENGTHS_R, GROUP_R, num_groups=3, num_tokens=TOKENS)
    advantages_R = compat.advantages(RETURNS_R, GROUP_R, num_groups=3)
    expected_RL = np.where(mask_RL, -np.asarray(advantages_R)[:, None] / 3 / 3, 0.0)
    np.testing.assert_allclose(grad_RL, expected_RL, rtol=1e-5)


def test_rows_outside_the_groups_do_not_count():
    logprobs_RL = np.random.default_rng(1).uniform(-4, -0.1, size=(9, TOKENS))
    advantages_R = np.append(compat.advantages(RETURNS_R, GROUP_R, num_groups=3), 7.0)
    padded_RL = np.concatenate([logprobs_RL, np.full((1, TOKENS), -9.0)])
    for key in (3, -1):
        got = compat.policy_gradient(
            padded_RL, advantages_R, np.append(LENGTHS_R, 6), np.append(GROUP_R, key), num_groups=3
        )
        np.testing.assert_allclose(got.mean(), _loss(logprobs_RL).mean(), rtol=1e-6)
        assert got.count == 3


def test_differs_from_the_paper_form_only_where_documented():
    # With equal lengths and the last token masked out, the paper's form gives the same number.
    logprobs_RL = np.random.default_rng(2).uniform(-4, -0.1, size=(3, 4))
    advantages_R = compat.advantages([1.0, 2.0, 4.0], np.zeros(3, int), num_groups=1)
    theirs = compat.policy_gradient(logprobs_RL, advantages_R, np.full(3, 4), np.zeros(3, int), num_groups=1)
    mask_RL = np.arange(4) < np.full((3, 1), 3)
    np.testing.assert_allclose(
        theirs.mean(), policy_gradient(logprobs_RL, advantages_R, mask_RL).mean(), rtol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_the_pad_row_gets_no_gradient_where_it_is_read(tied):
    """Against the same model with one table that is read and another that predicts."""
    config = PolicyConfig(
        7, d_model=8, d_ff=16, n_layers=1, n_heads=2, n_kv_heads=1, head_dim=4, max_positions=16,
        tie_embeddings=tied, pad_row=3,
    )  # fmt: skip
    policy = Policy(config)
    tokens_BL = jnp.array([[1, 3, 5, 3, 2, 6]])
    positions_BL = jnp.arange(6)[None]
    params = policy.init(jax.random.key(0), tokens_BL, positions_BL)

    def loss(policy, params):
        logits_BLV, _ = policy.apply(params, tokens_BL, positions_BL)
        return jnp.take_along_axis(jax.nn.log_softmax(logits_BLV[:, :-1]), tokens_BL[:, 1:, None], -1).sum()

    def table(tree):
        return tree["params"]["embed"]["embedding"]

    plain = table(jax.grad(functools.partial(loss, policy))(params))
    fixed = table(jax.grad(functools.partial(loss, policy.clone(pad_row_fixed=True)))(params))
    others = np.array([0, 1, 2, 4, 5, 6])
    np.testing.assert_array_equal(fixed[others], plain[others])
    assert np.abs(plain[3] - fixed[3]).max() > 1e-3
    if not tied:
        assert not fixed[3].any()
        return

    def read_elsewhere(row_D):
        """The row as it is predicted with only: token 7 takes its place where it is read."""
        wide = Policy(dataclasses.replace(config, vocab_size=8))
        own = table(params)
        rows = jnp.concatenate([own.at[3].set(row_D), own[3:4]])
        widened = {"params": params["params"] | {"embed": {"embedding": rows}}}
        logits_BLV, _ = wide.apply(widened, jnp.where(tokens_BL == 3, 7, tokens_BL), positions_BL)
        logprobs = jax.nn.log_softmax(logits_BLV[:, :-1, :7])
        return jnp.take_along_axis(logprobs, tokens_BL[:, 1:, None], -1).sum()

    np.testing.assert_allclose(fixed[3], jax.grad(read_elsewhere)(table(params)[3]), rtol=1e-4, atol=1e-6)


def test_the_pad_row_comes_from_the_models_own_config():
    raw = hf_config(PolicyConfig(10, 8, 16, 1, 2, 1, 4, 16, pad_row=4))
    assert policy_config(raw).pad_row == raw["pad_token_id"] == 4
    assert policy_config(raw | {"pad_token_id": None}).pad_row is None
    assert policy_config(raw | {"pad_token_id": -1}).pad_row == 9
    with pytest.raises(ValueError, match="pad_token_id is 10; allowed: null, or a row of the 10"):
        policy_config(raw | {"pad_token_id": 10})
