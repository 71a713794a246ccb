"""Merge the weights of agents trained from one base; choose by validation, then evaluate on the test.

Agents of one run:   python -m experiments.merge --workdir=runs/x --method=mean --out=runs/merged
Of several runs:     python -m experiments.merge --members=runs/a,runs/b,runs/c --method=soup --out=runs/soup
Of other programs:   python -m experiments.merge --config=configs/reasoning.py:solo --members=peft/a,peft/b \\
                     --method=ties --out=runs/ties
As one team:         python -m experiments.merge --config=configs/levels.py:team --members=runs/a,runs/b,runs/c \\
                     --method=join --out=runs/team

A member is a run folder, an exported team, or a PEFT folder. Agents of runs and teams are merged by name;
<folder>:<agent> uses that agent for every agent of the result. The result's team is that of --config, else
that of the first run. All its agents use the same member weights. docs/merging.md has the equations.

The result is a folder as experiments.export --team writes it, plus merge.json: experiments.evaluate plays it,
experiments.export extracts an agent, and a training begins from it with --config.team.begin.
"""

import pathlib
import re

from absl import app, flags

from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import validate
from jaxmarl_llm.config.general import refuse_seeds
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.saved_names import BEST

from . import evaluate

JOIN = "join"
METHODS = ("sum", "mean", "soup", "arithmetic", "ties", "dare", "search", "extrapolate", JOIN)
FORMS = ("adapter", "full")
REPORTS = ("all", "result", "none")
OF_METHODS = ("weights", "scales", "density", "trials", "seed")  # flags that not all methods read
OF_RESULTS = ("rank", "form", "samples", "report")  # read by all methods that merge


def merge(args, config, which) -> dict:
    """Do the merge that the flags ask for; returns the content of merge.json."""
    # Imported here, so that --help and flag errors do not wait for JAX.
    from jaxmarl_llm.analysis.merging import members, methods, run

    reads = () if args.method == JOIN else (*methods.METHODS[args.method].reads, *OF_RESULTS)
    if unread := [name for name in (*OF_METHODS, *OF_RESULTS) if args[name].present and name not in reads]:
        only = ", ".join(name for name in reads if name in OF_METHODS) or "members"
        raise UserError(f"--{unread[0]}: --method={args.method} does not read it, only {only}")
    own = args.workdir
    sources = members.of_run(config, own, which) if own else members.of_texts(config, args.members, which)
    if args.method == JOIN:
        return run.join(config, sources, args.out)
    numbers = {name: entry.numbers(name, args[name].value) for name in ("weights", "scales")}
    settings = methods.Settings(
        args.method, **numbers, density=args.density, trials=args.trials, seed=args.seed
    )
    wanted = run.Wanted(args.form, args.rank, args.samples, args.report)
    return run.merge(config, sources, settings, args.out, wanted, tell=lambda line: print(line, flush=True))


def show(facts: dict) -> None:
    """Print what was chosen, what it cost, and the table of test results."""
    if facts["method"] == JOIN:
        return
    named = ", ".join(f"{m['name']}" + _weight(m["weight"]) for m in facts["members"])
    print(f"{facts['method']} of {named}, times {facts['scale']:g}")
    share = max(one["share"] for one in facts["lost"].values())
    if share > 1e-6:
        print(f"rank {facts['rank']} has lost {share:.1%} of the norm")
    spent = facts["validation"]
    print(
        f"chosen by {spent['evaluations']} evaluations on validation: {spent['answers']} answers, "
        f"{spent['tokens']} completion tokens"
    )
    if facts["test"]["rows"]:
        console.table(*rows_of(facts))


def _weight(weight: float | None) -> str:
    return "" if weight is None else f" ({weight:.3g})"


def rows_of(facts: dict) -> tuple[list[tuple[str, ...]], list[str], str]:
    """Rows, headers and title of the test table: base, members, result; grades if there are several."""
    rows, test = [], facts["test"]
    scores_of = {name: {mode: each[mode]["scores"] for mode in each} for name, each in test["rows"].items()}
    first = next(iter(scores_of.values()))["sampled"]
    grades = [name for name in first if re.fullmatch(r"return_grade-?\d+", name)]
    for name, scores in scores_of.items():
        ends = [scores[mode]["return"] for mode in ("sampled", "greedy")]
        by_grade = [_ends(scores["sampled"][grade] | {"low": None}) for grade in grades]
        rows.append((name, *(_ends(each) for each in ends), *by_grade))
    headers = [
        "",
        f"sampled ({test['samples']} each)",
        "greedy",
        *(g.removeprefix("return_") for g in grades),
    ]
    return rows, headers, f"\ntest return on {test['problems']} problems, fresh draws"


def _ends(ends: dict) -> str:
    mean, low, high = (ends[name] for name in ("mean", "low", "high"))
    return "" if mean is None else f"{mean:.1f}" + ("" if low is None else f" [{low:.1f}, {high:.1f}]")


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    entry.define_config(
        False, "Config file of the result's team and problems, by default that of the first run"
    )
    flags.DEFINE_string("workdir", "", "Run folder or exported team, all of whose agents are members.")
    flags.DEFINE_list("members", [], "Run folders, exported teams, <folder>:<agent>, PEFT folders.")
    flags.DEFINE_enum(
        "method", "mean", METHODS, "How members are merged; join: not at all, they become one team."
    )
    flags.DEFINE_string("out", None, "Folder to create.", required=True)
    flags.DEFINE_list("weights", [], "Of sum and dare: a number for each member; empty: 1 each.")
    flags.DEFINE_list(
        "scales", [], "Numbers that the result is multiplied by, the best on validation; empty: the method's."
    )
    flags.DEFINE_float("density", 0.0, "Of ties and dare: share that is kept; 0: the method's.", 0.0, 1.0)
    flags.DEFINE_integer("trials", 20, "Of search: weights that are tried.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Of search and dare: what they draw.", lower_bound=0)
    flags.DEFINE_integer(
        "rank", 0, "Rank of the result; 0: what loses nothing, or, of ties and dare, of all members.", 0
    )
    flags.DEFINE_enum("form", "adapter", FORMS, "Adapters, or a whole model for every agent.")
    flags.DEFINE_string("step", BEST, "Checkpoint of the runs: best, latest or a step.")
    flags.DEFINE_integer("samples", 0, "Answers per problem; 0: as the config says.", lower_bound=0)
    flags.DEFINE_enum(
        "report",
        "all",
        REPORTS,
        "What is measured on the test: base and members too, the result, nothing.",
    )


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    if bool(args.workdir) == bool(args.members):
        raise app.UsageError("give --workdir=<run folder>, or --members=<folder>,<folder>")
    which = evaluate.parse_step(args.step)
    if pathlib.Path(args.out).exists():
        raise UserError(f"--out={args.out} exists already")
    files.ensure_writable(args.out, "give another --out")
    print(f"reading {args.workdir or ', '.join(args.members)}", flush=True)
    config = args.config if args.config is not None else _config_of(args.workdir or args.members[0])
    validate(config)
    refuse_seeds(config, "a merge")
    show(merge(args, config, which))
    print(f"written to {args.out}: python -m experiments.evaluate --team={args.out}")


def _config_of(text: str):
    """The config of the first member's run."""
    from jaxmarl_llm import saved_agents  # imports JAX
    from jaxmarl_llm.weights import peft

    if peft.is_adapter(text):
        raise UserError(f"--members={text}: a PEFT folder has no config; give --config=<config file>")
    return run_folder.load_run(saved_agents.folder_and_agent(text)[0])


if __name__ == "__main__":
    define_flags()
    entry.run(main)
