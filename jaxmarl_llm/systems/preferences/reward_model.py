"""A reward model of joint answers, learned from pairs of them.

It is a critic that reads the prompts and replies of all agents, and minimises Bradley and Terry's loss on the
scores of a pair (`losses.bradley_terry`), so that only differences between scores have a meaning.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import credit, losses
from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.systems.critics import TEAM, Critics, value_model
from jaxmarl_llm.systems.preferences.pairs import Pool
from jaxmarl_llm.update import TrainState

_fidelity = jax.jit(credit.credit_fidelity, static_argnames="num_groups")


def pair_loss(values_BK, targets, used_B) -> losses.SumCount:
    """`losses.bradley_terry` of texts (winner, loser); for `value_model.train_step`."""
    return losses.bradley_terry(values_BK[:, 0], values_BK[:, 1], mask_P=used_B)


def joint_text(turns: Iterable[Turn]) -> np.ndarray:
    """Tokens that the model reads for a joint answer: each agent's prompt and reply, concatenated."""
    return np.concatenate([part for turn in turns for part in (turn.prompt, turn.completion)])


class RewardModel:
    """A critic of joint answers with the pairs that it learns from: ``models`` of a `systems.types.System`.

    Args:
      critics: one critic of all agents, see `critics.build`; every `fit` begins with its initial parameters.
      optimizer: the critic's optimizer.
      pool: the pairs to learn from.
      batch: number of pairs in an update.
      updates: number of updates in a fit.
      rows: number of pairs in a micro-batch, per part of a mesh.
      loss: of the scores of winners and losers, as `pair_loss`.
      metric: name of the loss in the metrics.
    """

    def __init__(
        self,
        critics: Critics,
        optimizer,
        pool: Pool,
        *,
        batch: int,
        updates: int,
        rows: int = 4,
        loss: Callable = pair_loss,
        metric: str = "reward_model/loss",
    ):
        self.pool, self._critics, self._optimizer = pool, critics, optimizer
        self._batch, self._updates, self._rows = batch, updates, rows
        self._loss, self._metric = loss, metric
        self._initial = jax.device_get(critics.states)

    @property
    def states(self) -> Mapping[int, TrainState]:
        """Parameters and optimizer states of the critic, by position in its team."""
        return self._critics.states

    @states.setter
    def states(self, states: Mapping[int, TrainState]) -> None:
        self._critics.states = states

    def fit(self) -> dict[str, float]:
        """Reset the model, and train it on pairs that the pool draws for each update.

        Returns:
          ``metric``, the mean over all updates of the loss; Bradley and Terry's is log 2 if undecided.

        Raises:
          ValueError: if the pool holds no pair.
        """
        self.pool.require()
        (member,) = self._critics.team.members
        state = jax.tree.map(jnp.array, self._initial)[0]  # copies, as updates donate them
        update_losses, rows = [], self._rows * member.stack.layout.shards
        for k in range(self._updates):
            pairs = self.pool.draw(self._batch, 1 + k)
            sides = [[joint_text(side).tolist() for side in (pair.winner, pair.loser)] for pair in pairs]
            texts = value_model.pad_texts([sides], rows)
            inputs = member.stack, self._loss, self._optimizer, member.base, state, texts, ()
            state, metrics = value_model.train_step(*inputs, rows=rows)
            update_losses.append(metrics["loss"])
        self._critics.states = {0: state}
        return {self._metric: float(np.mean(jax.device_get(update_losses)))}

    def scores(self, forest: Forest) -> np.ndarray:
        """The score of every joint answer, float32 (J,)."""
        texts = {j: joint_text(forest.turns[i] for i in joint.turns) for j, joint in enumerate(forest.joints)}
        values = self.scores_of(texts)
        return np.array([values[j] for j in range(len(forest.joints))], np.float32)

    def scores_of(self, texts: Mapping[int, np.ndarray]) -> dict[int, float]:
        """The score of each text, by its number; texts are tokens as `joint_text` makes them."""
        return self._critics.values({TEAM: texts})

    @contextlib.contextmanager
    def kept_in(self, folder, keep: int) -> Iterator[None]:
        """Set the folder where `save` and `restore` keep the model, and its pool the pairs."""
        with self._critics.kept_in(folder, keep), self.pool.kept_in(folder):
            yield

    def save(self, step: int) -> None:
        """Write the model after ``step`` iterations; returns when it is written."""
        self._critics.save(step)

    def restore(self, step: int) -> None:
        """Restore the model after ``step`` iterations, and the pairs until then."""
        self._critics.restore(step)
        self.pool.restore(step)


def agreement(forest: Forest, scores_J: np.ndarray) -> dict[str, float]:
    """Measure how well the order of scores agrees with that of rewards, among joint answers to one item.

    Returns:
      ``reward_model/accuracy``, the share of pairs with different rewards whose scores are in the same order,
      and ``reward_model/correlation``, Spearman's, mean over items. Both are missing where all rewards of
      each item are equal, the latter also where all scores are equal.
    """
    totals_J, item_J = forest.totals(), np.array([joint.item for joint in forest.joints], np.int32)
    better_JJ = (totals_J[:, None] > totals_J[None]) & (item_J[:, None] == item_J[None])
    group_J = np.where(np.isnan(totals_J), -1, item_J)
    number = int(item_J.max()) + 1
    rho = float(_fidelity(scores_J, np.nan_to_num(totals_J), group_J, num_groups=number))
    metrics = {} if np.isnan(rho) else {"reward_model/correlation": rho}
    if better_JJ.any():
        right_JJ = scores_J[:, None] > scores_J[None]
        metrics["reward_model/accuracy"] = float(right_JJ[better_JJ].mean())
    return metrics
