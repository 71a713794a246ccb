"""A model on this machine as an expert, loaded by `weights.load` and sampled like a frozen agent."""

import hashlib
from collections.abc import Callable, Sequence

import jax

from jaxmarl_llm import team as team_lib
from jaxmarl_llm import weights
from jaxmarl_llm.experts.limits import Account
from jaxmarl_llm.experts.types import ExpertError, Reply, Request, Spent, describe
from jaxmarl_llm.sampling import SamplingParams, generate
from jaxmarl_llm.sampling.padding import pad_prompts
from jaxmarl_llm.team import Member

_NAME = "expert"


class Local:
    """A `Source` that runs a model in this process. The same batch of requests always has the same answers.

    Args:
      model: what `weights.load` takes; it is loaded when it is first needed.
      seed: of sampling at a temperature above 0.
      rows: maximum number of requests sampled together, a power of two; smaller batches are padded to one.
      account: counts the tokens.
      load: model name -> `weights.LoadedModel` with a tokenizer; None is `weights.load`.
      prompts: how ``load`` makes the tokenizer write prompts, if not as usual; part of the identity.
    """

    def __init__(
        self,
        model: str,
        *,
        seed: int = 0,
        rows: int = 16,
        account: Account | None = None,
        load: Callable[[str], weights.LoadedModel] | None = None,
        prompts: str = "",
    ):
        self.identity = {"kind": "local", "base_url": "", "model": model}
        self.identity |= {"prompts": prompts} if prompts else {}
        self._seed, self._rows, self._load = seed, rows, load or weights.load
        self._account = account or Account(None, Spent())
        self._loaded = None

    @property
    def spent(self) -> Spent:
        """See `Source.spent`."""
        return self._account.spent

    def refusal(self, request: Request) -> str | None:
        """None: only the tokenizer shows whether a chat fits into the context; see `answer`."""
        return None

    def check(self) -> None:
        """Load the model. Raises ValueError as `weights.load` does."""
        self._member()

    def answer(self, requests: Sequence[Request], arrived: Callable[[int, Reply], None]) -> None:
        """See `Source.answer`. ExpertError for a chat that does not fit into the model's context."""
        prompts = [self._encode(request) for request in requests]
        groups: dict[tuple[int, float], list[int]] = {}
        for index, request in enumerate(requests):
            groups.setdefault((request.max_tokens, request.temperature or 0.0), []).append(index)
        for (max_tokens, temperature), indices in groups.items():
            params = SamplingParams(max_new_tokens=max_tokens, temperature=temperature)
            for start in range(0, len(indices), self._rows):
                batch = indices[start : start + self._rows]
                replies = self._sample([prompts[index] for index in batch], params)
                for index, reply in zip(batch, replies, strict=True):
                    arrived(index, reply)

    def _member(self) -> Member:
        if self._loaded is None:
            name = self.identity["model"]
            models, key = {name: self._load(name)}, jax.random.key(self._seed)
            self._loaded = team_lib.build(models, {_NAME: name}, key, mode="frozen")[_NAME]
        return self._loaded

    def _encode(self, request: Request) -> list[int]:
        member = self._member()
        ids = member.tokenizer.encode_chat(request.messages)
        room = member.stack.policy.config.max_positions
        if len(ids) + request.max_tokens > room:
            size = f"a prompt of {len(ids)} tokens and max_tokens={request.max_tokens}"
            name = f"{describe(self.identity)}, item {request.item!r}"
            raise ExpertError(f"{name}: {size} do not fit into the model's context of {room}")
        return ids

    def _sample(self, prompts: list[list[int]], params: SamplingParams) -> list[Reply]:
        """Answers of one batch, sampled with a key derived from its prompts."""
        member, size = self._member(), 1 << (len(prompts) - 1).bit_length()
        filled = prompts + prompts[:1] * (size - len(prompts))  # few sizes, few compilations
        digest = hashlib.sha256(repr(prompts).encode()).digest()
        key = jax.random.fold_in(jax.random.key(self._seed), int.from_bytes(digest[:4], "big"))
        tokens_BP, lengths_B = pad_prompts(filled)
        inputs = (member.stack, member.base, member.trainable, tokens_BP[None], lengths_B[None], key)
        drawn = jax.device_get(generate(*inputs, samples=1, params=params))
        texts = member.tokenizer.decode_completions(drawn.tokens_NRL[0], drawn.lengths_NR[0])
        replies = []
        for row, prompt in enumerate(prompts):
            length = int(drawn.lengths_NR[0, row])
            self._account.settle(0, len(prompt), length)
            replies.append(Reply(texts[row], len(prompt), length, bool(drawn.finished_NR[0, row])))
        return replies
