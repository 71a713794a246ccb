"""Encoders of texts: the policy, words, functions of the user's."""

import jax.numpy as jnp
import numpy as np
import pytest
import scripted_team
import tiny

from jaxmarl_llm.protocols import encoders
from jaxmarl_llm.protocols.encoders import PolicyEncoder


@pytest.mark.slow
def test_the_policy_reads_a_text_alone():
    """The mean of hidden states that are computed without padding and without company."""
    member = scripted_team.tiny_team().members[0]
    texts = ["w3 w4 w5", "w7", "w3 " * 40]
    actual = PolicyEncoder(member)(texts)
    for text, vector in zip(texts, actual, strict=True):
        tokens = jnp.array([member.tokenizer.encode(text)])
        positions = jnp.arange(tokens.shape[1])[None]
        hidden, _ = tiny.POLICY.apply(member.base, tokens, positions, method="hidden")
        np.testing.assert_allclose(vector, hidden[0].mean(0), rtol=1e-4, atol=1e-5)
    assert PolicyEncoder(member, max_tokens=2)(["w3 w4 w5"])[0] == pytest.approx(
        PolicyEncoder(member)(["w3 w4"])[0], abs=1e-5
    )


def test_more_texts_than_one_batch_and_none():
    encoder = PolicyEncoder(scripted_team.tiny_team().members[0])
    texts = [f"w{3 + i}" for i in range(11)]
    assert encoder(texts).shape == (11, tiny.POLICY.config.d_model)
    assert encoder(texts)[10] == pytest.approx(encoder(texts[10:])[0], abs=1e-5)
    assert encoder([]).shape == (0, tiny.POLICY.config.d_model)
    assert len(encoder([""])) == 1


def by_length(texts):
    return [[1.0] for _ in texts]


def too_few(texts):
    return np.zeros((1, 2))


def test_encoders_by_name():
    team = scripted_team.tiny_team()
    assert encoders.build("ngrams", team)(["a b"], ["a b"]) == pytest.approx([1.0])
    assert -1 <= encoders.build("policy", team)(["w3"], ["w4"])[0] <= 1
    assert encoders.build(f"{__name__}.by_length", team)(["x"], ["y"]) == pytest.approx([1.0])
    with pytest.raises(ValueError, match=r"shape \(1, 2\) for 2 texts"):
        encoders.build(f"{__name__}.too_few", team)(["x"], ["y"])
    with pytest.raises(ValueError, match="lessons.encoder 'nowhere'"):
        encoders.build("nowhere", team)
