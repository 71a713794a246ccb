"""The critics' parameters, optimizer state and update of a stack, as shapes."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_llm import update
from jaxmarl_llm.analysis.planning import job as jobs
from jaxmarl_llm.analysis.planning.job import Job
from jaxmarl_llm.systems.critics import value_model
from jaxmarl_llm.team import Stack
from jaxmarl_llm.update import TrainState


def stack(job: Job) -> Stack:
    """The stack of the critics: `critics.build`'s, or `shared_heads.build`'s."""
    names = job.critics.names
    return dataclasses.replace(
        job.stack, agents=names, sampler=None, layout=job.stack.layout.for_stack(len(names))
    )


def state(job: Job) -> TrainState | None:
    """The critics' trained parameters and optimizer state, as shapes; None without critics."""
    if job.critics is None:
        return None
    # Adapters of critics are float32, full copies are copies of the agents.
    dtype = job.param_dtype if job.stack.mode == "full" else "float32"
    critic_job = dataclasses.replace(job, stack=stack(job), param_dtype=dtype)
    number, d_model = len(job.critics.names), job.config.d_model
    learned = jax.eval_shape(functools.partial(value_model.heads, number, d_model), jax.random.key(0))
    if not job.critics.shared:
        learned = {"body": jobs.shapes(jobs.parameters(critic_job)[1]), "head": learned}
    begin = functools.partial(update.init_state, optimizer=job.critics.optimizer)
    return jobs.with_shardings(critic_job, jax.eval_shape(begin, learned), True)


def lowered(job: Job):
    """The critics' lowered update; for shared critics the gradient of the value loss, which is most of it."""
    c, critic_state, (base, trainable) = job.critics, state(job), jobs.parameters(job)
    data = jobs.replicated(job, _data(len(c.names), c.texts, c.width, (c.width,) if c.by_token else ()))
    if c.shared:
        params = {"body": trainable, "head": critic_state.trainable}
        return value_model.gradients.lower(stack(job), c.loss, base, params, *data, rows=c.rows)
    return value_model.train_step.lower(
        stack(job), c.loss, c.optimizer, base, critic_state, *data, rows=c.rows, by_token=c.by_token
    )


def _data(critics: int, texts: int, width: int, values: tuple[int, ...]) -> tuple[value_model.Texts, Any]:
    """Texts, and their targets and old values, as shapes; ``values``: shape of those of one text."""

    def of(shape, dtype):
        return jax.ShapeDtypeStruct((critics, texts, *shape), dtype)

    read = value_model.Texts(of((1, width), jnp.int32), of((1,), jnp.int32), of((), bool))
    return read, (of(values, jnp.float32), of(values, jnp.float32))
