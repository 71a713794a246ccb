"""Evaluations of a run: on validation problems, which select the best state, and on the test problems
before and after training and at budgets.

Each split has its own random stream, folded with the number of iterations done. So every evaluation has
different samples, and no sample of the test is used to select a checkpoint.
"""

import dataclasses
import math
import pathlib
import shutil

from jaxmarl_llm import checkpoint
from jaxmarl_llm.evaluation import Evaluations, results
from jaxmarl_llm.factory import evaluations
from jaxmarl_llm.runs import begin, damaged, final_table, summaries
from jaxmarl_llm.runs.budgets import MARKS
from jaxmarl_llm.runs.seat import ALONE
from jaxmarl_llm.utils import compile_times, formats

STREAMS = {"validation": "eval", "test": "test"}  # by split: random stream of its answers
PREFIXES = {"validation": "eval", "test": "test"}  # by split: prefix of its metrics


@dataclasses.dataclass(frozen=True)
class State:
    """A state to evaluate. step: iterations done; trainables: by member of the team; memory: lessons."""

    step: int
    trainables: list
    memory: tuple


def current(run, step: int) -> State:
    """The run's current state, after ``step`` iterations."""
    return State(step, run.learner.trainables(), run.protocol_memory())


def before(run) -> None:
    """Evaluate the run's initial team on test and validation, unless training has already started.

    In the summary this is ``warm`` if the team begins from another run, whose results are reused where they
    apply, else ``before`` (the untrained team).
    """
    if run.schedule.start > 0:
        return
    place, earlier = begin.source(run.config, run.folder), {}
    if place is not None:
        earlier, rows = begin.earlier(run.config, run.folder)
        take_over(run, place, earlier, rows)
    if place is not None and run.config.warm_up.steps:
        run.summary["warm_up_seconds"] = summaries.read_json(place / "summary.json").get("seconds", 0.0)
    summaries.write_summary(run)
    name, title = ("before", "before training") if place is None else ("warm", "after the warm-up")
    if name not in earlier and run.config.eval.before:
        run.tell(f"testing the team {title} on {len(run.test_task.items)} problems ...")
        run.tell(test(run, name, title, current(run, 0)))
        run.tell(validate(run, 0))


def after(run) -> None:
    """Evaluate the last state on the test, and also the best state on validation if it is another."""
    run.tell(f"testing the trained team on {len(run.test_task.items)} problems ...")
    run.tell(test_once(run, "after", "after training", run.schedule.done))
    test_best(run)


def validate(run, step: int) -> str:
    """Evaluate on validation problems, save the state if it is the best so far; returns a line to print.

    The untrained state is not saved: the best state is always a trained one.
    """
    _, values = _measure(run, "validation", current(run, step), run.validation_items)
    if step:
        keep_best(run, values["eval/return"], step)
    return summaries.eval_line(f"validation after {step} iterations", summaries.entry(values, step, "eval"))


def keep_best(run, validation_return: float, step: int) -> None:
    """Save the state if its sampled return on validation is the best so far; NaN does not count."""
    best = run.summary.get("best", {}).get("validation_return", -math.inf)
    if validation_return > best:
        entry = {"step": step, "validation_return": validation_return}
        config = run.config.to_dict()
        run.learner.save_best(step, {"config": config, "executor": run.services.isolation, **entry})
        run.summary["best"] = entry
        summaries.write_summary(run)


def test(run, name: str, title: str, state: State, logged: bool = True) -> str:
    """Evaluate on all test problems, write the result to summary.json as ``name``; returns a line to print.

    All answers are saved in test/<name>.json and the folder beside it, as by `experiments.evaluate`.
    ``logged``: also write a row of metrics.
    """
    items = range(len(run.test_task.items))
    answers, values = _measure(run, "test", state, items, logged)
    result = summaries.entry(values, state.step, "test")
    run.summary[name] = run.summary.get(name, {}) | result if name == "best" else result
    _write(run, name, answers, state.step)
    summaries.write_summary(run)
    return summaries.eval_line(f"test {title}", result)


def test_at_budgets(run, step: int) -> list[str]:
    """Evaluate on the test at each newly reached budget; returns lines to print.

    Results are in summary.json under the budget's mark (`spending.MARKS`). Budgets reached in the same
    iteration share one evaluation, also with the end of the run.
    """
    lines = []
    for mark in run.spending.reached():
        if mark not in run.summary:
            lines.append(test_once(run, mark, f"{mark.replace('_', ' ')}, iteration {step}", step))
    return lines


def test_once(run, name: str, title: str, step: int) -> str:
    """`test` of the current state; results of the same step under another mark are reused."""
    same = [mark for mark in MARKS if run.summary.get(mark, {}).get("step") == step]
    if not same:
        return test(run, name, title, current(run, step))
    run.summary[name] = run.summary[same[0]]
    _copy_answers(run.output_folder, same[0], run.output_folder, name)
    summaries.write_summary(run)
    return summaries.eval_line(f"test {title}", run.summary[name])


def take_over(run, place: pathlib.Path, entries: dict, rows: list[dict]) -> None:
    """Reuse the test results of the run in ``place``, from which this run begins.

    ``entries`` and ``rows`` are these results, see `begin.earlier`; the answers are copied.
    """
    run.summary |= entries
    for row in rows:
        run.log(0, row)
    for name, of in {"before": "before", "warm": "after"}.items():
        if name in entries and (place / final_table.FOLDER / f"{of}.json").is_file():
            _copy_answers(place, of, run.output_folder, name)


def _copy_answers(source: pathlib.Path, name: str, target: pathlib.Path, new: str) -> None:
    """Copy the answers of an evaluation on the test from one run folder to another, under a new name."""
    source, target = source / final_table.FOLDER, target / final_table.FOLDER
    shutil.copytree(source / name, target / new, dirs_exist_ok=True)
    report = summaries.read_json(source / f"{name}.json") | {"state": new}
    formats.write(target / f"{new}.json", report)


def test_best(run) -> None:
    """Add test results to summary["best"]: those of the last state if it is the best, else of a new test."""
    best, after = run.summary.get("best"), run.summary["after"]
    if best is None:  # no validation return was a number
        return
    if best["step"] == after["step"]:
        run.summary["best"] = after | best
        summaries.write_summary(run)
        return
    run.tell(f"testing the best state on validation, of iteration {best['step']} ...")
    try:
        trainables, memory = run.learner.best_trainables(), run.protocol_memory(best["step"])
    except checkpoint.DamagedError as error:
        damaged.put_best_aside(run.folder, error)
        del run.summary["best"]
        summaries.write_summary(run)
        return
    state = State(best["step"], trainables, memory)
    run.tell(test(run, "best", f"of the best state (iteration {best['step']})", state, logged=False))


def _measure(run, split: str, state: State, items, logged: bool = True) -> tuple[Evaluations, dict]:
    """Sampled and greedy results on items of a split, and their metrics, logged at the state's step."""
    task = {"validation": run.validation_task, "test": run.test_task}[split]
    shown = run.seat.display(
        len(items),
        label=f"{split} problems",
        within=run.display,
        compiles=compile_times.of_process(),
        in_pairs=True,
    )
    with run.timer("evaluate"), shown as display:
        answers = evaluations.evaluate(
            run.config,
            run.team,
            state.trainables,
            task,
            items,
            run.config.eval.samples,
            run.key(STREAMS[split], state.step),
            step=state.step,
            memory=state.memory,
            toolbox=run.toolbox,
            sizes=run.prompt_sizes,
            items_per_batch=run.items_per_batch,
            engine=run.engine,
            alone=run.seat is ALONE,
            **evaluations.shown_in(display),
        )
    prefix = PREFIXES[split]
    values = summaries.eval_metrics(answers.sampled.summary(), answers.greedy.summary(), prefix)
    values |= {f"{prefix}/speed/{name}": value for name, value in answers.speed().items()}
    used = run.services.executor_metrics("eval_executor") | run.timer.collect()
    if logged:
        run.log(state.step, values | used)
    return answers, values


def _write(run, name: str, answers: Evaluations, step: int) -> None:
    """Write all answers of a test evaluation, and the mean return of every problem to held_out.json.

    held_out.json is for the last evaluated state; results of the best state are only in its own file.
    """
    by_mode = {mode: getattr(answers, mode) for mode in results.MODES}
    about = {"workdir": str(run.folder), "step": step, "state": name, "split": "test"}
    about |= {"seed": run.config.seed, "problems": len(run.test_task.items)}
    report = about | {mode: results.describe(each, (1,)) for mode, each in by_mode.items()}
    results.write(run.output_folder / final_table.FOLDER / f"{name}.json", by_mode, report)
    if name != "best":
        write_returns(run.output_folder, answers, step)


def write_returns(folder: pathlib.Path, answers: Evaluations, step: int) -> None:
    """Write held_out.json: the mean return of every test problem, in order, after ``step`` iterations."""
    returns = {"return": answers.sampled, "return_greedy": answers.greedy}
    per_item = {name: each.scores()["return"].tolist() for name, each in returns.items()}
    items = [samples[0].item for samples in answers.sampled.actions_BG]
    # JSON knows no NaN.
    known = {name: [x if math.isfinite(x) else None for x in values] for name, values in per_item.items()}
    formats.write(folder / "held_out.json", {"step": step, "items": items, **known}, indent=None)
