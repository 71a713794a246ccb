"""Compare methods at equal budgets: `python -m experiments.compare --task=coding`.

Runs the members of `configs/compare.py` that are not finished yet, each in its own process. Writes tables of
all finished members, at equal drawn tokens and at equal judged answers, as compare.md, the numbers as
compare.json, and a picture as compare.png. If it is stopped, the same command continues.
Several machines can share the work: ``--seeds`` runs some of the seeds, ``--members`` some of the members and
what they begin from, ``--have=<compare.json>,..`` reads the results of members that were finished elsewhere,
``--norun`` only makes the tables of the finished members.
"""

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from absl import flags

from jaxmarl_llm import metrics
from jaxmarl_llm.analysis.report import methods
from jaxmarl_llm.analysis.report.methods import UNTRAINED
from jaxmarl_llm.cli import entry as cli
from jaxmarl_llm.config.files import experiment
from jaxmarl_llm.runs import budgets, final_table, summaries
from jaxmarl_llm.runs.results import finished as is_finished
from jaxmarl_llm.runs.results import result_of
from jaxmarl_llm.runs.results import run as run_commands
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.errors import UserError

compare = experiment("compare")


def command(task: str, name: str, seed: int, workdir: pathlib.Path, more: Sequence[str] = ()) -> list[str]:
    """The command that trains, or evaluates, one member; ``more`` are further flags."""
    member, folder = compare.MEMBERS[task][name], folder_of(workdir, name, seed)
    config = [f"--config=configs/compare.py:task={task},member={name}", f"--config.seed={seed}", *more]
    start = folder_of(workdir, member.begins, seed) if member.begins else None
    if not member.trained:
        state = [f"--workdir={start}", "--step=latest"] if start else []
        argv = [sys.executable, "-m", f"{__package__}.evaluate", *config, *state]
        return [*argv, f"--out={folder / 'evaluation.json'}"]
    if start:
        config.append(f"--config.team.begin={start}")
        config += [f"--config.team.begin_map={member.begin_map!r}"] if member.begin_map else []
    return [sys.executable, "-m", f"{__package__}.train", *config, f"--workdir={folder}"]


def folder_of(workdir: pathlib.Path, name: str, seed: int) -> pathlib.Path:
    """The run folder of a member with a seed."""
    return workdir / name / f"seed{seed}"


def result(folder: pathlib.Path) -> dict[str, dict]:
    """Test scores and costs of a finished member, by mark (`budgets.MARKS`, "after", or `UNTRAINED`).

    An entry has "scores" (0..100), "problems" (score by test problem, of those that have it) and costs:
    "tokens", "answers", "optimizer_tokens", "cpu_minutes" and "steps" of training until then. {} if the
    member is not finished.
    """
    summary = summaries.read_json(folder / "summary.json")
    if not summary:  # a training's folder may also hold an evaluation, of any checkpoint
        evaluation = summaries.read_json(folder / "evaluation.json")
        return {UNTRAINED: evaluated(evaluation)} if evaluation else {}
    if "after" not in summary:
        return {}
    rows = [row for row in metrics.read_metrics(folder) if budgets.TOKENS in row]
    marks = [mark for mark in (*budgets.MARKS, "after") if mark in summary]
    return {mark: _point(folder, mark, summary[mark], rows) for mark in marks}


def evaluated(evaluation: Mapping) -> dict[str, dict]:
    """The scores, total and by test problem, that `experiments.evaluate` wrote, in the form of `result`."""
    means = {name: ends["mean"] for name, ends in evaluation["sampled"]["scores"].items()}
    means["return_greedy"] = evaluation["greedy"]["scores"]["return"]["mean"]
    return {"scores": means, "problems": _problems(evaluation["sampled"]["items"])}


def _point(folder: pathlib.Path, mark: str, entry: dict, rows: list[dict]) -> dict:
    """Scores of an entry of a summary, and the costs of training until then."""
    before = [row for row in rows if row["step"] < entry["step"]]
    spent = {name.removeprefix("spent/"): before[-1][name] for name in budgets.NAMES} if before else {}
    if all("cpu_seconds" in row for row in before):  # earlier versions did not measure it
        spent["cpu_minutes"] = sum(row["cpu_seconds"] for row in before) / 60
    return {
        "scores": {name: value for name, value in entry.items() if "/" not in name and name != "step"},
        "problems": _problems(final_table.sampled_items(folder, mark)),
        "steps": entry["step"],
    } | spent


def _problems(rows: list[dict]) -> dict[str, list]:
    """Scores by problem, of the rows of an evaluation; {} if there are none."""
    names = [name for name in ("return", "pass@1") if rows and all(name in row for row in rows)]
    return {name: [row[name] for row in rows] for name in names}


def compare_all(
    task: str,
    workdir: pathlib.Path,
    have: Mapping[str, Mapping[str, Mapping]],
    more: Mapping[str, Sequence[str]] | None = None,
    seeds: Sequence[int] = (),
    members: Sequence[str] = (),
    run: bool = True,
) -> dict[str, dict[str, dict]]:
    """Run the members that are missing; returns the results by method and seed.

    compare.json has the results so far at any time. ``have``: finished results of the same form, for members
    that are not finished in ``workdir``. ``more``: further flags of a member's command. ``seeds`` and
    ``members``: which ones are run, by default all. ``run=False``: run nothing, use what is finished. A start
    that is finished only elsewhere is run here, as its folder is needed.

    Raises:
      UserError: nothing is finished and nothing may be run, or a result was left by a command with other settings.
      CommandFailed: with the command of the first member that fails or is stopped; what is finished stays.
    """

    def call(argv: list[str]) -> subprocess.CompletedProcess:
        done = subprocess.run(argv)
        save(_collected(task, workdir, have))
        return done

    def save(collected: dict) -> None:
        files.atomic_write_text(workdir / "compare.json", json.dumps(collected, indent=1) + "\n")

    if run:
        chosen = _to_run(task, workdir, have, seeds or compare.SEEDS, members or tuple(compare.MEMBERS[task]))
        run_commands(
            {
                _leaves(task, workdir, seed, name): command(
                    task, name, seed, workdir, (more or {}).get(name, ())
                )
                for seed, name in chosen
            },
            call,
        )
    collected = _collected(task, workdir, have)
    if not collected:
        raise UserError(
            f"none of {task} is finished in {workdir} or in what --have names, and --norun, --seeds or --members "
            "leave nothing to run"
        )
    save(collected)
    return collected


def _pairs(task: str) -> list[tuple[int, str]]:
    """Seed and name of every member; one seed of all members comes first, to have a table of it early."""
    return [
        (seed, name)
        for seed in compare.SEEDS
        for name, member in compare.MEMBERS[task].items()
        # the untrained team is the same with every seed
        if member.trained or member.begins or seed == compare.SEEDS[0]
    ]


def _leaves(task: str, workdir: pathlib.Path, seed: int, name: str) -> pathlib.Path:
    """The file that a member leaves when it is finished."""
    _, _, module, *words = command(task, name, seed, workdir)
    return result_of([module.rpartition(".")[2], *words])


def _to_run(
    task: str, workdir: pathlib.Path, have: Mapping, seeds: Sequence[int], members: Sequence[str]
) -> list[tuple[int, str]]:
    """Seed and name of the members to run, in order, including those already finished in ``workdir``."""
    pairs = _pairs(task)
    left = {pair for pair in pairs if not is_finished(_leaves(task, workdir, *pair))}
    chosen = {(seed, name) for seed, name in pairs if seed in seeds and name in members}
    elsewhere = {(seed, name) for seed, name in chosen & left if str(seed) in have.get(name, {})}
    needed, following = set(), (chosen - elsewhere) & left
    while following:  # also what they begin from, and so on, where its folder is not here
        following = {(seed, compare.MEMBERS[task][name].begins) for seed, name in following} & left
        needed |= following
    return [pair for pair in pairs if pair in chosen and pair not in elsewhere - needed]


def _collected(task: str, workdir: pathlib.Path, have: Mapping) -> dict[str, dict[str, dict]]:
    """The results of the finished members by method and seed; those of the folder take precedence."""
    collected: dict[str, dict[str, dict]] = {}
    for seed, name in _pairs(task):
        here = is_finished(_leaves(task, workdir, seed, name))
        points = result(folder_of(workdir, name, seed)) if here else have.get(name, {}).get(str(seed))
        if points:
            collected.setdefault(name, {})[str(seed)] = points
    return {name: collected[name] for name in compare.MEMBERS[task] if name in collected}


def tables(task: str, results: dict) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, headers and rows of the tables: scores, and their difference to the start's, at each budget."""
    budget = compare.BUDGET[task]
    titles = {
        "at_tokens": f"{task}: when {budget['tokens']:,} completion tokens have been drawn",
        "at_answers": f"{task}: when {budget['answers']:,} joint answers have been judged",
    }
    starts = compare.starts(task)
    return [
        made
        for mark, title in titles.items()
        for made in (
            (title, *methods.table(results, mark)),
            (f"{title}: above the start", *methods.gains(results, starts, mark)),
        )
    ]


def finished(paths: Iterable[str], key: str = "") -> dict[str, dict[str, dict]]:
    """The results of several files together, by method and seed; the first file that has a result counts.

    ``key`` names what holds the results in each file; empty: the file does, as compare.json. UserError for other files.
    """
    together: dict[str, dict[str, dict]] = {}
    for path in paths:
        content = files.read_json(path)
        results = content.get(key) if key else content
        wrong = methods.fault(results) if isinstance(results, dict) else f"it has no {key!r}"
        if wrong:
            raise UserError(f"{path}: is no file of results, {wrong}")
        for name, by_seed in results.items():
            together[name] = by_seed | together.get(name, {})
    return together


def seeds_of(words: Iterable[str]) -> list[int]:
    """The seeds that a flag names. UserError for a seed that is not compared."""
    known = {str(seed): seed for seed in compare.SEEDS}
    words = list(words)
    for word in words:
        if word not in known:
            raise UserError(f"--seeds={','.join(words)}: {word!r} is none of {', '.join(known)}")
    return [known[word] for word in words]


def members_of(task: str, words: Iterable[str]) -> list[str]:
    """The members that a flag names, and all that they begin from. UserError for a member of no such name."""
    known, words = compare.MEMBERS[task], list(words)
    for word in words:
        if word not in known:
            raise UserError(
                f"--members={','.join(words)}: {word!r} is no member of {task}: {', '.join(known)}"
            )
    wanted, start = set(), set(words)
    while start:
        wanted |= start
        start = {known[name].begins for name in start} - {""}
    return [name for name in known if name in wanted]


def main(argv):
    """Command line entry."""
    cli.refuse_arguments(argv)
    task = flags.FLAGS.task
    workdir = pathlib.Path(flags.FLAGS.workdir) / task
    files.ensure_writable(workdir / "compare.json", "give another --workdir")
    have, seeds = finished(flags.FLAGS.have), seeds_of(flags.FLAGS.seeds)
    members = members_of(task, flags.FLAGS.members)
    results = compare_all(task, workdir, have, seeds=seeds, members=members, run=flags.FLAGS.run)
    pages = []
    for title, headers, rows in tables(task, results):
        console.table(rows, headers, title)
        pages.append(console.markdown(rows, headers, title))
    files.atomic_write_text(workdir / "compare.md", "\n".join([*pages, methods.LEGEND, ""]))
    # Imported here, so that --help does not wait for matplotlib.
    from jaxmarl_llm import plots
    from jaxmarl_llm.analysis.report import methods_figure

    plots.write_png(methods_figure.draw, workdir / "compare.png", results)
    print(f"{methods.LEGEND}\ncompare.md, compare.json and compare.png are in {workdir}")


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_enum("task", "coding", list(compare.MEMBERS), "What is compared.")
    flags.DEFINE_list("have", [], "compare.json of earlier comparisons: what they have is not run again.")
    flags.DEFINE_list("seeds", [], "The seeds that are run; empty: all.")
    flags.DEFINE_list("members", [], "The members that are run, with what they begin from; empty: all.")
    flags.DEFINE_boolean("run", True, "--norun: runs nothing, makes the tables of what is finished.")
    flags.DEFINE_string("workdir", "runs/compare", "Folder with a run folder per method and seed.")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
