"""Do an iteration of a run again from its seeds, and compare the result with the record.

  python -m experiments.replay --workdir=runs/x --step=12

begins at the last checkpoint at or before iteration 12 (else with untrained agents), trains the iterations in
between again, then does iteration 12, and compares it with the transcript and the metrics that the run has
kept: items, prompts, completions, rewards, verdicts, advantages, and every number that does not depend on a
clock. The run folder is only read. The exit code is 1 if anything differs.
"""

import contextlib
import dataclasses
import functools
import pathlib
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from absl import flags

from jaxmarl_llm import metrics, resume_checks, transcripts
from jaxmarl_llm.analysis.audit import replaying
from jaxmarl_llm.analysis.audit.replaying import Agreement
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import saved, workload
from jaxmarl_llm.config.task import asks_expert
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.utils import compile_times, console
from jaxmarl_llm.utils.errors import UserError

if TYPE_CHECKING:
    from jaxmarl_llm.runs.run import Run


@dataclasses.dataclass(frozen=True)
class Replayed:
    """The result of `replay` for iteration ``step``; ``start`` iterations came from a checkpoint."""

    step: int
    start: int
    parts: list[Agreement]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(part.first is None for part in self.parts)


def replay(
    workdir, step: int | None = None, tolerance: float = 0.0, tell: Callable[[str], None] = print
) -> Replayed:
    """Do an iteration of a run again and compare.

    Args:
      workdir: folder of a run that is finished, stopped, or still in progress.
      step: the iteration, counted from 0 as in transcripts and metrics; None: the last with a transcript.
      tolerance: see `replaying.compare`.
      tell: prints a line about what is going to be done, before it is done.

    Raises:
      ValueError: for a folder without a run, an iteration without a transcript, a negative tolerance.
    """
    if tolerance < 0:
        raise UserError(f"--tolerance={tolerance}: allowed are 0 and more")
    workdir, config = pathlib.Path(workdir), run_folder.load_run(workdir)
    step = max(transcripts.steps(workdir), default=0) if step is None else step
    recorded = transcripts.read(workdir, step)
    start = begin_at(workdir, step)
    source = f"the checkpoint after {start} iterations" if start else "the team as the run began"
    tell(f"iteration {step} of {workdir}: from {source}; {step - start} before it are trained again")
    for note in notes(workdir, config):
        tell(note)
    with copied(workdir, start) as folder:
        row = do_again(settings(config, workdir), folder, step)
        again = transcripts.read(folder, step)
    sizes = workload.answers_per_node(config), workload.shares_samples(config)
    parts = replaying.compare(recorded, again, *sizes, tolerance)
    recorded_rows = [
        old for old in metrics.read_metrics(workdir) if old["step"] == step and "tokens_per_s" in old
    ]
    if recorded_rows:
        parts.append(replaying.compare_metrics(recorded_rows[-1], row, tolerance))
    else:  # killed in between
        tell(f"iteration {step} has a transcript, but no metrics")
    return Replayed(step, start, parts)


def begin_at(workdir: pathlib.Path, step: int) -> int:
    """The iterations of the last checkpoint at or before ``step``; 0 if there is none.

    The checkpoint of the best evaluation does not count: it has no optimizer state to continue with. If a
    system trains its own models, they must have been saved too.
    """
    from jaxmarl_llm import (
        checkpoint,
    )  # here as below: --help and flag errors do not wait for JAX

    saved = set(checkpoint.saved_steps(workdir / "checkpoints"))
    if models := checkpoint.saved_steps(workdir / "system"):
        saved &= set(models)
    return max((number for number in saved if number <= step), default=0)


def notes(workdir: pathlib.Path, config) -> list[str]:
    """Reasons why values may differ without an error: another machine, programs that are timed."""
    from jaxmarl_llm import checkpoint

    place = workdir / "checkpoints"
    mesh = saved.in_folder(workdir)["mesh"]
    versions = checkpoint.read_meta(place)["versions"] if checkpoint.saved_steps(place) else {}
    here = {name: version for name, version in checkpoint.versions().items() if name in versions}
    pairs = ({"mesh": mesh}, {"mesh": config.mesh.to_dict()}), (versions, here)
    differences = [resume_checks.differences(*pair, sides=("the run had", "here is")) for pair in pairs]
    effects = "sums may differ in their last digits, and then anything", "what is computed may differ"
    messages = [
        f"{resume_checks.listed(fields)}: {effect}"
        for fields, effect in zip(differences, effects, strict=True)
        if fields
    ]
    if config.task.kind == "optimisation":
        messages.append("programs are timed again: rewards differ as times do, and then anything")
    return messages


@contextlib.contextmanager
def copied(workdir: pathlib.Path, start: int) -> Iterator[pathlib.Path]:
    """A writable folder with the run as it was after ``start`` iterations."""
    from jaxmarl_llm.factory import inputs
    from jaxmarl_llm.runs import begin, kept_problems

    with tempfile.TemporaryDirectory(prefix="replay_") as name:
        folder = pathlib.Path(name)
        if start and (saved := workdir / "checkpoints" / str(start)).is_dir():
            (folder / "checkpoints").mkdir()
            (folder / "checkpoints" / saved.name).symlink_to(saved.absolute(), target_is_directory=True)
        if (workdir / "system").is_dir():
            _copy_models(workdir / "system", folder / "system", start)
        if (workdir / begin.KEPT).is_dir():
            (folder / begin.KEPT).symlink_to((workdir / begin.KEPT).absolute(), target_is_directory=True)
        for kept in (inputs.FILE, kept_problems.FILE):
            if (workdir / kept).is_file():
                shutil.copy(workdir / kept, folder)
        yield folder


def _copy_models(saved: pathlib.Path, folder: pathlib.Path, start: int) -> None:
    """Copy what a system has kept (pairs, memories, a router) and link to its models' states at ``start``.

    Files are copied, because the repeated iterations read them and may write to them.
    """
    folder.mkdir()
    for path in saved.iterdir():
        of_a_step = path.is_dir() and path.name.isdecimal()
        if of_a_step and path.name == str(start):
            (folder / path.name).symlink_to(path.absolute(), target_is_directory=True)
        elif path.is_dir() and not of_a_step:
            _copy_models(path, folder / path.name, start)
        elif path.is_file():
            shutil.copy(path, folder)


def settings(config, workdir: pathlib.Path):
    """The run's config for a replay: other outputs, and an expert's answers only from the run's record."""
    config = config.copy_and_resolve_references()
    config.log.update(tensorboard=False, wandb_project="", transcripts_every=1)
    config.save.keep = 1  # nothing is saved, but the disk space check counts this many checkpoints
    if asks_expert(config):
        config.expert.offline = True
        config.expert.cache = config.expert.cache or str(workdir / "expert")
    return config


def do_again(config, folder: pathlib.Path, step: int) -> dict[str, float]:
    """Train from the state in the folder through iteration ``step``; returns the metrics of that one."""
    from jaxmarl_llm.runs import training_loop
    from jaxmarl_llm.runs.prefetch import RolloutPrefetch
    from jaxmarl_llm.runs.run import Run

    # Other inputs are a difference to show, not a reason to refuse.
    with (
        Run(config, folder, accept_changes=True) as run,
        RolloutPrefetch(functools.partial(_draw, run, step)) as prefetch,
    ):
        start = run.schedule.start
        shown = console.ProgressDisplay(
            step + 1 - start, label="iterations", compiles=compile_times.of_process()
        )
        with shown as display:
            for i in range(start, step + 1):
                row = training_loop.iterate(run, prefetch, i)
                display.update(i + 1 - start, {})
        return row


def _draw(run: "Run", last: int, step: int, trainables, timer):
    """`training_loop.draw`; None for the iteration after ``last``, which train.overlap starts needlessly."""
    from jaxmarl_llm.runs import training_loop

    return training_loop.draw(run, step, trainables, timer) if step <= last else None


def show(result: Replayed) -> None:
    """Print how many values of each kind agree, and both sides of the first difference of each kind."""
    rows = [(part.kind, part.agree, part.of, "" if part.first is None else "differ") for part in result.parts]
    console.table(rows, ("of the iteration", "agree", "of", ""))
    for part in result.parts:
        if part.first is not None:
            print(f"\n{part.kind}, first difference: {part.first.where}")
            for side, value in (("recorded", part.first.recorded), ("again", part.first.again)):
                text = value if isinstance(value, str) else repr(value)
                print(f"  {side}:\n{textwrap.indent(text, '    | ', lambda line: True)}")
    print(f"\niteration {result.step} {'is the same again' if result.same else 'differs'}")


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_string("workdir", None, "Run folder.", required=True)
    flags.DEFINE_integer(
        "step", None, "Iteration, from 0; default: the last that has a transcript.", lower_bound=0
    )
    flags.DEFINE_float("tolerance", 0.0, "Relative difference of numbers that counts as none.")


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    print(f"reading the run in {args.workdir}", flush=True)
    result = replay(args.workdir, args.step, args.tolerance)
    show(result)
    return 0 if result.same else 1


if __name__ == "__main__":
    define_flags()
    entry.run(main)
