"""Answer requests: draw completions of one stack's agents as one batch, or get them from an expert."""

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxmarl_llm.experts import Reply, Request
from jaxmarl_llm.forest import SpeakRequest, Turn
from jaxmarl_llm.rollout.engines import LOCAL, Drawn, Engine, Published
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Sizes
from jaxmarl_llm.stop_texts import StopText
from jaxmarl_llm.team import Member
from jaxmarl_llm.utils import distributed
from jaxmarl_llm.utils.errors import UserError


class PendingRequest(NamedTuple):
    """A request with its number, the id of its first turn, and its prompt as token ids.

    With ``greedy`` its last sample takes the most likely tokens. ``item`` is its item's name in errors.
    ``cut`` tokens of the prompt were cut off. ``step`` is its step of the protocol. The first ``stem`` tokens
    of the prompt are the prompt of the turn that it continues.
    """

    number: int
    first_id: int
    request: SpeakRequest
    prompt: list[int]
    greedy: bool = False
    item: str = ""
    cut: int = 0
    step: int = 0
    stem: int = 0


def encode_prompt(
    tokenizer, request: SpeakRequest, limit: int | None, on_long: str = "error", item: str = ""
) -> list[int]:
    """Token ids of a request's chat; ``item`` is the name of its item in errors, '': its index is used.

    A prompt of more than ``limit`` tokens is a ValueError, or with ``on_long="truncate"`` loses tokens on the
    left, with a warning in the log. None is no limit.
    """
    return encode_cut(tokenizer, request, limit, on_long, item)[0]


def encode_cut(
    tokenizer,
    request: SpeakRequest,
    limit: int | None,
    on_long: str = "error",
    item: str = "",
    continued: tuple[SpeakRequest, Turn] | None = None,
    written: Turn | None = None,
) -> tuple[list[int], int]:
    """`encode_prompt`, and the number of tokens that were cut off.

    ``continued``: the request and the answer that this one continues (`turns.continued`). The prompt then
    begins with their ids, if the tokenizer supports it (`Tokenizer.continue_chat`). ``written``: the turn
    whose text it continues (`turns.written_on`): the prompt is that turn's prompt and completion.
    """
    if written is not None:
        ids, cut = [*written.prompt.tolist(), *without_end(tokenizer, written.completion)], written.cut
    else:
        ids, cut = _continued_ids(tokenizer, request, continued) or (
            tokenizer.encode_chat(request.messages),
            0,
        )
        ids = [*ids, *tokenizer.encode(request.prefix)] if request.prefix else ids
    if limit is None or len(ids) <= limit:
        return ids, cut
    number = cut + len(ids)
    what = f"the prompt of agent {request.agent!r} for item {item or request.item} has {number} tokens"
    if on_long == "truncate":
        logging.warning("%s: cut on the left to %d", what, limit)
        return ids[-limit:], number - limit
    raise UserError(
        f"{what}, the limit is {limit}; "
        "raise sampling.max_prompt_tokens or set sampling.long_prompts='truncate'"
    )


def without_end(tokenizer, completion: np.ndarray) -> list[int]:
    """The ids of a completion without the id that ended it."""
    ids = completion.tolist()
    return ids[:-1] if ids and ids[-1] in tokenizer.eos_ids else ids


def _continued_ids(
    tokenizer, request: SpeakRequest, continued: tuple[SpeakRequest, Turn] | None
) -> tuple[list[int], int] | None:
    """Ids of a request's chat, beginning with an earlier prompt and answer, and that prompt's cut."""
    if continued is None:
        return None
    earlier, turn = continued
    chat, place = list(request.messages), len(earlier.messages)
    chat[place] = {**chat[place], "content": turn.text}  # a prefix is in the prompt already
    ids = tokenizer.continue_chat(chat, place, turn.prompt, turn.completion)
    return None if ids is None else (ids, turn.cut)


def sample_turns(
    member: Member,
    trainable,
    pending: Sequence[PendingRequest],
    key: jax.Array,
    params: SamplingParams,
    sizes: tuple[int, int],
    prompt_sizes: Sizes | None = None,
    engine: Engine = LOCAL,
    published: Published | None = None,
) -> list[Turn]:
    """Answer one stack's requests as one batch, padded to a `padded_size` between ``sizes``.

    ``prompt_sizes``: the sizes that prompts are padded to, see `padding.pad_team`. Agents of the stack may
    have no requests, or fewer than others; all requests must be for the same number of samples. Agents with
    different sampling settings (`SamplingParams.agents`) get separate batches; remote agents use `ask`.
    ``engine`` draws with what is ``published``; None: it publishes the parameters first.
    """
    if member.remote:
        return ask(member, pending, key, params)
    published = published or engine.publish(0, member, trainable)
    kinds = _kinds(member, pending, params)
    if len(kinds) == 1:
        return _speak_alike(engine, published, pending, key, next(iter(kinds)), sizes, prompt_sizes)
    turns = []
    for i, (own_params, names) in enumerate(kinds.items()):
        own_requests = [n for n in pending if (n.request.agent, n.request.until) in names]
        own_key = jax.random.fold_in(key, i)
        turns += _speak_alike(engine, published, own_requests, own_key, own_params, sizes, prompt_sizes)
    return turns


def _kinds(
    member: Member, pending: Sequence[PendingRequest], params: SamplingParams
) -> dict[SamplingParams, set[tuple[str, str]]]:
    """How completions are drawn, and for which pairs of agent and `SpeakRequest.until`; agents in their order."""
    kinds: dict[SamplingParams, set[tuple[str, str]]] = {}
    for agent in member.stack.agents:
        for until in sorted({n.request.until for n in pending if n.request.agent == agent}):
            ends = _ends(member.tokenizer, until) if until else ()
            kinds.setdefault(dataclasses.replace(params.of(agent), until=ends), set()).add((agent, until))
    return kinds


@functools.lru_cache(maxsize=64)
def _ends(tokenizer, until: str) -> tuple[StopText, ...]:
    """A text at which completions end; creating it reads the whole vocabulary."""
    return tokenizer.stop_texts((until,))


def _speak_alike(
    engine: Engine,
    published: Published,
    pending: Sequence[PendingRequest],
    key: jax.Array,
    params: SamplingParams,
    sizes: tuple[int, int],
    prompt_sizes: Sizes | None,
) -> list[Turn]:
    """`sample_turns`, for agents with the same sampling settings."""
    member = published.member
    agents = tuple(a for a in member.stack.agents if any(n.request.agent == a for n in pending))
    by_agent = {agent: [n for n in pending if n.request.agent == agent] for agent in agents}
    samples = {n.request.samples for n in pending}
    if len(samples) != 1:
        raise UserError(
            f"agents {agents} must be asked for the same number of samples, not {sorted(samples)}"
        )
    samples = samples.pop()
    prompts = {agent: [n.prompt for n in rows] for agent, rows in by_agent.items()}
    greedy = {agent: [n.greedy for n in rows] for agent, rows in by_agent.items()}
    stems = {agent: [n.stem for n in rows] for agent, rows in by_agent.items()}
    options = dict(greedy=greedy, sizes=sizes, prompt_sizes=prompt_sizes, stems=stems)
    drawn = engine.draw(published, prompts, key, samples, params, **options)
    turns = []
    for n, rows in enumerate(by_agent.values()):
        completions = drawn.samples.tokens_NRL[n], drawn.samples.lengths_NR[n]
        texts = member.tokenizer.decode_completions(*completions)
        for b, row in enumerate(rows):
            turns += [_turn(row, g, drawn, n, b * samples + g, texts) for g in range(samples)]
    return turns


def given_turn(pending: PendingRequest, tokenizer, version: str = "") -> Turn:
    """The only turn of a request whose answer is given (`SpeakRequest.given`): it costs nothing.

    Raises:
      UserError: if the request is for several samples.
    """
    request = pending.request
    if request.samples != 1 or request.given is None:
        raise UserError(f"agent {request.agent!r}: a given answer is one sample, not {request.samples}")
    reply = Reply(request.given, input_tokens=0, output_tokens=0)
    return dataclasses.replace(
        _told(pending, 0, reply, tokenizer), text=request.given, given=True, version=version
    )


def ask(
    member: Member, pending: Sequence[PendingRequest], key: jax.Array, params: SamplingParams
) -> list[Turn]:
    """Get an expert's answers to the requests of its agents, with one call for every sample.

    The random key selects among the expert's possible answers (`Request.stream`): a repeated rollout gets the
    same answers, if the expert has stored them. From ``params`` the expert gets the temperature and the
    number of tokens; greedy samples use temperature 0.
    """
    if kept := next((n.request for n in pending if n.request.prefix or n.request.until), None):
        raise UserError(
            f"agent {kept.agent!r} speaks through {member.model_name!r}, which cannot go on from a prefix, or end at "
            "a text; these are for models of ours"
        )
    if member.expert is None:
        who = f"agent {pending[0].request.agent!r} speaks through {member.model_name!r}"
        raise UserError(f"{who}, which this team was built without (team.build, experts)")
    stream = np.asarray(jax.random.key_data(key)).tobytes().hex()
    wanted = [(n, g, params.of(n.request.agent)) for n in pending for g in range(n.request.samples)]
    requests = [
        Request(
            messages=tuple(n.request.messages),
            item=n.item or str(n.request.item),
            max_tokens=agent_params.max_new_tokens,
            temperature=0.0 if n.greedy and g == n.request.samples - 1 else agent_params.temperature,
            stream=stream,
        )
        for n, g, agent_params in wanted
    ]
    # Otherwise each process would get different answers, and pay for them.
    replies = distributed.on_main(member.expert.ask)(requests)
    return [_told(n, g, reply, member.tokenizer) for (n, g, _), reply in zip(wanted, replies, strict=True)]


def _told(pending: PendingRequest, g: int, reply: Reply, tokenizer) -> Turn:
    """The turn of sample g of a request, from an expert's reply."""
    ending = list(tokenizer.eos_ids[:1]) if reply.finished else []
    completion = np.array(tokenizer.encode(reply.text) + ending, np.int32)
    text = tokenizer.decode(completion)
    return Turn(
        **_asked_for(pending, g, text),
        completion=completion,
        logprobs=np.zeros(len(completion), np.float32),
        text=text,
        finished=reply.finished,
        cost=(reply.input_tokens, reply.output_tokens),
    )


def _turn(pending: PendingRequest, g: int, drawn: Drawn, n: int, row: int, texts: Sequence[str]) -> Turn:
    """The turn of sample g of a request, which is in row ``row`` of agent n."""
    samples = drawn.samples
    length = int(samples.lengths_NR[n, row])
    return Turn(
        **_asked_for(pending, g, texts[row]),
        completion=samples.tokens_NRL[n, row, :length],
        logprobs=samples.logprobs_NRL[n, row, :length],
        text=texts[row],
        finished=bool(samples.finished_NR[n, row]),
        version=drawn.versions[n],
    )


def _asked_for(pending: PendingRequest, g: int, text: str) -> dict:
    """Fields of the `Turn` of sample g, with this text, that come from its request."""
    request = pending.request
    return dict(
        id=pending.first_id + g,
        request=pending.number,
        agent=request.agent,
        item=request.item,
        turn=request.turn,
        kind=request.kind_of(text),
        request_kind=request.kind,
        sample=g,
        prompt=np.array(pending.prompt, np.int32),
        parent=request.parent,
        follows=request.follows,
        greedy=pending.greedy and g == request.samples - 1,
        cut=pending.cut,
        step=pending.step,
        shown=tuple(request.shown),
        extra=g >= request.samples - request.extra,
        prefix=request.prefix,
    )
