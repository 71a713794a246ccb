"""Run a protocol with a team and a scorer; the result is the iteration as a `Forest`."""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxmarl_llm.forest import Forest, Joint, Node, Turn, refused
from jaxmarl_llm.forest.charges import charged, with_ends
from jaxmarl_llm.protocols import Episode, Protocol, item_name
from jaxmarl_llm.protocols.exchange import completed_nodes, next_requests
from jaxmarl_llm.protocols.turns import continued, own_turns, written_on
from jaxmarl_llm.rollout.engines import LOCAL, Engine, Published
from jaxmarl_llm.rollout.journal import Journal
from jaxmarl_llm.rollout.requests import (
    PendingRequest,
    encode_cut,
    given_turn,
    sample_turns,
    without_end,
)
from jaxmarl_llm.rollout.scoring import Earlier, TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Sizes, padded_size
from jaxmarl_llm.sampling.stems import stem_length
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import stopping
from jaxmarl_llm.utils.errors import UserError

Timer = Callable[[str], Any]


def run(
    protocol: Protocol,
    team: Team,
    trainables: Sequence[Any],
    scorer: TaskScorer,
    item_ids: Sequence[int],
    key: jax.Array,
    *,
    params: SamplingParams,
    max_prompt_tokens: int,
    long_prompts: str = "error",
    last_greedy: bool = False,
    journal: Journal | None = None,
    prompt_sizes: Sequence[Sizes | None] | None = None,
    timer: Timer = lambda phase: contextlib.nullcontext(),
    engine: Engine = LOCAL,
    step: int = 0,
    key_step: Callable[[int], int] = lambda level: level,
    drawn: Callable[[int], object] = lambda steps: None,
) -> Forest:
    """Let the team answer some items and judge every joint answer.

    All requests of one step of the protocol are sampled as one batch per stack, and all answers that it
    completes are judged in one call.

    Args:
      protocol: the order in which agents answer, and what they read.
      team, trainables: the agents, and the current parameters of each member of the team.
      scorer: the task with its judge, and how answers are combined.
      item_ids: indices into the task's items.
      key: random key of this iteration.
      params: how tokens are drawn.
      max_prompt_tokens, long_prompts: see `requests.encode_prompt`.
      last_greedy: the last sample of each request takes the most likely tokens, as do turns that continue it.
      journal: keeps the result of every step; stored steps of this rollout are not computed again.
      prompt_sizes: by member of the team, the sizes that its prompts are padded to, see `padding.pad_team`;
        None: the sizes that each batch needs.
      timer: context manager that measures the phases "sample" and "score".
      engine: what draws the completions.
      step: iterations that the parameters have been trained for; an engine's names of adapters contain it.
      key_step: step of the protocol -> the step whose random key it uses; differs if the rollout is compared
        with one of another protocol.
      drawn: called before every further step, with the number of steps drawn and judged.

    Returns:
      The forest; ``Turn.item`` and ``Joint.item`` index its ``items``.

    Raises:
      errors of the task's judge, and ValueError for prompts that are too long, or if the journal belongs to
      another rollout.
    """
    items = tuple(scorer.task.items[i] for i in item_ids)
    key_data = np.asarray(jax.random.key_data(key))  # read only here, since it waits for the device
    state = Episode(items, np.random.default_rng(key_data))
    journal = journal or Journal(None)
    same_key = key_data, str(jax.random.key_impl(key))
    journal.begin((_identity(scorer, items, same_key), tuple(map(int, item_ids)), repr(params), last_greedy))
    published = [engine.publish(step, *pair) for pair in zip(team.members, trainables, strict=True)]
    level, n_nodes, answered, whole = 0, 0, 0, len(items)
    while requests := next_requests(protocol, state, team.agents):
        if level:
            drawn(level)
        # All answers judged last may get a next turn; fewer are padded, so that there are few shapes.
        # Episodes may end at any turn; the batch then keeps its size.
        sizes = (whole, whole) if scorer.sequential else (len(items), max(len(items), answered))
        pending = _encode(state, team, requests, level, max_prompt_tokens, long_prompts, last_greedy)
        level_key = jax.random.fold_in(key, key_step(level))
        options = params, sizes, prompt_sizes, timer
        draw = functools.partial(_sample, engine, published, pending, level_key, *options)
        new_turns = journal.once(f"{level:04d}_turns", requests, draw)
        _check_versions(new_turns, published)
        state.requests += requests
        state.turns += new_turns
        nodes = completed_nodes(protocol, state, new_turns, scorer.agents)
        state.turns = refused(state.turns, nodes)
        stopping.check()
        if nodes:
            texts = [[state.turns[i].message for ids in node.turns.values() for i in ids] for node in nodes]
            judge = functools.partial(_judge, state, nodes, n_nodes, scorer, item_ids, params, sizes, timer)
            joints = journal.once(f"{level:04d}_joints", (nodes, texts), judge)
            state.joints += joints
            answered, whole = len(joints), whole * len(joints) // len(nodes)
            stopping.check()
        level, n_nodes = level + 1, n_nodes + len(nodes)
    forest = Forest(items, tuple(state.turns), tuple(state.joints))
    return charged(with_ends(forest, scorer.task), scorer.task)


def _identity(scorer: TaskScorer, items, key: tuple[np.ndarray, str]) -> tuple:
    """What identifies a rollout: items, random key, and how answers are combined."""
    return tuple(map(item_name, items)), key, scorer.agents, scorer.combinations(2 + scorer.extra)


def _sample(
    engine: Engine,
    published: Sequence[Published],
    pending: Sequence[PendingRequest],
    key: jax.Array,
    params: SamplingParams,
    sizes,
    prompt_sizes: Sequence[Sizes | None] | None,
    timer: Timer,
) -> list[Turn]:
    """Answers to the requests of one step, in their order, one batch per stack."""
    new_turns: list[Turn] = []
    for i, own in enumerate(published):
        of_stack = [n for n in pending if n.request.agent in own.member.stack.agents]
        own_requests = [n for n in of_stack if n.request.given is None]
        new_turns += [
            given_turn(n, own.member.tokenizer, own.versions.get(n.request.agent, ""))
            for n in of_stack
            if n.request.given is not None
        ]
        if own_requests:
            own_key, own_sizes = jax.random.fold_in(key, i), prompt_sizes[i] if prompt_sizes else None
            inputs = own.member, own.trainable, own_requests, own_key, params, sizes, own_sizes
            with timer("sample"):
                new_turns += sample_turns(*inputs, engine, own)
    return sorted(new_turns, key=lambda turn: turn.id)


def _check_versions(turns: Sequence[Turn], published: Sequence[Published]) -> None:
    """Refuse completions of adapters other than the published ones, such as from another state's journal."""
    now = {agent: version for own in published for agent, version in own.versions.items()}
    for turn in turns:
        if turn.version != now.get(turn.agent, ""):
            raise UserError(
                f"a completion of agent {turn.agent!r} was drawn by version {turn.version or 'none'!r} of its "
                f"adapters, and {now.get(turn.agent) or 'none'!r} is published: nothing is learned from it; "
                "remove the journal that it comes from"
            )


def _encode(
    state: Episode, team: Team, requests, step: int, limit: int, on_long: str, last_greedy: bool
) -> list[PendingRequest]:
    """New requests with their numbers, the ids of their turns, and their prompts as tokens."""
    pending, first_id = [], len(state.turns)
    for number, request in enumerate(requests, start=len(state.requests)):
        name = item_name(state.items[request.item])
        member = team[request.agent]
        # The prompt limit of a model behind an endpoint is not known here.
        most, before = (None, None) if member.remote else (limit, continued(state, request))
        written = written_on(state, request)
        ids, cut = encode_cut(member.tokenizer, request, most, on_long, name, before, written)
        greedy = last_greedy and (request.parent is None or state.turns[request.parent].greedy)
        earlier = written or (before and before[1])
        stem = stem_length(ids, earlier.prompt.tolist()) if earlier else 0
        pending.append(PendingRequest(number, first_id, request, ids, greedy, name, cut, step, stem))
        first_id += request.samples
    return pending


def _judge(
    state: Episode,
    nodes: Sequence[Node],
    first_node: int,
    scorer: TaskScorer,
    item_ids: Sequence[int],
    params: SamplingParams,
    sizes: tuple[int, int],
    timer: Timer,
) -> list[Joint]:
    """Score the joint answers of some nodes through the bridge, in one call of one shape.

    An agent that is not in a node has an empty text.
    """
    samples = {len(ids) for node in nodes for ids in node.turns.values()}
    if len(samples) != 1:
        raise UserError(f"the agents have different numbers of answers, {sorted(samples)}")
    samples, rows = samples.pop(), padded_size(len(nodes), *sizes)
    answers_of = {i: _message(state, scorer, i) for node in nodes for ids in node.turns.values() for i in ids}
    widths = _widths(state, answers_of, {a: params.of(a).max_new_tokens for a in scorer.agents})
    tokens = {agent: np.zeros((rows, samples, width), np.int32) for agent, width in widths.items()}
    lengths = {agent: np.zeros((rows, samples), np.int32) for agent in scorer.agents}
    items_P = np.full(rows, -1, np.int32)  # padding rows are not judged
    for p, node in enumerate(nodes):
        items_P[p] = item_ids[node.item]
        for agent, ids in node.turns.items():
            for g, written in enumerate(answers_of[i] for i in ids):
                tokens[agent][p, g, : len(written)] = written
                lengths[agent][p, g] = len(written)
    earlier = _earlier(state, nodes, scorer, rows) if scorer.sequential else None
    with timer("score"):
        judged = scorer.judge(tokens, lengths, items_P, earlier)
    answers = [(p, node, c) for p, node in enumerate(nodes) for c in scorer.combinations(samples)]
    return [
        Joint(
            node.item,
            tuple(
                node.turns[a][g] for a, g in zip(scorer.agents, combination, strict=True) if a in node.turns
            ),
            judgement,
            node=first_node + p,
            turn=node.turn,
            follows=node.follows,
            heard=tuple(ids[combination[0]] for ids in node.heard if ids[combination[0]] >= 0),
            reward=reward,
        )
        for (p, node, combination), (reward, judgement) in zip(answers, judged, strict=True)
    ]


def _earlier(state: Episode, nodes: Sequence[Node], scorer: TaskScorer, rows: int) -> Earlier:
    """The joint answers before each node, as tokens; padding rows have none."""
    chains = [[own_turns(state, j) for j in state.before(node.follows)] for node in nodes]
    written = {
        turn.id: _message(state, scorer, turn.id) for chain in chains for turns in chain for turn in turns
    }
    most = max(1, *map(len, chains))
    width = max(map(len, written.values()), default=1)
    width = 1 << (width - 1).bit_length()  # few shapes
    tokens = {agent: np.zeros((rows, most, width), np.int32) for agent in scorer.agents}
    lengths = {agent: np.zeros((rows, most), np.int32) for agent in scorer.agents}
    for p, chain in enumerate(chains):
        for h, turns in enumerate(chain):
            for turn in turns:
                ids = written[turn.id]
                tokens[turn.agent][p, h, : len(ids)] = ids
                lengths[turn.agent][p, h] = len(ids)
    turns_P = np.zeros(rows, np.int32)
    turns_P[: len(chains)] = [len(chain) for chain in chains]
    return Earlier(tokens, lengths, turns_P)


def _message(state: Episode, scorer: TaskScorer, i: int) -> np.ndarray:
    """Token ids of a turn's whole message: of its prefix, then of the turn."""
    turn = state.turns[i]
    before = written_on(state, state.requests[turn.request])
    if before is not None:
        ids = without_end(scorer.tokenizers[turn.agent], _message(state, scorer, before.id))
    else:  # a text that the agent did not write itself
        ids = scorer.tokenizers[turn.agent].encode(turn.prefix) if turn.prefix else []
    return np.array([*ids, *turn.completion.tolist()], np.int32)


def _widths(state: Episode, written: Mapping[int, np.ndarray], least: dict[str, int]) -> dict[str, int]:
    """Room for each agent's answers, by turn: ``least`` tokens, doubled for bytes or several turns."""
    widths = dict(least)
    for i, ids in written.items():
        while widths[state.turns[i].agent] < len(ids):
            widths[state.turns[i].agent] *= 2
    return widths
