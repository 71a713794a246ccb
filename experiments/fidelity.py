"""Check whether an iteration's advantages rank its completions as rewards with fresh partner answers do.

  python -m experiments.fidelity --workdir=runs/x --step=12 --partners=16

does iteration 12 again, as experiments.replay does, and keeps every completion of it. Then it draws 16
answers of every agent to the same prompts from the same parameters, and judges each completion with each
partner answer. The mean of these rewards is what a completion is worth. The table shows the rank correlation
of the advantages with it, within the groups that were compared. The run folder is only read.
"""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from absl import app, flags

from jaxmarl_llm import transcripts
from jaxmarl_llm.analysis.audit import replaying
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import tools, workload
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.utils import console
from jaxmarl_llm.utils.errors import UserError

from . import replay

if TYPE_CHECKING:
    from jaxmarl_llm.analysis.audit.fidelity import Fidelity


NONE = "none"


@dataclasses.dataclass(frozen=True)
class Measured:
    """The result of `measure` for iteration ``step``; ``judged``: number of different judged answers."""

    step: int
    judged: int
    rows: "list[Fidelity]"


def measure(
    workdir, step: int | None = None, partners: int = 16, tell: Callable[[str], None] = print
) -> Measured:
    """Do an iteration of a run again and compare its advantages with what its completions are worth.

    Args:
      workdir: run folder.
      step: the iteration, as for `replay.replay`.
      partners: K answers of every partner for each problem.
      tell: prints a line about what is going to be done, and about kinds of values that differ from the
        record.

    Raises:
      ValueError: for a run whose completions cannot be judged with other partners' answers (`refusals`), and
        for what `replay.replay` refuses.
    """
    workdir, config = pathlib.Path(workdir), run_folder.load_run(workdir)
    if partners < 2:
        raise UserError(f"--partners={partners}: allowed are 2 and more, half of them against the others")
    if reasons := refusals(config):
        raise UserError(f"{workdir}: {reasons[0]}")
    step = max(transcripts.steps(workdir), default=0) if step is None else step
    if step < workload.collecting(config):
        raise UserError(f"iteration {step} of {workdir}: nobody learned in it, so that there is no credit")
    recorded = transcripts.read(workdir, step)
    start = replay.begin_at(workdir, step)
    tell(f"iteration {step} of {workdir}: {step - start} before it are trained again")
    for note in replay.notes(workdir, config):
        tell(note)
    with replay.copied(workdir, start) as folder:
        result = _do_again(replay.settings(config, workdir), folder, step, partners)
        again = transcripts.read(folder, step)
    sizes = workload.answers_per_node(config), workload.shares_samples(config)
    changed_kinds = [p.kind for p in replaying.compare(recorded, again, *sizes) if p.first is not None]
    if changed_kinds:
        tell(f"{', '.join(changed_kinds)} are not as they were recorded: experiments.replay shows where")
    return result


def refusals(config) -> list[str]:
    """Why completions of a run cannot be judged with other partners' answers; [] if they can."""
    c, reasons = config.train, []
    if c.protocol != "simultaneous" or c.turns != 1:
        reasons.append(
            f"train.protocol={c.protocol!r}, train.turns={c.turns}: what follows a completion would have to "
            "be said again too; only one turn of 'simultaneous' is measured"
        )
    if len(config.team.agents) < 2:
        reasons.append(f"team.agents={tuple(config.team.agents)}: there is no partner to draw again")
    if c.system in ("madpo", "madpo_iter"):
        reasons.append(
            f"train.system={c.system!r}: learns from pairs, its completions have no advantage each"
        )
    if c.overlap:
        reasons.append("train.overlap=True: partners of the iteration were drawn from older parameters")
    if tools.offered(config):
        reasons.append(
            "tools: fresh partners would answer without calls; only runs without tools are measured"
        )
    if c.redraw:
        reasons.append(f"train.redraw={c.redraw}: its problems come of several draws")
    return reasons


def _do_again(config, folder: pathlib.Path, step: int, partners: int) -> Measured:
    # Imported here, so that --help and flag errors do not wait for JAX.
    from jaxmarl_llm.analysis.audit import fidelity
    from jaxmarl_llm.rollout.counterfactuals import FreshAnswers
    from jaxmarl_llm.runs import training_loop
    from jaxmarl_llm.runs.prefetch import RolloutPrefetch
    from jaxmarl_llm.runs.run import Run

    with Run(config, folder, accept_changes=True) as run:
        start = run.schedule.start
        shown = console.LateProgress("iterations trained again")
        with RolloutPrefetch(functools.partial(training_loop.draw, run)) as prefetch:
            for i in range(start, step):
                training_loop.iterate(run, prefetch, i)
                shown(i + 1 - start, step - start)
        trainables = run.learner.trainables()
        forest = training_loop.draw(run, step, trainables, run.timer)
        credit = run.learner.assign(forest)
        run.write_transcripts(step, forest, credit)
        protocol = FreshAnswers(run.task.prompts, partners)
        ids = run.draw_ids(step)
        rollout, key = training_loop.rollout_of(run, ids, run.timer, step), run.key("fidelity", step)
        fresh = rollout(protocol, trainables=trainables, key=key).turns
        rewards_RK, judged = fidelity.partner_rewards(forest, fresh, run.scorer)
        rows = fidelity.by_agent(forest, credit.advantages, credit.groups, rewards_RK)
        return Measured(step, judged, rows)


def show(result: Measured) -> None:
    """Print the table."""
    names = ("advantages of", "fidelity", "partners' halves", "groups", "variance")
    rows = [
        (row.agent, _shown(row.fidelity), _shown(row.repeats), row.groups, f"{row.variance:.3g}")
        for row in result.rows
    ]
    console.table(rows, names)
    if any(NONE in row for row in rows):
        print(f"\n{NONE}: there is nothing to rank, in every group the values of one side are all equal")
    print(f"\niteration {result.step}: {result.judged} different answers were judged")


def _shown(correlation: float) -> str:
    return NONE if math.isnan(correlation) else f"{correlation:.2f}"


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_string("workdir", None, "Run folder.", required=True)
    flags.DEFINE_integer(
        "step", None, "Iteration, from 0; default: the last that has a transcript.", lower_bound=0
    )
    flags.DEFINE_integer("partners", 16, "Fresh answers of every agent to each problem.")


def main(argv):
    """Command line entry."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}")
    args = flags.FLAGS
    print(f"reading the run in {args.workdir}", flush=True)
    show(measure(args.workdir, args.step, args.partners))


if __name__ == "__main__":
    define_flags()
    entry.run(main)
