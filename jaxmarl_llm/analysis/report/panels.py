"""The pictures of a report: panels with the metrics that the runs have."""

import dataclasses
import textwrap
from collections.abc import Sequence

from jaxmarl_llm.analysis.report import metric_names
from jaxmarl_llm.analysis.report.grouping import Group
from jaxmarl_llm.analysis.report.metric_names import Line

CHANGING = ("agents", "credit", "lessons", "system")  # pictures that leave out constant panels
TITLE = 30  # characters per line of a panel's title if several panels are in a row


@dataclasses.dataclass(frozen=True)
class Panel:
    """Axes with some metrics, of all groups or of ``group`` alone.

    unit: label of the y axis. percent: the scale is 0..100. log: it is logarithmic. A line without a label is
    not in the legend.
    """

    title: str
    lines: tuple[Line, ...]
    unit: str = ""
    percent: bool = False
    group: Group | None = None
    log: bool = False


@dataclasses.dataclass(frozen=True)
class Picture:
    """Panels in a grid. ``name`` is part of its file's name; title and caption are shown on the page.

    columns: None for as many as fit. shared: one legend, whose labels mean the same in all panels.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int | None = None
    shared: bool = True


def pictures(groups: Sequence[Group]) -> list[Picture]:
    """The pictures for which the runs have metrics."""
    names = metric_names.all_names(groups)
    percent = all(not group.runs[0].config.get("task", {}).get("reward") for group in groups)
    fixed = (
        _returns(names, percent), _turns(names, percent), _parts(names, percent), _hack_gap(names),
        _agents(names, groups), _credit(names, groups), _lessons(names), _verdicts(names, groups),
        _cost(names),
    )  # fmt: skip
    every = (
        *fixed,
        _system(metric_names.unlisted(names, [name for each in fixed for name in metrics(each)])),
    )
    reduced = (without_constant(each, groups) if each.name in CHANGING else each for each in every)
    return [picture for picture in reduced if picture.panels]


def metrics(picture: Picture) -> list[str]:
    """Names of the metrics that a picture shows."""
    return [line.metric for panel in picture.panels for line in panel.lines]


def without_constant(picture: Picture, groups: Sequence[Group]) -> Picture:
    """The picture without panels whose lines never change; the caption lists these with their values.

    A picture with only such panels, or of a single iteration, stays as it is.
    """
    metrics_of_panels = ([line.metric for line in panel.lines] for panel in picture.panels)
    values = [metric_names.constant(groups, names) for names in metrics_of_panels]
    pairs = list(zip(picture.panels, values, strict=True))
    kept = tuple(panel for panel, value in pairs if value is None)
    if len(kept) in (0, len(pairs)):
        return picture
    constants = ", ".join(f"{panel.title} ({value:.3g})" for panel, value in pairs if value is not None)
    caption = f"{picture.caption} Not drawn, as it is the same in every iteration: {constants}."
    return dataclasses.replace(picture, panels=kept, caption=caption)


def for_each(picture: Picture, groups: Sequence[Group]) -> Picture:
    """Repeat a picture's only panel for each group alone, with the group's label as title."""
    (panel,) = picture.panels
    titles = ["\n".join(textwrap.wrap(group.label, TITLE)) for group in groups]
    group_panels = [dataclasses.replace(panel, title=t, group=g) for t, g in zip(titles, groups, strict=True)]
    return dataclasses.replace(picture, panels=tuple(group_panels))


def _returns(names, percent: bool) -> Picture:
    lines = metric_names.kinds(names, "return")
    panels = (Panel("return", lines, _return_unit(percent), percent),) if lines else ()
    caption = (
        "Return in training and, where it was measured, on validation problems, which choose the best state, "
        "and on test problems."
    )
    return Picture("return", "Learning curves", caption, panels)


def _return_unit(percent: bool) -> str:
    return "return (0..100)" if percent else "return"


def _turns(names, percent: bool) -> Picture:
    turns = metric_names.turns(names)
    lines = {f"turn {t}": metric_names.kinds(names, f"return_turn{t}", f"turn{t}/return") for t in turns}
    lines["mean of the turns"] = metric_names.kinds(names, "return_turns")
    unit = _return_unit(percent)
    panels = tuple(Panel(title, of_turn, unit, percent) for title, of_turn in lines.items() if of_turn)
    caption = (
        "Return of all answers of a turn; the return above is that of the final answers. The mean of the "
        "turns is what MAGRPO's paper calls the return of several turns."
    )
    return Picture("turns", "Return by turn", caption, panels)


def _parts(names, percent: bool) -> Picture:
    parts = metric_names.parts(names)
    unit = "part (0..100)" if percent else "part of the reward"
    panels = tuple(Panel(part, metric_names.kinds(names, part), unit, percent) for part in parts)
    scale = "on the 0..100 scale" if percent else "on the reward's own scale"
    return Picture("parts", "Reward parts", f"What the return is made of, {scale}.", panels)


def _hack_gap(names) -> Picture:
    lines = metric_names.kinds(names, "hack_gap")
    panels = (Panel("hack gap", lines, "judged less held back"),) if lines else ()
    caption = (
        "Score on what the reward judges, less the score on what is held back from it. A gap that grows "
        "means that reward is gained without solving the task better."
    )
    return Picture("hack_gap", "Hack gap", caption, panels)


def _agents(names, groups: Sequence[Group]) -> Picture:
    agents = metric_names.agents(groups)
    panels = tuple(
        Panel(metric, metric_names.by_agent(names, agents, metric), metric_names.unit_of_agents(metric))
        for metric in metric_names.of_agents(names, agents)
    )
    caption = (
        "zero_signal and truncated are shares (0..1) of groups without any difference in return and of "
        "completions cut off at the length limit; lengths are in tokens; ratio0 must be 1."
    )
    return Picture("agents", "Per agent", caption, panels)


def _credit(names, groups: Sequence[Group]) -> Picture:
    agents = metric_names.agents(groups)
    panels = [
        Panel(title, (Line(name, "all agents", len(agents)),), unit)
        for name, (title, unit) in metric_names.OF_TEAM_CREDIT.items()
        if name in names
    ]
    for metric, (title, unit) in metric_names.OF_CREDIT.items():
        lines = metric_names.by_agent(names, agents, metric)
        if metric == "main_effect" and "credit/interaction" in names:
            lines += (Line("credit/interaction", "combination", len(agents) + 1),)
        panels += [Panel(title, lines, unit)] if lines else []
    caption = (
        "Signs that agree: of the pairs of agents with an advantage in a joint answer, the share that is "
        "told the same. Variance explained: where all combinations of samples were judged, the share of the "
        "rewards' variance that each agent's samples explain by themselves, and that only their combination "
        "does. Marginal: mean reward less that without the agent's part. Free rider: share of the joint "
        "answers that earn no less without it. Dominance: share of which it alone is a reason."
    )
    return Picture("credit", "Credit", caption, tuple(panels))


def _lessons(names) -> Picture:
    measured = {name: about for name, about in metric_names.OF_LESSONS.items() if name in names}
    panels = tuple(Panel(title, (Line(name, ""),), unit) for name, (title, unit) in measured.items())
    caption = (
        "Reward with lessons less without: that of programs that were shown lessons, less that of those of "
        "the same rounds and problems which were shown none (lessons.control), on the reward's own scale. "
        "Only a lesson that some chains of a problem were shown and others were not can be told from none."
    )
    return Picture("lessons", "Lessons", caption, panels)


def _verdicts(names, groups: Sequence[Group]) -> Picture:
    kinds = [
        ("executor/verdict/", "programs in training"), ("eval/verdict/", "validation, sampled"),
        ("eval_greedy/verdict/", "validation, greedy"), ("test/verdict/", "test, sampled"),
    ]  # fmt: skip
    present = [(start, title) for start, title in kinds if any(name.startswith(start) for name in names)]
    occurred = {name for group in groups for name in metric_names.nonzero(group, names)}
    of_kinds = [(name, start) for start, _ in present for name in names if name.startswith(start)]
    verdicts = list(dict.fromkeys(name.removeprefix(start) for name, start in of_kinds if name in occurred))

    def panel(group: Group, start: str, title: str) -> Panel:
        all_lines = [Line(start + verdict, verdict, style) for style, verdict in enumerate(verdicts)]
        nonzero = metric_names.nonzero(group, [line.metric for line in all_lines])
        lines = tuple(line for line in all_lines if line.metric in nonzero)
        prefix = f"{group.label}\n" if len(groups) > 1 else ""
        return Panel(prefix + title, lines, "%", True, group)

    panels = tuple(panel(group, *kind) for group in groups for kind in present)
    shown_panels = panels if any(each.lines for each in panels) else ()
    caption = "Share of the programs and of the answers of evaluations that ended in each way that occurred."
    return Picture("verdicts", "Verdicts", caption, shown_panels, len(present))


def _cost(names) -> Picture:
    programs = [Line("executor/programs", "programs"), Line("executor/runs", "executed, not known before", 1)]
    panels = [
        Panel("time", (Line("seconds", "iteration"), *metric_names.phases(names)), "seconds", log=True),
        Panel("speed", (Line("tokens_per_s", "completion tokens"),), "tokens per second"),
        Panel("executions", tuple(programs), "number"),
        Panel("expert, so far", metric_names.of_expert(names), "tokens"),
    ]
    kept = [tuple(line for line in panel.lines if line.metric in names) for panel in panels]
    panels = tuple(
        dataclasses.replace(panel, lines=lines) for panel, lines in zip(panels, kept, strict=True) if lines
    )
    caption = (
        "Per iteration, the first of which compiles. A phase inside another (sample and score are in "
        "rollout) counts in both."
    )
    return Picture("cost", "Cost", caption, panels, shared=False)


def _system(others: Sequence[str]) -> Picture:
    panels = tuple(Panel(name, (Line(name, ""),), metric_names.OF_SYSTEM.get(name, "")) for name in others)
    caption = (
        "What the system measures of its own models and of what it learns from: critics, pairs of answers, "
        "reward models, a custom system's numbers, and whatever no other picture shows."
    )
    return Picture("system", "System", caption, panels)
