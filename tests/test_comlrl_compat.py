"""CoMLRL 1.4.3's loss against a NumPy loop that follows its trainer step by step (sizes, slices, skips).

The comparison with the package itself is benchmarks/comlrl_parity.py.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.losses import policy_gradient
from jaxmarl_llm.update import comlrl_compat as compat

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
