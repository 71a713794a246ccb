"""Requests to ``/v1/completions`` of an OpenAI-compatible server, and checks of its answers.

The body is vLLM's: prompts as token ids, and every field that affects sampling, because a server takes
missing fields from the model's generation config. An answer is read token by token; an answer that lacks
anything, or has more than requested, gives an error sentence and no completion.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.stops import Stops
from jaxmarl_llm.utils.errors import UserError

ROUNDING = 1e-5  # nats by which the log-probability of a token may be above 0
EXCLUDED = -9999.0  # what vLLM sends for minus infinity
REASONS = ("stop", "length")
UNWANTED = -100.0  # of logits, the lowest that the protocol allows
_LONGEST_SHOWN = 200  # characters


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The token ids that a completion may hold, and what ends it.

    size: ids of the policy. unused: ranges (first, end) of ids without a token. stops: what ends a
      completion.
    """

    size: int
    unused: tuple[tuple[int, int], ...]
    stops: Stops

    @functools.cached_property
    def ending(self) -> frozenset[int]:
        """Ids that end a completion by themselves."""
        return frozenset(self.stops.ids).union(*(text.alone for text in self.stops.texts))

    def has(self, token: Any) -> bool:
        """Whether it is an id that may be drawn."""
        inside = type(token) is int and 0 <= token < self.size
        return inside and not any(first <= token < end for first, end in self.unused)


class Wanted(NamedTuple):
    """One request: ``samples`` completions of a prompt by the adapters ``name``, drawn by ``params`` from ``seed``."""

    name: str
    prompt: tuple[int, ...]
    samples: int
    params: SamplingParams
    seed: int
    vocabulary: Vocabulary


class Completion(NamedTuple):
    """Token ids (L',), their log-probabilities (L',), and whether a stop ended it."""

    tokens_L: np.ndarray
    logprobs_L: np.ndarray
    finished: bool


def body(wanted: Wanted) -> dict[str, Any]:
    """The JSON of a request. Greedy requests are for one sample: vLLM refuses more."""
    params, words = wanted.params, wanted.vocabulary
    drawing = {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0}
    if not params.greedy:
        drawing = {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k or -1,
            "min_p": params.min_p,
        }
    unused = [i for first, end in words.unused for i in range(first, min(end, words.size))]
    return {
        "model": wanted.name,
        "prompt": list(wanted.prompt),
        "n": wanted.samples,
        "seed": wanted.seed,
        "max_tokens": params.max_new_tokens,
        **drawing,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": sorted(words.ending),
        "ignore_eos": True,  # only the ids above end a completion here
        "logprobs": 0,  # only of the drawn token
        "return_token_ids": True,
        "add_special_tokens": False,
        "skip_special_tokens": False,
        "stream": False,
    } | ({"logit_bias": {str(i): UNWANTED for i in unused}} if unused else {})


def read(answer: Any, wanted: Wanted) -> list[Completion]:
    """The completions of an answer to `body`, in the order of their indices.

    Raises:
      UserError: with what is wrong; the sentence begins with "the answer ..".
    """
    if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
        raise UserError(f"the answer has no choices: {str(answer)[:_LONGEST_SHOWN]}")
    if answer.get("model") != wanted.name:
        raise UserError(
            f"the answer is of {_shown(answer.get('model'))}, not of the adapters {wanted.name!r}"
        )
    choices = answer["choices"]
    if len(choices) != wanted.samples:
        raise UserError(
            f"the answer has {len(choices)} completions, not the {wanted.samples} that were wanted"
        )
    if not all(isinstance(choice, dict) for choice in choices):
        raise UserError("the answer has a completion that is no object")
    indices = [choice.get("index") for choice in choices]
    if not all(type(i) is int for i in indices) or sorted(indices) != list(range(wanted.samples)):
        raise UserError(f"the answer has completions of index {_shown(indices)}, not each once")
    by_index = dict(zip(indices, choices, strict=True))
    return [_completion(by_index[g], wanted) for g in range(wanted.samples)]


def _shown(value: Any) -> str:
    """A value of an answer as text for a sentence."""
    return repr(value)[:_LONGEST_SHOWN]


def _completion(choice: dict, wanted: Wanted) -> Completion:
    """One completion, up to the first stop in it."""
    words, limit = wanted.vocabulary, wanted.params.max_new_tokens
    tokens = choice.get("token_ids")
    if not isinstance(tokens, list) or not tokens:
        raise UserError("the answer has no token ids; the server must know return_token_ids")
    if not all(map(words.has, tokens)):
        odd = next(token for token in tokens if not words.has(token))
        raise UserError(
            f"the answer has the token id {_shown(odd)}, which is none of the vocabulary's {words.size}"
        )
    if len(tokens) > limit:
        raise UserError(f"the answer has a completion of {len(tokens)} tokens, the limit is {limit}")
    read_back = choice.get("prompt_token_ids")
    if read_back is not None and read_back != list(wanted.prompt):
        raise UserError("the answer is to another prompt than the one that was sent")
    logprobs = _logprobs(choice, len(tokens))
    end, reason = words.stops.end_of(tokens), choice.get("finish_reason")
    if reason not in REASONS:
        raise UserError(f"the answer has finish_reason {_shown(reason)}; allowed are {' and '.join(REASONS)}")
    if end is None and (reason == "stop" or len(tokens) < limit):
        raise UserError(
            f"the answer has a completion that ends ({reason}) after {len(tokens)} of {limit} tokens with none "
            "of the ids that may end it; does the server's context hold prompt and completion?"
        )
    length = len(tokens) if end is None else end
    return Completion(np.array(tokens[:length], np.int32), logprobs[:length], end is not None)


def _logprobs(choice: dict, length: int) -> np.ndarray:
    """The log-probabilities of a completion's tokens, float32 (L',)."""
    held = choice.get("logprobs")
    values = held.get("token_logprobs") if isinstance(held, dict) else None
    if not isinstance(values, list):
        raise UserError("the answer has no log-probabilities of its tokens")
    if len(values) != length:
        raise UserError(f"the answer has {len(values)} log-probabilities for {length} tokens")
    for value in values:
        if type(value) not in (int, float) or not EXCLUDED < value <= ROUNDING:  # NaN is not, either
            raise UserError(
                f"the answer has the log-probability {_shown(value)}; allowed are numbers up to 0"
            )
    return np.minimum(np.array(values, np.float32), 0.0)
