"""Evaluate a team on the test problems: sampled and greedy scores with 95 % intervals, and pass@k.

A trained team:     python -m experiments.evaluate --workdir=runs/x --step=best --samples=8 --k=1,3,5
The untrained team: python -m experiments.evaluate --config=configs/coding.py
An exported team:   python -m experiments.evaluate --team=models/team
Other problems:     add --split=validation (or train, all) to either
Other data:         add --config=configs/coding.py --config.task.test_source=humaneval to the first

Samples are fresh draws: training and checkpoint selection never use their random stream.
With --workdir and --config the agents come from the run and everything else from the config. If they have
other names there, say which with --agent_map: --agent_map=main=leader evaluates the run's leader as main.

With a config for rounds of programs (configs/lessonl.py) this is a search: the team looks for the best
program for every problem, and that program is measured again. If it is stopped, the same command with the
same --out (or --workdir) continues within the interrupted round.
"""

import pathlib

from absl import app, flags

from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import validate
from jaxmarl_llm.config.general import refuse_seeds
from jaxmarl_llm.config.programs import searches
from jaxmarl_llm.config.task import EVALUATED
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.saved_names import BEST, LATEST

WRITE_ELSEWHERE = "give --out=<file> in a folder that you may write to"


def show(report: dict, stream=None) -> None:
    """Print a report as tables: scores, agents, verdicts."""
    from jaxmarl_llm.evaluation import results

    title = f"{state_line(report)}, on {problems_line(report)}"
    sampled, greedy = (report[mode] for mode in results.MODES)
    names = dict.fromkeys([*sampled["scores"], *greedy["scores"]])
    pairs = [(name, sampled["scores"].get(name), greedy["scores"].get(name)) for name in names]
    rows = [(name, *cells(s), *cells(g)) for name, s, g in pairs]
    headers = ("0..100", f"sampled ({sampled['samples']} each)", "95 %", "greedy", "95 %")
    console.table(rows, headers, title, stream)
    if "counts" in sampled:
        pairs = [(name, sampled["counts"][name], greedy["counts"][name]) for name in sampled["counts"]]
        rows = [(name, *cells(s, 2), *cells(g, 2)) for name, s, g in pairs]
        headers = ("per episode", "sampled", "95 %", "greedy", "95 %")
        console.table(rows, headers, "\nEpisodes", stream)
    # With routes, an agent may have been asked in only one mode.
    names = dict.fromkeys([*sampled["agents"], *greedy["agents"]])
    both = {agent: [part["agents"].get(agent) for part in (sampled, greedy)] for agent in names}
    rows = [
        (
            agent,
            *("" if one is None else one["completion_length"] for one in pair),
            *("" if one is None else f"{one['truncated']:.0%}" for one in pair),
        )
        for agent, pair in both.items()
    ]
    headers = ("agent", "tokens sampled", "greedy", "cut off sampled", "greedy")
    console.table(rows, headers, "\nCompletions", stream)
    names = dict.fromkeys([*sampled["verdicts"], *greedy["verdicts"]])
    rows = [(name, *(part["verdicts"].get(name, 0) for part in (sampled, greedy))) for name in names]
    console.table(rows, ("verdict", "sampled", "greedy"), "\nVerdicts", stream)


def state_line(report: dict) -> str:
    """The team that a report is about: the untrained team, or a checkpoint of a run."""
    if not report["workdir"]:
        return "the untrained team"
    names = {BEST: ", the best on validation", LATEST: ", the latest", "exported": ", exported"}
    return f"{report['workdir']} after {report['step']} iterations{names.get(report['state'], '')}"


def problems_line(report: dict) -> str:
    """The problems that a report was measured on."""
    kind = {"all": "", "train": "training "}.get(report["split"], f"{report['split']} ")
    return f"{report['problems']} {kind}problems, fresh draws"


def cells(ends: dict | None, digits: int = 1) -> tuple[str, str]:
    """A mean and its interval as two texts; empty if there is no number."""
    if ends is None or ends["mean"] is None:
        return "", ""
    mean = f"{ends['mean']:.{digits}f}"
    if ends["low"] is None:  # there is a single problem, such as the only one of its grade
        return mean, ""
    return mean, f"{ends['low']:.{digits}f} to {ends['high']:.{digits}f}"


def search_run(config, workdir, which, out, split="test") -> None:
    """Let the team search for programs; the results go to ``out``, or search/ in the run folder, or runs/."""
    # Imported here, so that --help and flag errors do not wait for JAX.
    from jaxmarl_llm.analysis.search import search
    from jaxmarl_llm.factory import chat_options, evaluations, teams

    path = pathlib.Path(out or pathlib.Path(workdir or run_folder.new_workdir()) / "search" / search.RESULTS)
    files.ensure_writable(path, WRITE_ELSEWHERE)
    resume_command = "the same command" if out or workdir else f"the same command with --out={path}"
    print(f"searching in {path.with_suffix('')}; when it is stopped, {resume_command} goes on", flush=True)
    config = chat_options.dated(config, workdir, path.with_suffix(""))
    with search.open_searchers(config, workdir, which) as searchers:
        task = evaluations.build_split(config, searchers.executor, split)
        teams.check_prompts(config, searchers.team, task)
        result = search.search(config, path.with_suffix(""), searchers, task)
    for written in search.show([result], path, f"A search with {result.method}"):
        print(f"written: {written}")


def parse_step(text: str) -> int | str:
    """``best``, ``latest`` or a step number; ValueError for anything else."""
    if text in (BEST, LATEST):
        return text
    if not text.isdecimal():
        raise UserError(f"--step={text!r}: allowed are best, latest or the number of a saved step")
    return int(text)


def parse_ks(texts) -> tuple[int, ...]:
    """The k of pass@k as numbers; ValueError for a text that is not a number."""
    bad = [text for text in texts if not text.strip().isdecimal()]
    if bad:
        raise UserError(f"--k={','.join(texts)!r}: allowed are numbers with commas between them, e.g. 1,3,5")
    return tuple(int(text) for text in texts)


def refuse_samples() -> None:
    """ValueError for flags of evaluations that a search does not have."""
    for name in ("samples", "k"):
        if flags.FLAGS[name].present:
            raise UserError(
                f"--{name} is not allowed in a search, which has one answer for each problem: the best "
                "program of all rounds. How many are tried say --config.train.turns and .team.agents"
            )
    if flags.FLAGS["agent_map"].present:
        raise UserError("--agent_map is not allowed in a search: its agents have the names of the config")


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    entry.define_config(False, "Config file, by default that of the run in --workdir")
    flags.DEFINE_string("workdir", "", "Run folder to take the trained agents from.")
    flags.DEFINE_string("team", "", "Folder of a team that experiments.export wrote, in place of --workdir.")
    flags.DEFINE_string("base", "", "With --team: the base model here, if it is not where team.json says.")
    flags.DEFINE_string("step", BEST, "Checkpoint of the run: best, latest or a step.")
    flags.DEFINE_list("agent_map", [], "Agents with another name in the run, e.g. aux1=aux,aux2=aux.")
    flags.DEFINE_enum("split", "test", list(EVALUATED), "Problems to answer.")
    flags.DEFINE_integer("samples", 0, "Answers per problem; 0: as the config says.", lower_bound=0)
    flags.DEFINE_list("k", ["1"], "Report pass@k for these, e.g. 1,3,5.")
    flags.DEFINE_string("out", "", "JSON file to write; default: evaluation.json in --workdir.")


def _agents_folder(args) -> str:
    """The folder of the run or exported team that the agents come from; empty if there is none."""
    if not args.team:
        if args.base:
            raise app.UsageError("--base goes with --team; with a config use --config.model")
        return args.workdir
    if args.workdir or args["step"].present:
        raise app.UsageError("--team is a folder with one state: it takes no --workdir and no --step")
    return args.team


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    workdir = _agents_folder(args)
    if args.config is None and not workdir:
        raise app.UsageError("give --workdir=<run folder> or --team, --config=<config file>, or both")
    which, ks = parse_step(args.step), parse_ks(args.k)
    print(f"reading problems and models{f' of {workdir}' if workdir else ''}", flush=True)
    # Imported here, so that the first line does not wait for JAX.
    from jaxmarl_llm import saved_agents
    from jaxmarl_llm.evaluation import results
    from jaxmarl_llm.factory import evaluations

    if args.team:
        saved_agents.read_team(args.team)
    config = run_folder.load_run(workdir) if args.config is None else args.config
    if args.base:
        if config.team.models:
            raise UserError(
                f"--base={args.base!r}: the team has several models, team.models; give a --config"
            )
        config.model = args.base
    validate(config)
    refuse_seeds(config, "an evaluation")
    if searches(config):
        refuse_samples()
        return search_run(config, workdir, which, args.out, args.split)
    out = args.out or (workdir and pathlib.Path(workdir) / "evaluation.json")
    if out:
        files.ensure_writable(out, WRITE_ELSEWHERE)
    by_mode, report = evaluations.evaluate_run(
        config, workdir, which, args.samples, ks, args.split, args.agent_map
    )
    if out:
        results.write(out, by_mode, report)
    show(report)
    if out:
        print(f"written to {out}")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
