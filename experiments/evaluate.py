"""How good is a team on the test problems? Sampled and greedy, with 95 % intervals, and pass@k.

A trained team:     python -m experiments.evaluate --workdir=runs/x --step=best --samples=8 --k=1,3,5
The untrained team: python -m experiments.evaluate --config=configs/coding.py
Other problems:     add --split=validation (or train, all) to either
Other data:         add --config=configs/coding.py --config.task.test_source=humaneval to the first

Samples are fresh draws: they come from a random stream that no training and no choice of a state has read.
With --workdir and --config the agents come from the run and everything else from the config.

A config of rounds of programs (configs/lessonl.py) makes it a search: the team looks for the best program of
every problem, which is measured again. Stopped, the same command with the same --out (or --workdir) goes on
within the round where it was.
"""

import json
import math
import pathlib

from absl import app, flags

from jaxmarl_llm import checkpoint
from jaxmarl_llm.analysis.search import search
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import checks, program_checks, warm_up_checks
from jaxmarl_llm.evaluation import scores
from jaxmarl_llm.factory import chat_options, experts, protocols, setup, tasks
from jaxmarl_llm.transcripts import TranscriptWriter
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.statistics import bootstrap

MODES = ("sampled", "greedy")
SPLITS = {"test": "test", "validation": "eval", "train": "train", "all": "test"}  # as `tasks` calls them


def evaluate_run(config, workdir="", which=checkpoint.BEST, samples: int = 0, ks=(1,), split="test"):
    """Evaluate the agents of a run, or those that a run with this config would start from.

    Args:
      config: the team, how it speaks, and the problems.
      workdir: run folder whose checkpoint is restored; empty for the untrained team.
      which: ``best``, ``latest`` or a step.
      samples: answers per problem; 0 for ``config.eval.samples``.
      ks: report pass@k for these, each within 1..samples.
      split: problems to answer, one of `SPLITS`.

    Returns:
      {"sampled": Evaluation, "greedy": Evaluation}, and what `experiments.evaluate` writes as JSON.

    Raises:
      ValueError: for a k or checkpoint that cannot be, before any model is loaded, and what loading raises.
    """
    warm_up_checks.check_read(config, workdir)
    config = chat_options.dated(config, workdir)
    samples = samples or config.eval.samples
    for k in ks:
        scores.pass_at_k(samples, 0, k)
    folder = pathlib.Path(workdir) / "checkpoints"
    step = checkpoint.read_meta(folder, which)["step"] if workdir else 0
    with tasks.build_executor(config) as executor:
        task = build_split(config, executor, split, tasks.build_expert(config, workdir))
        speakers = experts.build(config, task.items, workdir)
        team = setup.build_team(config, speakers=speakers)
        if workdir:
            team, _ = checkpoint.restore_team(folder, which, team)
        setup.check_prompts(config, team, task)
        learned = [member.trainable for member in team.members]
        items = range(len(task.items))
        lessons = protocols.saved_lessons(config, workdir, step) if workdir else ()
        key = setup.stream(config, "report")
        with console.ProgressDisplay(len(items), label="problems") as display:
            found = setup.evaluate(
                config, team, learned, task, items, samples, key, step, lessons,
                progress=lambda done, total: done < total and display.update(done, {}),
            )  # fmt: skip
        isolation = tasks.isolation(executor)
    results = {mode: getattr(found, mode) for mode in MODES}
    about = {
        "workdir": str(workdir) or None,
        "step": step,
        "state": str(which) if workdir else "untrained",
        "split": split,
        "seed": config.seed,
        "models": {agent: team[agent].model_name for agent in team.agents},
        "problems": len(task.items),
        "task": config.task.to_dict(),
        "sampling": config.sampling.to_dict(),
        "model_options": config.model_options.to_dict(),
        "executor": isolation,
        "speed": found.speed(),
    }
    return results, about | {mode: describe(found, ks) for mode, found in results.items()}


def build_split(config, executor, split: str, expert=None):
    """The task with the problems of one of `SPLITS`; ValueError for another one.

    validation and test come from their own sources, see `tasks.build_task`; all are those of all three splits
    of the test's source.
    """
    if split not in SPLITS:
        raise ValueError(f"--split={split!r}: allowed are {', '.join(SPLITS)}")
    if split == "all":
        config = config.copy_and_resolve_references()
        config.task.test_split = "all"
    return tasks.build_task(config, executor, SPLITS[split], expert)


def describe(found: scores.Evaluation, ks) -> dict:
    """An evaluation as JSON data; scores and pass@k with their intervals on the 0..100 scale.

    A score that applied to no answer is null. pass@k is there for every k that the samples allow, if the
    answers were tested.
    """
    samples = len(found.actions_BG[0])
    values = found.scores()
    for k in ks if found.tested else ():
        values |= found.pass_scores(k) if k <= samples else {}
    means = {name: bootstrap.interval(per_item)._asdict() for name, per_item in values.items()}
    return {
        "samples": samples,
        **({"answer_tokens": found.answer_tokens()} if found.tokens_BG else {}),
        "scores": {name: {key: _number(x) for key, x in ends.items()} for name, ends in means.items()},
        "agents": {
            agent: {"completion_length": found.completion_length(agent), "truncated": found.truncated(agent)}
            for agent in found.agents
        },
        "verdicts": found.verdicts(),
        "items": [
            {"item": row[0].item, "totals": [a.total for a in row], "verdicts": [a.verdict for a in row]}
            | {name: _number(values[name][b]) for name in ("return", "pass@1") if name in values}
            for b, row in enumerate(found.actions_BG)
        ],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def show(report: dict, stream=None) -> None:
    """Print a report as tables: scores, agents, verdicts."""
    title = f"{state_line(report)}, on {problems_line(report)}"
    sampled, greedy = (report[mode] for mode in MODES)
    names = dict.fromkeys([*sampled["scores"], *greedy["scores"]])
    pairs = [(name, sampled["scores"].get(name), greedy["scores"].get(name)) for name in names]
    rows = [(name, *_cells(s), *_cells(g)) for name, s, g in pairs]
    headers = ("0..100", f"sampled ({sampled['samples']} each)", "95 %", "greedy", "95 %")
    console.table(rows, headers, title, stream)
    agents = [(agent, sampled["agents"][agent], greedy["agents"][agent]) for agent in sampled["agents"]]
    lengths = [(s["completion_length"], g["completion_length"]) for _, s, g in agents]
    shares = [(f"{s['truncated']:.0%}", f"{g['truncated']:.0%}") for _, s, g in agents]
    rows = [(agent, *tokens, *cut) for (agent, *_), tokens, cut in zip(agents, lengths, shares, strict=True)]
    headers = ("agent", "tokens sampled", "greedy", "cut off sampled", "greedy")
    console.table(rows, headers, "\nCompletions", stream)
    names = dict.fromkeys([*sampled["verdicts"], *greedy["verdicts"]])
    rows = [(name, *(found["verdicts"].get(name, 0) for found in (sampled, greedy))) for name in names]
    console.table(rows, ("verdict", "sampled", "greedy"), "\nVerdicts", stream)


def state_line(report: dict) -> str:
    """Which team a report is about: the untrained one, or which state of which run."""
    if not report["workdir"]:
        return "the untrained team"
    names = {checkpoint.BEST: ", the best on validation", checkpoint.LATEST: ", the latest"}
    return f"{report['workdir']} after {report['step']} iterations{names.get(report['state'], '')}"


def problems_line(report: dict) -> str:
    """What a report was measured on."""
    kind = {"all": "", "train": "training "}.get(report["split"], f"{report['split']} ")
    return f"{report['problems']} {kind}problems, fresh draws"


def _cells(ends: dict | None) -> tuple[str, str]:
    if ends is None or ends["mean"] is None:
        return "", ""
    return f"{ends['mean']:.1f}", f"{ends['low']:.1f} to {ends['high']:.1f}"


def write(path, results: dict, report: dict) -> None:
    """The report as JSON, and beside it a folder of the same name with every answer, for each mode."""
    path = pathlib.Path(path)
    for mode, found in results.items():
        TranscriptWriter(path.with_suffix("") / mode).write(report["step"], found.all_actions)
    files.atomic_write_text(path, json.dumps(report, indent=2, allow_nan=False) + "\n")


def search_run(config, workdir, which, out, split="test") -> None:
    """Let the team search for programs; the results go to ``out``, or search/ in the run folder, or runs/."""
    path = pathlib.Path(out or pathlib.Path(workdir or setup.new_workdir()) / "search" / search.RESULTS)
    config = chat_options.dated(config, workdir, path.with_suffix(""))
    goes_on = "the same command" if out or workdir else f"the same command with --out={path}"
    print(f"searching in {path.with_suffix('')}; when it is stopped, {goes_on} goes on", flush=True)
    with search.opened(config, workdir, which) as by:
        task = build_split(config, by.executor, split)
        setup.check_prompts(config, by.team, task)
        result = search.search(config, path.with_suffix(""), by, task)
    for written in search.show([result], path, f"A search with {result.method}"):
        print(f"written: {written}")


def parse_step(text: str) -> int | str:
    """``best``, ``latest`` or a step number; ValueError for anything else."""
    if text in (checkpoint.BEST, checkpoint.LATEST):
        return text
    if not text.isdecimal():
        raise ValueError(f"--step={text!r}: allowed are best, latest or the number of a saved step")
    return int(text)


def parse_ks(texts) -> tuple[int, ...]:
    """The k of pass@k as numbers; ValueError for what is not one."""
    bad = [text for text in texts if not text.strip().isdecimal()]
    if bad:
        raise ValueError(f"--k={','.join(texts)!r}: allowed are numbers with commas between them, e.g. 1,3,5")
    return tuple(int(text) for text in texts)


def refuse_samples() -> None:
    """ValueError for flags of evaluations, where the config makes it a search."""
    for name in ("samples", "k"):
        if flags.FLAGS[name].present:
            raise ValueError(
                f"--{name} is not allowed in a search, which has one answer for each problem: the best "
                "program of all rounds. How many are tried say --config.train.turns and .team.agents"
            )


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    entry.define_config(False, "Config file, by default that of the run in --workdir")
    flags.DEFINE_string("workdir", "", "Run folder to take the trained agents from.")
    flags.DEFINE_string("step", checkpoint.BEST, "Checkpoint of the run: best, latest or a step.")
    flags.DEFINE_enum("split", "test", list(SPLITS), "Problems to answer.")
    flags.DEFINE_integer("samples", 0, "Answers per problem; 0: as the config says.", lower_bound=0)
    flags.DEFINE_list("k", ["1"], "Report pass@k for these, e.g. 1,3,5.")
    flags.DEFINE_string("out", "", "JSON file to write; default: evaluation.json in --workdir.")


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    given = flags.FLAGS
    if given.config is None and not given.workdir:
        raise app.UsageError("give --workdir=<run folder>, --config=<config file>, or both")
    config = setup.load_run(given.workdir) if given.config is None else given.config
    checks.validate(config)
    which, ks = parse_step(given.step), parse_ks(given.k)
    if program_checks.searches(config):
        refuse_samples()
        return search_run(config, given.workdir, which, given.out, given.split)
    results, report = evaluate_run(config, given.workdir, which, given.samples, ks, given.split)
    show(report)
    out = given.out or (given.workdir and pathlib.Path(given.workdir) / "evaluation.json")
    if out:
        write(out, results, report)
        print(f"written to {out}")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
