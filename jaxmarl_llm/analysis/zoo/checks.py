"""Check that rows of the zoo are complete (config, page, test, numbers) and cover every system. No JAX."""

import dataclasses
import pathlib
import re
import shlex
from collections.abc import Iterable, Mapping

from jaxmarl_llm.analysis.zoo.commands import jobs
from jaxmarl_llm.config import FIELDS, base_config
from jaxmarl_llm.config.files import experiment, find
from jaxmarl_llm.config.options import leaves
from jaxmarl_llm.config.zoo import LEVELS, NOT_MEASURED, SIGNS, Row
from jaxmarl_llm.decoding.settings import MODES
from jaxmarl_llm.utils.errors import UserError

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?|\.\d+")
CHOICES = ("train.system", "train.protocol", "router.kind")  # every value of these fields has a row
# Values of `experiments.merge --method`, which cannot be imported here; a test checks that they are equal.
MERGES = ("sum", "mean", "soup", "arithmetic", "ties", "dare", "search", "extrapolate", "join")


def problems(name: str, row: Row, root: pathlib.Path) -> list[str]:
    """The faults of a row, one sentence each; ``root``: the folder with docs/ and tests/."""
    complaints = [*_cells(row), *_page(root / "docs", row.page), *_test(root / "tests" / row.test)]
    complaints += [sentence for lines in (row.run, row.smoke) for sentence in _commands(name, lines)]
    complaints += [sentence for result in row.ours for sentence in _result(result, root / "docs")]
    return [f"{name}: {sentence}" for sentence in complaints]


def _cells(row: Row) -> list[str]:
    """Faults: empty cells, and unknown levels and choices."""
    texts = [(each.name, getattr(row, each.name)) for each in dataclasses.fields(row)]
    texts += [
        (f"published.{each.name}", getattr(row.published, each.name))
        for each in dataclasses.fields(row.published)
    ]
    complaints = [
        f"{name} is empty" for name, text in texts if text == "" or name in ("run", "smoke") and not text
    ]
    if row.level not in LEVELS:
        complaints.append(f"level={row.level!r}: allowed are {', '.join(LEVELS)}")
    return complaints + [
        f"covers {choice!r}, which there is not" for choice in row.covers if choice not in choices()
    ]


def _page(docs: pathlib.Path, page: str) -> list[str]:
    """Faults: a page that is missing, or lacks the heading."""
    name, _, heading = page.partition("#")
    if not (docs / name).is_file():
        return [f"page docs/{name} is missing"]
    if heading and heading not in slugs((docs / name).read_text(encoding="utf-8")):
        return [f"page docs/{name} has no heading #{heading}"]
    return []


def slugs(text: str) -> set[str]:
    """Link anchors of the headings of a Markdown page: lower case, dashes for spaces, no punctuation."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _test(path: pathlib.Path) -> list[str]:
    """Faults: a test file that is missing, or has no test."""
    if not path.is_file():
        return [f"test tests/{path.parent.name}/{path.name} is missing"]
    return [] if "\ndef test_" in path.read_text(encoding="utf-8") else [f"test {path.name} has no test"]


def _commands(name: str, lines: Iterable[str]) -> list[str]:
    """Faults in the commands of a row: invalid places, configs or fields."""
    complaints = []
    try:
        jobs(name, tuple(lines), pathlib.Path("folder"))
    except ValueError as error:
        complaints.append(str(error))
    for line in lines:
        for word in shlex.split(line):
            if word.startswith("--config="):
                complaints += _config(word.removeprefix("--config="))
            elif match := re.match(r"--config\.([^=]+)=", word):
                if match[1] not in leaves(base_config()):
                    complaints.append(f"{line}: there is no config field {match[1]!r}")
    return complaints


def _config(place: str) -> list[str]:
    """Why a config file, or its variant after the colon, cannot be loaded."""
    path, _, variant = place.partition(":")
    name = pathlib.Path(path).stem
    if not pathlib.Path(find(path)).is_file():
        return [f"config {path} is missing"]
    try:
        experiment(name).get_config(variant or None)
    except ValueError as error:
        return [f"config {place}: {error}"]
    return []


def _result(result, docs: pathlib.Path) -> list[str]:
    """Faults of our results: empty cells, and numbers that their page does not contain."""
    complaints = [
        f"ours.{each.name} is empty" for each in dataclasses.fields(result) if not getattr(result, each.name)
    ]
    if result.sign not in SIGNS:
        complaints.append(f"ours.sign={result.sign!r}: allowed are {', '.join(SIGNS)}")
    if not NUMBER.search(result.interval):
        complaints.append(f"ours.interval={result.interval!r} has no number")
    if not (docs / result.page).is_file():
        return [*complaints, f"page docs/{result.page} is missing"]
    known = set(NUMBER.findall((docs / result.page).read_text(encoding="utf-8")))
    for part in ("before", "after", "baseline", "interval"):
        strange = [number for number in NUMBER.findall(getattr(result, part)) if number not in known]
        if strange:
            complaints.append(f"ours.{part}: docs/{result.page} does not have {', '.join(strange)}")
    return complaints


def choices() -> set[str]:
    """Everything that a row can cover: systems, protocols, routers, decoding modes, merge methods."""
    fields = {f"{path}={name}" for path in CHOICES for name in FIELDS[path].choices}
    return fields | {f"together --together={n}" for n in MODES} | {f"merge --method={n}" for n in MERGES}


def uncovered(rows: Mapping[str, Row]) -> list[str]:
    """The choices of the project that no row covers, one sentence each."""
    covered = {choice for row in rows.values() for choice in row.covers}
    return [f"{choice} has no row in configs/zoo.py" for choice in sorted(choices() - covered)]


def counts(rows: Mapping[str, Row]) -> str:
    """How many rows have a number, state that no effect is shown, or are not measured."""
    states = [row.state for row in rows.values()]
    parts = [f"{states.count(state)} {state}" for state in ("measured", "not shown", NOT_MEASURED)]
    return f"{len(rows)} rows: {', '.join(parts)}"


def known(rows: Mapping[str, Row], name: str) -> Row:
    """The row with this name. UserError names the nearest one."""
    import difflib

    if name in rows:
        return rows[name]
    titles = {row.title.lower(): key for key, row in rows.items()}
    near = difflib.get_close_matches(name.lower(), [*rows, *titles], 1, 0.0)[0]
    raise UserError(f"--row={name}: there is no such row; the nearest is {titles.get(near, near)}")
