"""Results of a sweep: members by setting, means over their seeds, each setting against the baseline."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxmarl_llm.analysis.report import comparable
from jaxmarl_llm.cli.launch import FINISHED
from jaxmarl_llm.utils.files import read_json
from jaxmarl_llm.utils.statistics.bootstrap import Interval, interval
from jaxmarl_llm.utils.statistics.significance import paired_t, sign_flips, t_interval

SCORES = {"return": "sampled", "return_greedy": "greedy"}  # of a summary, and what tables call them


@dataclasses.dataclass(frozen=True)
class MemberResult:
    """A member of a sweep as its run folder tells it.

    state: `FINISHED`, or in what way it is not; reason: why, if that is known. summary and held_out are what
    summary.json and held_out.json say, judged is what `judging.judged` says of config.json; all are {} unless
    it is finished.
    """

    setting: str
    seed: int
    folder: Path
    state: str
    reason: str = ""
    summary: dict[str, Any] = dataclasses.field(default_factory=dict)
    held_out: dict[str, Any] = dataclasses.field(default_factory=dict)
    judged: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def minutes(self) -> float | None:
        return self.summary["seconds"] / 60 if self.summary else None

    def score(self, name: str) -> float | None:
        """A number of the last evaluation; None if there is none."""
        return self.summary.get("after", {}).get(name)


class Comparison(NamedTuple):
    """One score of a setting less that of the baseline, both of the same seeds.

    Attributes:
      seeds: the seeds that both have finished.
      difference: mean over the seeds, with its t-interval.
      p: of `paired_t` over the seeds.
      problems: number of test problems that both have results of; 0 if theirs are not the same.
      over_problems: the same mean with its bootstrap interval over the problems.
      p_problems: of `sign_flips` over the problems.
      judged: fields in which their judges differ; then nothing else is known.
    """

    seeds: tuple[int, ...]
    difference: Interval
    p: float
    problems: int
    over_problems: Interval
    p_problems: float
    judged: tuple[str, ...] = ()


def read_member(setting: str, seed: int, folder: Path, state: str, reason: str = "") -> MemberResult:
    """A member with what its folder holds, if it is finished. ValueError names a file that is damaged."""
    if state != FINISHED:
        return MemberResult(setting, seed, folder, state, reason)
    held_out = folder / "held_out.json"
    found = read_json(held_out) if held_out.is_file() else {}
    summary, config = (read_json(folder / f"{name}.json") for name in ("summary", "config"))
    return MemberResult(setting, seed, folder, state, reason, summary, found, comparable.judged(config))


def by_setting(members: Sequence[MemberResult]) -> dict[str, list[MemberResult]]:
    """The members of each setting, settings in the order of their first members: the baseline first."""
    found: dict[str, list[MemberResult]] = {}
    for member in members:
        found.setdefault(member.setting, []).append(member)
    return found


def known(members: Sequence[MemberResult], score: str) -> dict[int, MemberResult]:
    """Return the members that have the score, by seed."""
    return {member.seed: member for member in members if member.score(score) is not None}


def mean(members: Sequence[MemberResult], score: str) -> Interval:
    """Mean of a score over the seeds that have it, with its t-interval."""
    return t_interval([member.score(score) for member in known(members, score).values()])


def minutes(members: Sequence[MemberResult]) -> float:
    """Mean duration of the members that are finished; NaN if there are none."""
    taken = [member.minutes for member in members if member.minutes is not None]
    return sum(taken) / len(taken) if taken else math.nan


def compare(members: Sequence[MemberResult], baseline: Sequence[MemberResult], score: str) -> Comparison:
    """A setting against the baseline, seed by seed and problem by problem; not if they are judged unlike."""
    ours, theirs = known(members, score), known(baseline, score)
    if unlike := differently(members, baseline):
        nothing = Interval(math.nan, math.nan, math.nan)
        return Comparison((), nothing, math.nan, 0, nothing, math.nan, unlike)
    seeds = tuple(sorted(ours.keys() & theirs.keys()))
    over_seeds = [ours[seed].score(score) - theirs[seed].score(score) for seed in seeds]
    differences_B = _by_problem([(ours[seed], theirs[seed]) for seed in seeds], score)
    return Comparison(
        seeds,
        t_interval(over_seeds),
        paired_t(over_seeds),
        len(differences_B),
        interval(differences_B) if len(differences_B) else Interval(math.nan, math.nan, math.nan),
        sign_flips(differences_B) if len(differences_B) else math.nan,
    )


def differently(members: Sequence[MemberResult], baseline: Sequence[MemberResult]) -> tuple[str, ...]:
    """Fields in which finished members are judged differently from those of the baseline; () if in none."""
    ours, theirs = ([m.judged for m in side if m.state == FINISHED][:1] for side in (members, baseline))
    return tuple(comparable.differences(ours[0], theirs[0])) if ours and theirs else ()


def _by_problem(pairs: Sequence[tuple[MemberResult, MemberResult]], score: str) -> np.ndarray:
    """Mean difference over the pairs on each test problem, (B,); empty unless all have the same problems.

    Problems on which a score applied to no answer are left out.
    """
    held_out = [member.held_out for pair in pairs for member in pair]
    if not held_out or any(h.get("items") != held_out[0].get("items") or score not in h for h in held_out):
        return np.zeros(0)
    ours_SB, theirs_SB = (
        np.array([pair[side].held_out[score] for pair in pairs], np.float64) for side in (0, 1)
    )
    differences_B = (ours_SB - theirs_SB).mean(axis=0)
    return differences_B[np.isfinite(differences_B)]


def as_json(members: Sequence[MemberResult]) -> list[dict]:
    """Everything above, a dict per setting, as JSON data; the first is the baseline."""
    grouped = by_setting(members)
    baseline = next(iter(grouped.values()))
    return [
        {
            "setting": setting,
            "baseline": mates is baseline,
            "members": [_member_json(mate) for mate in mates],
            "minutes": _number(minutes(mates)),
            **{score: _interval_json(mean(mates, score)) for score in SCORES},
            "against_baseline": {}
            if mates is baseline
            else {score: _comparison_json(compare(mates, baseline, score)) for score in SCORES},
        }
        for setting, mates in grouped.items()
    ]


def _member_json(member: MemberResult) -> dict:
    told = {"seed": member.seed, "folder": str(member.folder), "state": member.state, "reason": member.reason}
    return told | {score: member.score(score) for score in SCORES} | {"minutes": member.minutes}


def _comparison_json(found: Comparison) -> dict:
    return {
        "seeds": list(found.seeds),
        "over_seeds": _interval_json(found.difference) | {"p_paired_t": _number(found.p)},
        "problems": found.problems,
        "over_problems": _interval_json(found.over_problems) | {"p_sign_flips": _number(found.p_problems)},
        "judged_differently": list(found.judged),
    }


def _interval_json(found: Interval) -> dict:
    return {name: _number(float(value)) for name, value in found._asdict().items()}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
