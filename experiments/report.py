"""Write a page about one or several runs as one HTML file, and its pictures as PNG files in plots/ beside it.

Picture names begin with the page's name: report.html has plots/report_return.png.

One run:               python -m experiments.report runs/a
Seeds of one config:   python -m experiments.report runs/a runs/b runs/c --out=report.html
Compare checkpoints:   python -m experiments.evaluate --workdir=runs/a --step=best
                       python -m experiments.evaluate --config=configs/coding.py --out=runs/0.json
                       python -m experiments.report runs/a --evaluations=runs/0.json,runs/a/evaluation.json
Searches for programs: python -m experiments.report runs/seed0/ablation.json runs/seed1/ablation.json
                       (means over the seeds; --baseline=full compares with another method than the first)

Runs whose configs differ only in the seed (of the fields that training depends on) are drawn as one curve
with an interval; other runs are drawn as separate curves.
"""

import pathlib
from collections.abc import Sequence

from absl import app, flags

from jaxmarl_llm.analysis.report import transcript_data
from jaxmarl_llm.analysis.search import results as search_results
from jaxmarl_llm.analysis.search import seeds as search_seeds
from jaxmarl_llm.cli import entry
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.errors import UserError


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_string(
        "out",
        "",
        "HTML file to write; default: report.html in the first run folder, or beside the first file.",
    )
    flags.DEFINE_list("evaluations", [], "Files of experiments.evaluate, for the transcript browser.")
    flags.DEFINE_integer(
        "transcript_steps",
        transcript_data.STEPS,
        "Most iterations per run whose transcripts go into the page: first, last, evenly spread; 0: none.",
        lower_bound=0,
    )
    flags.DEFINE_string("baseline", "", "Of searches: the method to compare with; default: the first one.")
    flags.FLAGS.set_gnu_getopt(True)  # flags may come after the folders


def refuse_unread(given: flags.FlagValues, searches: bool) -> None:
    """UserError for a flag that this kind of page (about searches, or about runs) does not read."""
    of_runs, of_searches = ("evaluations", "transcript_steps"), ("baseline",)
    for name in of_runs if searches else of_searches:
        if given[name].present:
            kinds = ("run folders", "results files") if searches else ("results files", "run folders")
            raise UserError(f"--{name} is for {kinds[0]}, and {kinds[1]} are given")


def report_searches(paths: Sequence[str], out: str, baseline: str = "") -> pathlib.Path:
    """Write one page about all searches in the given results files; returns its path.

    ``baseline``: the method that others are compared with; '': the first one. ValueError for a file that is
    not a results file or has the same search as another file (it is named), and for a baseline that no file
    has.
    """
    page_path = pathlib.Path(out or pathlib.Path(paths[0]).with_suffix(".html"))
    files.ensure_writable(page_path, "give --out=<page> in a folder that you may write to")
    results = [result for path in paths for result in search_results.read(pathlib.Path(path))]
    names = [(result.method, result.seed) for result in results]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{', '.join(paths)}: method {twice[0]!r} with seed {twice[1]} is there twice")
    methods = list(dict.fromkeys(result.method for result in results))
    if baseline and baseline not in methods:
        raise UserError(f"--baseline={baseline!r}: {', '.join(paths)} have {', '.join(methods)}")
    results.sort(key=lambda result: result.method != (baseline or methods[0]))  # the others keep their order
    from jaxmarl_llm.analysis.report import search_page  # imports matplotlib

    data, seeds = search_results.to_json(results), search_seeds.over_seeds(results)
    return search_page.write(data, page_path, "Searches for programs", seeds)


def main(argv):
    """Command line entry."""
    args, folders = flags.FLAGS, argv[1:]
    if not folders:
        raise app.UsageError("give the folder of at least one run, or results files of searches")
    searches = all(pathlib.Path(path).is_file() for path in folders)
    refuse_unread(flags.FLAGS, searches)
    if searches:
        print(f"written: {report_searches(folders, args.out, args.baseline)}")
        return
    print(f"reading {', '.join(folders)}", flush=True)
    from jaxmarl_llm.analysis.report import page  # imports matplotlib

    progress = console.LateProgress("pictures")
    for path in page.write(folders, args.out, args.evaluations, args.transcript_steps, progress):
        print(f"written: {path}")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
