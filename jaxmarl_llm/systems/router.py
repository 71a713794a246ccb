"""A learned router: a small network that decides after every answer which agent is next, or to stop.

It reads a frozen encoder's vectors of the question and the last answer, its author, and the number of
answers:

    h = tanh(W x + b),   pi(a | place) = softmax(U h + c),   V(place) = u h + d

over the agents and STOP; before the first answer STOP is not allowed.
"""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import serialization

from jaxmarl_llm import losses
from jaxmarl_llm.checkpoint import DamagedError
from jaxmarl_llm.protocols.routed import Place
from jaxmarl_llm.update import TrainState
from jaxmarl_llm.utils import distributed, files
from jaxmarl_llm.utils.errors import UserError

Encoder = Callable[[Sequence[str]], np.ndarray]
FOLDER, BEST = "router", "best"
AGENTS, TURNS, STATE = "agents", "turns", "state"  # in a file


@dataclasses.dataclass(frozen=True)
class Ppo:
    """How the router learns: PPO (arXiv 1707.06347), with the numbers of DER's release where it gives them.

    Attributes:
      epochs: passes over the decisions of an iteration.
      clip: of the ratio.
      entropy: weight of an entropy bonus.
      value: weight of the squared error of V.
    """

    epochs: int = 4
    clip: float = 0.3
    entropy: float = 0.01
    value: float = 0.5


class Router:
    """The network, as ``models`` of a `systems.types.System` and as a `protocols.routed.Router`.

    Args:
      agents: names, in the order of the actions; STOP is the last one.
      turns: most answers of a route.
      encode: texts -> vectors, the same length for all.
      key: random key of the first parameters.
      hidden: width of the network.
      optimizer: of its parameters.
      ppo: how it learns.
    """

    def __init__(
        self,
        agents: Sequence[str],
        turns: int,
        encode: Encoder,
        key: jax.Array,
        hidden: int,
        optimizer,
        ppo: Ppo = Ppo(),
    ):
        self.agents, self._turns, self._encode = tuple(agents), turns, encode
        self._optimizer, self._ppo = optimizer, ppo
        self._vectors: dict[str, np.ndarray] = {}
        size = 2 * self._of_texts([""])[0].size + len(self.agents) + turns
        params = _parameters(key, size, hidden, len(self.agents) + 1)
        self.states = {0: TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))}
        self._folder: pathlib.Path | None = None
        self._most = 0

    def __call__(
        self, places: Sequence[Place], random: np.random.Generator | None = None
    ) -> list[str | None]:
        """Who is next at each place, None for STOP; drawn with ``random``, the likeliest without it."""
        logprobs_XA = np.asarray(_read(self.states[0].trainable, *self._padded(places))[0])[: len(places)]
        if random is None:
            actions_X = logprobs_XA.argmax(1)
        else:
            ends_XA = np.cumsum(np.exp(logprobs_XA.astype(np.float64)), axis=1)
            actions_X = (ends_XA < random.random(len(places))[:, None] * ends_XA[:, -1:]).sum(1)
        return [(*self.agents, None)[a] for a in actions_X.tolist()]

    def values(self, places: Sequence[Place]) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities (X, A) of all actions, and V (X,), as they are now."""
        logprobs_XA, values_X = _read(self.states[0].trainable, *self._padded(places))
        return np.asarray(logprobs_XA)[: len(places)], np.asarray(values_X)[: len(places)]

    def actions(self, chosen: Sequence[str | None]) -> np.ndarray:
        """The numbers of some choices."""
        return np.array([(*self.agents, None).index(agent) for agent in chosen], np.int32)

    def learn(
        self, places: Sequence[Place], actions_X, advantages_X, targets_X, behaviour_X
    ) -> dict[str, float]:
        """Update the network on some decisions; metrics are means over the passes.

        Args:
          places: X places.
          actions_X: what was chosen.
          advantages_X: of the choices.
          targets_X: targets of V.
          behaviour_X: log-probabilities of the choices when they were made.
        """
        features_XF, first_X = self._padded(places)
        room = len(features_XF) - len(places)
        columns = [
            np.pad(np.asarray(x), (0, room)) for x in (actions_X, advantages_X, targets_X, behaviour_X)
        ]
        used_X = np.arange(len(features_XF)) < len(places)
        rows = []
        for _ in range(self._ppo.epochs):
            self.states[0], row = _update(
                self._optimizer, self._ppo, self.states[0], features_XF, first_X, *columns, used_X
            )
            rows.append(row)
        rows = jax.device_get(rows)
        return {f"router/{name}": float(np.mean([row[name] for row in rows])) for name in rows[0]}

    def _of_texts(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Vectors of length 1 (0 of an empty text); each text is encoded once."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            vectors = np.asarray(self._encode(new), np.float32)
            norms = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
            self._vectors |= dict(zip(new, vectors / norms, strict=True))
        return [self._vectors[text] * bool(text) for text in texts]

    def _padded(self, places: Sequence[Place]) -> tuple[np.ndarray, np.ndarray]:
        """Features (X, F) of places, and whether they precede the first answer, padded to a power of two."""
        parts = [
            self._of_texts([place.question for place in places]),
            self._of_texts([place.answer for place in places]),
        ]
        agents = np.eye(len(self.agents) + 1, len(self.agents), dtype=np.float32)
        last = [self.agents.index(place.agent) if place.agent else len(self.agents) for place in places]
        turns = np.eye(self._turns, dtype=np.float32)[[min(place.turn, self._turns - 1) for place in places]]
        features_XF = np.concatenate([np.stack(parts[0]), np.stack(parts[1]), agents[last], turns], axis=1)
        first_X = np.array([place.turn == 0 for place in places])
        room = (1 << (len(places) - 1).bit_length()) - len(places)
        return np.pad(features_XF, ((0, room), (0, 0))), np.pad(first_X, (0, room))

    @contextlib.contextmanager
    def kept_in(self, folder, keep: int) -> Iterator[None]:
        """Save to ``folder``/router, a file for each save, the last ``keep`` of them."""
        self._folder, self._most = pathlib.Path(folder) / FOLDER, keep
        yield

    def save(self, step: int) -> None:
        """Write the network after ``step`` iterations."""
        self._write(self._folder, step, self._most)

    def save_best(self, step: int) -> None:
        """Write it as the best state so far."""
        self._write(self._folder / BEST, step, 2)

    def restore(self, step: int) -> None:
        """Load the network that was saved after ``step`` iterations."""
        self.load(self._folder.parent, step)

    def load(self, folder, step: int) -> None:
        """Load what a run kept in ``folder`` after ``step`` iterations, with its order of the agents.

        Raises:
          UserError: if nothing was kept, or the network has other agents, another route length, or another
            shape; DamagedError: if the file cannot be read.
        """
        own = pathlib.Path(folder) / FOLDER
        paths = [path for path in (own / BEST / _name(step), own / _name(step)) if path.is_file()]
        if not paths:
            raise UserError(f"{own / _name(step)} is missing: the router of the run after {step} iterations")
        kept = _read_file(paths[-1])
        if AGENTS in kept:
            agents, turns = tuple(kept[AGENTS].values()), kept[TURNS]
            self._check_places(paths[-1], agents, turns)
        else:  # a file of an earlier version, which does not hold them
            agents = self.agents
        state = _of_shapes(self.states[0], kept.get(STATE, kept), paths[-1])
        self.agents, self.states = agents, {0: jax.tree.map(jnp.asarray, state)}

    def _check_places(self, path: pathlib.Path, agents: Sequence[str], turns: int) -> None:
        """UserError if a network of these agents and turns cannot be loaded into this one."""
        if sorted(agents) != sorted(self.agents):
            raise UserError(
                f"{path}: the router chooses among the agents {tuple(agents)!r}, and team.agents={self.agents!r}; "
                "allowed are the same ones, in any order"
            )
        if turns != self._turns:
            raise UserError(
                f"{path}: the router is of routes of at most {turns} answers, and train.turns={self._turns}; allowed "
                f"is {turns}"
            )

    def _write(self, folder: pathlib.Path, step: int, most: int) -> None:
        if not distributed.is_main():
            return
        kept = {AGENTS: list(self.agents), TURNS: self._turns, STATE: jax.device_get(self.states[0])}
        new = files.atomic_write_bytes(folder / _name(step), serialization.to_bytes(kept))
        others = sorted((path.stat().st_mtime_ns, path) for path in folder.glob("*.msgpack") if path != new)
        for _, old in others[: max(len(others) + 1 - most, 0)]:
            old.unlink()


def _name(step: int) -> str:
    return f"{step:06d}.msgpack"


def _read_file(path: pathlib.Path) -> dict:
    """The contents of a router's file; DamagedError if it is truncated or changed."""
    try:
        kept = serialization.msgpack_restore(path.read_bytes())
    except Exception as error:  # any error of msgpack on damaged bytes
        raise DamagedError(f"{path} cannot be read: {error}") from error
    if not isinstance(kept, dict):
        raise DamagedError(f"{path} cannot be read: it holds a {type(kept).__name__}, not a network")
    return kept


def _of_shapes(like: TrainState, kept: dict, path: pathlib.Path) -> TrainState:
    """The state in a file; UserError if its arrays have other shapes than those of ``like``."""
    try:
        state = serialization.from_state_dict(like, kept)
        same = jax.tree.all(jax.tree.map(lambda new, old: np.shape(new) == np.shape(old), state, like))
    except (ValueError, KeyError, TypeError, AttributeError):
        same = False
    if not same:
        raise UserError(
            f"{path}: its network has other shapes than that of this config; allowed are team.agents, train.turns, "
            "router.hidden and router.encoder of the run"
        )
    return state


def _parameters(key: jax.Array, size: int, hidden: int, actions: int) -> Mapping[str, jax.Array]:
    """Small random weights; all actions are equally likely at first."""
    return {
        "w": jax.random.normal(key, (size, hidden)) * (2 / hidden) ** 0.5,
        "b": jnp.zeros(hidden),
        "u": jnp.zeros((hidden, actions)),
        "c": jnp.zeros(actions),
        "v": jnp.zeros(hidden),
        "d": jnp.zeros(()),
    }


@jax.jit
def _read(params, features_XF, first_X) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities (X, A) and values (X,); STOP, the last action, is not allowed where ``first_X``."""
    hidden_XH = jnp.tanh(features_XF @ params["w"] + params["b"][None])
    logits_XA = hidden_XH @ params["u"] + params["c"][None]
    stop_A = jnp.arange(logits_XA.shape[1]) == logits_XA.shape[1] - 1
    logits_XA = jnp.where(first_X[:, None] & stop_A[None], -1e9, logits_XA)
    return jax.nn.log_softmax(logits_XA), hidden_XH @ params["v"] + params["d"]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _update(
    optimizer,
    ppo: Ppo,
    state: TrainState,
    features_XF,
    first_X,
    actions_X,
    advantages_X,
    targets_X,
    behaviour_X,
    used_X,
):
    """One pass over all decisions."""

    def loss(params):
        logprobs_XA, values_X = _read(params, features_XF, first_X)
        chosen_X = jnp.take_along_axis(logprobs_XA, actions_X[:, None], 1)[:, 0]
        # Every decision is a sequence of one token.
        columns = chosen_X[:, None], advantages_X, used_X[:, None]
        policy = losses.policy_gradient(
            *columns, behaviour_logprobs_BL=behaviour_X[:, None], clip=ppo.clip
        ).mean()
        error = losses.value_loss(values_X, targets_X, used_X).mean()
        spread_X = -(jnp.exp(logprobs_XA) * jnp.maximum(logprobs_XA, -1e3)).sum(1)
        entropy = jnp.sum(spread_X * used_X) / jnp.maximum(used_X.sum(), 1)
        total = policy + ppo.value * error - ppo.entropy * entropy
        return total, {"loss": policy, "value_loss": error, "entropy": entropy}

    grads, metrics = jax.grad(loss, has_aux=True)(state.trainable)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.trainable)
    return TrainState(state.step + 1, optax.apply_updates(state.trainable, updates), opt_state), metrics
