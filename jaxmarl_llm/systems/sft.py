"""SFT: supervised fine-tuning on demonstrations, each agent on its own texts (arXiv 2401.07324, role masks).

Agent i descends, over its own demonstrations D_i of an update,

    L(theta_i) = - (1 / sum_d |y_d|) sum_d w_d sum_l log pi_theta_i(y_d,l | x_d, y_d,<l)

the cross-entropy of its own tokens y, EOS included, in nats per token; w are the weights of demonstrations.
Prompts x, which may contain texts of others, and other agents' demonstrations have gradient 0.

It is the policy gradient with the advantage w, summed over tokens and divided by their number, without an
importance ratio because these texts were not sampled. The sampler's temperature and truncation are not
applied.

The prompts are those of the demonstrations (`Sft`), or those that the team reaches by itself (`OnRollouts`,
DAgger, arXiv 1011.0686), such as after its own wrong answer.

Demonstrations may have a teacher, the fused distributions of other models at every token (`fusion`, arXiv
2401.10491). Then -log pi becomes (1 - lambda) (-log pi) + lambda KL(teacher || pi), in the loss
(`LossConfig.teacher_weight`).
"""

import collections
import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jaxmarl_llm.forest import ANSWER, Forest, Turn
from jaxmarl_llm.systems.demonstrations import Encoded, forest_of
from jaxmarl_llm.systems.types import Credit


@dataclasses.dataclass(frozen=True)
class DemonstrationCredit(Credit):
    """Credit of demonstrations; nothing was judged, so its metrics are the system's own alone."""

    def metrics(self) -> dict[str, float]:
        """Return the system's own metrics."""
        return dict(self.extra_metrics)


class Updates:
    """``done``, the number of updates made, as ``models`` of a system without models: ``states`` is empty."""

    states: Mapping = {}

    def __init__(self):
        self.done = 0

    @contextlib.contextmanager
    def kept_in(self, folder, keep: int = 0) -> Iterator[None]:
        """Keep nothing: every iteration has one update."""
        yield

    def save(self, step: int) -> None:
        """Do nothing, see `kept_in`."""

    def restore(self, step: int) -> None:
        """Continue after ``step`` updates."""
        self.done = step


class DemonstrationOrder(Updates):
    """Order of the demonstrations: random, and all of an agent's are used once before any is repeated.

    The order follows from the seed and from ``done``, the number of updates made, so that a resumed run reads
    the same as an uninterrupted one. Where every prompt of every agent has the same number of demonstrations,
    those of a prompt stay together, so that it is read once.

    Args:
      rows: all demonstrations; those of one agent are shuffled independently of the others'.
      batch: demonstrations of each agent in an update.
      seed: seed of the order.
      multiple: the number of prompts of an update must be a multiple of this; it divides ``batch``.
    """

    def __init__(self, rows: Sequence[Encoded], batch: int, seed: Sequence[int], multiple: int = 1):
        super().__init__()
        self._seed = tuple(seed)
        by_prompt: dict[tuple, list[Encoded]] = {}
        for row in rows:
            by_prompt.setdefault((row.agent, row.prompt.tobytes()), []).append(row)
        sizes = {len(group) for group in by_prompt.values()}
        size = max(sizes, default=1)
        if len(sizes) != 1 or batch % (size * multiple):
            size, by_prompt = 1, {n: [row] for n, row in enumerate(rows)}
        self.prompts = batch // size
        self._own: dict[str, list[list[Encoded]]] = {}
        for group in by_prompt.values():
            self._own.setdefault(group[0].agent, []).append(group)

    def next(self) -> list[list[Encoded]]:
        """The demonstrations of the next update, those of one agent and prompt together."""
        return [group for n, agent in enumerate(self._own) for group in self._of(n, self._own[agent])]

    def _of(self, n: int, agent_groups: list[list[Encoded]]) -> list[list[Encoded]]:
        groups, orders = [], {}
        for place in range(self.done * self.prompts, (self.done + 1) * self.prompts):
            epoch, k = divmod(place, len(agent_groups))
            if epoch not in orders:
                orders[epoch] = np.random.default_rng((*self._seed, n, epoch)).permutation(len(agent_groups))
            groups.append(agent_groups[orders[epoch][k]])
        return groups


@dataclasses.dataclass(frozen=True)
class Sft:
    """Supervised fine-tuning; ``models`` is the order of the demonstrations. See `types.System`."""

    models: DemonstrationOrder

    def assign(self, forest: Forest | None) -> Credit:
        """Return the next demonstrations with their weights as advantages; no rollout is made."""
        groups = self.models.next()
        rows = [row for group in groups for row in group]
        weights_R = np.array([row.weight for row in rows], np.float32)
        tokens = float(sum(len(row.completion) for row in rows))
        returns_R = np.full(len(rows), np.nan, np.float32)
        numbers = {"sft/demonstrations": float(len(rows)), "sft/tokens": tokens}
        groups_R = np.arange(len(rows), dtype=np.int32)
        forest = forest_of(groups, self.models.prompts)
        taught = all(row.teacher is not None for row in rows)
        teachers = [row.teacher for row in rows] if taught else None
        return DemonstrationCredit(
            forest, weights_R, returns_R, groups_R, extra_metrics=numbers, teachers=teachers
        )

    def learn(self, credit: Credit) -> dict[str, float]:
        """Count the update; there is no model beside the agents."""
        self.models.done += 1
        return {}


class OnRollouts:
    """Supervised fine-tuning under the prompts of a rollout; see `types.System`.

    In place of each of its answers, an agent imitates one of its own demonstrations for the problem. They are
    used in turn: in iteration t, of P problems, conversation g of G about problem i has number (t P + i) G +
    g, and numbers wrap around. So all are used, even where a problem has more demonstrations than answers.
    All answers of a conversation, and so of an aligned joint answer, have one number. Nothing is learned
    where the agent has no demonstration for the problem, nor in place of a remark, a call, or a text that
    continues an earlier one.

    Args:
      rows: demonstrations, each named after its problem.
    """

    def __init__(self, rows: Sequence[Encoded]):
        self.models = Updates()
        self._rows: dict[tuple[str, str], list[Encoded]] = {}
        for row in rows:
            self._rows.setdefault((row.name, row.agent), []).append(row)

    def assign(self, forest: Forest | None) -> Credit:
        """Return the forest with demonstrations as completions, their weights as advantages."""
        assert forest is not None
        number_of = conversations(forest)
        chains_R = [number_of[forest.first_of(turn).id] for turn in forest.turns]
        chains, before = 1 + max(chains_R, default=0), self.models.done * len(forest.items)
        numbered = zip(forest.turns, chains_R, strict=True)
        rows = [self._row(forest, turn, (before + turn.item) * chains + g) for turn, g in numbered]
        turns = tuple(_imitated(turn, row) for turn, row in zip(forest.turns, rows, strict=True))
        imitated = [row for row in rows if row is not None]
        weights_R = np.array([row.weight if row else 0.0 for row in rows], np.float32)
        numbers = {
            "sft/demonstrations": float(len(imitated)),
            "sft/tokens": float(sum(len(row.completion) for row in imitated)),
        }
        returns_R = np.full(len(rows), np.nan, np.float32)
        groups_R = np.arange(len(rows), dtype=np.int32)
        taught = dataclasses.replace(forest, turns=turns)
        return DemonstrationCredit(taught, weights_R, returns_R, groups_R, extra_metrics=numbers)

    def _row(self, forest: Forest, turn: Turn, number: int) -> Encoded | None:
        """What is imitated in place of a turn: the agent's demonstration of that number, or None."""
        own = self._rows.get((str(forest.items[turn.item].task_id), turn.agent), [])
        return own[number % len(own)] if own and turn.kind == ANSWER and not turn.prefix else None

    def learn(self, credit: Credit) -> dict[str, float]:
        """Count the update."""
        self.models.done += 1
        return {}


def conversations(forest: Forest) -> dict[int, int]:
    """By id of a conversation's first turn, its number among those of the same agent and item, from 0.

    `Turn.sample` would not do: where every sample has a request of its own (tools, a gate), all are sample 0.
    """
    counts: collections.Counter[tuple[str, int]] = collections.Counter()
    numbers = {}
    for turn in forest.turns:
        if turn.parent is None:
            numbers[turn.id] = counts[turn.agent, turn.item]
            counts[turn.agent, turn.item] += 1
    return numbers


def _imitated(turn: Turn, row: Encoded | None) -> Turn:
    """A turn with a demonstration as its completion; without tokens if there is none."""
    tokens, text = (row.completion, row.text) if row else (np.zeros(0, np.int32), "")
    logprobs = np.zeros(len(tokens), np.float32)
    return dataclasses.replace(turn, completion=tokens, logprobs=logprobs, text=text, finished=True)
