"""Results of a sweep: members by setting, means over their seeds, each setting against the baseline."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxmarl_llm.analysis.report import comparable
from jaxmarl_llm.cli.launch import FINISHED
from jaxmarl_llm.utils import formats
from jaxmarl_llm.utils.statistics.bootstrap import Interval, interval
from jaxmarl_llm.utils.statistics.significance import paired_t, sign_flips, t_interval

SCORES = {"return": "sampled", "return_greedy": "greedy"}  # score in a summary -> its name in tables


@dataclasses.dataclass(frozen=True)
class MemberResult:
    """A member of a sweep, as read from its run folder.

    state: `FINISHED`, or another state; reason: why it is not finished, if known. summary and held_out are
    the contents of summary.json and held_out.json, judged is `comparable.judging_fields` of config.json; all
    are {} unless the member is finished.
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
        """A score of the last evaluation on the test; None if missing."""
        return self.summary.get("after", {}).get(name)


class Comparison(NamedTuple):
    """One score of a setting minus that of the baseline, both for the same seeds.

    Attributes:
      seeds: the seeds that both have finished.
      difference: mean over the seeds, with its t-interval.
      p: p-value of `paired_t` over the seeds.
      problems: number of test problems with results of both; 0 if their problems are not the same.
      over_problems: the same mean with its bootstrap interval over the problems.
      p_problems: p-value of `sign_flips` over the problems.
      judged: config fields that cause different scoring; if any, everything else is empty or NaN.
    """

    seeds: tuple[int, ...]
    difference: Interval
    p: float
    problems: int
    over_problems: Interval
    p_problems: float
    judged: tuple[str, ...] = ()


def read_member(setting: str, seed: int, folder: Path, state: str, reason: str = "") -> MemberResult:
    """Read a member's results from its folder if it is finished. ValueError names a damaged file."""
    if state != FINISHED:
        return MemberResult(setting, seed, folder, state, reason)
    held_out_file = folder / "held_out.json"
    held_out_data = formats.read(held_out_file) if held_out_file.is_file() else {}
    summary, config = (formats.read(folder / f"{name}.json") for name in ("summary", "config"))
    return MemberResult(
        setting, seed, folder, state, reason, summary, held_out_data, comparable.judging_fields(config)
    )


def by_setting(members: Sequence[MemberResult]) -> dict[str, list[MemberResult]]:
    """The members of each setting, settings in the order of their first members: the baseline first."""
    grouped: dict[str, list[MemberResult]] = {}
    for member in members:
        grouped.setdefault(member.setting, []).append(member)
    return grouped


def members_with_score(members: Sequence[MemberResult], score: str) -> dict[int, MemberResult]:
    """Return the members that have the score, by seed."""
    return {member.seed: member for member in members if member.score(score) is not None}


def mean(members: Sequence[MemberResult], score: str) -> Interval:
    """Mean of a score over the seeds that have it, with its t-interval."""
    return t_interval([member.score(score) for member in members_with_score(members, score).values()])


def minutes(members: Sequence[MemberResult]) -> float:
    """Mean duration of the members that are finished; NaN if there are none."""
    taken = [member.minutes for member in members if member.minutes is not None]
    return sum(taken) / len(taken) if taken else math.nan


def compare(members: Sequence[MemberResult], baseline: Sequence[MemberResult], score: str) -> Comparison:
    """Compare a setting with the baseline by seed and by problem; no numbers if judged differently."""
    ours, theirs = members_with_score(members, score), members_with_score(baseline, score)
    if fields := judging_differences(members, baseline):
        unknown = Interval(math.nan, math.nan, math.nan)
        return Comparison((), unknown, math.nan, 0, unknown, math.nan, fields)
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


def judging_differences(members: Sequence[MemberResult], baseline: Sequence[MemberResult]) -> tuple[str, ...]:
    """Judging fields in which finished members differ from those of the baseline; () if none differ."""
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
    """All results of a sweep as JSON data: a dict per setting, the first is the baseline."""
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
    row = {"seed": member.seed, "folder": str(member.folder), "state": member.state, "reason": member.reason}
    return row | {score: member.score(score) for score in SCORES} | {"minutes": member.minutes}


def _comparison_json(result: Comparison) -> dict:
    return {
        "seeds": list(result.seeds),
        "over_seeds": _interval_json(result.difference) | {"p_paired_t": _number(result.p)},
        "problems": result.problems,
        "over_problems": _interval_json(result.over_problems) | {"p_sign_flips": _number(result.p_problems)},
        "judged_differently": list(result.judged),
    }


def _interval_json(estimate: Interval) -> dict:
    return {name: _number(float(value)) for name, value in estimate._asdict().items()}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
