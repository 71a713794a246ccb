"""Evaluate teams of agents from different runs: do agents rely on habits of the partner they trained with?

  python -m experiments.crossplay --workdirs=runs/a,runs/b,runs/c

evaluates teams on the test problems, with fresh draws. With two agents these are all pairs of a first agent
of one run and a second agent of the same or another run. With more agents, one agent of a run's team is
replaced by that of another run. All teams use the same random keys. Prints the tables, and writes them to
--out as crossplay.json, .md and .png.
"""

import contextlib
import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from absl import flags

from jaxmarl_llm import resume_checks
from jaxmarl_llm.analysis.audit import crossplay
from jaxmarl_llm.analysis.audit.crossplay import Table
from jaxmarl_llm.analysis.report import comparable
from jaxmarl_llm.analysis.report.runs import short_names
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import agent_settings, remote
from jaxmarl_llm.config.options import field
from jaxmarl_llm.config.programs import searches
from jaxmarl_llm.config.task import asks_expert
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.utils import compile_times, console, files
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.saved_names import BEST, LATEST
from jaxmarl_llm.utils.statistics.bootstrap import interval

if TYPE_CHECKING:
    from jaxmarl_llm.team import Team

# Fields that decide how agents answer, besides their models and the fields of `comparable.judging_fields`.
ANSWERING = ("policy.dtype", "train.turns", "train.protocol", *(f"task.{n}" for n in comparable.OF_ANSWERS))


@dataclasses.dataclass(frozen=True)
class Crossplay:
    """Result of `play`: tables by mode, ``sampled`` and ``greedy``, one for each agent that is replaced."""

    names: tuple[str, ...]
    agents: tuple[str, ...]
    about: dict
    tables: dict[str, list[Table]]


def play(
    workdirs: Sequence[str],
    which: str = BEST,
    samples: int = 0,
    tell: Callable[[str], None] = print,
) -> Crossplay:
    """Evaluate teams put together from the agents of several runs.

    Args:
      workdirs: two or more run folders or exported teams, whose agents are of the same kind and judged in the
        same way; if their seeds differ, all use the seed of the first.
      which: ``best`` or ``latest``, the checkpoint of each.
      samples: answers per problem; 0 for ``eval.samples`` of the first run.
      tell: prints a line for every team.

    Raises:
      ValueError: for fewer than two runs or agents, for runs that do not match, naming the fields, and for
        missing checkpoints; all before a model is loaded.
    """
    # Imported here, so that --help and flag errors do not wait for JAX.
    from jaxmarl_llm import saved_agents
    from jaxmarl_llm.evaluation import results
    from jaxmarl_llm.factory import evaluations, experts, inputs, randomness, tasks, teams, tools

    configs = [run_folder.load_run(workdir) for workdir in workdirs]
    check(workdirs, configs)
    config, names = configs[0], run_names(workdirs)
    steps = [saved_agents.read_meta(workdir, which)["step"] for workdir in workdirs]
    agents, samples = tuple(config.team.agents), samples or config.eval.samples
    lineups_of = {
        agent: crossplay.teams(len(names), agents, agent) for agent in crossplay.exchanged_agents(agents)
    }
    lineups = list(dict.fromkeys(lineup for rows in lineups_of.values() for row in rows for lineup in row))
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(tasks.build_executor(config))
        task = tasks.build_task(config, executor, "test", experts.build_expert(config, workdirs[0]))
        toolbox = stack.enter_context(tools.opened(config, executor, task))
        speakers = experts.build(config, task.items, workdirs[0])
        team = teams.build_team(config, speakers=speakers)
        teams.check_prompts(config, team, task, toolbox=toolbox)
        now = functools.cache(functools.partial(inputs.of_run, config, {"test": task}, team, toolbox))
        for workdir in workdirs:
            inputs.warn(workdir, now)
        key = randomness.stream(config, "report")
        evaluate = functools.partial(evaluations.evaluate, config, samples=samples, key=key, toolbox=toolbox)
        of_lineup = functools.partial(_returns, evaluate, team, task, workdirs, which, agents)
        returns = _of_all(lineups, of_lineup, names, agents, tell)
        about = {"workdirs": [str(workdir) for workdir in workdirs], "checkpoint": which, "steps": steps}
        about |= {"seed": config.seed, "problems": len(task.items), "samples": samples}
        about |= {"executor": tasks.isolation(executor)}
    tables = {
        mode: [
            crossplay.table(agent, [[returns[lineup][mode] for lineup in row] for row in rows])
            for agent, rows in lineups_of.items()
        ]
        for mode in results.MODES
    }
    return Crossplay(names, agents, about, tables)


def _of_all(
    lineups: Sequence[tuple[int, ...]],
    returns_of: Callable,
    names: Sequence[str],
    agents: Sequence[str],
    tell: Callable,
) -> dict[tuple[int, ...], dict]:
    """The returns of every lineup, with a line for each."""
    returns, compiles = {}, compile_times.of_process()
    with console.ProgressDisplay(len(lineups), label="teams", compiles=compiles) as display:
        for number, lineup in enumerate(lineups, 1):
            returns[lineup] = returns_of(lineup)
            origins = ", ".join(f"{agent} of {names[run]}" for agent, run in zip(agents, lineup, strict=True))
            means = ", ".join(f"{interval(x).mean:.1f} {mode}" for mode, x in returns[lineup].items())
            tell(f"[{number}/{len(lineups)}] {origins}: return {means}")
            display.update(number, {})
    return returns


def _returns(
    evaluate: Callable,
    team: "Team",
    task,
    workdirs: Sequence,
    which: str,
    agents: Sequence[str],
    lineup: Sequence[int],
) -> dict:
    """A lineup's return of every test problem by mode, sampled and greedy; it has a run index per agent."""
    from jaxmarl_llm.evaluation import results

    mixed = put_together(team, workdirs, which, dict(zip(agents, lineup, strict=True)))
    trainables = [member.trainable for member in mixed.members]
    evaluation = evaluate(team=mixed, trainables=trainables, task=task, items=range(len(task.items)))
    return {mode: getattr(evaluation, mode).scores()["return"] for mode in results.MODES}


def put_together(team: "Team", workdirs: Sequence, which: str, run_of: dict[str, int]) -> "Team":
    """The team with each agent restored from its own run's checkpoint; ``run_of`` indexes ``workdirs``."""
    from jaxmarl_llm import saved_agents

    for run in sorted(set(run_of.values())):
        agents = [agent for agent in run_of if run_of[agent] == run]
        team, _ = saved_agents.restore_team(workdirs[run], which, team, agents)
    return team


def check(workdirs: Sequence[str], configs: Sequence) -> None:
    """ValueError for runs whose agents cannot be exchanged or whose returns cannot be compared."""
    first, agents = str(workdirs[0]), tuple(configs[0].team.agents)
    if len(workdirs) < 2:
        raise UserError(f"--workdirs={first}: give two runs or more, with commas between them")
    if len({pathlib.Path(workdir).resolve() for workdir in workdirs}) < len(workdirs):
        raise UserError(f"--workdirs={','.join(map(str, workdirs))}: every run may be there once")
    for workdir, config in zip(workdirs[1:], configs[1:], strict=True):
        if differences := _differences(judged(configs[0]), judged(config)):
            raise UserError(f"{first} and {workdir} do not go together: {resume_checks.listed(differences)}")
    if len(agents) < 2:
        raise UserError(f"team.agents={agents!r} of {first}: a single agent has no partner to exchange")
    if shared := set(crossplay.exchanged_agents(agents)) & set(remote.agents(configs[0])):
        raise UserError(
            f"team.models of {first}: agent {min(shared)!r} is no model of ours and the same in all runs"
        )
    if configs[0].team.mode == "frozen":
        raise UserError(f"team.mode='frozen' of {first}: all runs have the same agents")


def _differences(one: dict, two: dict) -> dict[str, str]:
    """Fields that both have and that differ; if there are no such fields, those that only one has.

    If both kinds exist, the second kind follows from the first.
    """
    common = one.keys() & two.keys()
    shared = [{name: side[name] for name in common} for side in (one, two)]
    sides = ("first", "second")
    return resume_checks.differences(*shared, sides) or resume_checks.differences(one, two, sides)


def judged(config) -> dict:
    """Fields that must be equal if agents are exchanged: their models, their sampling and the judge."""
    from jaxmarl_llm.factory import built_models

    names, options = agent_settings.SAMPLING, {}
    for agent in config.team.agents:
        values = {name: agent_settings.own(config, agent, name) for name in names}
        options[agent] = {name: value for name, value in values.items() if value is not None}
    team = config.team.to_dict() | {"agent": options}  # who was trained, and how fast, may differ
    fields = {"model": config.model, "team": team, "sampling": config.sampling.to_dict()}
    fields["model_options"] = {k: v for k, v in config.model_options.to_dict().items() if k != "date"}
    fields |= comparable.judging_fields(config.to_dict())
    fields |= {path: field(config, path) for path in ANSWERING}
    if searches(config):
        fields |= {name: config[name].to_dict() for name in ("timing", "lessons", "search")}
    if asks_expert(config):
        fields |= {f"expert.{name}": config.expert[name] for name in ("kind", "model", "max_tokens")}
    built = set(built_models.BUILDERS).intersection((config.model, *config.team.models))
    if built and config.team.mode != "full":
        fields["seed"] = config.seed  # the base that the adapters belong to is drawn from it
    return fields


def run_names(workdirs: Sequence[str]) -> tuple[str, ...]:
    """Names of the runs in tables: their folders' names, or the parts of the paths that differ."""
    return tuple(short_names([pathlib.Path(workdir) for workdir in workdirs]))


def as_tables(result: Crossplay) -> list[tuple[str, list[str], list[tuple[str, ...]], str]]:
    """(title, headers, rows, conclusion) for every mode and agent, as texts."""
    texts = []
    for mode, tables in result.tables.items():
        for table in tables:
            rows_of, columns_of = crossplay.corner(result.agents, table.agent)
            headers = [f"{rows_of} \\ {columns_of}", *result.names]
            rows = [
                (name, *map(_interval, row)) for name, row in zip(result.names, table.means_RR, strict=True)
            ]
            conclusion = (
                f"own partners {table.own.mean:.1f}, those of other runs {table.mixed.mean:.1f}; "
                f"gap {_interval(table.gap)}, p {table.p:.2g}"
            )
            texts.append((f"test return, {mode}, of {_state(result.about)}", headers, rows, conclusion))
    return texts


def _state(about: dict) -> str:
    """The checkpoints of the runs and the number of problems, as text."""
    best = about["checkpoint"] == BEST
    kind = "the states that are best on validation" if best else "the latest states"
    steps = ", ".join(map(str, about["steps"]))
    return f"{kind} (iterations {steps}), {about['problems']} problems, fresh draws"


def _interval(ends) -> str:
    return f"{ends.mean:.1f} [{ends.low:.1f}, {ends.high:.1f}]"


def write(result: Crossplay, folder: pathlib.Path) -> None:
    """Write crossplay.json, .md and .png."""
    tables = {mode: [_plain(table) for table in tables] for mode, tables in result.tables.items()}
    data = result.about | {"names": result.names, "agents": result.agents, **tables}
    files.atomic_write_text(folder / "crossplay.json", json.dumps(data, indent=1, allow_nan=False) + "\n")
    pieces = [
        console.markdown(rows, headers, f"## {title}") + f"\n{conclusion}\n"
        for title, headers, rows, conclusion in as_tables(result)
    ]
    files.atomic_write_text(folder / "crossplay.md", "\n".join(["# Cross-play\n", *pieces]))
    crossplay.draw(result.tables, result.agents, result.names, folder / "crossplay.png")


def _plain(table: Table) -> dict:
    """A table as JSON data; NaN is null."""
    ends = {name: _finite(getattr(table, name)._asdict()) for name in ("own", "mixed", "gap")}
    means = [[_finite(cell._asdict()) for cell in row] for row in table.means_RR]
    returns = [[[_finite(x) for x in cell] for cell in row] for row in table.returns_RRB.tolist()]
    return {"agent": table.agent, **ends, "p": table.p, "means": means, "returns": returns}


def _finite(value):
    if isinstance(value, dict):
        return {name: _finite(number) for name, number in value.items()}
    return value if math.isfinite(value) else None


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_list(
        "workdirs", None, "Run folders or exported teams, with commas between them.", required=True
    )
    kinds = [BEST, LATEST]
    flags.DEFINE_enum("step", BEST, kinds, "State of each run: best on validation, or latest.")
    flags.DEFINE_integer(
        "samples", 0, "Answers per problem; 0: as the first run's config says.", lower_bound=0
    )
    flags.DEFINE_string("out", "", "Folder to write to; default: crossplay/ in the first run folder.")


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    tell = functools.partial(print, flush=True)
    folder = pathlib.Path(args.out or pathlib.Path(args.workdirs[0]) / "crossplay")
    files.ensure_writable(folder / "crossplay.json", "give --out=<folder> where you may write")
    print(f"reading {', '.join(args.workdirs)}", flush=True)
    result = play(args.workdirs, args.step, args.samples, tell)
    for title, headers, rows, conclusion in as_tables(result):
        console.table(rows, headers, f"\n{title}")
        print(conclusion)
    write(result, folder)
    print(f"\ncrossplay.json, crossplay.md and crossplay.png are in {folder}")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
