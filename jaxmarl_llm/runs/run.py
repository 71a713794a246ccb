"""Everything that a training run holds open: services, tasks, team, learner, files. The loop is in train.py."""

import contextlib
import dataclasses
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from jaxmarl_llm import evaluation, metrics, records, resume_checks
from jaxmarl_llm.config import saved as saved_config
from jaxmarl_llm.evaluation import scores
from jaxmarl_llm.factory import (
    chat_options,
    engines,
    evaluations,
    hardware,
    imitation,
    inputs,
    protocols,
    randomness,
    tasks,
    teams,
    tools,
    user_code,
)
from jaxmarl_llm.forest import Forest, marginals
from jaxmarl_llm.rollout.journal import Journal
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.runs import (
    begin,
    damaged,
    journals,
    kept_problems,
    lock,
    plan_table,
    resumed_summary,
    summaries,
)
from jaxmarl_llm.runs.budgets import Spending
from jaxmarl_llm.runs.iterations import Schedule
from jaxmarl_llm.runs.learner import Learner
from jaxmarl_llm.runs.seat import ALONE, Seat
from jaxmarl_llm.runs.services import Services
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.team import Team
from jaxmarl_llm.transcripts import TranscriptWriter
from jaxmarl_llm.utils import compile_times, console, distributed, formats
from jaxmarl_llm.utils.compiled_ahead import CompiledAhead
from jaxmarl_llm.utils.errors import NotFiniteError, UserError


class Run:
    """A run folder and what works on it.

    Entering opens everything in the order that lets errors come early: the config against the folder, the
    sandbox, the data, the models, the prompts, the checkpoint. What an earlier process did from
    ``schedule.start`` on is forgotten and done again. Problems, models or code of the user that are not those
    it began with are refused, or with ``accept_changes`` recorded, see `inputs`.

    Attributes:
      services: executor and experts.
      engine: what draws the completions of training and evaluations.
      task, validation_task, test_task: the problems of the three splits.
      toolbox: what agents may call before they answer, None for nothing.
      team, learner, protocol, scorer: who answers, how they learn, in which order, how answers are judged.
      schedule, spending, summary: iterations, budgets, what summary.json holds.
      output_folder: where metrics, transcripts and summary go: the folder, or of several processes a part of it.
      seat: its place among runs that are trained at the same time.
      display: the progress bar of the training, while it goes on.
      completed: iterations that are done, logged and evaluated.
    """

    def __init__(self, config, workdir, accept_changes: bool = False, seat: Seat = ALONE):
        self.config, self._given_date = chat_options.dated(config, workdir), config.model_options.date
        self.folder, self._accept_changes = pathlib.Path(workdir), accept_changes
        self.output_folder, self.seat = distributed.own_folder(self.folder), seat
        self.timer = metrics.PhaseTimer()
        self.schedule = Schedule(config)
        self.display: console.ProgressDisplay | None = None
        self.completed = 0
        # Several seeds call programs of their own, which are compiled as they come.
        several = bool(seat.generate or seat.train_step)
        self._ahead = CompiledAhead(self._compiling) if config.sampling.widths and not several else None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Run":
        with contextlib.ExitStack() as stack:
            with self.seat.opening():
                self._check_folder(stack)
                self.engine = stack.enter_context(engines.opened(self.config, self.folder, self._ahead))
                self._open_tasks(stack)
                self._open_team()
                self._inputs, self._no_longer, self._changes = distributed.on_main(self._check_inputs)()
                self._open_learner(stack)
                self._open_files(stack)
            self._kept = kept_problems.of_run(self)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception) -> None:
        self._stack.close()
        journals.forget(self.folder)

    def _check_folder(self, stack: contextlib.ExitStack) -> None:
        """The folder holds no other run, can be written, and is no other process's."""
        if saved := saved_config.in_folder(self.folder):
            resume_checks.check_same_run(saved, self.config.to_dict(), self.folder)
        resume_checks.ensure_writable(self.folder)
        distributed.on_main(self._hold)(stack)  # of several processes of one run the first holds it for all

    def _hold(self, stack: contextlib.ExitStack) -> None:
        stack.enter_context(lock.held(self.folder))

    def _open_tasks(self, stack: contextlib.ExitStack) -> None:
        """Executor, expert, and the problems of all splits."""
        config, saved = self.config, damaged.latest_meta(self.folder)
        self.services = Services(config, self.folder, saved, stack)
        user_code.check(config)
        self.services.open_expert()
        executor, expert = self.services.executor, self.services.expert
        self.task = tasks.build_task(config, executor, "train", expert)
        self.validation_task = tasks.build_task(config, executor, "eval", expert)
        self.test_task = tasks.build_task(config, executor, "test", expert)
        self.toolbox = stack.enter_context(tools.opened(config, executor, self.task))
        tasks.check_splits(config, {"train": self.task, "eval": self.validation_task, "test": self.test_task})
        self.validation_items = scores.spread(len(self.validation_task.items), config.eval.problems)

    def _open_team(self) -> None:
        """The agents as they begin, and the widths of their prompts."""
        config, every_task = self.config, (self.task, self.validation_task, self.test_task)
        hardware.prepare(config)
        print("\n".join(hardware.lines(config)), flush=True)
        speakers = self.services.open_speakers([item for task in every_task for item in task.items])
        team = teams.build_team(config, speakers=speakers, read=self.seat.read_model)
        team = begin.begun(config, team, self.folder)
        members = [dataclasses.replace(member, generate=self.seat.generate) for member in team.members]
        self.team = Team(tuple(members))
        self.services.count(self.team)
        if not chat_options.date_matters(config, self.team):
            config.model_options.date = self._given_date
        self.prompt_sizes = teams.prompt_sizes(config, self.team, every_task, self.toolbox)
        teams.warn_of_next_prompts(config, self.team, *every_task, toolbox=self.toolbox)
        for line in plan_table.widths(self.prompt_sizes, self.team, self._ahead is not None):
            self.tell(line)

    def _compiling(self, programs: int) -> console.ProgressDisplay:
        """The progress bar of so many programs that are compiled ahead, below that of the training."""
        options = dict(within=self.display, compiles=compile_times.of_process())
        return console.ProgressDisplay(programs, label="prompt width", **options)

    def _check_inputs(self) -> tuple[dict[str, str], list[str], list[str]]:
        """Fingerprints of problems, models and the user's code; what the config of an earlier version stood for
        and is no longer so; and how the inputs have changed.
        """
        of_splits = {"train": self.task, "eval": self.validation_task, "test": self.test_task}
        now = inputs.of_run(self.config, of_splits, self.team, self.toolbox)
        no_longer = saved_config.no_longer_in(self.folder)
        return now, no_longer, inputs.check(self.folder, now, self._accept_changes)

    def _open_learner(self, stack: contextlib.ExitStack) -> None:
        """What learns, at the state of the latest checkpoint; scorer and protocol."""
        config = self.config
        combined = config.train.joint_mode, config.train.partner_samples
        self.scorer = TaskScorer.of_team(self.task, self.team, *combined)
        demonstrations = imitation.load(config, self.task, self.team)
        self.learner = Learner(
            config,
            self.team,
            self.prompt_sizes,
            demonstrations,
            self.seat.train_step,
            self._ahead,
            self.task,
        )
        self.schedule = Schedule(config, self.learner.open(self.folder, stack))
        self.completed = self.schedule.start
        options = dict(memory=self.protocol_memory(), toolbox=self.toolbox)
        self.protocol = protocols.build(config, self.task, self.team, **options)
        fixed = [(member.base, member.reference) for member in self.team.members]
        held = fixed, self.learner.states, self.learner.own_states
        # Of all evaluations, so that those on fewer problems run the same program.
        rows = evaluations.rows_per_batch(config, self.team, held, seeds=self.seat.seeds)
        self.items_per_batch = evaluation.batch_size(len(self.test_task.items), config.eval.samples, rows)
        if self.schedule.start > config.train.steps:
            raise UserError(
                f"train.steps={config.train.steps}: the run in {self.folder} has done {self.schedule.start} already"
            )

    def _open_files(self, stack: contextlib.ExitStack) -> None:
        """config.json, the summary, metrics and transcripts."""
        config, start = self.config, self.schedule.start
        self.summary = resumed_summary.read_summary(self.folder, start) | {
            "executor": self.services.isolation
        }
        # Before the changes count as accepted: a kill in between leaves no results of two kinds.
        resumed_summary.forget_measured_otherwise(self, self._changes)
        if distributed.is_main():
            formats.write(self.folder / "config.json", config.to_dict())
            inputs.keep(self.folder, self._inputs, start, [*self._no_longer, *self._changes])
        project = config.log.wandb_project
        options = dict(tensorboard=config.log.tensorboard, wandb={"project": project} if project else None)
        options = options if distributed.is_main() else {"tensorboard": False}
        writer = metrics.MetricsWriter(self.output_folder, resume_step=start, **options)
        self._metrics = stack.enter_context(writer)
        rows = metrics.read_metrics(self.output_folder) if start else []
        self.spending = Spending(config, self.learner.learners, rows)
        self._transcripts = TranscriptWriter(self.output_folder)

    def protocol_memory(self, best_step: int | None = None) -> Any:
        """What the run has learned for its protocol (`protocols.memory_of`), now or as its best state had it."""
        if best_step is not None:
            return protocols.saved_memory(self.config, self.folder, best_step, self.team)
        return protocols.memory_of(self.config, self.learner.system.models)

    def journal(self, ids: Sequence[int], step: int, number: int = 0) -> Journal | None:
        """Where the rounds of a draw of an iteration about these items are kept, see `journals`."""
        count = self.services.account.take
        return journals.of_draw(self.config, self.folder, self.task, ids, step, number, count)

    def key(self, stream: str, step: int) -> jax.Array:
        """Random key of a named stream at an iteration."""
        return jax.random.fold_in(randomness.stream(self.config, stream), step)

    def draw_ids(self, step: int, number: int = 0) -> list[int]:
        """Items of a draw of an iteration, see `randomness.draw_ids`, among those that `kept_problems` leaves."""
        items = [self.task.items[i] for i in self._kept]
        return [self._kept[n] for n in randomness.draw_ids(self.config, items, step, number)]

    def draw_keys(self, step: int, number: int) -> tuple[jax.Array, jax.Array]:
        """Random keys of a draw of an iteration, and of its counterfactuals; number 0: the first draw."""
        if number == 0:
            return self.key("rollout", step), self.key("counterfactual", step)
        rollout_key, counterfactual_key = jax.random.split(
            jax.random.fold_in(self.key("redraw", step), number)
        )
        return rollout_key, counterfactual_key

    def steps_left(self) -> Iterator[int]:
        """Iterations to do, see `Schedule.steps_left`."""
        return self.schedule.steps_left(self.spending.over, lambda: summaries.seconds(self.summary))

    def plan(self) -> list[tuple[str, str]]:
        """What an iteration consists of and what memory it takes, as table rows."""
        own = self.learner.own_states
        states, seeds = self.learner.states, self.seat.seeds
        return plan_table.plan_rows(self.config, self.team, self.task, states, own, seeds)

    def tell(self, line: str) -> None:
        """Print a line, above the progress bar if there is one."""
        (self.display.print if self.display else self.seat.tell)(line)

    def log(self, step: int, values: dict[str, float]) -> None:
        """Append a row to the metrics."""
        self._metrics.write(step, values)

    def check_finite(self, step: int, values: dict[str, float]) -> None:
        """Raise FloatingPointError at the first number that is not finite, with the state before it saved.

        An update that is not finite changes nothing. Where others of the same iteration came first (several
        minibatches or stacks), there is no such state any more, and the last checkpoint stays as it is.
        """
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if not bad:
            return
        if self.learner.untouched(step):
            self.save(step)
        kept = self.learner.latest()
        where = "nothing is saved yet" if kept is None else f"the state after {kept} iterations is saved"
        raise NotFiniteError(f"iteration {step + 1}: {', '.join(bad)} not finite; {where} in {self.folder}")

    def write_transcripts(self, step: int, forest: Forest, credit: Credit) -> None:
        """All joint answers of an iteration, with every agent's marginal where known, and its advantage if
        that is what was learned.
        """
        every = self.config.log.transcripts_every
        if every and step % every == 0:
            tokenizers = {agent: self.team[agent].tokenizer for agent in self.team.agents}
            advantages = credit.advantages if credit.forest is forest else None
            worth_NJ = marginals.marginals(forest)
            actions = records.joint_actions(
                step, forest, self.task, tokenizers, advantages, worth_NJ, self.config.log.transcript_tokens
            )
            self._transcripts.write(step, actions)

    @contextlib.contextmanager
    def saved_on_error(self, step: int):
        """Save the state after ``step`` iterations if what comes next raises: a mended run goes on there."""
        try:
            yield
        except Exception:
            # Of several processes the others may be gone, and all of them must save.
            alone = not distributed.is_distributed()
            if alone and self.learner.latest() != step and self.learner.untouched(step):
                self.save(step)
            raise

    def complete(self, step: int) -> None:
        """``step`` iterations are done, logged and evaluated."""
        self.completed = step
        self.learner.iteration_done()

    def save_completed(self) -> tuple[str, int]:
        """Save the state after the iterations that are complete, from any thread and at any moment.

        Returns a sentence about where the same command goes on, and an exit code.
        """
        latest = self.learner.latest() or 0
        if latest < self.completed and self.learner.as_before():
            self.save(self.completed)
            latest = self.learner.latest() or 0
        if not latest:
            return "stopped before the first checkpoint; the same command begins again", 0
        return f"stopped after iteration {latest}; the same command resumes", 0

    def save(self, step: int) -> None:
        """Checkpoint after ``step`` iterations."""
        meta = {"config": self.config.to_dict(), "seed": self.config.seed, **self.services.metadata()}
        self.learner.save(step, meta)
