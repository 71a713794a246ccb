"""Tables of program searches, as texts, from the data of a results file (`analysis.search.results`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxmarl_llm.analysis.report.sweep_page import p_value
from jaxmarl_llm.analysis.report.tables import NONE, Table, ends, number, signed

Search = Mapping[str, Any]

NAMES = {
    "correct": "right, %",
    "pass@1": "pass@1, %",
    "compiled": "could be run, %",
    "above_2x": "2x or faster, %",
    "geomean": "geometric mean",
    "mean": "mean",
    "tests": "tests passed, %",
    "right": "right, %",
    "answered": "answered, %",
    "searched_right": "some answer right, %",
    "searched_geomean": "geometric mean, in the search",
    "searched_mean": "mean, in the search",
    "searched_tests": "tests passed in the search, %",
}
SEARCHED = "searched_"
# Fields of a ledger's usage (`analysis.search.ledger`), and their headers.
_USAGE = {
    "calls": "calls", "prompt_tokens": "prompt tokens", "completion_tokens": "completion tokens",
    "cut_prompts": "prompts cut",
}  # fmt: skip
BY_CATEGORY = ("geomean", "above_2x", "correct", "pass@1", "tests", "right")


def labels(searches: Sequence[Search]) -> list[str]:
    """A label per search: its method, the task if there are several, the seed if labels would be equal."""
    several = len({search["task"] for search in searches}) > 1
    names = [f"{s['method']}, {s['task']}" if several else s["method"] for s in searches]
    return [
        f"{name}, seed {search['seed']}" if names.count(name) > 1 else name
        for search, name in zip(searches, names, strict=True)
    ]


def methods(searches: Sequence[Search], title: str = "Methods") -> Table:
    """A row per search: means over all problems, with their intervals below them.

    What all searches have in common (task, models, seed, number of problems) is only in the title.
    """
    return _methods(title, searches, _metric_names(searches), "\n")


def summaries(searches: Sequence[Search]) -> list[Table]:
    """The table of `methods` as two, with one-line rows: scores measured again, and scores in the search."""
    names = _metric_names(searches)
    remeasured = [name for name in names if not name.startswith(SEARCHED)]
    searched = [name for name in names if name.startswith(SEARCHED)]
    return [_methods("Methods", searches, remeasured), _methods("Measured in the search", searches, searched)]


def _methods(title: str, searches: Sequence[Search], names: Sequence[str], between: str = " ") -> Table:
    """A row per search; ``between``: what separates a mean from its interval."""
    about = _about(searches)
    differ = {header: texts for header, texts in about.items() if len(set(texts)) > 1}
    words = {"seed": "seed {}", "problems": "{} problems"}
    shared = [
        words.get(header, "{}").format(texts[0]) for header, texts in about.items() if header not in differ
    ]
    rows = []
    for n, (label, search) in enumerate(zip(labels(searches), searches, strict=True)):
        means = [_mean(search["metrics"]["total"].get(name)).replace(" ", between, 1) for name in names]
        rows.append((label, *(texts[n] for texts in differ.values()), *means))
    headers = ("method", *differ, *(NAMES.get(name, name) for name in names))
    return Table(": ".join(filter(None, (title, ", ".join(shared)))), headers, tuple(rows))


def _about(searches: Sequence[Search]) -> dict[str, list[str]]:
    """Task, models, seed and number of problems of each search, by header."""
    models = [_models(search["models"]) for search in searches]
    names = {name for search in searches for name in search["models"].values()}
    columns = {"models": models}
    if len(names) == 1 and len(set(models)) > 1:  # teams of different sizes
        columns = {"model": [*names] * len(searches), "agents": [str(len(s["models"])) for s in searches]}
    seeds, problems = [str(s["seed"]) for s in searches], [str(len(s["problems"])) for s in searches]
    return {"task": [s["task"] for s in searches], **columns, "seed": seeds, "problems": problems}


def _models(models: Mapping[str, str]) -> str:
    """The common model of all agents, or, if they differ, the model of each agent."""
    if len(set(models.values())) > 1:
        return ", ".join(f"{agent}: {model}" for agent, model in models.items())
    (name,) = set(models.values())
    return name if len(models) == 1 else f"{name} x {len(models)}"


def against(searches: Sequence[Search], between: str = " ") -> Table | None:
    """A row per search: its differences from the baseline with p-values; None if nothing is compared.

    Metrics of the search itself are left out: they favour methods that try more different programs.
    ``between``: what separates a difference from its interval, and the interval from p.
    """
    comparisons = [(n, s["against"]) for n, s in zip(labels(searches), searches, strict=True) if s["against"]]
    if not comparisons:
        return None
    all_names = dict.fromkeys(name for _, comparison in comparisons for name in comparison["metrics"])
    names = [name for name in all_names if not name.startswith(SEARCHED)]
    several = len({comparison["seed"] for _, comparison in comparisons}) > 1
    rows = []
    for label, comparison in comparisons:
        seed = [str(comparison["seed"])] if several else []
        rows.append((label, *seed, *(_compared(n, comparison["metrics"].get(n), between) for n in names)))
    seed = ["baseline's seed"] if several else []
    headers = ("method", *seed, *(NAMES.get(name, name) for name in names))
    return Table(f"Against {searches[0]['method']}", headers, tuple(rows))


def _compared(name: str, entry: Mapping[str, Any] | None, between: str) -> str:
    if entry is None:
        return NONE
    return f"{_difference(name, entry).replace(' ', between, 1)}{between}p {p_value(_nan(entry['p']))}"


def by_category(searches: Sequence[Search], intervals: bool = True) -> list[Table]:
    """A table for each of the main metrics: a row per category of problems, a column per search."""
    cell = _mean if intervals else _mean_alone
    groups = dict.fromkeys(group for search in searches for group in search["metrics"] if group != "total")
    tables = []
    for name in BY_CATEGORY if groups else ():
        if name in _metric_names(searches):
            rows = tuple(
                (group, *(cell(search["metrics"].get(group, {}).get(name)) for search in searches))
                for group in groups
            )
            tables.append(Table(f"By category: {NAMES[name]}", ("category", *labels(searches)), rows))
    return tables


def problems(searches: Sequence[Search]) -> Table:
    """A row per problem, a column per search: the score measured again, and the score in the search."""
    rows: dict[str, list[str]] = {}
    for s, search in enumerate(searches):
        for problem in search["problems"]:
            rows.setdefault(problem["item"], [NONE] * len(searches))[s] = _problem(problem)
    table = tuple((item, *cells) for item, cells in rows.items())
    return Table("Problems", ("problem", *labels(searches)), table)


def _problem(problem: Mapping[str, Any]) -> str:
    held_out, searched = problem["held_out"], problem["searched"]
    score = f"{_score(held_out)} {ends(held_out['low'], held_out['high'])}".rstrip()
    origin = "the source stays" if problem["unchanged"] else f"{problem['agent']}, round {problem['round']}"
    status = "" if held_out["status"] == "ok" else f", {held_out['status']}"
    return f"{score}{status}\nsearch: {_score(searched)}; {origin}"


def _score(outcome: Mapping[str, Any]) -> str:
    """A speed-up, or the number of tests passed of all tests."""
    if outcome["total"]:
        return f"{outcome['score']:g} of {outcome['total']}"
    return number(outcome["score"])


def bank(label: str, search: Search) -> Table:
    """A row per lesson: its text, its program, and outcomes of the programs whose prompt contained it."""
    headers = ("problem", "round", "agent", "lesson", "its program", "factor", "relevance")
    headers += ("shown to, and what it led to",)
    rows = []
    for lesson in search["bank"]:
        by_round: dict[int, list[str]] = {}
        for attempt in lesson["led_to"]:
            outcome = number(attempt["score"]) if attempt["status"] == "ok" else attempt["status"]
            by_round.setdefault(attempt["round"], []).append(f"{attempt['agent']} {outcome}")
        rounds = [f"round {n}: {', '.join(outcome)}" for n, outcome in by_round.items()]
        program = f"{lesson['status']} {number(lesson['score'])}"
        numbers = (number(lesson["factor"]), number(lesson["relevance"]))
        cells = (lesson["item"], str(lesson["round"]), lesson["agent"], lesson["text"])
        rows.append((*cells, program, *numbers, "\n".join(rounds) or "nobody"))
    return Table(f"Lessons of {label}", headers, tuple(rows))


def costs(searches: Sequence[Search]) -> Table:
    """A row per search: the totals of its ledger."""
    over_steps = any(search["ledger"].get("expansions") for search in searches)
    headers = ("method", *_USAGE.values(), *(("expansions",) if over_steps else ()), "programs executed")
    headers += ("of them known", "CPU seconds", "measured again", "CPU seconds", "cost")
    rows = []
    for label, search in zip(labels(searches), searches, strict=True):
        ledger = search["ledger"]
        totals = (_count(ledger.get(name)) for name in (*_USAGE, *(("expansions",) if over_steps else ())))
        first, again = ledger.get("search", {}), ledger.get("held_out", {})
        measured = (_count(first.get("programs")), _count(first.get("reused")), number(first.get("seconds")))
        measured += (_count(again.get("programs")), number(again.get("seconds")))
        rows.append((label, *totals, *measured, number(ledger.get("cost", {}).get("total"))))
    return Table("Cost", headers, tuple(rows))


def agents(searches: Sequence[Search]) -> Table:
    """A row per search, agent and kind of the agent's turns."""
    headers = ("method", "agent", "model", "turns", *_USAGE.values())
    rows = []
    for label, search in zip(labels(searches), searches, strict=True):
        for agent, kinds in search["ledger"].get("agents", {}).items():
            for kind, usage in kinds.items():
                row = (label, agent, search["models"].get(agent, NONE), kind)
                rows.append((*row, *map(_count, map(usage.get, _USAGE))))
    return Table("Cost by agent", headers, tuple(rows))


def _metric_names(searches: Sequence[Search]) -> list[str]:
    return list(dict.fromkeys(name for search in searches for name in search["metrics"]["total"]))


def _mean(estimate: Mapping[str, Any] | None) -> str:
    estimate = estimate or {}
    return f"{number(estimate.get('mean'))} {ends(estimate.get('low'), estimate.get('high'))}".rstrip()


def _mean_alone(estimate: Mapping[str, Any] | None) -> str:
    return number((estimate or {}).get("mean"))


def _difference(name: str, entry: Mapping[str, Any]) -> str:
    """A difference with its sign, or a ratio (of geometric means) with "×", and its interval."""
    ratio = name.endswith("geomean")
    mean = f"×{number(entry['mean'])}" if ratio else signed(_nan(entry["mean"]))
    return f"{mean} {ends(entry['low'], entry['high'])}".rstrip()


def _nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _count(value: int | None) -> str:
    return NONE if value is None else str(value)
