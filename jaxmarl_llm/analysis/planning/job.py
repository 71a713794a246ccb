"""The work of one stack of agents in an iteration, with the arguments of its programs as shapes."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import adapters, update
from jaxmarl_llm.evaluation import sizes
from jaxmarl_llm.factory.sampler_calls import Call
from jaxmarl_llm.policy import Policy, PolicyConfig
from jaxmarl_llm.sharding import cuts
from jaxmarl_llm.team import Stack
from jaxmarl_llm.update import Batch, LossConfig, Packed, TrainState
from jaxmarl_llm.utils import quantised


@dataclasses.dataclass(frozen=True)
class Critics:
    """Models that are fitted besides a stack's agents, and that agents learn from: critics and reward models.

    Attributes:
      names: one critic for each agent, or one for all.
      shared: whether critics are heads on the agents' own bodies.
      texts, width: number of texts, or pairs of texts, that each critic reads in an update, padded to whole
        micro-batches, and tokens of each text.
      rows: texts, or pairs, per micro-batch.
      loss, optimizer: those of the update; ``loss`` is None for the Bradley-Terry loss on sums over turns.
      by_token: whether there is a value after every token.
      pairs: whether the model learns from pairs.
      turns: tokens of prompt and completion of each turn of a text; () if texts have one part.
      title: title of its update in the plan.
    """

    names: tuple[str, ...]
    shared: bool
    texts: int
    width: int
    rows: int
    loss: Callable | None
    optimizer: Any
    by_token: bool = False
    pairs: bool = False
    turns: tuple[tuple[int, int], ...] = ()
    title: str = "critics"


@dataclasses.dataclass(frozen=True)
class Job:
    """One stack's part of an iteration.

    Attributes:
      stack: static description, layout included.
      rank, targets: those of the adapters.
      keep_reference: whether full copies keep their base, as the reference policy.
      keep_beginning: whether the team's initial parameters are kept as the reference policy.
      width: tokens of every prompt, padded.
      calls, eval_calls: calls of the sampler in an iteration and in one batch of an evaluation, in order.
      batches: batches of one update; an iteration has ``updates`` updates.
      loss, optimizer: those of the update.
      devices: devices of the mesh; without a mesh the first device holds everything.
      critics: models that are fitted besides the agents.
      base_dtype, param_dtype: dtypes in which frozen and trained parameters are kept.
      quantise: quantisation of the base's linear maps, see `utils.quantised`; '': none.
    """

    stack: Stack
    rank: int
    targets: tuple[str, ...]
    keep_reference: bool
    width: int
    calls: tuple[Call, ...]
    eval_calls: tuple[Call, ...]
    batches: tuple[Call, ...]
    updates: int
    loss: LossConfig
    optimizer: Any
    devices: tuple[jax.Device, ...]
    critics: tuple[Critics, ...] = ()
    base_dtype: str = "float32"
    param_dtype: str = "float32"
    quantise: str = ""
    keep_beginning: bool = False

    @property
    def config(self) -> PolicyConfig:
        return self.stack.policy.config

    @property
    def tokens(self) -> int:
        """Tokens of the longest completion."""
        return self.loss.sampling.max_new_tokens


def parameters(job: Job) -> tuple[Any, Any]:
    """Base and trained parameters, as `jax.ShapeDtypeStruct` with shardings; None where there are none."""
    stack, agents = job.stack, len(job.stack.agents)
    base = in_dtype(_base(stack.policy.clone(fetch=None)), job.base_dtype)
    if job.quantise:
        base = jax.eval_shape(functools.partial(quantised.quantised, kind=job.quantise), base)
    if stack.mode == "frozen":
        return with_shardings(job, base, False), None
    if stack.mode == "adapters":
        options = dict(params=base, agents=agents, rank=job.rank, targets=job.targets, dtype=job.param_dtype)
        trainable = jax.eval_shape(functools.partial(adapters.init, **options), jax.random.key(0))
    else:
        trainable = jax.tree.map(lambda x: jax.ShapeDtypeStruct((agents, *x.shape), x.dtype), base)
        trainable = in_dtype(trainable, job.param_dtype)
        base = base if job.keep_reference else None
    return with_shardings(job, base, False), with_shardings(job, trainable, True)


def reference(job: Job) -> Any:
    """Shapes of the team's initial parameters if they are kept besides the trained ones; else None."""
    return parameters(job)[1] if job.keep_beginning else None


def parameters_and_state(job: Job) -> tuple[Any, TrainState | None]:
    """Return the parameters with the optimizer's state, as shapes."""
    base, trainable = parameters(job)
    if trainable is None:
        return base, None
    state = jax.eval_shape(functools.partial(update.init_state, optimizer=job.optimizer), shapes(trainable))
    return base, with_shardings(job, state, True)


def sampler_arguments(job: Job, call: Call) -> tuple[Stack, tuple, dict]:
    """The stack that answers a call, and the arguments of `sampling.generate` after it."""
    base, trainable = parameters(job)
    stack = job.stack
    if call.agents != stack.agents:
        layout = stack.layout.for_stack(len(call.agents))
        stack = dataclasses.replace(stack, agents=call.agents, layout=layout)
        part = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((len(call.agents), *x.shape[1:]), x.dtype), trainable
        )
        trainable = with_shardings(dataclasses.replace(job, stack=stack), part, True)
    agents = len(call.agents)
    prompts = jax.ShapeDtypeStruct((agents, call.prompts, job.width), jnp.int32)
    lengths = jax.ShapeDtypeStruct((agents, call.prompts), jnp.int32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    options = {"samples": call.samples, "params": job.loss.sampling}
    return stack, (base, trainable, *replicated(job, (prompts, lengths, key))), options


def update_arguments(job: Job) -> tuple:
    """The arguments of `update.train_step`, including the shared critics' part of the gradient."""
    base, state = parameters_and_state(job)
    packed = tuple(replicated(job, shapes(pack(job, batch))) for batch in job.batches)
    critics_part = state.trainable if any(each.shared for each in job.critics) else None
    return job.stack, job.loss, job.optimizer, base, state, packed, critics_part, None, reference(job)


def bytes_of_weight(job: Job) -> float:
    """Average bytes of a stored weight of the model, including its share of a scale."""
    if job.stack.mode == "full":
        return jnp.dtype(job.param_dtype).itemsize
    base, _ = parameters(job)
    weights = sum(x.size for x in jax.tree.leaves(_base(job.stack.policy.clone(fetch=None))))
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(base)) / weights


def cache_bytes(job: Job, tokens: int, policy: Policy) -> float:
    """Bytes on one device of keys and values of ``tokens`` tokens of one row, as ``policy`` computes them."""
    return tokens * sizes.token_bytes(policy, cuts(job.stack.layout, 1).model)


def pack(job: Job, batch: Call) -> Packed:
    """Completions of a call as the update reads them, all of maximal length."""
    agents, rows = len(batch.agents), batch.prompts * batch.samples
    ints = functools.partial(np.zeros, dtype=np.int32)
    floats_NRL = np.zeros((agents, rows, job.tokens), np.float32)
    longest = Batch(
        ints((agents, batch.prompts, job.width)),
        np.full((agents, batch.prompts), job.width, np.int32),
        ints(floats_NRL.shape),
        np.full((agents, rows), job.tokens, np.int32),
        floats_NRL,
        np.ones((agents, rows), np.float32),
        finished_NR=np.ones((agents, rows), bool),
        agents=None if batch.agents == job.stack.agents else batch.agents,
    )
    return job.loss.pack(longest, job.stack.layout.for_stack(agents).shards)


def bytes_per_device(tree) -> int:
    """Bytes, on the device that holds most, of a tree of shapes with shardings."""

    def one(x) -> int:
        itemsize = 8 if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x.dtype.itemsize
        return int(np.prod(x.sharding.shard_shape(x.shape))) * itemsize

    return sum(one(x) for x in jax.tree.leaves(tree))


@functools.cache
def _base(policy: Policy):
    dummy = jnp.zeros((1, 1), jnp.int32)
    return jax.eval_shape(policy.init, jax.random.key(0), dummy, dummy)


def in_dtype(tree, dtype: str):
    """Shapes of floating-point arrays in another dtype."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.dtype(dtype)), tree)


def shapes(tree):
    """Shapes of arrays, or of shapes with shardings, without shardings."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def with_shardings(job: Job, tree, agents: bool):
    """Shapes of parameters or a state with the shardings of the stack's layout."""
    layout = job.stack.layout
    if layout.mesh is None:
        return replicated(job, tree)
    add = lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)  # noqa: E731
    return jax.tree.map(add, tree, layout.shardings(tree, agents))


def replicated(job: Job, tree):
    """Shapes of arrays that every device holds whole."""
    mesh = job.stack.layout.mesh
    if mesh is None:
        sharding = jax.sharding.SingleDeviceSharding(job.devices[0])
    else:
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)
