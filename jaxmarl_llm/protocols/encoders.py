"""Encoders of texts by name: a frozen policy of the team, word n-grams, or a function of the user's own.

LessonL (arXiv 2505.23946) uses the vector of CodeBERT's first token. Here the policy itself encodes by
default: nothing is downloaded, and the same model reads the lessons later.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.memory import Encoder, Relevance, checked, ngrams
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.sampling.padding import bucket
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.utils.dotted import resolve
from jaxmarl_llm.utils.errors import UserError

ROWS = 8  # texts that the policy reads together


class PolicyEncoder:
    """Encodes a text as the mean of the policy's last hidden states over its tokens, float32 (X, D).

    The policy is the untrained one, without adapters, so that vectors keep their meaning for a whole run. The
    texts are read without chat markup, and truncated to ``max_tokens``.
    """

    def __init__(self, member: Member, max_tokens: int = 512, field: str = "lessons.encoder"):
        self._policy, self._tokenizer = member.stack.policy, member.tokenizer
        self._variables = member.base
        if self._variables is None:
            raise UserError(
                f"the base of model {member.model_name!r} is not kept with team.mode='full'; "
                f"set {field}='ngrams' or team.mode='adapters'"
            )
        self._max_tokens = min(max_tokens, self._policy.config.max_positions)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors (X, D) of X texts."""
        ids = [self._tokenizer.encode(text)[: self._max_tokens] or [self._tokenizer.pad_id] for text in texts]
        vectors_XD = np.zeros((len(texts), self._policy.config.d_model), np.float32)
        by_length = sorted(range(len(texts)), key=lambda x: len(ids[x]))  # for little padding
        for start in range(0, len(texts), ROWS):
            chosen = by_length[start : start + ROWS]
            vectors_XD[chosen] = self._encode([ids[x] for x in chosen])
        return vectors_XD

    def _encode(self, ids: Sequence[list[int]]) -> np.ndarray:
        width = min(bucket(max(map(len, ids))), self._max_tokens)
        tokens_BL, lengths_B = np.zeros((ROWS, width), np.int32), np.ones(ROWS, np.int32)
        for b, text_ids in enumerate(ids):
            tokens_BL[b, : len(text_ids)], lengths_B[b] = text_ids, len(text_ids)
        return np.asarray(_pooled(self._policy, self._variables, tokens_BL, lengths_B))[: len(ids)]


@functools.partial(jax.jit, static_argnames="policy")
def _pooled(policy: Policy, variables, tokens_BL, lengths_B) -> jax.Array:
    """Mean hidden states (B, D) over the first ``lengths_B`` tokens; later tokens are ignored."""
    positions_BL = jnp.broadcast_to(jnp.arange(tokens_BL.shape[1]), tokens_BL.shape)
    hidden_BLD, _ = policy.apply(variables, tokens_BL, positions_BL, method="hidden")
    mask_BL1 = (positions_BL < lengths_B[:, None])[..., None]
    return jnp.where(mask_BL1, hidden_BLD.astype(jnp.float32), 0.0).sum(1) / lengths_B[:, None]


def build(name: str, team: Team, field: str = "lessons.encoder") -> Relevance:
    """Build `Relevance` from the name of an encoder.

    It is ``policy`` (the first local model of the team), ``ngrams``, or the dotted name of your own function,
    texts -> (X, D). ``field`` is its name in the config.

    Raises:
      ValueError: for ``policy`` with a team without a local model, and for a name that does not exist.
    """
    return Relevance(encoder(name, team, field))


def encoder(name: str, team: Team, field: str = "lessons.encoder") -> Encoder:
    """The encoder of a name, see `build`, which has the same errors; ``field`` is its name in the config.

    The results of your own function are checked in every call, see `memory.checked`.
    """
    if name == "ngrams":
        return ngrams
    if name != "policy":
        return checked(resolve(name, field), f"{field} {name!r}")
    local = [member for member in team.members if member.stack.policy is not None]
    if not local:
        raise UserError(
            f"{field}='policy': the team has no model on this machine; allowed then: ngrams, or the dotted name of a "
            "function"
        )
    return PolicyEncoder(local[0], field=field)
