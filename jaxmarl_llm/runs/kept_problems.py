"""Which training problems a run has: without those that its team solves more often than ``task.drop_easier_than``.

The initial team answers every training problem ``eval.samples`` times, once per run. The result is kept in
the run folder, so that a resumed run has the same problems, whatever its team has learned.
"""

import math
from collections.abc import Sequence

from jaxmarl_llm.factory import evaluations, randomness
from jaxmarl_llm.protocols import item_name
from jaxmarl_llm.runs.seat import ALONE
from jaxmarl_llm.utils import compile_times, distributed, formats
from jaxmarl_llm.utils.errors import UserError

FILE = "kept_problems.json"


def of_run(run) -> list[int]:
    """Indices of the training problems that are kept; all of them if the field is not set.

    New problems, with which the run continues because the user accepted them, are kept too.

    Raises:
      UserError: if no problem is kept, or if the file is missing in a run that has already learned.
    """
    share, items = run.config.task.drop_easier_than, run.task.items
    if share == 1:
        return list(range(len(items)))
    file = run.folder / FILE
    if not distributed.on_main(file.is_file)():
        if run.schedule.start > 0:
            raise UserError(
                f"{file} is missing: it holds which training problems task.drop_easier_than={share} has left out, and "
                "the team that decided it has learned since; put the file back, or take another --workdir"
            )
        run.tell(f"the team answers {len(items)} training problems, to leave out the easy ones ...")
        shares = measured(run)
        if distributed.is_main():
            _write(file, share, [item_name(item) for item in items], shares)
    left_out = set(distributed.on_main(formats.read)(file)["left_out"])
    kept = [i for i, item in enumerate(items) if item_name(item) not in left_out]
    if not kept:
        raise UserError(
            f"task.drop_easier_than={share}: the team solves each of the {len(items)} training problems more often, so "
            "that none is left; give a greater share, or other problems"
        )
    run.tell(f"training problems: {len(kept)} of {len(items)} are not easier than {share:g}")
    return kept


def _write(file, share: float, names: Sequence[str], shares: Sequence[float]) -> None:
    """Write how often each problem was solved (None if nothing was judged), and which ones are left out."""
    kept = set(not_easier(shares, share))
    left_out = [name for i, name in enumerate(names) if i not in kept]
    solved = {n: None if math.isnan(value) else value for n, value in zip(names, shares, strict=True)}
    formats.write(file, {"drop_easier_than": share, "left_out": left_out, "solved": solved})


def not_easier(shares: Sequence[float], share: float) -> list[int]:
    """Indices of problems solved at most as often as ``share``; NaN (nothing was judged) is kept.

    >>> not_easier([0.5, 0.75, 1.0, float("nan")], 0.75)
    [0, 1, 3]
    """
    return [i for i, solved in enumerate(shares) if not solved > share]


def measured(run) -> list[float]:
    """Mean reward of every training problem over `eval.samples` answers of the run's initial team."""
    items = range(len(run.task.items))
    shown = run.seat.display(
        len(items), label="training problems", compiles=compile_times.of_process(), in_pairs=True
    )
    with run.timer("evaluate"), shown as display:
        answers = evaluations.evaluate(
            run.config,
            run.team,
            run.learner.trainables(),
            run.task,
            items,
            run.config.eval.samples,
            randomness.stream(run.config, "easy"),
            memory=run.protocol_memory(),
            toolbox=run.toolbox,
            sizes=run.prompt_sizes,
            items_per_batch=run.items_per_batch,
            engine=run.engine,
            alone=run.seat is ALONE,
            **evaluations.shown_in(display),
        )
    return [_mean([action.total for action in row]) for row in answers.sampled.actions_BG]


def _mean(totals: Sequence[float]) -> float:
    judged = [total for total in totals if not math.isnan(total)]
    return sum(judged) / len(judged) if judged else math.nan
