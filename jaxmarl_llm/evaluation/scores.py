"""Results of an evaluation: judged joint answers, their means with intervals, and pass@k."""

import collections
import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np

from jaxmarl_llm.forest import episodes
from jaxmarl_llm.transcripts import AgentRecord, JointAction
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.statistics.bootstrap import interval

PASS = "pass"
# Verdicts of rewards without tests ('' if a task gives none): these answers cannot pass.
UNTESTED = ("judged", "not-applicable", "")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Judged joint answers: B items, G samples each (one if greedy).

    Attributes:
      actions_BG: the answers and their judgements, parts and total on the reward's own scale.
      agents: names, in the order of the task.
      normalise: {part: value, …, "total": value} -> the same on the 0..100 scale, the total as "return".
      grades_B: difficulty of each item, if the data states it; results are then split by grade.
      statements_B: how each item states its problem, a word such as "steps", '' if the data does not tell;
        results are then split by it.
      earlier_TBG: the answers of the turns before the last one, if any; ``actions_BG`` are of the last turn.
      tokens_BG: completion tokens that each answer took, including all agents, earlier turns and rounds.
      voted: scores of votes, (B,) by name, see `votes.scores`.
      counts_BG: for a sequential task, numbers of each episode, see `forest.episodes.counts`.
    """

    actions_BG: tuple[tuple[JointAction, ...], ...]
    agents: tuple[str, ...]
    normalise: Callable[[dict[str, float]], dict[str, float]]
    grades_B: tuple[int, ...] = ()
    statements_B: tuple[str, ...] = ()
    earlier_TBG: tuple[tuple[tuple[JointAction, ...], ...], ...] = ()
    tokens_BG: tuple[tuple[int, ...], ...] = ()
    voted: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    counts_BG: tuple[tuple[tuple[float, ...], ...], ...] = ()

    @property
    def actions(self) -> list[JointAction]:
        """The final answers as one list, grouped by item."""
        return [action for row in self.actions_BG for action in row]

    @property
    def all_actions(self) -> list[JointAction]:
        """The answers of all turns, earlier ones first; ``follows`` is an index in this list."""
        turns = [[a for row in actions for a in row] for actions in (*self.earlier_TBG, self.actions_BG)]
        number = len(self.actions)
        return [
            dataclasses.replace(action, follows=(t - 1) * number + i if t else None)
            for t, actions in enumerate(turns)
            for i, action in enumerate(actions)
        ]

    @property
    def tested(self) -> bool:
        """Whether any answer was tested, so that verdicts say whether answers passed."""
        return any(action.verdict not in UNTESTED for action in self.actions)

    def scores(self) -> dict[str, np.ndarray]:
        """Mean score of each item over its samples on the 0..100 scale: {part: (B,), …, "return": (B,)}.

        NaN if the reward, or that part of it, applied to no sample of the item. If items have several grades,
        there is a "return_grade<g>" for each, NaN at items of other grades; with several ways of stating
        problems, there is a "return_<statement>" for each. With several turns, the last one counts; there are
        also "return_turn<t>" for each turn, from 1, and their mean, "return_turns". `voted` are added.
        """
        scores = self._scores(self.actions_BG)
        if self.earlier_TBG:
            turns = [self._scores(actions)["return"] for actions in (*self.earlier_TBG, self.actions_BG)]
            scores |= {f"return_turn{t}": values for t, values in enumerate(turns, start=1)}
            scores["return_turns"] = np.mean(turns, axis=0)
        scores |= self.voted
        by_grade = _split("return_grade", scores["return"], self.grades_B)
        return scores | by_grade | _split("return_", scores["return"], self.statements_B)

    def pass_rates(self, k: int) -> np.ndarray:
        """pass@k of each item in 0..1, shape (B,): an answer passes if its verdict is 'pass'."""
        passed_B = [sum(action.verdict == PASS for action in row) for row in self.actions_BG]
        return np.array([pass_at_k(len(self.actions_BG[0]), passed, k) for passed in passed_B])

    def pass_scores(self, k: int) -> dict[str, np.ndarray]:
        """`pass_rates` on the 0..100 scale, (B,) each: "pass@<k>", and, if problems have several statements,
        "pass@<k>_<statement>" for each, NaN at the items of the others.
        """
        rates_B = 100 * self.pass_rates(k)
        return {f"pass@{k}": rates_B} | _split(f"pass@{k}_", rates_B, self.statements_B)

    def completion_length(self, agent: str) -> float:
        """Mean tokens of an agent's completions, end of text included."""
        return float(np.mean([speech.completion_length for speech in self._of(agent)]))

    def answer_tokens(self) -> float:
        """Mean of ``tokens_BG``."""
        return float(np.mean(self.tokens_BG))

    def counts(self) -> dict[str, np.ndarray]:
        """Means of ``counts_BG`` over the episodes of each item, (B,) by name; {} for other tasks."""
        means = [np.mean(np.array(row), axis=0) for row in self.counts_BG]
        return dict(zip(episodes.NAMES, np.array(means).T, strict=True)) if means else {}

    def truncated(self, agent: str) -> float:
        """Share (0..1) of an agent's completions that were cut off at the length limit."""
        return float(np.mean([speech.finish_reason == "length" for speech in self._of(agent)]))

    def _of(self, agent: str) -> list[AgentRecord]:
        """An agent's parts in the last answers; in a relay that ends early they are of different agents."""
        return [action.agents[agent] for action in self.actions if agent in action.agents]

    def verdicts(self) -> dict[str, int]:
        """Count each verdict, the most frequent first."""
        return dict(collections.Counter(action.verdict for action in self.actions).most_common())

    def summary(self) -> dict[str, float]:
        """Flat numbers for logs and tables.

        On the 0..100 scale: every part; "return", with the ends "return_low" and "return_high" of its 95 %
        interval if there are several problems; and `pass_scores` of 1 if the answers were tested. Also
        "verdict/<name>" counts; per agent "length/<agent>" (mean tokens) and "truncated/<agent>" (share,
        0..1) of the last answers; and "tokens/answer", the tokens of an answer and everything before it, if
        known.
        """
        scores = self.scores()
        intervals = {name: interval(values) for name, values in scores.items()}
        numbers = {name: float(ends.mean) for name, ends in intervals.items()}
        if len(scores["return"]) > 1:  # a single problem has no interval
            ends = intervals["return"]
            numbers |= {"return_low": float(ends.low), "return_high": float(ends.high)}
        if self.tested:
            numbers |= {name: float(interval(values).mean) for name, values in self.pass_scores(1).items()}
        for agent in self.agents:
            numbers[f"length/{agent}"] = self.completion_length(agent)
            numbers[f"truncated/{agent}"] = self.truncated(agent)
        numbers |= {"tokens/answer": self.answer_tokens()} if self.tokens_BG else {}
        return numbers | {f"verdict/{name}": count for name, count in self.verdicts().items() if name}

    def _scores(self, actions_BG) -> dict[str, np.ndarray]:
        """Mean score of each item over some samples, (B,) each, the total as "return"."""
        actions = [action for row in actions_BG for action in row]
        names = dict.fromkeys(name for action in actions for name in action.parts)
        means = {name: _item_means(actions_BG, lambda a, name=name: a.parts.get(name)) for name in names}
        means["total"] = _item_means(actions_BG, lambda action: action.total)
        per_item = zip(*(values.tolist() for values in means.values()), strict=True)
        rows = [self.normalise(dict(zip(means, values, strict=True))) for values in per_item]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _split(start: str, values_B: np.ndarray, kinds_B: tuple) -> dict[str, np.ndarray]:
    """The values of each kind of item, NaN elsewhere, by ``start`` and the kind; {} for a single kind."""
    kinds = [kind for kind in sorted(set(kinds_B)) if kind != ""]
    of_kind = np.array(kinds_B)
    several = len(set(kinds_B)) > 1
    return {f"{start}{kind}": np.where(of_kind == kind, values_B, np.nan) for kind in kinds if several}


def _item_means(actions_BG, value: Callable[[JointAction], float | None]) -> np.ndarray:
    """Mean over the samples that have a value, (B,); NaN if none has."""
    rows = [[v for action in row if (v := value(action)) is not None] for row in actions_BG]
    return np.array([sum(row) / len(row) if row else math.nan for row in rows])


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Unbiased estimate of the probability that one of k answers passes; ``passed`` of ``samples`` did.

    1 - C(n - c, k) / C(n, k), equation 1 of Chen et al. 2021 (arXiv 2107.03374). ValueError unless
    1 <= k <= samples.
    """
    if not 1 <= k <= samples:
        raise UserError(f"pass@k needs k within 1..{samples}, the samples per item, got k={k}")
    return 1 - math.comb(samples - passed, k) / math.comb(samples, k)


def spread(total: int, number: int) -> list[int]:
    """``number`` of the indices below ``total``, evenly spread; all of them if it is 0 or too large.

    Data may be in the order of difficulty: the first few would not represent the rest.
    """
    number = min(number or total, total)
    return [i * total // number for i in range(number)]
