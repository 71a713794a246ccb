"""Tables and HTML page of a sweep: final returns, learning curves (with many settings, a panel each)."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from jaxmarl_llm import metrics
from jaxmarl_llm.analysis.report import figures, page, panels, sweep_ranking
from jaxmarl_llm.analysis.report.grouping import Group
from jaxmarl_llm.analysis.report.runs import read_run
from jaxmarl_llm.analysis.report.sweep_results import (
    SCORES,
    Comparison,
    MemberResult,
    as_json,
    by_setting,
    compare,
    judging_differences,
    mean,
    minutes,
)
from jaxmarl_llm.analysis.report.tables import NONE, Table, ends, number, signed
from jaxmarl_llm.cli.launch import FINISHED
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.statistics.bootstrap import Interval
from jaxmarl_llm.utils.statistics.significance import DRAWN, EXACT


def tables(members: Sequence[MemberResult]) -> list[Table]:
    """Means by setting; differences from the baseline, if there are other settings; unfinished members."""
    grouped = by_setting(members)
    all_tables = [_means(grouped)]
    if len(grouped) > 1:
        all_tables.append(_differences(grouped))
    unfinished = tuple(
        (member.setting, str(member.seed), member.state, member.reason or NONE, str(member.folder))
        for member in members
        if member.state != FINISHED
    )
    if unfinished:
        headers = ("setting", "seed", "state", "reason", "folder")
        all_tables.append(Table("Not finished", headers, unfinished))
    return all_tables


def notes(members: Sequence[MemberResult]) -> list[str]:
    """Explain the brackets and p-values of the tables."""
    others = len(by_setting(members)) - 1
    sentences = [
        "Returns on the test problems, of the latest state of each run. In brackets: 95 % t-intervals over "
        "the seeds."
    ]
    if others:
        sentences += [
            "Differences are of runs with the same seed, setting less baseline. p over the seeds is that of "
            "the paired t-test, two-sided.",
            "Over the problems: the same difference on every test problem, mean of those seeds; 95 % "
            f"bootstrap interval, and p of the two-sided sign-flip test (up to {EXACT} differences exact, of "
            f"more with {DRAWN:,} random flips). It says whether these runs differ, not whether other "
            "seeds would.",
        ]
    baseline, *rest = by_setting(members).values()
    if any(judging_differences(mates, baseline) for mates in rest):
        sentences.append(
            "Settings that are judged differently from the baseline, by another reward, task or problems, "
            "are not compared with it: their returns are on scales of their own."
        )
    if others > 1:
        sentences.append(f"p-values are not corrected for the {others} comparisons.")
    return sentences


def _means(grouped: dict[str, list[MemberResult]]) -> Table:
    headers = ("setting", "seeds", *(f"return, {kind}" for kind in SCORES.values()), "minutes")
    rows = []
    for index, (setting, mates) in enumerate(grouped.items()):
        name = setting if index else f"{setting} (baseline)"
        finished = sum(mate.state == FINISHED for mate in mates)
        seeds = str(finished) if finished == len(mates) else f"{finished} of {len(mates)}"
        rows.append((name, seeds, *(_mean(mean(mates, s)) for s in SCORES), number(minutes(mates))))
    return Table("Settings", headers, tuple(rows))


def _differences(grouped: dict[str, list[MemberResult]]) -> Table:
    headers = ("setting", "answers", "shared seeds", "difference", "p (seeds)", "problems", "over problems")
    headers += ("p (problems)",)
    baseline, *_ = grouped.values()
    rows = []
    for setting, mates in grouped.items():
        for score, kind in SCORES.items() if mates is not baseline else ():
            result = compare(mates, baseline, score)
            few_seeds = len(result.seeds) < 2
            rows.append((
                setting, kind, str(len(result.seeds)), _mean(result.difference, signed),
                _few(result) if few_seeds else p_value(result.p), str(result.problems),
                ends(result.over_problems.low, result.over_problems.high) or NONE, p_value(result.p_problems),
            ))  # fmt: skip
    return Table("Against the baseline", headers, tuple(rows))


def _few(result: Comparison) -> str:
    """The reason why there is no p-value over the seeds."""
    return f"judged differently: {', '.join(result.judged)}" if result.judged else "fewer than 2 seeds"


def _mean(estimate: Interval, write=number) -> str:
    return f"{write(estimate.mean)} {ends(estimate.low, estimate.high)}".rstrip()


def p_value(p: float) -> str:
    """A p-value with three decimals; a dash for NaN."""
    if p != p:
        return NONE
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def write(members: Sequence[MemberResult], path: Path, title: str) -> Path:
    """Write the page; a run whose folder cannot be read is named on it and has no curve."""
    groups, unreadable = curves(members)
    pictures = [picture for picture in panels.pictures(groups) if picture.name == "return"] if groups else []
    many = len(groups) > figures.FEW
    pictures = [panels.for_each(picture, groups) if many else picture for picture in pictures]
    images = [page.image(picture, groups, figures.png(picture, groups)) for picture in pictures]
    style = page.source("report.css")
    text = page.ENVIRONMENT.get_template("sweep.html.jinja").render(
        title=title,
        policy=page.policy(style),
        style=Markup(style),
        tables=tables(members),
        notes=notes(members),
        rankings=_ranking(as_json(members)),
        pictures=images,
        window=figures.WINDOW,
        many=many,
        unreadable=unreadable,
        missing=[m for m in members if m.state != FINISHED],
        members=_members(members),
    )
    # Values of fields may contain half a surrogate pair, which UTF-8 files cannot.
    return files.atomic_write_text(path, files.safe_text(text))


def _ranking(settings: Sequence[dict]) -> list[dict[str, str]]:
    """The picture of final returns, in the form for a template; [] if there is nothing to compare."""
    if len(sweep_ranking.ranked(settings)) < 2:
        return []
    png = figures.as_png(lambda: sweep_ranking.draw(settings))
    caption = (
        "Mean final returns, best first, with 95 % t-intervals over the seeds. The baseline is in bold, the "
        "dashed line is its sampled mean."
    )
    fields = {"name": "ranking", "title": "Final returns", "caption": caption}
    return [fields | {"words": sweep_ranking.in_words(settings), "png": page.uri(png)}]


def curves(members: Sequence[MemberResult]) -> tuple[list[Group], list[str]]:
    """The runs of each setting that have metrics, finished or not, and the errors of unreadable folders."""
    groups, unreadable = [], []
    for setting, mates in by_setting(members).items():
        runs = []
        for mate in mates:
            try:
                if (mate.folder / "config.json").is_file() and metrics.read_metrics(mate.folder):
                    runs.append(read_run(mate.folder, f"{setting}, seed {mate.seed}"))
            except ValueError as error:
                unreadable.append(str(error))
        if runs:
            groups.append(Group(setting, tuple(runs)))
    return groups, unreadable


def _members(members: Sequence[MemberResult]) -> Table:
    headers = ("setting", "seed", *(f"return, {kind}" for kind in SCORES.values()), "minutes", "folder")
    rows = (
        (m.setting, str(m.seed), *(number(m.score(s)) for s in SCORES), number(m.minutes), str(m.folder))
        for m in members
    )
    return Table("Members", headers, tuple(rows))
