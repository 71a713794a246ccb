"""Pairs of joint answers with different rewards: how they are found, kept and drawn for training.

A `Pool` keeps the pairs of a run by the iteration in which they were found, in memory and in a file for each.
Its draws follow from the seed and the iteration, so a resumed run draws the same pairs.
"""

import collections
import contextlib
import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.utils import distributed, files
from jaxmarl_llm.utils.errors import UserError

SELECTIONS = ("gap", "random", "halves")
REPLAYS = ("current", "nearest", "all", "decay")


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two joint answers to one item, a turn of each agent, with the rewards of winner and loser.

    For siblings (`siblings.pairs_of`) each answer is one turn of one agent, and its reward is the turn's
    value.
    """

    item: str
    rewards: tuple[float, float]
    winner: tuple[Turn, ...]
    loser: tuple[Turn, ...]


def pairs_of(forest: Forest, random: np.random.Generator, *, most: int = 0, selection="gap") -> list[Pair]:
    """Pairs of joint answers to the same item with different rewards, item by item.

    Args:
      forest: a forest of one turn; an item needs a ``task_id``. Answers without a reward are left out.
      random: generator that ``selection="random"`` draws from.
      most: number of pairs to keep per item; 0 keeps all.
      selection: which pairs to keep if there are more: those with the largest ``gap``, or ``random`` ones;
        ``halves``: random pairs of one answer from the better half and one from the worse half, each answer
        in one pair.

    Raises:
      ValueError: for another selection.
    """
    totals, pairs = forest.totals().tolist(), []
    for index, item in enumerate(forest.items):
        answers = [j for j, joint in enumerate(forest.joints) if joint.item == index]
        better = [(w, l) for w in answers for l in answers if totals[w] > totals[l]]  # NaN is never greater
        kept = select(better, totals, random, most=most, selection=selection)
        pairs += [_pair(forest, str(item.task_id), *pair) for pair in kept]
    return pairs


def select(
    better: list[tuple[int, int]], totals, random, *, most: int, selection: str
) -> list[tuple[int, int]]:
    """At most ``most`` of the pairs of indices (winner, loser) of ``totals``; options as in `pairs_of`.

    Raises:
      ValueError: for another selection.
    """
    if selection not in SELECTIONS:
        raise UserError(f"selection={selection!r}; allowed: {', '.join(SELECTIONS)}")
    if selection == "halves":
        return _of_halves(better, totals, random)[: most or None]
    if most and len(better) > most and selection == "random":
        return [better[i] for i in sorted(random.choice(len(better), most, replace=False))]
    return sorted(better, key=lambda pair: totals[pair[1]] - totals[pair[0]])[:most] if most else better


def _of_halves(better: list[tuple[int, int]], totals, random) -> list[tuple[int, int]]:
    """Random pairs of one from the better and one from the worse half; of an odd number the middle one is
    left out.

    Ranked by how many others they are better than, then by totals: of two labels, all of the better one come
    first.
    """
    allowed, beaten = set(better), collections.Counter(w for w, _ in better)
    ranked = sorted({i for pair in better for i in pair}, key=lambda i: (-beaten[i], -totals[i]))
    half = len(ranked) // 2
    sides = [random.permutation(side).tolist() for side in (ranked[:half], ranked[len(ranked) - half :])]
    return [pair for pair in zip(*sides, strict=True) if pair in allowed]


def tie(forest: Forest) -> Pair:
    """Two answers to the first item as a pair without information: their rewards are equal."""
    first, second = [j for j, joint in enumerate(forest.joints) if joint.item == 0][:2]
    return dataclasses.replace(_pair(forest, str(forest.items[0].task_id), first, second), rewards=(0.0, 0.0))


def _pair(forest: Forest, item: str, winner: int, loser: int) -> Pair:
    sides = [forest.joints[j] for j in (winner, loser)]
    turns = [tuple(forest.turns[i] for i in joint.turns) for joint in sides]
    rewards = tuple(float(np.nan_to_num(joint.total)) for joint in sides)
    return Pair(item, rewards, *turns)


def forest_of(pairs: Sequence[Pair], room: int = 0) -> Forest:
    """Build a forest from pairs: a node for each pair, with two aligned answers, the winner first.

    ``room``: minimum number of items, so that fewer pairs make arrays of the same shape.
    """
    turns: list[Turn] = []
    joints: list[Joint] = []
    for p, pair in enumerate(pairs):
        first, n_agents = len(turns), len(pair.winner)
        for n, sides in enumerate(zip(pair.winner, pair.loser, strict=True)):
            for sample, turn in enumerate(sides):
                place = dict(id=len(turns), request=p * n_agents + n, item=p, sample=sample)
                turns.append(dataclasses.replace(turn, turn=0, parent=None, follows=None, **place))
        for sample, reward in enumerate(pair.rewards):
            ids = tuple(first + 2 * n + sample for n in range(n_agents))
            joints.append(Joint(p, ids, Judgement({}, reward), node=p))
    items = [pair.item for pair in pairs]
    return Forest((*items, *items[:1] * (room - len(items))), tuple(turns), tuple(joints))


def masses(replay: str, ages: Sequence[int], sizes: Sequence[int], *, last: int, decay: float) -> np.ndarray:
    """Relative probability of drawing a pair of each iteration: float64, one number per iteration.

        current   only those of this iteration            (CoMLRL 1.4.3's replay of online preferences)
        nearest   all pairs of the ``last`` iterations alike
        all       all pairs alike
        decay     the pairs of age a together (1 - lambda) lambda^a; with lambda = 1 every iteration alike

    Args:
      replay: one of `REPLAYS`.
      ages: iterations since then, 0 for the current one.
      sizes: number of pairs.
      last, decay: of ``nearest`` and ``decay`` (lambda, 0..1).

    Raises:
      ValueError: for another replay.
    """
    ages, sizes = np.asarray(ages), np.asarray(sizes)
    window = {"current": 1, "nearest": last, "all": math.inf, "decay": math.inf}
    if replay not in window:
        raise UserError(f"replay={replay!r}; allowed: {', '.join(REPLAYS)}")
    weights = np.where((ages < window[replay]) & (sizes > 0), 1.0, 0.0)
    if replay != "decay":
        return weights
    return weights * (1.0 if decay == 1 else 1 - decay) * float(decay) ** ages / np.maximum(sizes, 1)


class Pool:
    """The pairs of a run, as ``models`` of a `systems.types.System`. It holds no model: ``states`` is empty.

    ``done`` counts iterations; a pair's age is measured in them. A repeated iteration stores the same pairs
    again, so pairs that an interrupted iteration has stored do no harm.

    Args:
      seed: seed of the draws.
      find: the pairs of a forest, called as `pairs_of`.
      most, selection: see `pairs_of`.
      replay, last, decay: see `masses`.
    """

    states: Mapping = {}

    def __init__(
        self,
        seed: Sequence[int],
        find: Callable[..., list[Pair]] = pairs_of,
        *,
        most: int = 0,
        selection: str = "gap",
        replay: str = "all",
        last: int = 3,
        decay: float = 0.5,
    ):
        self.done, self._seed, self._folder, self._find = 0, tuple(seed), None, find
        self._selected = dict(most=most, selection=selection)
        self._replay, self._options = replay, dict(last=last, decay=decay)
        self._shards: dict[int, list[Pair]] = {}  # by iteration

    @property
    def size(self) -> int:
        """Number of pairs."""
        return sum(map(len, self._shards.values()))

    @property
    def pairs(self) -> list[Pair]:
        """All pairs, in the order of their iterations."""
        return [pair for shard in self._shards.values() for pair in shard]

    def add(self, forest: Forest) -> list[Pair]:
        """Find the pairs of this iteration, and keep them."""
        pairs = self._find(forest, self._random(0), **self._selected)
        self._shards[self.done] = pairs
        self._forget()
        if self._folder and distributed.is_main():
            files.atomic_write_text(self._path(self.done), "".join(map(_line, pairs)))
        return pairs

    def draw(self, number: int, times: int = 1, agent: str | None = None) -> list[Pair]:
        """Draw ``number`` different pairs by their masses, or all possible ones if there are fewer.

        ``times`` counts the draws of an iteration, from 1. ``agent``: only pairs of single turns of this
        agent.
        """
        iterations = list(self._shards)
        sizes, ages = [len(self._shards[k]) for k in iterations], [self.done - k for k in iterations]
        masses_P = np.repeat(masses(self._replay, ages, sizes, **self._options), sizes)
        pairs = self.pairs
        if agent is not None:
            masses_P = masses_P * [pair.winner[0].agent == agent for pair in pairs]
        possible = np.flatnonzero(masses_P)
        if not len(possible):
            return []
        p = masses_P[possible] / masses_P[possible].sum()
        chosen = self._random(times).choice(possible, min(number, len(possible)), replace=False, p=p)
        return [pairs[i] for i in sorted(chosen)]

    def require(self) -> None:
        """Raise ValueError if there is no pair at all."""
        if not self.size:
            if self._folder:
                files.require_some(self._folder, "*.jsonl", "the pairs that were collected")
            raise UserError(
                f"after {self.done} iterations no two answers to a problem earned different rewards, so "
                "there is nothing to prefer: raise preference.collect or train.group, or give another reward"
            )

    @contextlib.contextmanager
    def kept_in(self, folder, keep: int = 0) -> Iterator[None]:
        """Write pairs to ``folder``/pairs, a JSON line each, a file for each iteration; all are kept."""
        self._folder = pathlib.Path(folder) / "pairs"
        yield

    def save(self, step: int) -> None:
        """Do nothing: pairs are written as they are found."""

    def restore(self, step: int) -> None:
        """Restore the pairs of the first ``step`` iterations. ValueError names a file that is damaged."""
        self.done, self._shards = step, {}
        for path in sorted(self._folder.glob("*.jsonl")):
            if int(path.stem) < step:
                self._shards[int(path.stem)] = files.read_json_lines(path, _pair_of)
        self._forget()

    def _forget(self) -> None:
        """Remove pairs that can no longer be drawn."""
        iterations = list(self._shards)
        # Without decay a mass that is 0 stays 0.
        if self._replay != "decay":
            ages = [self.done - k for k in iterations]
            remaining = masses(self._replay, ages, [1] * len(iterations), **self._options)
            self._shards = {k: self._shards[k] for k, mass in zip(iterations, remaining, strict=True) if mass}

    def _path(self, iteration: int) -> pathlib.Path:
        return self._folder / f"{iteration:06d}.jsonl"

    def _random(self, stream: int) -> np.random.Generator:
        return np.random.default_rng((*self._seed, self.done, stream))


def _line(pair: Pair) -> str:
    """A pair as JSON: token ids, texts, and whether an answer ended by itself."""

    def side(turns) -> dict[str, Any]:
        return {
            turn.agent: {"tokens": turn.completion.tolist(), "text": turn.text, "finished": turn.finished}
            for turn in turns
        }

    prompts = {turn.agent: turn.prompt.tolist() for turn in pair.winner}
    fields = {"item": pair.item, "rewards": pair.rewards, "prompts": prompts}
    return json.dumps(fields | {"winner": side(pair.winner), "loser": side(pair.loser)}) + "\n"


def _pair_of(fields: dict[str, Any]) -> Pair:
    """The pair of a line's JSON object; its log-probabilities are 0."""
    sides = []
    for name in ("winner", "loser"):
        turns = []
        for agent, answer in fields[name].items():
            prompt, tokens = (np.array(ids, np.int32) for ids in (fields["prompts"][agent], answer["tokens"]))
            logprobs = np.zeros(len(tokens), np.float32)
            content = (prompt, tokens, logprobs, answer["text"], answer["finished"])
            turns.append(Turn(0, 0, agent, 0, 0, 0, *content))
        sides.append(tuple(turns))
    return Pair(fields["item"], tuple(fields["rewards"]), *sides)
