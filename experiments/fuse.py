"""Fuse teachers into one model: a trained team, agents of several runs, other models (FuseLLM, arXiv 2401.10491).

  python -m experiments.fuse --workdir=runs/team --out=runs/fused

lets the team of a run answer the training problems, computes every member's next-token distributions on its
own texts, and trains one model, in --out, to write what all of them wrote. The student is a normal run, which
experiments.evaluate, experiments.export and team.begin read. The last line shows the cross-entropy per byte
of held-out texts.

Given texts: --texts=texts.jsonl, or --texts=reference for the reference answers of the task's training problems
Teachers:    --teachers=runs/other:main,models/x adds an agent of another run and a model; --nomembers: without the team
The student: --begin=main starts from that member; --config=<config file> gives the student its own config
The teachers' effect is the difference to --weight=0, which is cross-entropy alone on the same texts. The same
command resumes.
"""

import functools

from absl import app, flags

from jaxmarl_llm.cli import entry
from jaxmarl_llm.config.general import refuse_seeds
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.saved_names import BEST

from . import evaluate

TRAINING = {"steps": "train.steps", "lr": "train.lr", "batch": "sft.batch"}


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    entry.define_config(False, "Config of the student, by default one made of the team's")
    flags.DEFINE_string("workdir", None, "Run folder of the team.", required=True)
    flags.DEFINE_string("out", None, "Run folder of the student.", required=True)
    flags.DEFINE_string("step", BEST, "Checkpoint of the team: best, latest or a step.")
    flags.DEFINE_string("texts", "", "JSONL file of texts, or reference; default: the team's own answers.")
    flags.DEFINE_integer("samples", 4, "Answers of the team to each training problem.", lower_bound=1)
    flags.DEFINE_float("above", None, "Only answers of the team with a reward above this.")
    flags.DEFINE_bool("members", True, "Whether the members of the team teach.")
    flags.DEFINE_list("teachers", [], "Other teachers: <run folder>:<agent>, or models.")
    flags.DEFINE_string("begin", "", "Member of the team as which the student begins; default: a fresh one.")
    flags.DEFINE_list("held_out", [], "JSONL files of held-out texts, or reference (validation problems).")
    flags.DEFINE_float("hold", 0.1, "Share of the prompts held out without --held_out.", 0, 0.9)
    flags.DEFINE_float("weight", 0.1, "Weight of the teachers beside the texts (distil.weight).", 0, 1)
    flags.DEFINE_enum(
        "fuse", "min_ce", ["min_ce", "avg_ce"], "How several teachers become one (distil.fuse)."
    )
    flags.DEFINE_enum("cost", "byte", ["byte", "token"], "Cross-entropy per byte, or token (distil.cost).")
    flags.DEFINE_enum("align", "bytes", ["bytes", "edits"], "How tokens are aligned (distil.align).")
    flags.DEFINE_integer("steps", 100, "Iterations of the training.", lower_bound=1)
    flags.DEFINE_float("lr", 5e-4, "Its learning rate.", 0)
    flags.DEFINE_integer("batch", 16, "Texts in an iteration.", lower_bound=1)


def _student(args, config):
    """The student's config: that of --config, or one made from the team's."""
    from jaxmarl_llm.runs import fused_student

    training = {path: args[name].value for name, path in TRAINING.items()}
    if args.config is None:
        made = fused_student.of_team(config, training)
    elif given := [f"--{name}" for name in TRAINING if args[name].present]:
        raise app.UsageError(f"{', '.join(given)}: with --config they are --config.<field>")
    else:
        made = args.config.copy_and_resolve_references()
    made.distil.weight = args.weight
    if args.weight:
        made.distil.update(fuse=args.fuse, cost=args.cost, align=args.align)
    return made


def _asked(args, which):
    """What is fused, according to the flags."""
    from jaxmarl_llm.runs.fusing import Asked

    if not args.members and not args.teachers:
        raise UserError(
            "--nomembers without --teachers: there is no teacher left; allowed is --weight=0 with members"
        )
    if args.held_out and args["hold"].present:
        raise app.UsageError("--hold and --held_out: give one of them")
    own = {} if args.texts else {"samples": args.samples, "above": args.above}
    if args.texts and (args["samples"].present or args.above is not None):
        raise app.UsageError(
            "--samples and --above are of the team's own answers: they do not go with --texts"
        )
    return Asked(
        args.workdir, args.out, which, args.texts, members=args.members, teachers=tuple(args.teachers),
        held_out=list(args.held_out) or float(args.hold), begin=args.begin, **own,
    )  # fmt: skip


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    which = evaluate.parse_step(args.step)
    print(f"reading the run in {args.workdir}", flush=True)
    # Imported here, so that the first line does not wait for JAX.
    from jaxmarl_llm.runs import fusing

    from . import train

    config = run_folder.load_run(args.workdir)
    refuse_seeds(config, "a fusion")
    asked, student = _asked(args, which), _student(args, config)
    report = fusing.run(asked, config, student, functools.partial(train.train))
    if report:
        print(f"the student is in {args.out}: python -m experiments.evaluate --workdir={args.out}")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
