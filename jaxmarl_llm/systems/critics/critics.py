"""The critics of a team: the texts that they read, their values of these texts, and their updates.

With IAC every agent has its own critic, which reads the agent's prompts; with MAAC one critic reads the
prompts of all agents (see `systems.actor_critic`). A critic has its own adapters on the agents' base model;
with full copies it begins as a copy of an agent.
"""

import dataclasses
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import adapters, losses, update
from jaxmarl_llm.systems.critics import value_model
from jaxmarl_llm.systems.critics.saved import SavedStates
from jaxmarl_llm.team import Member, Stack, Team
from jaxmarl_llm.utils import agent_axis
from jaxmarl_llm.utils.errors import UserError

TEAM = "team"  # name of the critic of all agents
Texts = Mapping[str, Mapping[int, np.ndarray]]  # by critic, then by number of the request or node: tokens
Value = float | np.ndarray  # of a text, or after each of its tokens (P',)


@dataclasses.dataclass(frozen=True)
class ValueLoss:
    """`losses.value_loss` of one critic, in the clipped form if ``clip`` > 0; for `value_model.train_step`.

    Values without a target, NaN, do not count.
    """

    clip: float = 0.0

    def __call__(self, values_BK, targets: tuple[jax.Array, jax.Array], used_B) -> losses.SumCount:
        targets_BX, old_BX = targets  # X: nothing, or the tokens of the text
        clipped = {"old_values_BL": old_BX, "clip": self.clip} if self.clip else {}
        mask_BX = agent_axis.along(used_B, targets_BX) & ~jnp.isnan(targets_BX)
        return losses.value_loss(values_BK[:, 0], targets_BX, mask_BX, **clipped)


def build(
    team: Team, key: jax.Array, *, joint: bool, rank: int, targets: tuple[str, ...] = adapters.TARGETS
) -> Team:
    """Critics for the agents that learn, as a team: one per agent, with its name, or with ``joint`` only
    `TEAM`.

    Args:
      team: the agents with their parameters, which are not changed.
      key: random key of adapters and heads.
      joint: one critic of all agents.
      rank, targets: of adapters, see `adapters.init`.

    Raises:
      ValueError: if no agent learns, for an agent that is not a local model, or for ``joint`` with several
        models, because one tokenizer must read all prompts.
    """
    team.require_local("a critic")
    learners = [member for member in team.members if member.trainable is not None]
    if not learners:
        raise UserError("no agent learns, so there is nothing for a critic to teach")
    if joint and len(team.members) > 1:
        names = [member.model_name for member in team.members]
        raise UserError(f"one critic of all agents needs one model for all, and there are {names}")
    members = []
    for i, member in enumerate(learners):
        agents = (TEAM,) if joint else member.stack.agents
        layout = member.stack.layout.for_stack(len(agents))
        stack = dataclasses.replace(member.stack, agents=agents, sampler=None, layout=layout)
        member_key = jax.random.fold_in(key, i)
        begin = functools.partial(_parameters, stack, rank, targets)
        trainable = layout.init(begin, member_key, member.base, member.trainable)
        members.append(Member(stack, member.base, trainable, member.tokenizer, member.model_name))
    return Team(tuple(members))


def _parameters(stack: Stack, rank: int, targets: tuple[str, ...], key: jax.Array, base, trainable) -> dict:
    """Build the parameters of a stack of critics.

    With adapters they begin as the base model, whatever the agents' adapters are; otherwise as copies of the
    agents.
    """
    critics = len(stack.agents)
    if stack.mode == "adapters":
        body = adapters.init(key, base, agents=critics, rank=rank, targets=targets)
    else:
        body = jax.tree.map(lambda x: jnp.array(x[:critics]), trainable)
    return value_model.with_head(body, stack.policy.config.d_model, jax.random.fold_in(key, critics))


class ValueModels(SavedStates):
    """Models that give values to texts and are saved; ``states`` are by position in ``team.members``.

    Args:
      team: stacks with the parameters that learn, which move into ``states``.
      optimizer: for one model.
      clip: of the value loss, in units of the return; 0: no clipping.
      rows: texts of a micro-batch, per part of a mesh.
      by_token: values and targets are arrays, with an entry after each token of a text.
    """

    def __init__(self, team: Team, optimizer, *, clip: float = 0.0, rows: int = 4, by_token: bool = False):
        self.team, self._optimizer, self._loss, self._rows = team, optimizer, ValueLoss(clip), rows
        self._by_token = by_token
        self.states = {
            i: update.init_state(member.trainable, optimizer, member.stack.layout)
            for i, member in enumerate(team.members)
        }
        for member in team.members:  # the states own the parameters: an update donates them
            member.trainable = jax.eval_shape(lambda tree: tree, member.trainable)

    def values(self, texts: Texts) -> dict[int, Value]:
        """Return the critic's value of each text, by the text's number."""
        values: dict[int, Value] = {}
        for i, member in self._with_texts(texts):
            numbers, padded = self._pad(member, texts)
            inputs = member.stack, member.base, self._parameters(i), padded
            values_NBK = jax.device_get(value_model.values(*inputs, **self._options(member)))
            for n, numbers_B in enumerate(numbers):
                for b, number in enumerate(numbers_B):
                    value, length = values_NBK[n, b, 0], padded.lengths_NBK[n, b, 0]
                    values[number] = value[-length:] if self._by_token else float(value)
        return values

    def _options(self, member: Member) -> dict:
        """Arguments of the functions of `value_model`."""
        return {"rows": self._rows_of(member), "by_token": self._by_token}

    def _parameters(self, i: int) -> dict:
        """Body and head of a stack's models."""
        return self.states[i].trainable

    def _with_texts(self, texts: Texts) -> list[tuple[int, Member]]:
        """The members with anything to read, by position: agents may have no turn in an iteration."""
        members = enumerate(self.team.members)
        return [(i, member) for i, member in members if any(texts.get(name) for name in member.stack.agents)]

    def _pad(self, member: Member, texts: Texts) -> tuple[list[list[int]], value_model.Texts]:
        """Numbers of the texts of each model of a member, and the texts as arrays."""
        own_texts = [texts.get(critic, {}) for critic in member.stack.agents]
        tokens = [[[ids.tolist()] for ids in by_number.values()] for by_number in own_texts]
        return [list(by_number) for by_number in own_texts], value_model.pad_texts(
            tokens, self._rows_of(member)
        )

    def _rows_of(self, member: Member) -> int:
        return self._rows * member.stack.layout.shards

    def _loss_data(
        self, member: Member, texts: Texts, old: Mapping[int, Value], targets: Mapping[int, Value]
    ):
        """Texts and data for the loss of a member's models, and ``<critic>/critic_explained``."""
        numbers, padded = self._pad(member, texts)
        shape = padded.used_NB.shape + (padded.tokens_NBKP.shape[-1:] if self._by_token else ())
        data = tuple(_by_row(numbers, values, shape) for values in (targets, old))
        named = zip(member.stack.agents, numbers, strict=True)
        explained = {
            f"{name}/critic_explained": _explained(own_numbers, old, targets)
            for name, own_numbers in named
            if own_numbers
        }
        return padded, data, explained


class Critics(ValueModels):
    """Critics that share no trained parameters with the agents, from `build`; see `ValueModels`.

    Args:
      updates: optimizer steps per iteration towards its targets, each on all of its texts.
    """

    def __init__(self, team: Team, optimizer, *, updates: int = 1, **options):
        super().__init__(team, optimizer, **options)
        self._updates = updates

    @property
    def done(self) -> int:
        """Number of iterations that the critics have learned from."""
        return int(next(iter(self.states.values())).step) // self._updates

    def learn(self, texts: Texts, old: Mapping[int, Value], targets: Mapping[int, Value]) -> dict[str, float]:
        """Update every critic towards the targets; returns metrics by critic.

        Args:
          texts: the texts as given to `values`.
          old: their values before the update, from `values`.
          targets: by number; texts without a target, and tokens with NaN, do not count in the loss.

        Critics without texts have no metrics.

        Returns:
          ``<critic>/critic_loss``, ``<critic>/critic_grad_norm``, means over the updates, and
          ``<critic>/critic_explained``, the share of the targets' variance that the old values explain:
          1 - var(y - V) / var(y).
        """
        metrics = {}
        for i, member in self._with_texts(texts):
            padded, data, explained = self._loss_data(member, texts, old, targets)
            inputs, per_update = (member.stack, self._loss, self._optimizer, member.base), []
            for _ in range(self._updates):
                step = *inputs, self.states[i], padded, data
                self.states[i], step_metrics = value_model.train_step(*step, **self._options(member))
                per_update.append(by_critic(member, step_metrics, explained))
            metrics |= explained | {
                name: float(np.mean([row[name] for row in per_update])) for name in per_update[0]
            }
        return metrics


def by_critic(
    member: Member, metrics: Mapping[str, jax.Array], explained: Mapping[str, float]
) -> dict[str, float]:
    """Metrics (N,) of a member's critics, keyed ``<critic>/critic_<name>``; only of those in ``explained``."""
    arrays = {name: jax.device_get(x_N) for name, x_N in metrics.items()}
    return {
        f"{critic}/critic_{name}": float(x_N[n])
        for n, critic in enumerate(member.stack.agents)
        for name, x_N in arrays.items()
        if f"{critic}/critic_explained" in explained
    }


def _by_row(numbers: list[list[int]], values: Mapping[int, Value], shape: tuple[int, ...]) -> np.ndarray:
    """Values at the rows of their numbers, float32 (N, B), or (N, B, P) on the right; NaN without a value."""
    rows_NBX = np.full(shape, np.nan, np.float32)
    for n, numbers_B in enumerate(numbers):
        for b, number in enumerate(numbers_B):
            if number in values:
                at = (n, b) if len(shape) == 2 else (n, b, slice(-len(values[number]), None))
                rows_NBX[at] = values[number]
    return rows_NBX


def _explained(numbers: list[int], old: Mapping[int, Value], targets: Mapping[int, Value]) -> float:
    with_target = [number for number in numbers if number in targets]
    if not with_target:
        return 0.0
    y, value = (np.hstack([values[number] for number in with_target]) for values in (targets, old))
    y, error = y[~np.isnan(y)], (y - value)[~np.isnan(y)]
    return float(1.0 - error.var() / y.var()) if y.var() > 0 else 0.0
