"""Write one trained agent as a Hugging Face model, or its adapters as a PEFT folder, with a model card.

Command: python -m experiments.export --workdir=runs/x --agent=main --out=models/main
         --format=adapter writes the adapters alone, to be loaded on top of the base model with PEFT
         --step=latest, or a number, takes another checkpoint than the best
"""

import pathlib

from absl import flags

from jaxmarl_llm import checkpoint
from jaxmarl_llm.analysis.report import model_card
from jaxmarl_llm.cli import entry
from jaxmarl_llm.factory import inputs, teams
from jaxmarl_llm.runs import agent_export, run_folder, summaries
from jaxmarl_llm.team import REMOTE
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

from . import evaluate

FORMATS = ("merged", "adapter")


def export(workdir, agent: str, out, form: str = "merged", which=checkpoint.BEST) -> int:
    """Write one agent of a run to a new folder.

    Args:
      workdir: run folder.
      agent: its name in the team.
      out: folder to create; whole or not at all.
      form: ``merged`` (a model that `weights.load` and transformers read, adapters added to the base, in the
        dtype of the parameters) or ``adapter`` (PEFT).
      which: ``best``, ``latest`` or a step.

    Returns:
      The step of the checkpoint.

    Raises:
      ValueError: for an agent, checkpoint or format that does not exist, adapters of an agent that has none,
        or a folder that exists already or cannot be written, all before any model is loaded.
    """
    if form not in FORMATS:
        raise UserError(f"--format={form!r}: allowed are {', '.join(FORMATS)}")
    config = run_folder.load_run(workdir)
    folder = pathlib.Path(workdir) / "checkpoints"
    meta = checkpoint.read_meta(folder, which)
    if agent not in meta["agents"]:
        agents = ", ".join(meta["agents"])
        raise UserError(f"--agent={agent!r}: the run in {workdir} has the agents {agents}")
    mode = meta["agents"][agent]["mode"]
    if mode == REMOTE:
        raise UserError(
            f"--agent={agent!r}: it speaks through {meta['agents'][agent]['model']!r} and has no weights"
        )
    if form == "adapter" and mode != "adapters":
        raise UserError(f"--format=adapter: agent {agent!r} has no adapters (mode {mode!r}); use merged")
    out = pathlib.Path(out)
    if out.exists():
        raise UserError(f"--out={out} exists already")
    files.ensure_writable(out, "give another --out")
    built = teams.build_team(config)
    inputs.warn(workdir, lambda: inputs.of_models(config, built))
    team, _ = checkpoint.restore_team(folder, which, built, [agent])
    agent_export.write(team[agent], agent, out, form)
    summary = summaries.read_json(pathlib.Path(workdir) / "summary.json")
    text = model_card.card(config.to_dict(), summary, meta, agent, form)
    files.atomic_write_text(out / "README.md", text)
    return meta["step"]


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_string("workdir", None, "Run folder.", required=True)
    flags.DEFINE_string("agent", None, "Name of the agent.", required=True)
    flags.DEFINE_string("out", None, "Folder to create.", required=True)
    flags.DEFINE_enum("format", "merged", FORMATS, "A whole model (merged), or its adapters alone (PEFT).")
    flags.DEFINE_string("step", checkpoint.BEST, "Checkpoint of the run: best, latest or a step.")


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    which = evaluate.parse_step(args.step)
    step = export(args.workdir, args.agent, args.out, args.format, which)
    print(f"agent {args.agent!r} after {step} iterations ({args.format}) is in {args.out}")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
