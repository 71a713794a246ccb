"""One HTML page about program searches: table of methods, best so far, lessons, costs, the programs."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from jaxmarl_llm.analysis.report import budget_tables, figures, page, search_tables
from jaxmarl_llm.analysis.report.search_tables import Search
from jaxmarl_llm.analysis.report.tables import number
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.statistics.significance import DRAWN, EXACT

BEST = {
    "speed-up": "geometric mean of the best speed-ups",
    "tests": "tests that the best programs pass, %",
    "answers": "questions with a right one among the answers, %",
}


def write(searches: Sequence[Search], path: Path, title: str, seeds: Sequence[Search] = ()) -> Path:
    """Write the page about the data of a results file (`search.results.to_json`), the baseline first.

    ``seeds``: the same data over several seeds (`search.seeds.over_seeds`), if any; then these are compared.
    """
    compared = seeds or searches
    style, names = page.source("report.css"), search_tables.labels(searches)
    with_lessons = [(n, search) for n, search in zip(names, searches, strict=True) if search["bank"]]
    text = page.ENVIRONMENT.get_template("search.html.jinja").render(
        title=title,
        policy=page.policy(style),
        style=Markup(style),
        methods=search_tables.methods(compared),
        each=search_tables.methods(searches, "Each seed") if seeds else None,
        against=search_tables.against(compared, between="\n"),
        notes=notes(searches, seeds),
        categories=[*search_tables.by_category(compared), *budget_tables.tables(searches)],
        picture=_picture(compared),
        banks=[search_tables.bank(name, search) for name, search in with_lessons],
        ledgers=[search_tables.costs(searches), search_tables.agents(searches)],
        problems=search_tables.problems(searches),
        programs=list(zip(names, searches, strict=True)),
    )
    # Model output may contain half a surrogate pair, which UTF-8 files cannot.
    return files.atomic_write_text(path, files.safe_text(text))


def notes(searches: Sequence[Search], seeds: Sequence[Search] = ()) -> list[str]:
    """Sentences that explain the numbers and brackets of the tables."""
    sentences = [
        "Of every problem the best program of the search counts, as it was measured again on held-out inputs "
        "or tests. In brackets: 95 % bootstrap intervals over the problems. What was measured in the search "
        "is given beside it: the best of many noisy measurements is too good.",
    ]
    if any(search["measure"] == "speed-up" for search in searches):
        sentences.append(
            "Scores are speed-ups over the source of the problem, 0 for a wrong program. In geometric means "
            "what is wrong or slower counts as 1: the source stays."
        )
    sentences += _whose_tests(searches)
    if seeds:
        sentences.append(
            "Of a method with several seeds the mean over them counts for every problem; intervals and p are "
            "over problems."
        )
    compared = [search for search in seeds or searches if search["against"]]
    if compared:
        sentences.append(
            "Differences are means over the same problems, method less baseline, or the ratio of geometric "
            f"means. p is that of the two-sided sign-flip test over the problems (up to {EXACT} differences "
            f"exact, of more with {DRAWN:,} random flips)."
        )
    executed: dict[str, set[int]] = {}
    for search in searches:
        if (count := search["ledger"].get("search", {}).get("programs")) is not None:
            executed.setdefault(search["method"], set()).add(count)
    if len(set().union(*executed.values())) > 1:
        counts = (
            f"{method} {' or '.join(map(str, sorted(programs)))}" for method, programs in executed.items()
        )
        sentences.append(f"These searches did not execute equally many programs: {', '.join(counts)}.")
    if len(compared) > 1:
        sentences.append(f"p-values are not corrected for the {len(compared)} comparisons.")
    return sentences


def _whose_tests(searches: Sequence[Search]) -> list[str]:
    """A sentence for every search in which agents wrote tests."""
    sentences = []
    for label, search in zip(search_tables.labels(searches), searches, strict=True):
        tests = [problem["tests"] for problem in search["problems"]]
        counts = tests.count("generated"), tests.count("fallback")
        if any(counts):
            sentences.append(
                f"{label}: of {len(tests)} problems {counts[0]} were searched by tests that an agent wrote, "
                f"and {counts[1]}, for which it wrote none, by given ones. All given tests judge the end."
            )
    return sentences


def _picture(searches: Sequence[Search]) -> dict[str, str]:
    """The picture in the form that the template needs."""
    return {
        "title": "Best so far",
        "caption": "The best program of each problem so far, by the programs executed for a problem so far "
        "(mean over the problems), as measured in the search. Bands are 95 % bootstrap intervals.",
        "words": in_words(searches),
        "png": page.uri(png(searches)),
    }


def png(searches: Sequence[Search]) -> bytes:
    """The picture as a PNG file."""
    return figures.as_png(lambda: draw(searches))


def draw(searches: Sequence[Search]) -> Figure:
    """Draw the best scores so far against the programs executed, a panel per measure, a line per search."""
    measures = list(dict.fromkeys(search["measure"] for search in searches))
    figure = Figure(figsize=(10, 4.2), dpi=110, layout="constrained")
    panels = dict(zip(measures, figure.subplots(1, len(measures), squeeze=False)[0], strict=True))
    for n, (label, search) in enumerate(zip(search_tables.labels(searches), searches, strict=True)):
        axes, color = panels[search["measure"]], figures.COLORS[n % len(figures.COLORS)]
        dashes = figures.DASHES[n // len(figures.COLORS) % len(figures.DASHES)]
        x_T = [row["executed"] for row in search["progress"]]
        bounded = [row for row in search["progress"] if row["low"] is not None]
        axes.plot(x_T, [row["mean"] for row in search["progress"]], color=color, linestyle=dashes, marker="o",
                  markersize=3.5, linewidth=1.6, label=figures.plain(label))  # fmt: skip
        ends = ([row["low"] for row in bounded], [row["high"] for row in bounded])
        axes.fill_between([row["executed"] for row in bounded], *ends, color=color, alpha=0.18, linewidth=0)
    for measure, axes in panels.items():
        axes.set(xlabel="programs executed per problem", ylabel=BEST[measure], title="Best so far")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(fontsize=9)
    return figure


def in_words(searches: Sequence[Search]) -> str:
    """Text alternative of the picture: every line, round by round."""
    sentences = []
    for label, search in zip(search_tables.labels(searches), searches, strict=True):
        points = [f"{number(row['mean'])} after {number(row['executed'])}" for row in search["progress"]]
        sentences.append(f"{label}: {', '.join(points)}")
    return ". ".join(sentences) + "."
