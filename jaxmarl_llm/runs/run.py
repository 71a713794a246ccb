"""Everything a training run holds open: executor, team, learner, files. The algorithm is in train.py."""

import contextlib
import dataclasses
import json
import math
import pathlib
from collections.abc import Iterator, Sequence

import jax

from jaxmarl_llm import checkpoint, evaluation, metrics, records, resume_checks
from jaxmarl_llm.evaluation import scores
from jaxmarl_llm.experts import Spent
from jaxmarl_llm.factory import (
    chat_options,
    experts,
    imitation,
    protocols,
    randomness,
    tasks,
    teams,
    user_code,
)
from jaxmarl_llm.forest import Forest, marginals
from jaxmarl_llm.protocols.lessons.bank import Entry
from jaxmarl_llm.rollout.journal import Journal
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.runs import begin, journals, plan_table, run_evaluations, summaries
from jaxmarl_llm.runs.budgets import Spending
from jaxmarl_llm.runs.learner import Learner
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.transcripts import TranscriptWriter
from jaxmarl_llm.utils import console, distributed, files
from jaxmarl_llm.utils.errors import NotFiniteError, UserError


class Run:
    """A run folder and what works on it.

    ``start`` is the first iteration to do; what an earlier process did from there on is forgotten and done
    again. ``done`` counts the iterations behind. Entering opens everything in the order that lets errors
    come early: the config against the folder, the sandbox, the data, the models, the prompts, the checkpoint.
    ``output_folder`` is where metrics, transcripts and summary go: the folder, or of several processes a part of it.
    """

    def __init__(self, config, workdir):
        self.config, self._given_date = chat_options.dated(config, workdir), config.model_options.date
        self.folder = pathlib.Path(workdir)
        self.output_folder = distributed.own_folder(self.folder)
        self.timer = metrics.PhaseTimer()
        self.team = self.task = self.validation_task = self.test_task = None
        self.start = self.done = 0
        self.display: console.ProgressDisplay | None = None  # of the training, while it goes on
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Run":
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception) -> None:
        self._stack.close()
        journals.forget(self.folder)

    def _open(self, stack: contextlib.ExitStack) -> None:
        config = self.config
        saved = self.folder / "config.json"
        if saved.is_file():
            resume_checks.check_same_run(json.loads(saved.read_text()), config.to_dict())
        resume_checks.ensure_writable(self.folder)
        self._executor = stack.enter_context(tasks.build_executor(config))
        self.isolation = self._check_isolation(tasks.isolation(self._executor))
        user_code.check(config)
        self._expert = experts.build_expert(
            config, self.folder, Spent(**self._saved_meta().get("expert", {}))
        )
        self.task = tasks.build_task(config, self._executor, "train", self._expert)
        self.validation_task = tasks.build_task(config, self._executor, "eval", self._expert)
        self.test_task = tasks.build_task(config, self._executor, "test", self._expert)
        tasks.check_splits(config, {"train": self.task, "eval": self.validation_task, "test": self.test_task})
        every_task = self.task, self.validation_task, self.test_task
        self._speakers = experts.build(
            config,
            [item for task in every_task for item in task.items],
            self.folder,
            self._saved_meta().get("speakers", {}),
        )
        self.team = begin.begun(config, teams.build_team(config, speakers=self._speakers), self.folder)
        if not chat_options.date_matters(config, self.team):
            config.model_options.date = self._given_date
        self._account = experts.Account(self._speakers, self.team)
        teams.check_prompts(config, self.team, *every_task)
        self.validation_items = scores.spread(len(self.validation_task.items), config.eval.problems)
        self.prompt_sizes = teams.prompt_sizes(config, self.team, every_task)
        # Of all evaluations, so that those on fewer problems run the same program.
        self.items_per_batch = evaluation.batch_size(len(self.test_task.items), config.eval.samples)
        combined = config.train.joint_mode, config.train.partner_samples
        self.scorer = TaskScorer.of_team(self.task, self.team, *combined)
        demonstrations = imitation.load(config, self.task, self.team)
        self.learner = Learner(config, self.team, self.prompt_sizes, demonstrations)
        self.start = self.learner.open(self.folder, stack)
        self.protocol = protocols.build(config, self.task, self.team, memory=self.memory())
        if self.start > config.train.steps:
            raise UserError(
                f"train.steps={config.train.steps}: the run in {self.folder} has done {self.start} already"
            )
        self.done = self.start
        self.summary = summaries.read_summary(self.folder, self.start) | {"executor": self.isolation}
        if distributed.is_main():
            files.atomic_write_text(saved, json.dumps(config.to_dict(), indent=2) + "\n")
        board, project = config.log.tensorboard, config.log.wandb_project
        options = dict(tensorboard=board, wandb={"project": project} if project else None)
        options = options if distributed.is_main() else {"tensorboard": False}
        self._metrics = stack.enter_context(
            metrics.MetricsWriter(self.output_folder, resume_step=self.start, **options)
        )
        rows = metrics.read_metrics(self.output_folder) if self.start else []
        self.spending = Spending(config, self.learner.learners, rows)
        self._transcripts = TranscriptWriter(self.output_folder)

    def memory(self, best_step: int | None = None) -> Sequence[Entry]:
        """Lessons of earlier problems, as they come to be, or as the best state had them at its step."""
        if best_step is not None:
            return protocols.saved_lessons(self.config, self.folder, best_step)
        return self.learner.system.models if protocols.remembers(self.config) else ()

    def _check_isolation(self, now: dict) -> dict:
        """How programs are run, with the level that the run began with; ValueError if that was higher."""
        if not now:
            return now
        first = self._saved_meta().get("executor", {}).get("first_level", now["level"])
        resume_checks.check_level(first, now["level"], str(self.folder))
        return now | {"first_level": first}

    def _saved_meta(self) -> dict:
        """What the latest checkpoint says of the run; {} if there is none."""
        place = self.folder / "checkpoints"
        return checkpoint.read_meta(place) if checkpoint.saved_steps(place) else {}

    def journal(self, ids: Sequence[int], step: int) -> Journal | None:
        """Where the rounds of an iteration about these items are kept, see `journals`."""
        return journals.of_iteration(self.config, self.folder, self.task, ids, step, self._account.take)

    def key(self, stream: str, step: int) -> jax.Array:
        """Random key of a named stream at an iteration."""
        return jax.random.fold_in(randomness.stream(self.config, stream), step)

    def steps_left(self) -> Iterator[int]:
        """Iterations to do: up to ``train.steps``, the budgets, or ``train.max_minutes`` of the whole run."""
        limit = 60 * self.config.train.max_minutes or math.inf
        while self.done < self.config.train.steps:
            late = summaries.seconds(self.summary) >= limit
            if distributed.any_process(late or self.spending.over()):
                return
            yield self.done
            self.done += 1

    def due(self, every: int, done: int) -> bool:
        """Whether what happens ``every`` iterations (0: never) is due after ``done``; not at either end."""
        return every > 0 and done % every == 0 and 0 < done < self.config.train.steps

    def may_overlap(self, step: int) -> bool:
        """Whether an iteration may be drawn for before the update before it.

        Not if a checkpoint or an evaluation comes between: a run resumed there goes on as it would have.
        """
        every = (self.config.save.every, self.config.eval.every)
        return (
            self.config.train.overlap
            and 0 < step < self.config.train.steps
            and not any(self.due(n, step) for n in every)
        )

    def plan(self) -> list[tuple[str, str]]:
        """What an iteration consists of and what memory it takes, as table rows."""
        own = self.learner.own_states
        return plan_table.plan_rows(self.config, self.team, self.task, self.learner.states, own)

    def executor_metrics(self, prefix: str = "executor") -> dict[str, float]:
        """`Executor.metrics`, keyed ``<prefix>/<name>``: of the programs since the last call."""
        if self._executor is None:
            return {}
        return {f"{prefix}/{name}": value for name, value in self._executor.metrics().items()}

    def expert_metrics(self) -> dict[str, float]:
        """What was paid for since the run began: the expert, keyed ``expert/<name>``, and remote ones."""
        found = self._account.metrics()
        if self._expert is None:
            return found
        spent = dataclasses.asdict(self._expert.spent)
        return found | {f"expert/{name}": float(n) for name, n in spent.items()}

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
            actions = records.joint_actions(step, forest, self.task, tokenizers, advantages, worth_NJ)
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

    def save(self, step: int) -> None:
        """Checkpoint after ``step`` iterations."""
        meta = {"config": self.config.to_dict(), "seed": self.config.seed, "executor": self.isolation}
        meta |= {"expert": dataclasses.asdict(self._expert.spent)} if self._expert else {}
        meta |= {"speakers": self._account.metadata()} if self._speakers else {}
        self.learner.save(step, meta)

    def evaluate_before(self) -> None:
        """Measure the team that begins on the test and on validation, unless this run has learned already.

        It is ``warm`` in the summary if it begins from another run, whose results are taken over where they
        are the same, else ``before``: the untrained one.
        """
        if self.start > 0:
            return
        place, earlier = begin.source(self.config, self.folder), {}
        if place is not None:
            earlier, rows = begin.earlier(self.config, self.folder)
            run_evaluations.take_over(self, place, earlier, rows)
        if place is not None and self.config.warm_up.steps:
            self.summary["warm_up_seconds"] = summaries.read_json(place / "summary.json").get("seconds", 0.0)
        summaries.write_summary(self)
        name, title = ("before", "before training") if place is None else ("warm", "after the warm-up")
        if name not in earlier and self.config.eval.before:
            print(f"testing the team {title} on {len(self.test_task.items)} problems ...", flush=True)
            print(run_evaluations.test(self, name, title, run_evaluations.current(self, 0)), flush=True)
            print(run_evaluations.validate(self, 0), flush=True)

    def test_after(self) -> None:
        """Measure the last state on the test, and the best one on validation if that is another."""
        print(f"testing the trained team on {len(self.test_task.items)} problems ...", flush=True)
        print(run_evaluations.test_once(self, "after", "after training", self.done), flush=True)
        run_evaluations.test_best(self)

    def evaluate(self, step: int) -> str:
        """Evaluate on validation problems, keep the state if it is the best one; returns a line to print."""
        return run_evaluations.validate(self, step)
