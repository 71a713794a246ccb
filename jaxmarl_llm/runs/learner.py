"""What learns in a run: the agents' parameters with their optimizer, the system, and their checkpoints."""

import contextlib
import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import checkpoint, resume_checks, update
from jaxmarl_llm.checkpoint import Checkpointer, DamagedError
from jaxmarl_llm.config import agent_settings, router, workload
from jaxmarl_llm.factory import protocols, systems, training
from jaxmarl_llm.forest import Forest, metrics
from jaxmarl_llm.runs import damaged
from jaxmarl_llm.systems.demonstrations import Encoded
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.tasks.judgement import is_sequential, task_ids
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.team import Team
from jaxmarl_llm.update import Rates, collate, packing
from jaxmarl_llm.update.batches import Batch
from jaxmarl_llm.utils.compiled_ahead import CompiledAhead
from jaxmarl_llm.utils.errors import UserError

COPIED_BYTES = 1 << 29  # largest states that are copied before an update
WITHOUT_REWARD = 3  # iterations: by chance, several may have only problems without a reward


def _shapes(states):
    """The states with shapes in place of arrays, on the same devices."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), states)


@jax.jit
def _copies(states):
    """Copies of the states, on the same devices."""
    return jax.tree.map(jnp.copy, states)


class Learner:
    """``states`` are of the members of the team that learn, by position; ``system`` is what they learn by,
    with train.system=sft from ``demonstrations``. ``prompt_sizes``: what their prompts are padded to, see
    `teams.prompt_sizes`; None: what each batch needs. ``train_step``: in place of `update.train_step`, see `seat`.
    ``ahead`` compiles the programs of `Sizes.ahead`; None: every program is compiled when it is called. ``task``: see
    `systems.build`.

    The states own the parameters, which are donated at every update: those of ``team`` become shapes.
    """

    def __init__(
        self,
        config,
        team: Team,
        prompt_sizes=None,
        demonstrations: Sequence[Encoded] = (),
        train_step: Callable | None = None,
        ahead: CompiledAhead | None = None,
        task: Task | None = None,
    ):
        self._ahead = ahead
        self.config, self._team, self._train_step = config, team, train_step
        self._prompt_sizes = prompt_sizes or [None] * len(team.members)
        self._optimizer, self._loss = training.build_optimizer(config), training.loss_config(config)
        self.states: dict[int, update.TrainState] = {
            i: update.init_state(member.trainable, self._optimizer, member.stack.layout)
            for i, member in enumerate(team.members)
            if member.trainable is not None
        }
        routed = config.train.system == router.SYSTEM
        if not self.states and not routed and any(member.remote for member in team.members):
            team.require_local(f"train.system={config.train.system!r}")
        self.learners = [agent for agent in team.agents if agent_settings.trainable(config, agent)]
        # A member with no agent that learns keeps its state, and is saved with the others.
        self._learning = [i for i in self.states if {*team.members[i].stack.agents} & {*self.learners}]
        self.system = systems.build(config, team, self.trainables, demonstrations, task)
        # Updates that each member had no turns for, as MALT's first agent, which prefers nothing.
        self._without_turns = dict.fromkeys(self._learning, 0)
        # Of episodes, which end in any turn: batches as if none had, so that there are few programs.
        self._turns = config.train.turns if task is not None and is_sequential(task) else 0
        self._without_reward: int | None = 0  # iterations without any reward; None once there was one
        self._changing = False  # whether the iteration has started to change states
        # While an update changes the states: copies of these, and their shardings.
        self._states_before: tuple[dict, dict] | None = None

    @property
    def own_states(self) -> dict[int, update.TrainState]:
        """States of the models that the system trains beside the agents."""
        return dict(self.system.models.states) if self.system.models is not None else {}

    def trainables(self) -> list:
        """Current parameters of every member of the team, None where frozen."""
        places = range(len(self._team.members))
        return [self.states[i].trainable if i in self.states else None for i in places]

    def assign(self, forest: Forest | None) -> Credit:
        """The credit of an iteration, which the agents learn from.

        UserError if no answer of the first `WITHOUT_REWARD` iterations had a reward.
        """
        self._changing = True
        if forest is not None and self._without_reward is not None:
            self._without_reward = self._without_reward + 1 if np.isnan(forest.totals()).all() else None
            if self._without_reward == WITHOUT_REWARD:
                names = task_ids(forest.items)
                raise UserError(
                    f"the reward returned None for every joint answer of {WITHOUT_REWARD} iterations, of the last on "
                    f"{names}: there is nothing to learn from"
                )
        return self.system.assign(forest)

    def has_signal(self, forest: Forest) -> np.ndarray:
        """Whether an agent would learn from each problem of a forest, bool (items,). Changes nothing.

        For systems that train no other models; with others the config refuses ``train.redraw``.
        """
        return self.system.assign(forest).has_signal(self.learners)

    def update(self, credit: Credit) -> dict[str, float]:
        """Update every agent that has turns; metrics of each. A number that is not finite stops it."""
        by_agent, without = {}, []
        self._keep_states()
        for i in self._learning if credit.learn else ():
            batches = self._batches(i, credit)
            if not batches:
                without.append(i)
                continue
            rows = []
            agents = self._team.members[i].stack.agents
            # Momentum and weight decay would move an agent that has no turns, such as MALT's first one.
            present = _with_completions(batches, agents)
            rates = training.rates(self.config, agents, present)
            learners = [agent for agent in self.learners if agent in present]
            pieces = [self._loss.minibatches(batch, self.config.train.minibatches) for batch in batches]
            for minibatch in [*zip(*pieces, strict=True)] * self.config.train.epochs:
                new = self._descend(i, minibatch, credit.gradients.get(i), rates)
                there = _with_completions(minibatch, agents)
                rows.append(metrics.update_metrics(agents, new, learners, there))
                if not all(map(math.isfinite, rows[-1].values())):
                    return by_agent | metrics.over_minibatches(rows)
            by_agent |= metrics.over_minibatches(rows)
        for i in without:
            self._without_turns[i] += workload.updates_per_iteration(self.config)
        return by_agent

    def _batches(self, i: int, credit: Credit) -> list[Batch]:
        """What member i learns from in an iteration; [] if its agents have no turns."""
        member, loss = self._team.members[i], self._loss
        advantages = credit.advantages if credit.token_advantages is None else credit.token_advantages
        batches = collate.of_learners(
            credit.forest,
            advantages,
            member.stack,
            loss.sampling,
            pad_id=member.tokenizer.pad_id,
            learners=self.learners,
            prompt_sizes=self._sizes(i),
            all_turns=self._turns,
            period=workload.period(self.config),
            teachers=credit.teachers,
            held_together=None if loss.given_texts else loss.held_together,
        )
        return [loss.kept(batch) for batch in batches]

    def _sizes(self, i: int):
        """What prompts of member i are padded to; None: what each batch needs."""
        sizes = self._prompt_sizes[i]
        # Given texts are packed with their prompts: another width would only be compiled again.
        return sizes.largest() if sizes and self._loss.given_texts else sizes

    def _descend(self, i: int, minibatch: Sequence[Batch], more, rates: Rates | None) -> dict:
        """One optimizer step of member i, see `update.train_step`; its metrics, arrays (N,) on the host."""
        member = self._team.members[i]
        layout = member.stack.layout
        packed = tuple(
            self._loss.pack(batch, layout.for_stack(batch.prompts_NBP.shape[0]).shards) for batch in minibatch
        )
        fixed = member.stack, self._loss, self._optimizer, member.base, self.states[i]
        others = dict(more=more, rates=rates, reference=member.reference)
        self._compile(self._sizes(i), fixed, packed, others)
        self.states[i], new = (self._train_step or update.train_step)(*fixed, packed, **others)
        return jax.device_get(new)

    def _compile(self, sizes, fixed: tuple, packed: Sequence[packing.Packed], others: dict) -> None:
        """Compile the update for prompts of all widths, if that is wanted; arguments are those of one width."""

        def of_width(width: int) -> tuple[tuple, dict]:
            empty = [np.zeros((*batch.prompts_XNDBP.shape[:-1], width), np.int32) for batch in packed]
            batches = [batch.replace(prompts_XNDBP=x) for batch, x in zip(packed, empty, strict=True)]
            return (*fixed, tuple(batches)), others

        if self._ahead and sizes:
            self._ahead(update.train_step, of_width, sizes.ahead)

    def learn(self, credit: Credit) -> dict[str, float]:
        """Update the system's own models, after the agents; metrics."""
        return self.system.learn(credit)

    def open(self, folder: pathlib.Path, stack: contextlib.ExitStack) -> int:
        """Restore the run folder's latest checkpoint; returns its number of iterations, 0 without one.

        ValueError if the disk does not have enough space for the checkpoints.
        """
        keep, models = self.config.save.keep, self.system.models
        needed = sum(resume_checks.needed_bytes(states, keep) for states in (self.states, self.own_states))
        resume_checks.ensure_writable(folder, needed)
        self._checkpoints = stack.enter_context(Checkpointer(folder / "checkpoints", keep))
        if models is not None:
            # One more: they are saved first, so the step at which the agents resume must still be among them.
            stack.enter_context(models.kept_in(folder / "system", keep + 1))
        start = self._restore(folder)
        done = workload.updates(self.config, start)
        self._without_turns = {i: done - int(self.states[i].step) for i in self._learning}
        for i in self.states:
            member = self._team.members[i]
            member.trainable = jax.eval_shape(lambda tree: tree, member.trainable)
        return start

    def _restore(self, folder: pathlib.Path) -> int:
        """Restore the last undamaged checkpoint; returns its number of iterations, 0 without one."""
        models = self.system.models
        of_agents, of_models = _shapes(self.states), _shapes(self.own_states)
        while (step := self._checkpoints.latest()) is not None:
            try:
                self.states, _ = self._checkpoints.restore(step, self._team, self.states)
                if models is not None:
                    models.restore(step)
                return step
            except DamagedError as error:
                damaged.put_aside(folder, step, error)
            # The arrays may have been donated before the damage was noticed.
            self.states = of_agents
            if of_models:
                models.states = of_models
        return 0

    def latest(self) -> int | None:
        """Number of iterations of the latest checkpoint, None without one."""
        return self._checkpoints.latest()

    def _keep_states(self) -> None:
        """Copy the states, for `as_before`: an update donates them. On accelerators this is asynchronous."""
        small = sum(x.nbytes for x in jax.tree.leaves(self.states)) <= COPIED_BYTES
        self._states_before = None
        if small and self.system.models is None:
            placed = jax.tree.map(lambda x: x.sharding, self.states)
            copied = jax.device_get if jax.default_backend() == "cpu" else _copies
            self._states_before = copied(self.states), placed

    def iteration_done(self) -> None:
        """Called when all changes of an iteration are made and logged."""
        self._changing, self._states_before = False, None

    def as_before(self) -> bool:
        """Undo what an iteration has changed so far; False if that is impossible."""
        if self._changing and self._states_before is None:
            return False
        if self._states_before is not None:
            self.states = jax.device_put(*self._states_before)
        return True

    def save(self, step: int, meta: dict) -> None:
        """Checkpoint after ``step`` iterations."""
        if self.system.models is not None:
            self.system.models.save(step)
        self._checkpoints.save(step, self.states, self._team, meta)

    def save_best(self, step: int, meta: dict) -> None:
        """Keep the agents' parameters as the best so far."""
        memory = protocols.memory_of(self.config, self.system.models)
        if memory != ():  # an empty memory is kept too
            memory.save_best(step)
        self._checkpoints.save_best(step, self.states, self._team, meta)

    def best_trainables(self) -> list:
        """The agents' parameters in the best state, for every member of the team; None where frozen."""
        self._checkpoints.wait()
        now = zip(self._team.members, self.trainables(), strict=True)
        team = Team(tuple(dataclasses.replace(member, trainable=mine) for member, mine in now))
        best, _ = checkpoint.restore_team(self._checkpoints.folder, checkpoint.BEST, team)
        return [member.trainable for member in best.members]

    def untouched(self, step: int) -> bool:
        """Whether no update has been made since iteration ``step``."""
        done = workload.updates(self.config, step)
        leaves = [leaf for state in self.states.values() for leaf in jax.tree.leaves(state)]
        if any(leaf.is_deleted() for leaf in leaves):  # donated to an update that failed
            return False
        return all(int(self.states[i].step) + n == done for i, n in self._without_turns.items())


def _with_completions(batches: Sequence[Batch], agents: Sequence[str]) -> set[str]:
    """The agents of a stack that have tokens to learn from in its batches; a batch may be of some of them."""
    return {
        agent
        for batch in batches
        for agent, lengths_R in zip(batch.agents or agents, batch.lengths_NR, strict=True)
        if np.any(lengths_R)
    }
