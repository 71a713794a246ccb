"""Score single steps of agents with tools, each after the right steps before it.

  python -m experiments.steps --workdir=runs/x --source=jaxmarl_llm.tasks.reasoning.tables:solution

takes the solutions of the test problems, lets the run's agents write each step greedily, and compares each
step with the solution's: the planner's route, the caller's call (tool and arguments), the text of the answer.
With --config instead of --workdir the untrained team is scored. experiments.evaluate scores whole
conversations.
"""

import json
import pathlib

from absl import app, flags

from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import validate
from jaxmarl_llm.config.general import refuse_seeds
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.utils import compile_times, console, files
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.saved_names import BEST, LATEST


def measure(config, workdir="", which=LATEST, source: str = "", split: str = "test") -> dict:
    """Scores by agent, see `evaluation.steps.table`.

    Args:
      config: the team, its tools and the problems.
      workdir: run folder whose checkpoint is restored; empty: the untrained team.
      which: ``best``, ``latest`` or a step.
      source: dotted name of a function from a problem to its `Solution`; empty: ``sft.source``.
      split: which problems, one of `EVALUATED`.

    Raises:
      ValueError: for a team without tools, and what `imitation.solutions` refuses.
    """
    # Imported here, so that --help and flag errors do not wait for JAX.
    from jaxmarl_llm import saved_agents
    from jaxmarl_llm.evaluation import steps
    from jaxmarl_llm.factory import chat_options, evaluations, experts, imitation, tasks, teams, training

    config = chat_options.dated(config, workdir)
    with tasks.build_executor(config) as executor:
        task = evaluations.build_split(config, executor, split)
        rows, names = imitation.solutions(config, task, source or config.sft.source)
        team = teams.build_team(config, speakers=experts.build(config, task.items, workdir))
        if workdir:
            team, _ = saved_agents.restore_team(workdir, which, team)
        task.items = tuple(item for item in task.items if item.task_id in rows)
        number = sum(len(rows[item.task_id]) for item in task.items)
        compiles = compile_times.of_process()
        with console.ProgressDisplay(number, label="steps", compiles=compiles) as display:
            drawn = steps.draw(
                team,
                [member.trainable for member in team.members],
                task,
                rows,
                params=training.sampling_params(config),
                max_prompt_tokens=config.sampling.max_prompt_tokens,
                long_prompts=config.sampling.long_prompts,
                progress=lambda done, total: done < total and display.update(done, {}),
            )
    return steps.table(drawn, names)


def show(table: dict) -> None:
    """Print the scores, a line for each score of each agent."""
    rows = []
    for agent, row in table.items():
        for name in (name for name in row if name != "steps" and not name.endswith(("_low", "_high"))):
            ends = [row.get(f"{name}_{end}") for end in ("low", "high")]
            between = "" if None in ends else f"[{ends[0]:.1f}, {ends[1]:.1f}]"
            rows.append((agent, f"{row['steps']:.0f}", name, f"{row[name]:.1f}", between))
    title = "single steps, % after the right steps before, with 95 % intervals over the problems"
    console.table(rows, ("agent", "steps", "score", "%", "interval"), title)


def define_flags() -> None:
    """The command line."""
    entry.define_config(False, "Config file, by default that of the run in --workdir")
    flags.DEFINE_string("workdir", "", "Run folder to take the trained agents from.")
    flags.DEFINE_enum("step", LATEST, [LATEST, BEST], "Checkpoint of the run.")
    flags.DEFINE_enum("split", "test", ["validation", "test", "train"], "Problems whose steps are taken.")
    flags.DEFINE_string(
        "source", "", "Dotted name of a function from a problem to its Solution; default: sft.source."
    )
    flags.DEFINE_string("out", "", "JSON file to write; default: steps.json in --workdir.")


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    if args.config is None and not args.workdir:
        raise app.UsageError("give --workdir=<run folder>, --config=<config file>, or both")
    config = run_folder.load_run(args.workdir) if args.config is None else args.config
    validate(config)
    refuse_seeds(config, "scoring steps")
    if not config.tools.functions:
        raise UserError("tools.functions=(): experiments.steps scores agents with tools")
    table = measure(config, args.workdir, args["step"].value, args.source, args.split)
    show(table)
    if out := args.out or (args.workdir and pathlib.Path(args.workdir) / "steps.json"):
        files.atomic_write_bytes(pathlib.Path(out), json.dumps(table, indent=2).encode())
        print(f"written to {out}")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
