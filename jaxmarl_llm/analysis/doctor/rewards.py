"""Check that rewards give a signal to learn from and depend on the completions alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.analysis.doctor.result import by_agent, check
from jaxmarl_llm.evaluation.scores import spread
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems.preferences import pairs_of
from jaxmarl_llm.tasks.judgement import History, Judgement
from jaxmarl_llm.tasks.types import Task

SILENT = 0.8  # from this share of groups without signal on, most of an iteration is wasted
JUDGED = 32  # joint answers that are judged again

Judge = Callable[[Sequence[Any], dict[str, list[str]], Sequence[History]], Sequence[Any]]


class ErrorKeepingTask:
    """A task that keeps its reward's first error in ``error`` and does not raise it.

    Answers then have no reward, and checks that do not depend on the reward can still run.
    """

    def __init__(self, task: Task):
        self._task, self.error = task, None

    def __getattr__(self, name: str):
        return getattr(self._task, name)

    def judge(self, items: Sequence[Any], completions: dict[str, list[str]], *histories) -> Sequence[Any]:
        """The task's judgements; judgements without reward if the task raises an error."""
        try:
            return self._task.judge(items, completions, *histories)
        except Exception as error:
            self.error = self.error or error
            return [Judgement({}, None, "error")] * len(items)


@check("zero-signal groups")
def zero_signal(metrics: Mapping[str, float], groups: int) -> tuple[str, str]:
    """Report the share of groups whose returns are all equal, from which nothing is learned.

    Args:
      metrics: from `forest.metrics.agent_metrics`.
      groups: number of all groups.
    """
    shares = {
        name.removesuffix("/zero_signal"): v for name, v in metrics.items() if name.endswith("/zero_signal")
    }
    text = f"{by_agent({agent: f'{share:.0%}' for agent, share in shares.items()})} of {groups} groups in all"
    if max(shares.values()) < SILENT:
        return "ok", f"without signal: {text}"
    return "warn", (
        f"without signal: {text}; nothing is learned from equal returns: problems of another difficulty "
        "(task.source), a larger train.group, or a higher sampling.temperature make them differ"
    )


@check("pairs")
def pairs(forest: Forest, most: int) -> tuple[str, str]:
    """Count the pairs of answers with different rewards by problem; without such pairs nothing is learned.

    Args:
      forest: a forest of one turn.
      most: maximal pairs to keep per problem; 0: all.
    """
    item_names = [pair.item for pair in pairs_of(forest, np.random.default_rng(0), most=most)]
    text = by_agent({str(item.task_id): item_names.count(str(item.task_id)) for item in forest.items})
    if item_names:
        return "ok", f"answers with different rewards, by problem: {text}"
    return "fail", (
        f"no two answers to a problem have different rewards ({text}), so there is nothing to prefer: take "
        "problems of another difficulty (task.source), a task.reward with more steps between its ends, a "
        "larger train.group or a higher sampling.temperature; --problems=8 looks at more of them"
    )


@check("reward purity")
def purity(forest: Forest, completions: Mapping[str, Sequence[str]], judge: Judge) -> tuple[str, str]:
    """Check that joint answers get the same reward parts and totals when they are judged again.

    Args:
      forest: the joint answers with their first judgements.
      completions: texts of all joint answers, by agent.
      judge: `judgement.judge` of the task; best with an executor that has not run them before.
    """
    chosen = spread(len(forest.joints), JUDGED)
    again = judged(forest, completions, judge, chosen)
    before = [forest.joints[j].judgement.scores for j in chosen]
    bad = [j for j, one, two in zip(chosen, before, again, strict=True) if not same(one, two)]
    if not bad:
        return "ok", f"{len(chosen)} joint answers judged twice: equal parts and totals"
    one, two = before[chosen.index(bad[0])], again[chosen.index(bad[0])]
    return "fail", (
        f"{len(bad)} of {len(chosen)} joint answers got another reward the second time, the first of them "
        f"{_shown(one)} and then {_shown(two)}: take randomness, clocks and memory out of task.reward"
    )


@check("reward order")
def order(forest: Forest, completions: Mapping[str, Sequence[str]], judge: Judge) -> tuple[str, str]:
    """Check that a joint answer's reward depends neither on its place in the batch nor on the other answers.

    Arguments as for `purity`.
    """
    chosen = spread(len(forest.joints), JUDGED)
    before = {j: forest.joints[j].judgement.scores for j in chosen}
    backwards = dict(zip(chosen[::-1], judged(forest, completions, judge, chosen[::-1]), strict=True))
    alone = {j: judged(forest, completions, judge, [j])[0] for j in chosen[:2]}
    moved = sum(not same(before[j], scores) for j, scores in backwards.items())
    apart = sum(not same(before[j], scores) for j, scores in alone.items())
    if not moved and not apart:
        return "ok", f"{len(chosen)} joint answers in reverse and {len(alone)} alone: equal parts and totals"
    return "warn", (
        f"{moved} of {len(chosen)} rewards change when the batch is judged in reverse, {apart} of "
        f"{len(alone)} when judged alone: such a task.reward changes with train.prompts, train.group and the "
        "number of processes"
    )


@check("reward scale")
def scale(forest: Forest, task: Task) -> tuple[str, str]:
    """Report minimum, maximum, mean and spread of the rewards, the share of missing and constant rewards."""
    totals_J = forest.totals().astype(np.float64)
    known_J = totals_J[~np.isnan(totals_J)]
    if not len(known_J):
        return (
            "fail",
            f"none of {len(totals_J)} joint answers has a reward: task.reward gave None to them all",
        )
    n_infinite = int((~np.isfinite(known_J)).sum())
    if n_infinite:
        return "fail", f"{n_infinite} of {len(totals_J)} rewards are infinite: task.reward must give numbers"
    low, high = task.reward_range or (-np.inf, np.inf)
    text = (
        f"{len(known_J)} rewards from {known_J.min():.3g} to {known_J.max():.3g}, mean {known_J.mean():.3g}, "
        f"standard deviation {known_J.std():.3g}"
    )
    text += f", range {low:g} to {high:g}" if task.reward_range else ", range not stated (reward_range)"
    missing = 1 - len(known_J) / len(totals_J)
    text += f"; {missing:.0%} of the joint answers have none" if missing else ""
    n_outside = int(((known_J < low - 1e-6) | (known_J > high + 1e-6)).sum())
    if n_outside:
        return "fail", f"{text}; {n_outside} are outside: correct reward_range of task.reward, or the reward"
    if known_J.min() == known_J.max():
        return (
            "warn",
            f"{text}: a constant teaches nothing; measured at answers, or try task.source, train.group",
        )
    return "ok", text


def judged(
    forest: Forest, completions: Mapping[str, Sequence[str]], judge: Judge, chosen: Sequence[int]
) -> list[dict]:
    """Parts and totals of the joint answers ``chosen``, judged again in one call."""
    items, histories = [forest.items[forest.joints[j].item] for j in chosen], forest.histories()
    chosen_texts = {agent: [texts[j] for j in chosen] for agent, texts in completions.items()}
    before = [histories[j] for j in chosen]
    return [judgement.scores for judgement in judge(items, chosen_texts, before)]


def same(one: Mapping[str, float | None], two: Mapping[str, float | None]) -> bool:
    """Whether parts and totals are exactly equal; NaN equals itself."""

    def plain(scores):
        return {name: repr(None if value is None else float(value)) for name, value in scores.items()}

    return plain(one) == plain(two)


def _shown(scores: Mapping[str, float | None]) -> str:
    return " ".join(f"{name} {value}" for name, value in scores.items())
