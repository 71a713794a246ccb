"""Encoders of texts: the policy, words, functions of the user's."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scripted_team
import tiny

from jaxmarl_llm.protocols import encoders
from jaxmarl_llm.protocols.encoders import PolicyEncoder
from jaxmarl_llm.protocols.routed import Place
from jaxmarl_llm.systems.critics.action_values import ActionValues
from jaxmarl_llm.systems.router import Router
from jaxmarl_llm.tasks.worlds.corridor import Corridor
from jaxmarl_llm.utils.dotted import UserCodeError
from jaxmarl_llm.utils.errors import UserError


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


def leaves(texts):
    sys.exit(0)


ODD = {
    "one_dimension": lambda texts: np.arange(len(texts), dtype=float), "none": lambda texts: None,
    "not_finite": lambda texts: np.full((len(texts), 3), np.nan), "words": lambda texts: [["a", "b"]] * len(texts),
    "ragged": lambda texts: [[1.0] * (1 + n) for n in range(len(texts))], "too_few": too_few,
    "digits": lambda texts: [["1", "2"]] * len(texts), "complex": lambda texts: [[1j, 2]] * len(texts),
    "empty": lambda texts: [[]] * len(texts), "generator": lambda texts: ([1.0] for _ in texts),
    "several_lengths": lambda texts: np.ones((len(texts), len(texts))),
}  # fmt: skip
globals().update(ODD)


@pytest.mark.parametrize("name", ODD)
def test_vectors_that_are_none_are_one_sentence(name):
    """Of a router and of learned values too: their encoders are made by the same function."""
    name = f"{__name__}.{name}"
    encode = encoders.encoder(name, None, "router.encoder")
    expected = r"expected finite numbers of shape \(3, (dimensions|2)\)"
    with pytest.raises(UserError, match=f"router.encoder '{name}' gave .* for 3 texts; {expected}"):
        encode(["a", "b"]) if "several" in name else None
        encode(["x", "y", "z"])
    with pytest.raises(UserError, match="router.encoder .* texts; expected finite numbers"):
        encode = encoders.encoder(name, None, "router.encoder")
        router = Router(("a", "b"), 2, encode, jax.random.key(0), 4, optax.sgd(1))
        router([Place("x"), Place("y"), Place("z")])
    with pytest.raises(UserError, match="gate.encoder .* texts; expected finite numbers"):
        encode = encoders.encoder(name, None, "gate.encoder")
        values = ActionValues(Corridor(), encode, [((0,), ("wait",), 1.0)], jax.random.key(0), updates=1)
        values((1,), ("wait",))


def test_an_encoder_that_raises_is_named():
    with pytest.raises(UserCodeError, match=r"gate.encoder '.*leaves' raised on 1 texts \(SystemExit: 0\)"):
        encoders.encoder(f"{__name__}.leaves", None, "gate.encoder")(["x"])


def test_encoders_by_name():
    team = scripted_team.tiny_team()
    assert encoders.build("ngrams", team)(["a b"], ["a b"]) == pytest.approx([1.0])
    assert -1 <= encoders.build("policy", team)(["w3"], ["w4"])[0] <= 1
    assert encoders.build(f"{__name__}.by_length", team)(["x"], ["y"]) == pytest.approx([1.0])
    with pytest.raises(ValueError, match=r"shape \(1, 2\) for 2 texts"):
        encoders.build(f"{__name__}.too_few", team)(["x"], ["y"])
    with pytest.raises(ValueError, match="lessons.encoder 'nowhere'"):
        encoders.build("nowhere", team)
