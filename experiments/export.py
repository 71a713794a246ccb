"""Write trained agents for other programs: one as a model or as adapters, or the whole team as one folder.

One agent:  python -m experiments.export --workdir=runs/x --agent=main --out=models/main
            --format=adapter writes the adapters alone, to be loaded on top of the base model with PEFT
The team:   python -m experiments.export --workdir=runs/x --team --out=models/team
            python -m experiments.evaluate --team=models/team   plays it again, here or elsewhere
Both:       --base=<hub id or folder> names the base model in the adapters' files
            --step=latest, or a number, takes another checkpoint than the best
"""

import logging
import pathlib

from absl import app, flags

from jaxmarl_llm.analysis.report import model_card
from jaxmarl_llm.cli import entry
from jaxmarl_llm.runs import run_folder, summaries
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.saved_names import ADAPTER, BEST, MERGED

from . import evaluate

FORMS = (MERGED, ADAPTER)


def export(workdir, agent: str, out, form: str = MERGED, which=BEST, base: str = "") -> int:
    """Write one agent of a run to a new folder.

    Args:
      workdir: run folder, or an exported team, such as `experiments.merge` writes.
      agent: its name in the team.
      out: folder to create; written completely or not at all.
      form: ``merged`` (a model that `weights.load` and transformers read, adapters added to the base, in the
        dtype of the parameters) or ``adapter`` (PEFT).
      which: ``best``, ``latest`` or a step.
      base: name of the base model in ``adapter`` files, hub id or folder; empty: the name of the run's model.

    Returns:
      The step of the checkpoint.

    Raises:
      ValueError: for an agent, checkpoint or format that does not exist, for adapters of an agent without
        adapters or on a base that exists nowhere else, and for a folder that exists already or cannot be
        written; all before any model is loaded.
    """
    # Imported here, so that --help and flag errors do not wait for JAX.
    from jaxmarl_llm import saved_agents
    from jaxmarl_llm.factory import inputs, teams
    from jaxmarl_llm.runs import agent_export

    if form not in FORMS:
        raise UserError(f"--format={form!r}: allowed are {', '.join(FORMS)}")
    config = run_folder.load_run(workdir)
    meta = saved_agents.read_meta(workdir, which)
    if agent not in meta["agents"]:
        agents = ", ".join(meta["agents"])
        raise UserError(f"--agent={agent!r}: the run in {workdir} has the agents {agents}")
    _check_form(agent, meta["agents"][agent], form, base)
    _check_out(out)
    built = teams.build_team(_in_full(config))
    inputs.warn(workdir, lambda: inputs.of_models(config, built))
    team, _ = saved_agents.restore_team(workdir, which, built, [agent])
    agent_export.write(team[agent], agent, pathlib.Path(out), form, base)
    base = base or agent_export.base_name(meta["agents"][agent]["model"])
    text = model_card.card(config.to_dict(), _summary(workdir), meta, agent, form, base)
    files.atomic_write_text(pathlib.Path(out) / "README.md", text)
    return meta["step"]


def _in_full(config):
    """The config with its base as stored, not quantised: adapters are written for it and merged with it.

    Wherever an exported team is played, the quantised base is made again from it.
    """
    if not config.model_options.quantize:
        return config
    changed = config.copy_and_resolve_references()
    changed.model_options.quantize = ""
    return changed


def _check_form(agent: str, saved: dict, form: str, base: str) -> None:
    """ValueError for an agent that cannot be written in this form, according to its checkpoint."""
    from jaxmarl_llm.runs import agent_export
    from jaxmarl_llm.team import REMOTE

    mode, model = saved["mode"], saved["model"]
    if mode == REMOTE:
        raise UserError(f"--agent={agent!r}: it speaks through {model!r} and has no weights")
    if form == MERGED:
        if base:
            raise UserError(
                "--base is what adapters call their base model; use it with --format=adapter or --team"
            )
        return
    if mode != "adapters":
        raise UserError(f"--format=adapter: agent {agent!r} has no adapters (mode {mode!r}); use merged")
    if not base and not agent_export.base_name(model):
        raise UserError(
            f"--format=adapter: the base {model!r} is drawn from the seed and exists nowhere else; use merged, "
            "or name one with --base"
        )


def _check_out(out) -> None:
    """ValueError for a folder that exists already or cannot be written."""
    out = pathlib.Path(out)
    if out.exists():
        raise UserError(f"--out={out} exists already")
    files.ensure_writable(out, "give another --out")


def _summary(workdir) -> dict:
    return summaries.read_json(pathlib.Path(workdir) / "summary.json")


def export_team(workdir, out, which=BEST, base: str = "") -> int:
    """Write all agents of a run to a new folder that `experiments.evaluate` and others can play again.

    Args, errors and result as of `export`. Each agent is written as it was trained: its adapters, or its model.
    """
    from jaxmarl_llm import saved_agents
    from jaxmarl_llm.factory import inputs, teams
    from jaxmarl_llm.runs import agent_export

    config = run_folder.load_run(workdir)
    meta = saved_agents.read_meta(workdir, which)
    if not any(saved["mode"] in ("adapters", "full") for saved in meta["agents"].values()):
        raise UserError(f"--team: no agent of the run in {workdir} has weights of its own")
    _check_out(out)
    built = teams.build_team(_in_full(config))
    inputs.warn(workdir, lambda: inputs.of_models(config, built))
    team, _ = saved_agents.restore_team(workdir, which, built)

    def card(held: dict) -> str:
        return model_card.team_card(config.to_dict(), _summary(workdir), held)

    folder = pathlib.Path(workdir)
    agent_export.write_team(team, config, meta, pathlib.Path(out), card, base, _prompts(config), folder)
    return meta["step"]


def _prompts(config) -> dict:
    """Every agent's prompt for the first test problem; {} if the problems cannot be read here."""
    from jaxmarl_llm.factory import tasks

    try:
        with tasks.build_executor(config) as executor:
            task = tasks.build_task(config, executor, "test")
            return task.prompts(task.items[0])
    except (*entry.EXPECTED, OSError) as error:
        logging.warning("the team is written without an example of its prompts: %s", error)
        return {}


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_string("workdir", None, "Run folder, or an exported team.", required=True)
    flags.DEFINE_string("agent", "", "Name of the agent to write.")
    flags.DEFINE_bool("team", False, "Write all agents, as they were trained, into one folder.")
    flags.DEFINE_string("out", None, "Folder to create.", required=True)
    flags.DEFINE_enum("format", MERGED, FORMS, "A whole model (merged), or its adapters alone (PEFT).")
    flags.DEFINE_string("base", "", "What adapters call their base model: a hub id or a folder.")
    flags.DEFINE_string("step", BEST, "Checkpoint of the run: best, latest or a step.")


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    which = evaluate.parse_step(args.step)
    if bool(args.agent) == args.team:
        raise app.UsageError("give --agent=<name> or --team")
    print(f"reading the run in {args.workdir}", flush=True)
    if not args.team:
        step = export(args.workdir, args.agent, args.out, args.format, which, args.base)
        print(f"agent {args.agent!r} after {step} iterations ({args.format}) is in {args.out}")
        return
    if args["format"].present:
        raise app.UsageError("--team writes every agent as it was trained and takes no --format")
    step = export_team(args.workdir, args.out, which, args.base)
    print(
        f"the team after {step} iterations is in {args.out}: python -m experiments.evaluate --team={args.out}"
    )


if __name__ == "__main__":
    define_flags()
    entry.run(main)
