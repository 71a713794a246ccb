"""The open resources of a training run: services, tasks, team, learner, files. The loop is in train.py."""

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
    """A run folder and the objects that work on it.

    Entering opens everything in an order that raises errors early: config compared with the folder, sandbox,
    data, models, prompts, checkpoint. Results of an earlier process after ``schedule.start`` are dropped and
    computed again. If problems, models or user code have changed since the run began, this is an error; with
    ``accept_changes`` the change is recorded instead, see `inputs`.

    Attributes:
      services: executor and experts.
      engine: samples the completions of training and evaluations.
      task, validation_task, test_task: the problems of the three splits.
      toolbox: the tools that agents may call before they answer, None for none.
      team, learner, protocol, scorer: the agents, how they learn, who answers when, how answers are judged.
      schedule, spending, summary: iterations, budgets, the content of summary.json.
      output_folder: folder of metrics, transcripts and summary: the run's, or a subfolder per process.
      seat: the run's seat among runs that are trained at the same time.
      display: the progress bar, while the training runs.
      completed: number of iterations that are done, logged and evaluated.
    """

    def __init__(self, config, workdir, accept_changes: bool = False, seat: Seat = ALONE):
        self.config, self._given_date = chat_options.dated(config, workdir), config.model_options.date
        self.folder, self._accept_changes = pathlib.Path(workdir), accept_changes
        self.output_folder, self.seat = distributed.own_folder(self.folder), seat
        self.timer = metrics.PhaseTimer()
        self.schedule = Schedule(config)
        self.display: console.ProgressDisplay | None = None
        self.completed = 0
        # Several seeds use programs of their own, which are compiled when first called.
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
        """Check that the folder holds no other run, is writable, and is not used by another process."""
        if saved := saved_config.in_folder(self.folder):
            resume_checks.check_same_run(saved, self.config.to_dict(), self.folder)
        resume_checks.ensure_writable(self.folder)
        distributed.on_main(self._hold)(stack)  # the first process of a run locks it for all

    def _hold(self, stack: contextlib.ExitStack) -> None:
        stack.enter_context(lock.held(self.folder))

    def _open_tasks(self, stack: contextlib.ExitStack) -> None:
        """Open executor and expert, and load the problems of all splits."""
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
        """Build the initial agents and the widths of their prompts."""
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
        """The progress bar of ``programs`` compiled ahead, below that of the training."""
        options = dict(within=self.display, compiles=compile_times.of_process())
        return console.ProgressDisplay(programs, label="prompt width", **options)

    def _check_inputs(self) -> tuple[dict[str, str], list[str], list[str]]:
        """Fingerprints of problems, models and the user's code; sentences about an earlier version's config
        that no longer holds (`saved_config.no_longer_in`); and the changes of the inputs.
        """
        of_splits = {"train": self.task, "eval": self.validation_task, "test": self.test_task}
        now = inputs.of_run(self.config, of_splits, self.team, self.toolbox)
        no_longer = saved_config.no_longer_in(self.folder)
        return now, no_longer, inputs.check(self.folder, now, self._accept_changes)

    def _open_learner(self, stack: contextlib.ExitStack) -> None:
        """Build the learner, restored from the latest checkpoint, the scorer and the protocol."""
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
        # One size for all evaluations, so that those on fewer problems use the same program.
        rows = evaluations.rows_per_batch(config, self.team, held, seeds=self.seat.seeds)
        self.items_per_batch = evaluation.batch_size(len(self.test_task.items), config.eval.samples, rows)
        if self.schedule.start > config.train.steps:
            raise UserError(
                f"train.steps={config.train.steps}: the run in {self.folder} has done {self.schedule.start} already"
            )

    def _open_files(self, stack: contextlib.ExitStack) -> None:
        """Open or write config.json, the summary, metrics and transcripts."""
        config, start = self.config, self.schedule.start
        self.summary = resumed_summary.read_summary(self.folder, start) | {
            "executor": self.services.isolation
        }
        # Do this before the changes are recorded: a kill in between then leaves no mixed results.
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
        """The run's memory for its protocol (`protocols.memory_of`), now or at its best state."""
        if best_step is not None:
            return protocols.saved_memory(self.config, self.folder, best_step, self.team)
        return protocols.memory_of(self.config, self.learner.system.models)

    def journal(self, ids: Sequence[int], step: int, number: int = 0) -> Journal | None:
        """The journal of the rounds of an iteration's draw on these items, see `journals`."""
        count = self.services.account.take
        return journals.of_draw(self.config, self.folder, self.task, ids, step, number, count)

    def key(self, stream: str, step: int) -> jax.Array:
        """Random key of a named stream at an iteration."""
        return jax.random.fold_in(randomness.stream(self.config, stream), step)

    def draw_ids(self, step: int, number: int = 0) -> list[int]:
        """Items of an iteration's draw (`randomness.draw_ids`), among those that `kept_problems` keeps."""
        items = [self.task.items[i] for i in self._kept]
        return [self._kept[n] for n in randomness.draw_ids(self.config, items, step, number)]

    def draw_keys(self, step: int, number: int) -> tuple[jax.Array, jax.Array]:
        """Random keys of an iteration's draw and of its counterfactuals; number 0: the first draw."""
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
        """The parts of an iteration and its memory, as table rows."""
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
        """Raise FloatingPointError if a number is not finite, after saving the state before this iteration.

        A non-finite update changes nothing. If other updates of the iteration came first (several minibatches
        or stacks), the earlier state is lost, and the last checkpoint stays as it is.
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
        """Write all joint answers of an iteration, with each agent's marginal return, if known, and its
        advantage, if the update used this forest.
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
        """Save the state after ``step`` iterations if the block raises: a repaired run resumes there."""
        try:
            yield
        except Exception:
            # With several processes all must save, but the others may have ended.
            alone = not distributed.is_distributed()
            if alone and self.learner.latest() != step and self.learner.untouched(step):
                self.save(step)
            raise

    def complete(self, step: int) -> None:
        """Record that ``step`` iterations are done, logged and evaluated."""
        self.completed = step
        self.learner.iteration_done()

    def save_completed(self) -> tuple[str, int]:
        """Save the state after the completed iterations; may be called from any thread at any time.

        Returns a sentence about where the same command resumes, and an exit code.
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
