"""Train a team: rollout, credit, update, again. `python -m experiments.train --config=configs/coding.py`

A run folder with a run inside is resumed, and a finished one shown; a config that contradicts it is refused.
Ctrl-C and SIGTERM save and stop.
"""

import functools
import math
import pathlib
import time

from absl import app, flags
from ml_collections import config_flags

from configs import checks
from experiments import cli, closing, joining, setup
from experiments.ahead import Ahead
from experiments.run import Run
from experiments.stop_signal import StopSignal
from jaxmarl_llm import console, forest_metrics, processes, rollout
from jaxmarl_llm.forest import Forest

_CONFIG = config_flags.DEFINE_config_file("config", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", "", "Run folder; empty: a new folder under runs/.")


def draw(run: Run, step: int, trainables, timer) -> Forest:
    """Answers of the team to an iteration's batch of items, judged."""
    config = run.config
    return rollout.run(
        run.protocol,
        run.team,
        trainables,
        run.scorer,
        setup.batch_ids(config, run.task.items, step),
        run.key("rollout", step),
        params=setup.sampling_params(config),
        max_prompt_tokens=config.sampling.max_prompt_tokens,
        long_prompts=config.sampling.long_prompts,
        timer=timer,
    )


def iterate(run: Run, ahead: Ahead, step: int) -> dict[str, float]:
    """One iteration: the team answers a batch of items, is judged, and every agent learns. Its metrics."""
    started = time.perf_counter()
    forest = ahead.take(step, run.trainables(), run.timer)
    if run.may_overlap(step + 1):
        ahead.begin(step + 1, run.trainables())
    with run.timer("credit"):
        lesson = run.system.lesson(forest)
    metrics = forest_metrics.reward_metrics(forest, run.task) | lesson.metrics()
    with run.timer("update"):
        metrics |= run.update(lesson)
    if all(map(math.isfinite, metrics.values())):  # else nothing is to change any more
        with run.timer("learn"):
            metrics |= run.system.learn(lesson)
    run.write_transcripts(step, lesson)
    seconds = time.perf_counter() - started
    metrics |= {"seconds": seconds, "tokens_per_s": forest_metrics.tokens(forest) / seconds}
    return metrics | run.executor_metrics() | run.expert_metrics() | run.timer.collect()


def train(config, workdir: str) -> dict:
    """Run or resume the training in ``workdir``; returns the summary that is written there."""
    checks.validate(config)
    if finished := closing.finished(config, workdir):
        return finished
    with StopSignal() as stop, Run(config, workdir) as run, Ahead(functools.partial(draw, run)) as ahead:
        console.table(run.plan(), ("one iteration", ""), title=f"Training in {run.folder}")
        run.evaluate_before()
        with console.ProgressDisplay(config.train.steps, done=run.start) as display:
            for step in run.steps_left():
                with run.saved_on_error(step):
                    if run.due(config.eval.every, step):
                        display.print(run.evaluate(step))
                    metrics = iterate(run, ahead, step)
                run.log(step, metrics)
                display.update(step + 1, closing.headline(metrics, run.team.agents))
                run.check_finite(step, metrics)
                stopping = processes.any_says(stop.requested)
                if run.due(config.save.every, step + 1) or stopping:
                    run.save(step + 1)
                if stopping:
                    display.print(f"stopped after iteration {step + 1}; the same command resumes")
                    return {}
        return closing.finish(run)


def main(argv):
    """Command line entry."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}")
    with joining.joined():
        workdir = pathlib.Path(_WORKDIR.value or processes.by_first(setup.new_workdir)())
        with joining.spoken_by_first(processes.own_folder(workdir)):
            train(_CONFIG.value, workdir)


if __name__ == "__main__":
    flags.mark_flag_as_required("config")
    joining.define_flags()
    cli.run(main)
