"""A report as one self-contained HTML file, which includes style, script, pictures and transcripts.

Its content security policy allows only the page's own script, identified by its hash, and loads nothing.
"""

import base64
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from jaxmarl_llm.analysis.report import figures, panels, tables, transcript_data
from jaxmarl_llm.analysis.report.first_screen import first_screen
from jaxmarl_llm.analysis.report.grouping import Group, group_runs
from jaxmarl_llm.analysis.report.panels import Picture
from jaxmarl_llm.analysis.report.runs import EvaluationData, RunData, read_evaluations, read_runs
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

WRITE_ELSEWHERE = "give --out=<page> in a folder that you may write to"
SHEETS = ("report.css", "transcripts.js", "filters.js")
LOADER = jinja2.PackageLoader("jaxmarl_llm.analysis.report")
ENVIRONMENT = jinja2.Environment(
    loader=LOADER, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def write(
    folders: Sequence,
    out="",
    evaluations: Sequence = (),
    transcript_steps: int = transcript_data.STEPS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Write a page about some run folders, and its pictures as PNG files in ``plots/`` beside it.

    Picture names begin with the page's name, so that pages in one folder do not overwrite each other's.

    Args:
      folders: run folders, at least one.
      out: the page; default: report.html in the first folder.
      evaluations: files that `experiments.evaluate` wrote, for the transcript browser.
      transcript_steps: at most so many iterations per run have their transcripts in the page; see
        `transcript_data.collect`.
      progress: called with the number of pictures drawn so far and the number of all pictures.

    Returns:
      The paths of the page and the pictures.

    Raises:
      ValueError: naming the folder or file and what is wrong with it, before anything is written.
    """
    if not folders:
        raise UserError("a report needs at least one run folder")
    if transcript_steps < 0:
        raise UserError(f"transcript_steps={transcript_steps} must be 0 or more")
    page = Path(out) if out else Path(folders[0]) / "report.html"
    if out or page.parent.is_dir():
        files.ensure_writable(page, WRITE_ELSEWHERE)
    runs, evaluated = read_runs(folders), read_evaluations(evaluations)
    groups = group_runs(runs)
    data, sentences = transcript_data.collect(runs, evaluated, transcript_steps)
    pictures = panels.pictures(groups)
    images = {}
    for number, picture in enumerate(pictures, 1):
        images[picture.name] = figures.png(picture, groups)
        progress(number, len(pictures))
    text = render(runs, groups, evaluated, pictures, images, data, sentences)
    paths = [page.parent / "plots" / f"{page.stem}_{name}.png" for name in images]
    for path, content in zip(paths, images.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return [files.atomic_write_text(page, text), *paths]


def render(
    runs: Sequence[RunData],
    groups: Sequence[Group],
    evaluated: Sequence[EvaluationData],
    shown: Sequence[Picture],
    drawn: dict[str, bytes],
    data: str,
    sentences: Sequence[str],
) -> str:
    """The page's text. drawn: PNG by name of picture; data, sentences: from `transcript_data.collect`."""
    style, *scripts = map(source, SHEETS)
    script = "".join(scripts)
    text = ENVIRONMENT.get_template("report.html.jinja").render(
        title=f"Report on {', '.join(run.name for run in runs)}",
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        first=first_screen(runs, evaluated),
        groups=groups,
        overview=tables.overview(groups),
        changes=[tables.changes(group) for group in groups],
        several=[group for group in groups if len(group.runs) > 1],
        single=[group for group in groups if len(group.runs) == 1],
        unfinished=[run for run in runs if "after" not in run.summary],
        evaluations=tables.evaluations(evaluated) if evaluated else None,
        costs=tables.costs(groups),
        window=figures.WINDOW,
        few=figures.FEW,
        pictures=[image(picture, groups, drawn[picture.name]) for picture in shown],
        sentences=sentences,
        data=Markup(data),
    )
    # Names and configs may contain half a surrogate pair, which UTF-8 files cannot.
    return files.safe_text(text)


def source(name: str) -> str:
    """The text of a style sheet or script that becomes part of a page."""
    return LOADER.get_source(ENVIRONMENT, name)[0]


def policy(style: str, script: str = "") -> str:
    """The content security policy of a page: its own style, script and pictures, and no connections."""

    def by_hash(kind: str, text: str) -> str:
        return f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'; "

    allowed = by_hash("style", style) + (by_hash("script", script) if script else "")
    return f"default-src 'none'; img-src data:; {allowed}base-uri 'none'; form-action 'none'"


def image(picture: Picture, groups: Sequence[Group], png: bytes) -> dict[str, str]:
    """Return a picture in the form that a template needs."""
    fields = {"name": picture.name, "title": picture.title, "caption": picture.caption}
    return fields | {"words": figures.in_words(picture, groups), "png": uri(png)}


def uri(png: bytes) -> str:
    """Return a picture as a data URI."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
