"""Memory that the programs of a stack take on every device, as reported by the compiler."""

import dataclasses
import functools
import math
import re

import jax

from jaxmarl_llm import sampling, update
from jaxmarl_llm.analysis.planning import critics
from jaxmarl_llm.analysis.planning import job as jobs
from jaxmarl_llm.analysis.planning.job import Critics, Job
from jaxmarl_llm.evaluation import sizes
from jaxmarl_llm.factory.sampler_calls import Call
from jaxmarl_llm.update import LossConfig


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one device while a program runs; the sum of all fields is what it takes.

    Attributes:
      parameters: base, trained parameters and those of the reference policy, including critics.
      optimizer: states of the agents' and the critics' optimizers, which stay while the sampler runs.
      others: parameters and optimizer of the other stacks of the team, and copies for overlapping.
      data: prompts, completions and results.
      cache: keys and values: the sampler's, or those of the prompts that the update reads together.
      activations: everything else the program holds: activations, logits, gradients, copies in other dtypes.
      code: the program.
    """

    parameters: float
    optimizer: float
    others: float
    data: float
    cache: float
    activations: float
    code: float

    @property
    def total(self) -> float:
        """Bytes of all fields."""
        return sum(dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True)
class DoesNotFit:
    """A program that does not fit: the bytes it asks for, NaN if its compiler did not report them."""

    total: float


def of_programs(job: Job, others: float = 0.0) -> dict[str, Memory | DoesNotFit]:
    """Compile the updates, and the sampler for the largest calls of an iteration (if any) and an evaluation.

    ``others`` are bytes of other stacks on the same device.
    """
    by_program = {}
    for name, calls in (("sampler", job.calls), ("evaluation", job.eval_calls)):
        if calls:
            largest = max(calls, key=lambda call: sampler_cache(job, call))
            by_program[name] = of_sampler(job, largest, others)
    if job.stack.mode != "frozen":
        by_program["update"] = of_update(job, others)
    return by_program | {each.title: of_critics(job, each, others) for each in job.critics}


def of_sampler(job: Job, call: Call, others: float = 0.0) -> Memory | DoesNotFit:
    """Compile the sampler for one call."""
    parameters, staying = _staying(job)
    # The sampler has no backward pass, so one compilation serves all values of remat.
    policy, sampler = (module.clone(remat="none") for module in (job.stack.policy, job.stack.sampler))
    stack = dataclasses.replace(job.stack, policy=policy, sampler=sampler)
    loss = LossConfig(job.loss.sampling)
    stats = _sampler_stats(
        dataclasses.replace(job, stack=stack, loss=loss, batches=(), updates=1, optimizer=None, critics=()),
        call,
    )
    if isinstance(stats, DoesNotFit):
        return DoesNotFit(stats.total + staying + _of_critics_alone(job) + _of_reference(job) + others)
    # Parameters of agents that do not answer in this call stay on the device.
    base, trainable, *_ = jobs.sampler_arguments(job, call)[1]
    parameter_bytes = jobs.bytes_per_device((_read(job, base), trainable))
    data = max(stats.argument_size_in_bytes - parameter_bytes, 0) + stats.output_size_in_bytes
    return _memory(stats, parameters, staying, others, data, sampler_cache(job, call))


@functools.cache
def _sampler_stats(job: Job, call: Call):
    stack, inputs, options = jobs.sampler_arguments(job, call)
    return _compile(sampling.generate.lower(stack, *inputs, **options))


def of_update(job: Job, others: float = 0.0) -> Memory | DoesNotFit:
    """Compile the update."""
    stats = _update_stats(job)
    read = _of_reference(job) if job.loss.reads_reference else 0.0
    if isinstance(stats, DoesNotFit):
        return DoesNotFit(stats.total + _of_critics_alone(job) + _of_reference(job) - read + others)
    base, state = jobs.parameters_and_state(job)
    base = base if job.loss.reads_reference else _read(job, base)
    arguments = jobs.bytes_per_device((base, state.trainable, state.opt_state)) + read
    return _memory(stats, *_staying(job), others, _data(stats, arguments), update_cache(job))


def of_critics(job: Job, own: Critics, others: float = 0.0) -> Memory | DoesNotFit:
    """Compile the update of one of the job's critics."""
    stats, critic_state = _compile(critics.lowered(job, own)), critics.state(job, own)
    base, agent_state = jobs.parameters_and_state(job)
    read = agent_state.trainable if own.shared else critic_state.opt_state
    arguments = _read(job, base), critic_state.trainable, read, critics.reference(job, own)
    kept = agent_state.opt_state, critic_state.opt_state if own.shared else agent_state.trainable
    if isinstance(stats, DoesNotFit):
        return DoesNotFit(stats.total + jobs.bytes_per_device(kept) + _of_reference(job) + others)
    # No completions follow these texts, so their keys and values are activations.
    return _memory(stats, *_staying(job), others, _data(stats, jobs.bytes_per_device(arguments)), 0)


def _staying(job: Job) -> tuple[float, float]:
    """Bytes on one device of the base and all trained parameters, and of the optimizer states."""
    base, state = jobs.parameters_and_state(job)
    states = [state, *(critics.state(job, each) for each in job.critics)]
    first = [critics.reference(job, each) for each in job.critics]
    parameters = jobs.bytes_per_device((base, [train_state.trainable for train_state in states], first))
    return parameters + _of_reference(job), jobs.bytes_per_device(
        [train_state.opt_state for train_state in states]
    )


def _of_critics_alone(job: Job) -> float:
    """Bytes of the critics' parameters and optimizers."""
    return jobs.bytes_per_device(
        [(critics.state(job, each), critics.reference(job, each)) for each in job.critics]
    )


def _read(job: Job, base):
    """The base; None if full copies replace it, as programs do not hold arguments that they do not read."""
    return None if job.stack.mode == "full" else base


def _of_reference(job: Job) -> float:
    """Bytes of the team's initial parameters, if they are kept."""
    return jobs.bytes_per_device(jobs.reference(job))


def _data(stats, state_bytes: float) -> float:
    """Bytes of a program's arguments and results besides ``state_bytes`` of parameters and optimizer."""
    results = max(stats.output_size_in_bytes - stats.alias_size_in_bytes, 0)
    return max(stats.argument_size_in_bytes - state_bytes, 0) + results


@functools.cache
def _update_stats(job: Job):
    return _compile(update.train_step.lower(*jobs.update_arguments(job)))


def at_least(job: Job) -> float:
    """Lower bound of a device's bytes, without compiling: the state plus gradients or the sampler's cache."""
    return state_bytes(job) + max(
        [trainable_bytes(job), *(sampler_cache(job, call) for call in job.calls + job.eval_calls)]
    )


def state_bytes(job: Job) -> float:
    """Bytes on one device of the stack's parameters, optimizer, reference policy and critics."""
    return jobs.bytes_per_device(jobs.parameters_and_state(job)) + _of_reference(job) + _of_critics_alone(job)


def trainable_bytes(job: Job) -> float:
    """Bytes of the trained parameters on one device; their gradient takes as many."""
    return jobs.bytes_per_device(jobs.parameters(job)[1])


def fullest(programs: list[dict[str, Memory | DoesNotFit]]) -> list[float]:
    """Bytes of the fullest program of every stack."""
    return [max(program.total for program in compiled.values()) for compiled in programs]


def fits(programs: dict[str, Memory | DoesNotFit], limit: float | None) -> bool:
    """Whether every program takes at most ``limit`` bytes; None: every program that compiles fits."""
    taken = [program.total for program in programs.values() if isinstance(program, Memory)]
    return len(taken) == len(programs) and (limit is None or max(taken) <= limit)


def sampler_cache(job: Job, call: Call) -> float:
    """Bytes of keys and values on one device: every prompt once, and room for every completion."""
    rows = call.prompts, call.prompts * call.samples
    inputs = job.stack.sampler, job.stack.layout, len(call.agents), rows, (job.width, job.tokens)
    return sizes.cache_bytes(*inputs)


def update_cache(job: Job) -> float:
    """Bytes of keys and values, on one device, of the prompts that the update reads together."""
    agents_by_batch = [
        len(batch.agents) / jobs.cuts(job.stack.layout, len(batch.agents)).agent for batch in job.batches
    ]
    prompt_bytes = jobs.cache_bytes(job, job.width, job.stack.policy)
    together = max(job.loss.prompts_per_microbatch, job.loss.later_prompts_per_microbatch)
    return max(agents_by_batch) * together * prompt_bytes


def _memory(stats, parameters, optimizer, others, data, cache) -> Memory:
    temporary = stats.temp_size_in_bytes
    cache = min(cache, temporary)
    code = stats.generated_code_size_in_bytes
    return Memory(parameters, optimizer, others, data, cache, temporary - cache, code)


def _compile(lowered):
    """The compiler's memory statistics, or `DoesNotFit`."""
    try:
        return lowered.compile().memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return DoesNotFit(requested_bytes(str(error)))


def requested_bytes(message: str) -> float:
    """Bytes in a compiler's error, such as ``.. required for HLO temporaries (21.21G) exceeds ..``."""
    match = re.search(r"required[^()]*\(([\d.]+)([KMGT])\)|Used ([\d.]+)([KMGT]) of", message)
    if match is None:
        return math.nan
    number, unit = [group for group in match.groups() if group]
    return float(number) * 1024.0 ** (" KMGT".index(unit))
