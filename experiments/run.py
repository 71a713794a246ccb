"""Everything a training run holds open: executor, team, states, files. The algorithm itself is in train.py."""

import contextlib
import json
import math
import pathlib
import signal

import jax

from experiments import closing, setup
from jaxmarl_llm import evaluation, files, forest_metrics, metrics, records, run_checks, update
from jaxmarl_llm.checkpoint import Checkpointer
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.transcripts import TranscriptWriter


class StopSignal:
    """Turns the first SIGTERM or Ctrl-C into a request to stop after the current iteration; a second one interrupts."""

    def __init__(self):
        self.requested = False
        self._before = {}

    def _handle(self, number, frame):
        del frame
        if self.requested:
            signal.signal(number, signal.SIG_DFL)
            raise KeyboardInterrupt
        self.requested = True
        print("stopping after this iteration (once more to stop at once)", flush=True)

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class Run:
    """A run folder and what works on it.

    ``start`` is the first iteration to do. Entering opens everything in the order that lets errors come early: the config
    against the folder, the sandbox, the data, the prompts, then the models.
    """

    def __init__(self, config, workdir):
        self.config = config
        self.folder = pathlib.Path(workdir)
        self.timer = metrics.PhaseTimer()
        self.team = self.task = self.eval_task = None
        self.states: dict[int, update.TrainState] = {}
        self.start = 0
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Run":
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception) -> None:
        self._stack.close()

    def _open(self, stack: contextlib.ExitStack) -> None:
        config = self.config
        saved = self.folder / "config.json"
        if saved.is_file():
            run_checks.check_same_run(json.loads(saved.read_text()), config.to_dict())
        run_checks.ensure_writable(self.folder)
        executor = stack.enter_context(setup.build_executor(config))
        self.task = setup.build_task(config, executor, "train")
        self.eval_task = setup.build_task(config, executor, "eval")
        self.team = setup.build_team(config)
        setup.check_prompts(config, self.team, self.task, self.eval_task)
        self._optimizer, self._loss = setup.build_optimizer(config), setup.loss_config(config)
        learners = [(i, m) for i, m in enumerate(self.team.members) if m.trainable is not None]
        self.states = {i: update.init_state(m.trainable, self._optimizer) for i, m in learners}
        run_checks.ensure_writable(self.folder, run_checks.needed_bytes(self.states, config.save.keep))
        self._checkpoints = stack.enter_context(Checkpointer(self.folder / "checkpoints", config.save.keep))
        if self._checkpoints.latest() is not None:
            self.states, meta = self._checkpoints.restore("latest", self.team, self.states)
            self.start = meta["step"]
        self._forget_initial_parameters()
        self.summary = closing.read_summary(self.folder, before_step=self.start)
        files.atomic_write_text(saved, json.dumps(config.to_dict(), indent=2) + "\n")
        wandb = {"project": config.log.wandb_project} if config.log.wandb_project else None
        self._metrics = stack.enter_context(
            metrics.MetricsWriter(self.folder, config.log.tensorboard, wandb, resume_step=self.start)
        )
        self._transcripts = TranscriptWriter(self.folder)

    def _forget_initial_parameters(self) -> None:
        # The states own the parameters from here on (they are donated at every update).
        for i in self.states:
            member = self.team.members[i]
            member.trainable = jax.eval_shape(lambda tree: tree, member.trainable)

    def trainables(self) -> list:
        """Current parameters of every member of the team, None where frozen."""
        return [self.states[i].trainable if i in self.states else None for i in range(len(self.team.members))]

    def key(self, stream: str, step: int) -> jax.Array:
        """Random key of a named stream at an iteration."""
        return jax.random.fold_in(setup.stream(self.config, stream), step)

    def due(self, every: int, step: int) -> bool:
        """Whether something done ``every`` iterations (0: never) is due after iteration ``step``; not after the last."""
        return bool(every) and (step + 1) % every == 0 and step + 1 < self.config.train.steps

    def plan(self) -> list[tuple[str, str]]:
        """What an iteration consists of and what memory it takes, as table rows."""
        return closing.plan_rows(self.config, self.team, self.task, self.states)

    def update(self, forest: Forest, advantages_R) -> dict[str, float]:
        """Let every stack learn from its turns; metrics per agent, of the first minibatch for the ratio."""
        found = {}
        for i, state in self.states.items():
            member = self.team.members[i]
            limit, pad_id = self.config.sampling.max_new_tokens, member.tokenizer.pad_id
            batch = magrpo.collate(forest, advantages_R, member.stack, limit, pad_id)
            for part in update.split_minibatches(batch, self.config.train.minibatches):
                state, new = update.train_step(
                    member.stack, self._loss, self._optimizer, member.base, state, part
                )
                named = forest_metrics.update_metrics(member.stack.agents, jax.device_get(new))
                found = named | found
            self.states[i] = state
        return found

    def log(self, step: int, values: dict[str, float]) -> None:
        """Append a row to the metrics."""
        self._metrics.write(step, values)

    def check_finite(self, step: int, values: dict[str, float]) -> None:
        """Stop with a saved state at the first number that is not finite; the update has kept the last good one."""
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if bad:
            self.save(step)
            raise FloatingPointError(
                f"iteration {step}: {', '.join(bad)} not finite; the state before it is saved in {self.folder}"
            )

    def write_transcripts(self, step: int, forest: Forest, advantages_R) -> None:
        """All joint answers of an iteration, with every agent's advantage."""
        every = self.config.log.transcripts_every
        if every and step % every == 0:
            tokenizers = {agent: self.team[agent].tokenizer for agent in self.team.agents}
            self._transcripts.write(
                step, records.joint_actions(step, forest, self.task, tokenizers, advantages_R)
            )

    def save(self, step: int) -> None:
        """Checkpoint after ``step`` iterations."""
        meta = {"config": self.config.to_dict(), "seed": self.config.seed}
        self._checkpoints.save(step, self.states, self.team, meta)

    def _evaluate(self, greedy: bool, items) -> evaluation.Evaluation:
        c = self.config
        return evaluation.evaluate(
            self.team,
            self.trainables(),
            self.eval_task,
            items,
            setup.stream(c, "eval"),
            params=setup.sampling_params(c, greedy),
            samples=1 if greedy else c.eval.samples,
            max_prompt_tokens=c.sampling.max_prompt_tokens,
            long_prompts=c.sampling.long_prompts,
        )

    def evaluate_all(self, step: int, items=None) -> dict[str, float]:
        """Sampled and greedy results on the held-out items, logged at ``step`` (iterations done)."""
        items = range(len(self.eval_task.items)) if items is None else items
        with self.timer("evaluate"):
            sampled = self._evaluate(False, items).summary()
            greedy = self._evaluate(True, items).summary()
        values = closing.eval_metrics(sampled, greedy)
        self.log(step, values | self.timer.collect())
        return values

    def evaluate_before(self) -> None:
        """Measure the untrained team, unless a resumed run has done so."""
        if "before" not in self.summary:
            print(f"evaluating the untrained team on {len(self.eval_task.items)} held-out problems ...", flush=True)
            self.summary["before"] = closing.entry(self.evaluate_all(0), 0)
            closing.write_summary(self)
            print(closing.eval_line("before training", self.summary["before"]), flush=True)

    def evaluate(self, step: int) -> str:
        """Evaluate during training, keep the best checkpoint; returns a line to print."""
        limit = self.config.eval.problems or len(self.eval_task.items)
        found = closing.entry(self.evaluate_all(step, range(min(limit, len(self.eval_task.items)))), step)
        self.keep_best(found, step)
        return closing.eval_line(f"after {step} iterations", found)

    def keep_best(self, found: dict, step: int) -> None:
        """Save the parameters if they are the best so far on the held-out items, by sampled return."""
        if found["return"] > self.summary.get("best", {}).get("return", -math.inf):
            self._checkpoints.save_best(step, self.states, self.team, {"config": self.config.to_dict(), **found})
            self.summary["best"] = found
            closing.write_summary(self)
