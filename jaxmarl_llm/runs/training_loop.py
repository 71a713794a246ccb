"""The training loop of `experiments.train`: rollout, credit, update, again, with evaluations and checkpoints."""

import functools
import math
import pathlib
import time
from collections.abc import Callable, Sequence

from jaxmarl_llm.config import gate, workload
from jaxmarl_llm.factory import gates, rollouts, training
from jaxmarl_llm.forest import Forest, episodes
from jaxmarl_llm.forest import metrics as forest_metrics
from jaxmarl_llm.metrics import read_metrics
from jaxmarl_llm.rollout import counterfactuals, dynamic_sampling
from jaxmarl_llm.rollout.counterfactuals import SecondRollout
from jaxmarl_llm.runs import by_process, final_table, plan_table, run_evaluations, summaries
from jaxmarl_llm.runs.prefetch import RolloutPrefetch
from jaxmarl_llm.runs.run import Run
from jaxmarl_llm.runs.seat import ALONE, Seat
from jaxmarl_llm.utils import compile_times, console, distributed
from jaxmarl_llm.utils.signals import StopSignal
from jaxmarl_llm.utils.stopping import StopRequested


def rollout_of(run: Run, ids: Sequence[int], timer, step: int) -> Callable[..., Forest]:
    """`rollouts.run` on a batch of items, after ``step`` iterations.

    The returned function takes a protocol, ``trainables`` and a ``key``.
    """
    config = run.config
    return functools.partial(
        rollouts.run,
        team=run.team,
        scorer=run.scorer,
        item_ids=ids,
        params=training.sampling_params(config),
        max_prompt_tokens=config.sampling.max_prompt_tokens,
        long_prompts=config.sampling.long_prompts,
        prompt_sizes=run.prompt_sizes,
        timer=timer,
        engine=run.engine,
        step=step,
        parts=config.train.rollout_parts,
    )


def draw_once(run: Run, step: int, trainables, timer, number: int = 0) -> Forest:
    """Judged answers of the team to an iteration's batch of items, with counterfactuals if configured.

    ``number`` 1 and more are further draws, with other items and keys.
    """
    config, ids = run.config, run.draw_ids(step, number)
    rollout, (key, counterfactual_key) = rollout_of(run, ids, timer, step), run.draw_keys(step, number)
    forest = rollout(run.protocol, trainables=trainables, key=key, journal=run.journal(ids, step, number))
    if not config.train.counterfactual:
        return forest
    references = [member.reference for member in run.team.members]
    second = SecondRollout(rollout, run.protocol, trainables, counterfactual_key, references, key)
    with timer("counterfactual"):
        return counterfactuals.with_counterfactuals(forest, config.train.counterfactual, run.scorer, second)


def draw(run: Run, step: int, trainables, timer) -> Forest:
    """`draw_once`, with at most ``train.redraw`` further draws while problems have no learning signal."""
    one_draw = functools.partial(draw_once, run, step, trainables, timer)
    most = run.config.train.redraw
    return dynamic_sampling.with_signal(one_draw, run.learner.has_signal, most) if most else one_draw()


def iterate(run: Run, prefetch: RolloutPrefetch, step: int) -> dict[str, float]:
    """One iteration: rollout of a batch of items, rewards, and an update of every agent; returns the metrics.

    Some systems learn from earlier draws; then there is no forest.
    """
    started, cpu_started = time.perf_counter(), time.process_time()
    drawn = workload.draws(run.config, step)
    forest = prefetch.take(step, run.learner.trainables(), run.timer) if drawn else None
    if run.schedule.may_overlap(step + 1):
        prefetch.begin(step + 1, run.learner.trainables())
    with run.timer("credit"):
        credit = run.seat.alone(run.learner.assign, forest)
    metrics = credit.metrics()
    with run.timer("update"):
        metrics |= run.learner.update(credit)
    if all(map(math.isfinite, metrics.values())):  # otherwise nothing may change
        with run.timer("learn"):
            metrics |= run.seat.alone(run.learner.learn, credit)
    if drawn:
        metrics |= forest_metrics.reward_metrics(forest, run.task) | forest_metrics.length_metrics(forest)
        if gate.of(run.config):
            metrics |= episodes.metrics(forest) | gates.metrics(run.config)
        if run.config.train.redraw:
            signal_P = credit.has_signal(run.learner.learners)
            metrics |= forest_metrics.redraw_metrics(forest, signal_P, run.task)
        run.write_transcripts(step, forest, credit)
    seconds = time.perf_counter() - started
    tokens = forest_metrics.tokens(forest) if drawn else 0
    metrics |= {"seconds": seconds, "cpu_seconds": time.process_time() - cpu_started}
    metrics |= {"tokens_per_s": tokens / seconds} | run.spending.add(forest, credit)
    metrics |= run.services.executor_metrics() | run.services.expert_metrics() | run.engine.metrics()
    metrics |= run.timer.collect()
    return metrics | by_process.metrics(metrics)


def run_to_end(
    config, workdir, accept_changes: bool, write_report: Callable[[pathlib.Path], None], seat: Seat = ALONE
) -> dict:
    """Run or resume the training in ``workdir``; arguments as in `train.train`.

    Returns the summary, {} if it was stopped. With ``log.report``, ``write_report`` is called with the run
    folder at the end.
    """
    first = "flag" if distributed.is_distributed() else "request"
    with seat.stop_signal(first) as stop, Run(config, workdir, accept_changes, seat) as run:
        stop.rescue = run.save_completed
        try:
            with RolloutPrefetch(functools.partial(draw, run)) as prefetch:
                summary = iterations(run, prefetch, stop)
                if summary and config.log.report and distributed.is_main():
                    seat.alone(write_report, run.folder)
                return summary
        except StopRequested:
            stop.take()
            seat.tell(run.save_completed()[0])
            return {}


def iterations(run: Run, prefetch: RolloutPrefetch, stop: StopSignal) -> dict:
    """The training loop, with evaluations and checkpoints; returns the summary, {} if it was stopped."""
    config = run.config
    title, stream = f"Training in {run.folder}", run.seat.plan_stream
    console.table(run.plan(), ("one iteration", ""), title=title, stream=stream)
    run_evaluations.before(run)
    steps, compiles, slow = config.train.steps, compile_times.of_process(), by_process.SlowHosts()
    with run.seat.display(steps, done=run.schedule.start, compiles=compiles) as display:
        run.display = display
        for step in run.steps_left():
            with run.saved_on_error(step):
                if run.schedule.due(config.eval.every, step):
                    display.print(run_evaluations.validate(run, step))
                metrics = iterate(run, prefetch, step)
            run.log(step, metrics)
            total = run.spending.expected_steps(step + 1, config.train.steps)
            display.update(step + 1, summaries.headline(metrics, run.team.agents), total)
            if line := slow.line(metrics):
                display.print(line)
            run.check_finite(step, metrics)
            for line in run_evaluations.test_at_budgets(run, step + 1):
                display.print(line)
            run.complete(step + 1)
            stopping = distributed.any_process(stop.requested)
            if stopping:
                stop.take()
            if run.schedule.due(config.save.every, step + 1) or stopping:
                run.save(step + 1)
            if stopping:
                display.print(f"stopped after iteration {step + 1}; the same command resumes")
                return {}
    run.display = None
    return finish(run)


def finish(run: Run) -> dict:
    """Save, evaluate on validation and test, print the results, plot the curve; returns the summary."""
    run.save(run.schedule.done)
    run.tell(run_evaluations.validate(run, run.schedule.done))
    run_evaluations.after(run)
    states, own = run.learner.states, run.learner.own_states
    if used := plan_table.used(run.config, run.team, states, own, run.seat.seeds):
        run.summary["memory"] = used
        summaries.write_summary(run)
    final_table.show(run.summary, run.output_folder)
    rows = read_metrics(run.output_folder)
    from jaxmarl_llm import (
        plots,  # imports matplotlib, which would delay the first iteration
    )

    path = run.output_folder / "plots" / "learning_curve.png"
    picture = run.seat.alone(plots.learning_curve, rows, path)
    duration = summaries.minutes(run.summary)
    print(f"{duration}; summary.json, transcripts and {picture.name} in {run.output_folder}", flush=True)
    return run.summary
