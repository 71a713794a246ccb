"""Several members answer in place of one agent: an engine, so any evaluation of the agent evaluates them."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxmarl_llm.decoding.ledger import Ledger
from jaxmarl_llm.decoding.settings import Settings
from jaxmarl_llm.decoding.switching import Draft, Value, write
from jaxmarl_llm.decoding.writers import Prompts, Writers
from jaxmarl_llm.rollout.engines import LOCAL, Drawn, Published
from jaxmarl_llm.sampling import Samples, SamplingParams, mixtures, together
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.utils.errors import UserError


def choice(settings: Settings, members: int) -> together.Choose:
    """The rule of a mixture, or of a switch by confidence, for every token."""
    weights = settings.weights or mixtures.equal_weights(members)
    if settings.mode == "contrast":
        return mixtures.Contrast(weights, settings.plausible)
    if settings.mode == "mean_logits":
        return mixtures.MeanLogits(weights)
    return mixtures.MeanProbabilities(weights) if settings.mode == "mean_probabilities" else mixtures.Switch()


class MixedEngine:
    """Samples every token with all members of one stack, see `sampling.together`. An `Engine`.

    Args:
      members: the stack with its parameters.
      choose: how they choose a token.
      ledger: counts are added to it.
    """

    def __init__(self, members: Member, choose: together.Choose, ledger: Ledger):
        self._members, self._choose, self._ledger = members, choose, ledger

    def publish(self, step: int, member: Member, trainable: Any) -> Published:
        """The agent in whose place the members answer."""
        return Published(member, trainable)

    def draw(
        self,
        published: Published,
        prompts: Mapping[str, Sequence[Sequence[int]]],
        key: jax.Array,
        samples: int,
        params: SamplingParams,
        **options,
    ) -> Drawn:
        """See `Engine.draw`."""
        who: list[jax.Array] = []
        replaced = dataclasses.replace(published.member, generate=functools.partial(self._generate, who))
        drawn = LOCAL.draw(Published(replaced, published.trainable), prompts, key, samples, params, **options)
        (own,) = prompts.values()
        rows = [b * samples + g for b in _first_of_each(own) for g in range(samples)]
        lengths_R, n = drawn.samples.lengths_NR[0][rows], len(self._members.stack.agents)
        by_member, switches = together.shares(np.asarray(who[0])[rows], lengths_R, n)
        self._ledger.add(by_member, switches, len(rows))
        self._ledger.drawn += int(lengths_R.sum())
        self._ledger.passes += n * int(lengths_R.sum())
        return drawn

    def _generate(self, who: list, stack, base, trainable, *inputs, **options) -> Samples:
        own = self._members
        drawn = together.generate(own.stack, own.base, own.trainable, *inputs, choose=self._choose, **options)
        who.append(drawn.who_RL)
        return drawn.samples

    def metrics(self) -> dict[str, float]:
        """None."""
        return {}


class SwitchingEngine:
    """Writes texts piece by piece, see `switching`. An `Engine`; log-probabilities of its completions are 0.

    Args:
      team: the members.
      prompts: prompts of the problems that are answered.
      writers: writers of the team for these prompts.
      value: the value that decides the switch.
      alpha: see `switching.write`.
      ledger: counts are added to it.
    """

    def __init__(
        self, team: Team, prompts: Prompts, writers: Writers, value: Value, alpha: float, ledger: Ledger
    ):
        self._team, self._writers, self._value, self._alpha = team, writers, value, alpha
        self._ledger = ledger
        self._problem_of: dict[tuple[int, ...], int] = {}
        for i, ids in enumerate(prompts.tokens_JB[0]):
            if self._problem_of.setdefault(ids, i) != i:
                one, two = (prompts.items[n].task_id for n in (self._problem_of[ids], i))
                raise UserError(
                    f"problems {one} and {two} have the same prompt: which one is judged is not known"
                )

    def publish(self, step: int, member: Member, trainable: Any) -> Published:
        """The agent in whose place the members answer."""
        return Published(member, trainable)

    def draw(
        self,
        published: Published,
        prompts: Mapping[str, Sequence[Sequence[int]]],
        key: jax.Array,
        samples: int,
        params: SamplingParams,
        *,
        greedy: Mapping[str, Sequence[bool]],
        **options,
    ) -> Drawn:
        """See `Engine.draw`. UserError for a prompt that belongs to no problem."""
        (agent,) = prompts
        own, marked = [tuple(ids) for ids in prompts[agent]], greedy[agent]
        if unknown := [ids for ids in own if ids not in self._problem_of]:
            raise UserError(
                f"a prompt of {len(unknown[0])} tokens is not that of a problem: members that switch answer once"
            )
        first = _first_of_each(own)
        rows = [self._problem_of[own[b]] for b in first for _ in range(samples)]
        likeliest = [n * samples + samples - 1 for n, b in enumerate(first) if marked[b]]
        drafts = write(
            self._writers.begin(rows, likeliest, key), self._writers.propose, self._value, self._alpha
        )
        for draft in drafts:
            by_member = np.zeros(len(self._team.agents), int)
            for piece in draft.pieces:
                by_member[piece.member] += len(piece.ids)
            self._ledger.add(by_member.tolist(), draft.switches(), 1)
        place = {ids: n for n, ids in enumerate(dict.fromkeys(own))}
        return Drawn(
            self._samples([drafts[place[ids] * samples + g] for ids in own for g in range(samples)]), ("",)
        )

    def _samples(self, drafts: Sequence[Draft]) -> Samples:
        """Drafts as completions in the tokens of the first member."""
        tokenizer = self._team.members[0].tokenizer
        rows = [self._writers.written(draft, 0) for draft in drafts]
        ended = [not draft.pieces[-1].cut for draft in drafts]
        for draft, ids, finished in zip(drafts, rows, ended, strict=True):
            if finished and draft.pieces[-1].vocabulary:  # its own EOS, unknown to the first member
                ids.append(tokenizer.eos_ids[0])
        tokens_NRL = np.zeros((1, len(rows), max(map(len, rows))), np.int32)
        for r, ids in enumerate(rows):
            tokens_NRL[0, r, : len(ids)] = ids
        lengths_NR = np.array([list(map(len, rows))], np.int32)
        return Samples(tokens_NRL, lengths_NR, np.zeros(tokens_NRL.shape, np.float32), np.array([ended]))

    def metrics(self) -> dict[str, float]:
        """None."""
        return {}


def _first_of_each(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Indices of the distinct prompts, in order; copies pad a batch (`evaluation.plan_batches`)."""
    places: dict[tuple[int, ...], int] = {}
    for b, ids in enumerate(prompts):
        places.setdefault(tuple(ids), b)
    return list(places.values())


def speaker(member: Member, agent: str, name: str) -> tuple[Team, list[Any]]:
    """A team with one of the members as its only agent, called ``name``, and its parameters."""
    stack, trainable = member.stack.subset((agent,), member.trainable)
    stack = dataclasses.replace(stack, agents=(name,))
    return Team((dataclasses.replace(member, stack=stack, trainable=trainable),)), [trainable]
