"""The tables of searches for programs, as texts, from the data of a results file (`search_results`)."""

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
    "searched_geomean": "geometric mean, in the search",
    "searched_mean": "mean, in the search",
    "searched_tests": "tests passed in the search, %",
}
SEARCHED = "searched_"
# Of a ledger's usage, see `search.ledger`.
_USAGE = {
    "calls": "calls", "prompt_tokens": "prompt tokens", "completion_tokens": "completion tokens",
    "cut_prompts": "prompts cut",
}  # fmt: skip
BY_CATEGORY = ("geomean", "above_2x", "correct", "pass@1", "tests")


def labels(searches: Sequence[Search]) -> list[str]:
    """What to call each search: its method, the task if there are several, the seed where it takes that."""
    several = len({search["task"] for search in searches}) > 1
    names = [f"{s['method']}, {s['task']}" if several else s["method"] for s in searches]
    return [
        f"{name}, seed {search['seed']}" if names.count(name) > 1 else name
        for search, name in zip(searches, names, strict=True)
    ]


def methods(searches: Sequence[Search], title: str = "Methods") -> Table:
    """A row per search: means over all problems, with their intervals under them.

    What is the same of all searches (task, models, seed, number of problems) stands in the title alone.
    """
    return _methods(title, searches, _metric_names(searches), "\n")


def summaries(searches: Sequence[Search]) -> list[Table]:
    """The same in lines, as two tables: what was measured again, and what was measured in the search."""
    names = _metric_names(searches)
    again = [name for name in names if not name.startswith(SEARCHED)]
    first = [name for name in names if name.startswith(SEARCHED)]
    return [_methods("Methods", searches, again), _methods("Measured in the search", searches, first)]


def _methods(title: str, searches: Sequence[Search], names: Sequence[str], between: str = " ") -> Table:
    """A row per search; ``between``: what separates a mean from its interval."""
    about = _about(searches)
    differ = {header: texts for header, texts in about.items() if len(set(texts)) > 1}
    words = {"seed": "seed {}", "problems": "{} problems"}
    same = [
        words.get(header, "{}").format(texts[0]) for header, texts in about.items() if header not in differ
    ]
    rows = []
    for n, (label, search) in enumerate(zip(labels(searches), searches, strict=True)):
        means = [_mean(search["metrics"]["total"].get(name)).replace(" ", between, 1) for name in names]
        rows.append((label, *(texts[n] for texts in differ.values()), *means))
    headers = ("method", *differ, *(NAMES.get(name, name) for name in names))
    return Table(": ".join(filter(None, (title, ", ".join(same)))), headers, tuple(rows))


def _about(searches: Sequence[Search]) -> dict[str, list[str]]:
    """What each search was of, by header."""
    models = [_models(search["models"]) for search in searches]
    names = {name for search in searches for name in search["models"].values()}
    said = {"models": models}
    if len(names) == 1 and len(set(models)) > 1:  # teams of different sizes
        said = {"model": [*names] * len(searches), "agents": [str(len(s["models"])) for s in searches]}
    seeds, problems = [str(s["seed"]) for s in searches], [str(len(s["problems"])) for s in searches]
    return {"task": [s["task"] for s in searches], **said, "seed": seeds, "problems": problems}


def _models(models: Mapping[str, str]) -> str:
    """The one model of all agents, or each agent's."""
    if len(set(models.values())) > 1:
        return ", ".join(f"{agent}: {model}" for agent, model in models.items())
    (name,) = set(models.values())
    return name if len(models) == 1 else f"{name} x {len(models)}"


def against(searches: Sequence[Search], between: str = " ") -> Table | None:
    """A row per search: its differences from the baseline with their p; None if nothing is compared.

    What was measured in the search is left out: it favours whoever tries more that differs.
    ``between``: what separates a difference from its interval and that from p.
    """
    compared = [(n, s["against"]) for n, s in zip(labels(searches), searches, strict=True) if s["against"]]
    if not compared:
        return None
    every = dict.fromkeys(name for _, found in compared for name in found["metrics"])
    names = [name for name in every if not name.startswith(SEARCHED)]
    several = len({found["seed"] for _, found in compared}) > 1
    rows = []
    for label, found in compared:
        seed = [str(found["seed"])] if several else []
        rows.append((label, *seed, *(_compared(n, found["metrics"].get(n), between) for n in names)))
    seed = ["baseline's seed"] if several else []
    headers = ("method", *seed, *(NAMES.get(name, name) for name in names))
    return Table(f"Against {searches[0]['method']}", headers, tuple(rows))


def _compared(name: str, found: Mapping[str, Any] | None, between: str) -> str:
    if found is None:
        return NONE
    return f"{_difference(name, found).replace(' ', between, 1)}{between}p {p_value(_nan(found['p']))}"


def by_category(searches: Sequence[Search], intervals: bool = True) -> list[Table]:
    """For each of the main numbers a row per category of problems, a column per search."""
    write = _mean if intervals else _mean_alone
    groups = dict.fromkeys(group for search in searches for group in search["metrics"] if group != "total")
    found = []
    for name in BY_CATEGORY if groups else ():
        if name in _metric_names(searches):
            rows = tuple(
                (group, *(write(search["metrics"].get(group, {}).get(name)) for search in searches))
                for group in groups
            )
            found.append(Table(f"By category: {NAMES[name]}", ("category", *labels(searches)), rows))
    return found


def problems(searches: Sequence[Search]) -> Table:
    """A row per problem, a column per search: the score measured again, and what it was in the search."""
    rows: dict[str, list[str]] = {}
    for s, search in enumerate(searches):
        for each in search["problems"]:
            rows.setdefault(each["item"], [NONE] * len(searches))[s] = _problem(each)
    table = tuple((item, *cells) for item, cells in rows.items())
    return Table("Problems", ("problem", *labels(searches)), table)


def _problem(found: Mapping[str, Any]) -> str:
    again, first = found["held_out"], found["searched"]
    score = f"{_score(again)} {ends(again['low'], again['high'])}".rstrip()
    wrote = "the source stays" if found["unchanged"] else f"{found['agent']}, round {found['round']}"
    status = "" if again["status"] == "ok" else f", {again['status']}"
    return f"{score}{status}\nsearch: {_score(first)}; {wrote}"


def _score(outcome: Mapping[str, Any]) -> str:
    """A speed-up, or tests passed of all."""
    if outcome["total"]:
        return f"{outcome['score']:g} of {outcome['total']}"
    return number(outcome["score"])


def bank(label: str, search: Search) -> Table:
    """A row per lesson: its text, what it is about, and what became of the programs that were shown it."""
    headers = ("problem", "round", "agent", "lesson", "its program", "factor", "relevance")
    headers += ("shown to, and what it led to",)
    rows = []
    for lesson in search["bank"]:
        led: dict[int, list[str]] = {}
        for a in lesson["led_to"]:
            came = number(a["score"]) if a["status"] == "ok" else a["status"]
            led.setdefault(a["round"], []).append(f"{a['agent']} {came}")
        rounds = [f"round {n}: {', '.join(came)}" for n, came in led.items()]
        about = f"{lesson['status']} {number(lesson['score'])}"
        numbers = (number(lesson["factor"]), number(lesson["relevance"]))
        where = (lesson["item"], str(lesson["round"]), lesson["agent"], lesson["text"])
        rows.append((*where, about, *numbers, "\n".join(rounds) or "nobody"))
    return Table(f"Lessons of {label}", headers, tuple(rows))


def costs(searches: Sequence[Search]) -> Table:
    """A row per search: everything that its ledger adds up."""
    headers = ("method", *_USAGE.values(), "programs executed", "of them known")
    headers += ("CPU seconds", "measured again", "CPU seconds", "cost")
    rows = []
    for label, search in zip(labels(searches), searches, strict=True):
        ledger = search["ledger"]
        totals = (_count(ledger.get(name)) for name in _USAGE)
        first, again = ledger.get("search", {}), ledger.get("held_out", {})
        measured = (_count(first.get("programs")), _count(first.get("reused")), number(first.get("seconds")))
        measured += (_count(again.get("programs")), number(again.get("seconds")))
        rows.append((label, *totals, *measured, number(ledger.get("cost", {}).get("total"))))
    return Table("Cost", headers, tuple(rows))


def agents(searches: Sequence[Search]) -> Table:
    """A row per agent of each search and kind of its turns."""
    headers = ("method", "agent", "model", "turns", *_USAGE.values())
    rows = []
    for label, search in zip(labels(searches), searches, strict=True):
        for agent, kinds in search["ledger"].get("agents", {}).items():
            for kind, used in kinds.items():
                row = (label, agent, search["models"].get(agent, NONE), kind)
                rows.append((*row, *map(_count, map(used.get, _USAGE))))
    return Table("Cost by agent", headers, tuple(rows))


def _metric_names(searches: Sequence[Search]) -> list[str]:
    return list(dict.fromkeys(name for search in searches for name in search["metrics"]["total"]))


def _mean(found: Mapping[str, Any] | None) -> str:
    found = found or {}
    return f"{number(found.get('mean'))} {ends(found.get('low'), found.get('high'))}".rstrip()


def _mean_alone(found: Mapping[str, Any] | None) -> str:
    return number((found or {}).get("mean"))


def _difference(name: str, found: Mapping[str, Any]) -> str:
    """With its sign; a ratio as one."""
    ratio = name.endswith("geomean")
    mean = f"×{number(found['mean'])}" if ratio else signed(_nan(found["mean"]))
    return f"{mean} {ends(found['low'], found['high'])}".rstrip()


def _nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _count(value: int | None) -> str:
    return NONE if value is None else str(value)
