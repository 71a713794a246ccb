"""The members that write texts: what each reads, proposes as the next piece, and how it would continue.

If members have different tokenizers, each reads the others' pieces as text, so pieces are lines or whole
answers.
All calls of a run have one size (`ROWS` rows, one width), so that few programs are compiled.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxmarl_llm.decoding.ledger import Ledger
from jaxmarl_llm.decoding.settings import LINE, TOKEN
from jaxmarl_llm.decoding.switching import Candidate, Draft, Piece
from jaxmarl_llm.forest import LINE as LINE_END
from jaxmarl_llm.forest import SpeakRequest
from jaxmarl_llm.rollout import requests
from jaxmarl_llm.rollout.engines import LOCAL
from jaxmarl_llm.sampling import SamplingParams, together
from jaxmarl_llm.sampling.padding import Sizes, bucket, common_start
from jaxmarl_llm.sampling.stems import pad_with_stems
from jaxmarl_llm.sampling.stops import Stops
from jaxmarl_llm.stop_texts import StopText
from jaxmarl_llm.team import Team

ROWS = 32  # rows of a member in a call


class Prompts(NamedTuple):
    """The problems that texts are written for, and each one's prompt in every member's tokens.

    ``tokens_JB``: by member and problem.
    """

    items: tuple[Any, ...]
    tokens_JB: tuple[tuple[tuple[int, ...], ...], ...]

    @classmethod
    def of(cls, task, team: Team, limit: int, long_prompts: str = "error") -> "Prompts":
        """The prompts of a task with one agent; limit and long_prompts as in `requests.encode_prompt`."""
        (speaker,) = task.agents
        chats = [
            SpeakRequest(speaker, i, tuple(task.prompts(item)[speaker]), 1)
            for i, item in enumerate(task.items)
        ]

        @functools.cache
        def encoded(tokenizer) -> tuple[tuple[int, ...], ...]:
            named = zip(chats, task.items, strict=True)
            rows = [
                requests.encode_prompt(tokenizer, c, limit, long_prompts, str(i.task_id)) for c, i in named
            ]
            return tuple(map(tuple, rows))

        return cls(tuple(task.items), tuple(encoded(team[agent].tokenizer) for agent in team.agents))


class Writers:
    """Members that write texts for the rows of one call; see `switching.Propose`.

    Args:
      team: the members, by name; their parameters are in it.
      prompts: prompts of the problems.
      params: sampling parameters of the members, without stop conditions.
      every: where another member may continue, one of `settings.EVERY`.
      candidates: number of pieces that each member proposes.
      horizon: longest roll-out; 0: limited only by the answer length.
      ledger: counts are added to it.

    Attributes:
      rows: index of the problem of each row, set for each call.
      greedy: rows where the last candidate line or answer of each member is drawn greedily.
    """

    def __init__(
        self,
        team: Team,
        prompts: Prompts,
        params: SamplingParams,
        *,
        every: str,
        candidates: int,
        horizon: int = 0,
        ledger: Ledger,
    ):
        self.team, self._prompts, self._params = team, prompts, params
        self._every, self._number, self._ledger = every, candidates, ledger
        self._short = dataclasses.replace(
            params, max_new_tokens=min(horizon or params.longest, params.longest)
        )
        self._member_of = [i for i, member in enumerate(team.members) for _ in member.stack.agents]
        self._sizes = [self._plan(i) for i in range(len(team.members))]
        self.rows: Sequence[int] = ()
        self.greedy: frozenset[int] = frozenset()
        self._key, self._calls = jax.random.key(0), 0

    def begin(self, rows: Sequence[int], greedy: Sequence[int], key: jax.Array) -> list[Draft]:
        """Empty drafts for rows of problems; later sampling uses ``key``."""
        self.rows, self.greedy, self._key, self._calls = tuple(rows), frozenset(greedy), key, 0
        return [Draft(row) for row in range(len(rows))]

    def tokens(self, draft: Draft, member: int) -> list[int]:
        """What a member reads: the prompt and the text so far, in its own vocabulary."""
        return [*self._prompts.tokens_JB[member][self.rows[draft.row]], *self.written(draft, member)]

    def written(self, draft: Draft, member: int) -> list[int]:
        """A draft in a member's vocabulary, without the prompt; others' lines are encoded from text."""
        own = self._member_of[member]
        ids: list[int] = []
        for piece in draft.pieces:
            if piece.vocabulary == own:
                ids += piece.ids
            else:
                writer = self.team.members[piece.vocabulary].tokenizer
                ids += self.team.members[own].tokenizer.encode(writer.decode(piece.ids))
        return ids

    def text(self, draft: Draft) -> str:
        """The text of a draft; consecutive tokens of one vocabulary are decoded together."""
        text, run = "", list[int]()
        for i, piece in enumerate(draft.pieces):
            run += piece.ids
            if i + 1 == len(draft.pieces) or draft.pieces[i + 1].vocabulary != piece.vocabulary:
                text, run = text + self.team.members[piece.vocabulary].tokenizer.decode(run), []
        return text

    def items(self, drafts: Sequence[Draft]) -> list[Any]:
        """The problem of each draft."""
        return [self._prompts.items[self.rows[draft.row]] for draft in drafts]

    def propose(self, drafts: Sequence[Draft]) -> list[list[Candidate]]:
        """The candidates of all members for the next piece of each draft, those of the first member first."""
        if self._every == TOKEN:
            return self._likeliest(drafts)
        places = [[member] * len(drafts) for member in range(len(self._member_of))]
        pieces = [
            self._drawn(drafts, own, self._params, self._number, self._every == LINE, True) for own in places
        ]
        return [[Candidate(piece) for own in pieces for piece in own[i]] for i in range(len(drafts))]

    def go_on(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Each draft continued by the member of its last piece, up to the roll-out length."""
        members = [draft.pieces[-1].member for draft in drafts]
        pieces = self._drawn(drafts, members, self._short, 1, False, False)
        return [draft.with_piece(own) for draft, (own,) in zip(drafts, pieces, strict=True)]

    def from_the_start(self, member: int, samples: int) -> list[tuple[Draft, ...]]:
        """Whole answers of one member, ``samples`` for each row."""
        drafts = [Draft(row) for row in range(len(self.rows))]
        pieces = self._drawn(drafts, [member] * len(drafts), self._params, samples, False, False)
        return [tuple(d.with_piece(p) for p in own) for d, own in zip(drafts, pieces, strict=True)]

    def _likeliest(self, drafts: Sequence[Draft]) -> list[list[Candidate]]:
        """Tokens; the members are one stack."""
        (member,) = self.team.members
        size, rows = len(member.stack.agents), []
        for first in range(0, len(drafts), ROWS):
            some = drafts[first : first + ROWS]
            prompts = [self.tokens(draft, 0) for draft in some]
            prompts += prompts[:1] * (ROWS - len(prompts))
            sizes, agents = self._sizes[0], member.stack.agents[:1]
            tokens_NBP, lengths_NB, shared, _ = pad_with_stems([prompts], [[0] * ROWS], sizes, agents)
            inputs = member.stack, member.base, member.trainable, tokens_NBP, lengths_NB
            own = jax.device_get(together.candidates(*inputs, number=self._number, shared=shared))
            self._ledger.passes += size * len(some)
            for b, draft in enumerate(some):
                pairs = [(j, k) for j in range(size) for k in range(self._number)]
                rows.append([self._token(draft, j, own, b, k) for j, k in pairs])
        return rows

    def _token(self, draft: Draft, member: int, own: together.Candidates, b: int, k: int) -> Candidate:
        ids, logprob = (int(own.tokens_NBK[member, b, k]),), float(own.logprobs_NBK[member, b, k])
        return Candidate(self._piece(draft, member, ids, logprob), float(own.divergence_NB[member, b]))

    def _piece(self, draft: Draft, member: int, ids: tuple[int, ...], logprob: float) -> Piece:
        """A piece, no longer than the room that is left; the last one if it ends the text or fills the room."""
        place = self._member_of[member]
        written = self.written(draft, member)
        # Text of other members may have more tokens in this vocabulary, even more than there is room for.
        room = max(0, self._params.max_new_tokens - len(written))
        cut, stack = ids[:room], self.team.members[place].stack
        whole = (*written, *cut)
        ends = Stops.of_stack(stack, self._params).end_of(whole) is not None
        return Piece(member, cut, logprob, ends or len(ids) >= room, not ends, place)

    def _drawn(
        self,
        drafts: Sequence[Draft],
        members: Sequence[int],
        params: SamplingParams,
        samples: int,
        by_line: bool,
        greedy_too: bool,
    ) -> list[list[Piece]]:
        """Pieces after drafts, each by its member, ``samples`` per draft; roll-outs end where cut."""
        pieces: list[list[Piece]] = [[] for _ in drafts]
        for place, member in enumerate(self.team.members):
            if by_line:
                params = dataclasses.replace(params, until=_line_ends(member.tokenizer))
            by_agent: dict[str, list[int]] = {agent: [] for agent in member.stack.agents}
            for i, j in enumerate(members):
                if self._member_of[j] == place:
                    by_agent[self.team.agents[j]].append(i)
            for first in range(0, max(map(len, by_agent.values())), ROWS):
                some = {agent: own[first : first + ROWS] for agent, own in by_agent.items()}
                self._draw(place, some, drafts, params, samples, greedy_too, pieces)
        return pieces

    def _draw(
        self, place: int, rows: dict[str, list[int]], drafts, params, samples: int, greedy_too: bool, pieces
    ):
        """One call of the sampler for one stack; an agent without rows answers another's row, unused."""
        member, some = self.team.members[place], next(own for own in rows.values() if own)
        prompts, greedy = {}, {}
        for agent, own in rows.items():
            used, j = own or some[:1], self.team.agents.index(agent)
            prompts[agent] = [self.tokens(drafts[i], j) for i in used]
            greedy[agent] = [greedy_too and drafts[i].row in self.greedy for i in used]
        key = jax.random.fold_in(self._key, self._calls)
        self._calls += 1
        options = dict(greedy=greedy, sizes=(ROWS, ROWS), prompt_sizes=self._sizes[place])
        published = LOCAL.publish(0, member, member.trainable)
        drawn = LOCAL.draw(published, prompts, key, samples, params, **options).samples
        for n, (agent, own) in enumerate(rows.items()):
            j = self.team.agents.index(agent)
            for b, i in enumerate(own):
                for r in range(b * samples, (b + 1) * samples):
                    length = int(drawn.lengths_NR[n, r])
                    ids = tuple(drawn.tokens_NRL[n, r, :length].tolist())
                    logprob = float(np.sum(drawn.logprobs_NRL[n, r, :length]))
                    pieces[i].append(self._piece(drafts[i], j, ids, logprob))
                    self._ledger.drawn, self._ledger.passes = (
                        self._ledger.drawn + length,
                        self._ledger.passes + length,
                    )

    def _plan(self, place: int) -> Sizes:
        """One width for everything that members of a stack read, without the common prefix of the prompts."""
        first = self._member_of.index(place)
        prompts = [list(ids) for ids in self._prompts.tokens_JB[first]]
        start = tuple(prompts[0][: common_start(prompts)])
        longest = max(len(ids) for ids in prompts) - len(start) + self._params.longest
        agents = self.team.members[place].stack.agents
        return Sizes(dict.fromkeys(agents, start), (bucket(longest),))


@functools.lru_cache(maxsize=8)
def _line_ends(tokenizer) -> tuple[StopText, ...]:
    """The end of a line as a stop text; cached because building it reads the whole vocabulary."""
    return tokenizer.stop_texts((LINE_END,))
