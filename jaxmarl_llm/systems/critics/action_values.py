"""Values of joint actions in a world: a small network over a frozen encoder, fitted to returns of episodes.

It reads what each agent sees and what each agent does as concatenated vectors. For an agent that has not
acted yet, WAIT is filled in, so that one network is Q^{1:i} for all i (ReAd, arXiv 2405.14314, which uses a
transformer):

    min E (R - Q(s, a))^2,   R = sum_k gamma^k r_(t+k)

F features, H hidden units, X pairs of a state and a joint action.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxmarl_llm import losses, update
from jaxmarl_llm.tasks.worlds.explore import called
from jaxmarl_llm.tasks.worlds.tabular import Joint
from jaxmarl_llm.tasks.worlds.types import State, World
from jaxmarl_llm.utils.errors import UserError

Encoder = Callable[[Sequence[str]], np.ndarray]
Row = tuple[State, Joint, float]  # a state, a joint action, and the return after it
Key = tuple[tuple[str, ...], Joint]  # what all agents see, and do
BATCH = 256


class ActionValues:
    """Q of a world as a function of states and joint actions.

    Args:
      world: its agents' views represent a state.
      encode: texts -> vectors, the same length for all.
      rows: the data, at least one.
      key: random key of the first parameters and of the batches.
      hidden: H, width of both layers.
      lr: learning rate of AdamW, which falls to 0 as a cosine.
      updates: number of updates, each on `BATCH` rows.
      name: of the world in errors.

    Attributes:
      metrics: ``pairs``, the number of different pairs of state and joint action in the data; ``returns``,
        the number of all rows; ``loss``, the mean squared error of Q to the returns after the last update, in
        squared units of the reward; ``spread``, the same error if all values were their mean.
    """

    def __init__(
        self,
        world: World,
        encode: Encoder,
        rows: Sequence[Row],
        key: jax.Array,
        *,
        hidden: int = 256,
        lr: float = 1e-3,
        updates: int = 3000,
        name: str = "the world",
    ):
        self._world, self._encode, self._name = world, encode, name
        self._vectors: dict[str, np.ndarray] = {}
        self._in_question: dict[Key, None] = {}
        returns: dict[Key, list[float]] = {}
        for state, joint, value in rows:
            returns.setdefault(self._key(state, joint), []).append(value)
        self._seen = frozenset(returns)
        features_XF = self._raw(list(returns))
        self._used_F = features_XF.std(0) > 0
        self._shift_F, self._scale_F = (
            features_XF[:, self._used_F].mean(0),
            features_XF[:, self._used_F].std(0),
        )
        count_X = np.array([len(values) for values in returns.values()], np.float64)
        mean_X = np.array([np.mean(values) for values in returns.values()])
        every = np.concatenate([np.array(values) for values in returns.values()])
        self._mean, self._spread = float(every.mean()), float(every.std()) or 1.0
        first, batches = jax.random.split(key)
        # Equal pairs are merged, with their mean return, and drawn in proportion to their number: same
        # expected gradient.
        columns = self._scaled(features_XF), ((mean_X - self._mean) / self._spread).astype(np.float32)
        drawn = jax.random.choice(
            batches, len(count_X), (updates, BATCH), p=jnp.asarray(count_X / count_X.sum())
        )
        optimizer = update.make_optimizer(lr=lr, steps=updates, decay="cosine")
        parameters = _parameters(first, columns[0].shape[1], hidden)
        self._params = _fitted(optimizer, parameters, *map(jnp.asarray, columns), drawn)
        self._known: dict[Key, float] = dict(zip(returns, self._values(list(returns)), strict=True))
        if not np.isfinite(list(self._known.values())).all():
            raise UserError(
                f"gate.lr={lr}: values of actions are not finite after {updates} updates; try less"
            )
        error = np.concatenate([self._known[key] - np.array(values) for key, values in returns.items()])
        self.metrics: Mapping[str, float] = {
            "pairs": float(len(returns)),
            "returns": float(len(every)),
            "loss": float((error**2).mean()),
            "spread": float(every.var()),
        }

    def __call__(self, state: State, joint: Joint) -> float:
        """Q of a joint action, computed once and kept."""
        key = self._key(state, joint)
        if key not in self._known:
            self._known |= dict(zip([key], self._values([key]), strict=True))
        return self._known[key]

    def note(self, state: State, joint: Joint) -> None:
        """Record a considered action, for `seen`."""
        self._in_question[self._key(state, joint)] = None

    def seen(self) -> float:
        """Share of the different actions considered so far that occur in the data; NaN if there are none."""
        return (
            sum(key in self._seen for key in self._in_question) / len(self._in_question)
            if self._in_question
            else np.nan
        )

    def _key(self, state: State, joint: Joint) -> Key:
        shown = (
            called(self._world, "show", self._name, "a state", state, agent) for agent in self._world.agents
        )
        return tuple(shown), tuple(joint)

    def _values(self, keys: Sequence[Key]) -> np.ndarray:
        """Q (X,) of some pairs, float64, in units of the return."""
        features_XF = self._scaled(self._raw(keys))
        room = (1 << (len(keys) - 1).bit_length()) - len(keys)
        values_X = np.asarray(_read(self._params, np.pad(features_XF, ((0, room), (0, 0)))))[: len(keys)]
        return values_X.astype(np.float64) * self._spread + self._mean

    def _raw(self, keys: Sequence[Key]) -> np.ndarray:
        """The encoder's vectors (X, ..) of all texts of each pair, concatenated."""
        columns = list(zip(*((*shown, *joint) for shown, joint in keys), strict=True))
        self._add(dict.fromkeys(text for column in columns for text in column))
        return np.concatenate(
            [np.stack([self._vectors[text] for text in column]) for column in columns], axis=1
        )

    def _add(self, texts: Mapping[str, None]) -> None:
        new = [text for text in texts if text not in self._vectors]
        if new:
            self._vectors |= dict(zip(new, np.asarray(self._encode(new), np.float32), strict=True))

    def _scaled(self, features: np.ndarray) -> np.ndarray:
        """The features (X, F) that vary in the data, each scaled to mean 0 and standard deviation 1 there."""
        return ((features[:, self._used_F] - self._shift_F) / self._scale_F).astype(np.float32)


def _parameters(key: jax.Array, size: int, hidden: int) -> dict[str, jax.Array]:
    """Small random weights of two layers; all values are 0 at first."""
    first, second = jax.random.split(key)
    return {
        "w1": jax.random.normal(first, (size, hidden)) * (2 / max(size, 1)) ** 0.5,
        "b1": jnp.zeros(hidden),
        "w2": jax.random.normal(second, (hidden, hidden)) * (2 / hidden) ** 0.5,
        "b2": jnp.zeros(hidden),
        "v": jnp.zeros(hidden),
        "d": jnp.zeros(()),
    }


@jax.jit
def _read(params, features_XF) -> jax.Array:
    """Values (X,)."""
    hidden_XH = jax.nn.relu(features_XF @ params["w1"] + params["b1"][None])
    hidden_XH = jax.nn.relu(hidden_XH @ params["w2"] + params["b2"][None])
    return hidden_XH @ params["v"] + params["d"]


@functools.partial(jax.jit, static_argnums=0)
def _fitted(optimizer, params, features_XF, targets_X, drawn_UB):
    """The parameters after U updates, each on the B pairs that were drawn for it."""

    def loss(params, rows_B):
        values_B = _read(params, features_XF[rows_B])
        return losses.value_loss(values_B, targets_X[rows_B], jnp.ones(len(rows_B), bool)).mean()

    def one(carry, rows_B):
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params, rows_B), state, params)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(one, (params, optimizer.init(params)), drawn_UB)[0][0]
