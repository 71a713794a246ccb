"""Calls of several runs as one: their agents follow each other on the agent axis, over one base.

Agents are computed independently, so each run gets the same result as alone, up to the rounding of wider
products. Prompts that are padded to different widths are padded to the widest.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import sampling, update
from jaxmarl_llm.sampling import Samples, SamplingParams
from jaxmarl_llm.sampling.loop import agent_keys
from jaxmarl_llm.sampling.padding import Shared
from jaxmarl_llm.sampling.stems import Stems
from jaxmarl_llm.team import Stack
from jaxmarl_llm.update import LossConfig, Packed, Rates, TrainState


@dataclasses.dataclass(eq=False)
class Drawing:
    """A call of `sampling.generate`, with its arguments."""

    stack: Stack
    base: Any
    trainable: Any
    prompts_NBP: Any
    lengths_NB: Any
    key: jax.Array
    _: dataclasses.KW_ONLY
    samples: int
    params: SamplingParams
    shared: Shared | None = None
    stems: Stems | None = None
    greedy_NB: Any = None

    def likeness(self) -> Hashable:
        """Static parts, base and shapes, widths of prompts apart."""
        prompts = _without_width(self.prompts_NBP, self.shared)
        stems = self.stems and _without_width(self.stems.tokens_NSQ, None)
        arrays = (self.trainable, self.lengths_NB, self.greedy_NB, prompts, stems)
        return "draw", self.stack, id(self.base), self.samples, self.params, _shapes(arrays)

    def make(self) -> Samples:
        """`sampling.generate` of this call alone."""
        prompts = self.prompts_NBP, self.lengths_NB
        before = dict(shared=self.shared, stems=self.stems)
        own = dict(samples=self.samples, params=self.params, greedy_NB=self.greedy_NB)
        return sampling.generate(self.stack, self.base, self.trainable, *prompts, self.key, **before, **own)

    def make_all(self, calls: Sequence["Drawing"]) -> list[Samples]:
        """The samples of each call, on the host."""
        n_agents = len(self.stack.agents)
        joint = dataclasses.replace(
            self,
            stack=_side_by_side(self.stack, len(calls)),
            trainable=_concatenated([call.trainable for call in calls]),
            prompts_NBP=_left_padded([call.prompts_NBP for call in calls], axis=0),
            lengths_NB=np.concatenate([call.lengths_NB for call in calls]),
            key=jnp.concatenate([agent_keys(call.key, n_agents) for call in calls]),
            shared=_shared([call.shared for call in calls]),
            stems=_if_any(_stems, [call.stems for call in calls]),
            greedy_NB=_if_any(np.concatenate, [call.greedy_NB for call in calls]),
        )
        return _parts(jax.device_get(joint.make()), len(calls))


@dataclasses.dataclass(eq=False)
class Learning:
    """A call of `update.train_step`, with its arguments."""

    stack: Stack
    config: LossConfig
    optimizer: Any
    base: Any
    state: TrainState
    batches: tuple[Packed, ...]
    more: Any = None
    rates: Rates | None = None
    reference: Any = None

    def likeness(self) -> Hashable:
        """Static parts, base and shapes, widths of prompts apart."""
        batches = [
            (
                batch.replace(prompts_XNDBP=None, shared=None, stems=None),
                _without_width(batch.prompts_XNDBP, batch.shared),
                batch.stems and _without_width(batch.stems.tokens_NSQ, None),
            )
            for batch in self.batches
        ]
        static = (self.stack, self.config, self.optimizer, id(self.base))
        return "learn", *static, _shapes((self.state, batches, self.more, self.rates, self.reference))

    def make(self) -> tuple[TrainState, dict]:
        """`update.train_step` of this call alone."""
        fixed = (self.stack, self.config, self.optimizer, self.base)
        own = dict(more=self.more, rates=self.rates, reference=self.reference)
        return update.train_step(*fixed, self.state, self.batches, **own)

    def make_all(self, calls: Sequence["Learning"]) -> list[tuple[TrainState, dict]]:
        """The new state of each call, and its metrics on the host. Their states are donated."""
        count, states = len(calls), [call.state for call in calls]
        together = dataclasses.replace(
            self,
            stack=_side_by_side(self.stack, count),
            state=TrainState(
                jnp.stack([state.step for state in states]),
                *_moved([(state.trainable, state.opt_state) for state in states]),
            ),
            batches=tuple(map(_packed, zip(*[call.batches for call in calls], strict=True))),
            more=_if_any(_concatenated, [call.more for call in calls]),
            rates=_if_any(_concatenated, [call.rates for call in calls]),
            reference=_if_any(_concatenated, [call.reference for call in calls]),
        )
        new, metrics = together.make()
        own_steps, own_arrays = list(new.step), _moved_apart((new.trainable, new.opt_state), count)
        own_states = [TrainState(step, *own) for step, own in zip(own_steps, own_arrays, strict=True)]
        return list(zip(own_states, _parts(jax.device_get(metrics), count), strict=True))


@dataclasses.dataclass(eq=False)
class Function:
    """A function with its arguments; it does not wait for other runs."""

    function: Callable
    arguments: tuple = ()

    def likeness(self) -> None:
        """Nothing waits for it."""

    def make(self) -> Any:
        """What it returns."""
        return self.function(*self.arguments)

    def make_all(self, calls: Sequence["Function"]) -> list:
        """What each returns."""
        return [call.make() for call in calls]


def _side_by_side(stack: Stack, count: int) -> Stack:
    """The stack of ``count`` runs; its names do not depend on which runs these are."""
    agents = _names(stack.agents, count)
    return dataclasses.replace(stack, agents=agents, layout=stack.layout.for_stack(len(agents)))


def _names(agents: Sequence[str], count: int) -> tuple[str, ...]:
    return tuple(f"{s}.{agent}" for s in range(count) for agent in agents)


def _shapes(tree) -> Hashable:
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((x.shape, x.dtype) for x in leaves)


def _without_width(prompts, shared: Shared | None):
    """Prompts and shared beginnings without their tokens, only to compare shapes."""
    return prompts[..., :0], shared and shared.replace(tokens_NC=shared.tokens_NC[..., :0])


def _if_any(join: Callable, trees: Sequence) -> Any:
    """Join trees, or None where they are None."""
    return None if trees[0] is None else join(trees)


def _concatenated(trees: Sequence) -> Any:
    """Trees concatenated along the leading agent axis."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)


def _moved(trees: Sequence) -> Any:
    """`_concatenated`; each leaf of the trees is deleted as soon as it is copied."""

    def move(*leaves):
        joint = jnp.concatenate(leaves)
        for leaf in leaves:
            leaf.delete()
        return joint

    return jax.tree.map(move, *trees)


def _moved_apart(tree, count: int) -> list:
    """Equal parts of a tree along the agent axis; each of its leaves is deleted as soon as it is copied."""
    leaves, structure = jax.tree.flatten(tree)
    parts = []
    for leaf in leaves:
        parts.append(_split(leaf, count))
        leaf.delete()
    return [jax.tree.unflatten(structure, own) for own in zip(*parts, strict=True)]


def _parts(tree, count: int) -> list:
    """Equal parts of a tree of NumPy arrays along the agent axis."""
    return [jax.tree.map(lambda x, s=s: np.split(x, count)[s], tree) for s in range(count)]


@functools.partial(jax.jit, static_argnames="count")
def _split(x_N, count: int) -> list[jax.Array]:
    """Equal parts of an array along the agent axis."""
    return jnp.split(x_N, count)


def _left_padded(prompts: Sequence, axis: int) -> np.ndarray:
    """Prompts padded to the widest on the left, one run behind the other along an axis."""
    width = max(each.shape[-1] for each in prompts)
    widths = [[(0, 0)] * (each.ndim - 1) + [(width - each.shape[-1], 0)] for each in prompts]
    return np.concatenate([np.pad(x, pad) for x, pad in zip(prompts, widths, strict=True)], axis)


def _shared(every: Sequence[Shared | None]) -> Shared | None:
    """The shared beginnings of all runs, padded to the longest on the right."""
    if every[0] is None:
        return None
    length = max(each.tokens_NC.shape[1] for each in every)
    tokens_NC = [np.pad(each.tokens_NC, ((0, 0), (0, length - each.tokens_NC.shape[1]))) for each in every]
    return Shared(np.concatenate(tokens_NC), np.concatenate([each.lengths_N for each in every]))


def _stems(every: Sequence[Stems], axis: int = 0) -> Stems:
    """The stems of all runs, padded to the longest on the left, one run behind the other along an axis."""
    lengths_NS = np.concatenate([each.lengths_NS for each in every], axis)
    return Stems(_left_padded([each.tokens_NSQ for each in every], axis), lengths_NS)


def _packed(batches: Sequence[Packed]) -> Packed:
    """Batches of several runs as one."""
    first = batches[0]
    rows = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=2), *[batch.rows for batch in batches])
    return Packed(
        _left_padded([batch.prompts_XNDBP for batch in batches], axis=1),
        np.concatenate([batch.prompt_lengths_XNDB for batch in batches], axis=1),
        rows,
        np.concatenate([batch.lengths_NR for batch in batches]),
        _shared([batch.shared for batch in batches]),
        None if first.agents is None else _names(first.agents, len(batches)),
        first.sampling,
        _if_any(functools.partial(_stems, axis=1), [batch.stems for batch in batches]),
        _if_any(np.concatenate, [batch.weight_N for batch in batches]),
    )
