"""Parameters, optimizer state and update of a stack's critics and reward models, as shapes."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_llm import update
from jaxmarl_llm.analysis.planning import job as jobs
from jaxmarl_llm.analysis.planning.job import Critics, Job
from jaxmarl_llm.systems.critics import log_ratio, value_model
from jaxmarl_llm.team import Stack
from jaxmarl_llm.update import TrainState


def stack(job: Job, own: Critics) -> Stack:
    """The stack of the critics: that of `critics.build`, `shared_heads.build` or `log_ratio.build`."""
    layout = job.stack.layout.for_stack(len(own.names))
    return dataclasses.replace(job.stack, agents=own.names, sampler=None, layout=layout)


def state(job: Job, own: Critics) -> TrainState:
    """The critics' trained parameters and optimizer state, as shapes."""
    critic_job, number = _job(job, own), len(own.names)
    learned: Any = None
    if not own.turns:
        heads = functools.partial(value_model.heads, number, job.config.d_model)
        learned = jax.eval_shape(heads, jax.random.key(0))
    if not own.shared:
        body = jobs.shapes(jobs.parameters(critic_job)[1])
        learned = body if own.turns else {"body": body, "head": learned}
    begin = functools.partial(update.init_state, optimizer=own.optimizer)
    return jobs.with_shardings(critic_job, jax.eval_shape(begin, learned), True)


def reference(job: Job, own: Critics) -> Any:
    """The initial parameters, kept on the devices, of a critic that is compared with them; else None."""
    return state(job, own).trainable if own.turns else None


def lowered(job: Job, own: Critics):
    """The critics' lowered update; for shared critics the gradient of the value loss, its largest part."""
    critic_state, (base, trainable) = state(job, own), jobs.parameters(job)
    if own.turns:
        fixed = stack(job, own), own.optimizer, base, critic_state, reference(job, own)
        return log_ratio.train_step.lower(*fixed, _turns(job, own), beta=1.0, rows=own.rows)
    data = jobs.replicated(job, _data(own))
    if own.shared:
        params = {"body": trainable, "head": critic_state.trainable}
        return value_model.gradients.lower(stack(job, own), own.loss, base, params, *data, rows=own.rows)
    return value_model.train_step.lower(
        stack(job, own),
        own.loss,
        own.optimizer,
        base,
        critic_state,
        *data,
        rows=own.rows,
        by_token=own.by_token,
    )


def _job(job: Job, own: Critics) -> Job:
    """The critics as agents. Their adapters are float32, full copies are copies of the agents."""
    dtype = job.param_dtype if job.stack.mode == "full" else "float32"
    return dataclasses.replace(job, stack=stack(job, own), param_dtype=dtype)


def _data(own: Critics) -> tuple[value_model.Texts, Any]:
    """Shapes of the texts, their targets and old values."""

    def of(shape, dtype):
        return jax.ShapeDtypeStruct((len(own.names), own.texts, *shape), dtype)

    sides = 2 if own.pairs else 1
    read = value_model.Texts(of((sides, own.width), jnp.int32), of((sides,), jnp.int32), of((), bool))
    if own.pairs:
        return read, ()
    values = of((own.width,) if own.by_token else (), jnp.float32)
    return read, (values, values)


def _turns(job: Job, own: Critics) -> log_ratio.Turns:
    """Shapes of pairs of sequences of turns."""
    (prompt, completion), number = own.turns[0], len(own.turns)

    def of(*shape):
        return jax.ShapeDtypeStruct((2 * own.texts, number, *shape), jnp.int32)

    return jobs.replicated(job, log_ratio.Turns(of(prompt), of(), of(completion), of()))
