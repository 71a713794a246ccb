"""Build the jobs of a plan from a config, without models, data or hardware."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxmarl_llm import sharding
from jaxmarl_llm.analysis.planning import (
    chips,
    estimate,
    fitted_models,
    memory,
    models,
    search,
    topology,
)
from jaxmarl_llm.analysis.planning.job import Job
from jaxmarl_llm.config import agent_settings, remote, validate, workload
from jaxmarl_llm.config.options import is_dotted
from jaxmarl_llm.evaluation import sizes
from jaxmarl_llm.factory import mesh_checks, references, sampler_calls, training
from jaxmarl_llm.factory.sampler_calls import Call
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.sampling.padding import Sizes
from jaxmarl_llm.team import Stack, attending, on_platform
from jaxmarl_llm.utils import dtypes
from jaxmarl_llm.utils.errors import UserError


def jobs(config, devices: Sequence[jax.Device], limit: float | None = None) -> list[Job]:
    """One job per architecture of the team, in the order of its stacks; remote agents have none.

    ``limit``: bytes that programs may take on a device; None: what is known of the device.

    Raises:
      ValueError: for unknown or missing models, too short contexts, a mesh that does not match the devices,
        and a user-defined protocol.
    """
    if is_dotted(config.train.protocol):
        raise UserError(
            f"train.protocol={config.train.protocol!r}: what a protocol of your own asks for is not known "
            "before it speaks; plan with the built-in one that is most like it"
        )
    stacks = remote.stacks(config)
    if not stacks:
        names = remote.names(config)
        raise UserError(f"team.models={names!r}: no agent is a model of ours, so there is nothing to plan")
    layout = _layout(config, devices)
    stack_jobs = [_job(config, name, agents, layout, tuple(devices)) for name, agents in stacks.items()]
    whole = _with_evaluations(config, stack_jobs, limit or chips.memory_limit(devices[0]))
    return [_of_seeds(job, len(config.seeds)) if config.seeds else job for job in whole]


def _with_evaluations(config, stack_jobs: list[Job], limit: float | None) -> list[Job]:
    """The jobs with the calls of an evaluation's batch, sized as in a run (`evaluation.sizes`)."""
    samples, seeds = config.eval.samples + 1, len(config.seeds) or 1
    held = sum(map(memory.state_bytes, stack_jobs))

    def calls(job: Job, items: int) -> tuple[Call, ...]:
        return sampler_calls.of_evaluation(config, job.stack.agents, items, samples)

    def items(job: Job) -> int:
        of_item, of_training = (
            max((memory.sampler_cache(job, call) for call in of), default=0.0)
            for of in (calls(job, 1), job.calls)
        )
        return sizes.items_that_fit(of_item, of_training, held, limit and limit / seeds, samples)

    number = min(map(items, stack_jobs))
    return [dataclasses.replace(job, eval_calls=calls(job, number)) for job in stack_jobs]


def _of_seeds(job: Job, seeds: int) -> Job:
    """The job of several seeds that are trained together: ``seeds`` times as many agents, side by side."""

    def side_by_side(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{s}.{name}" for s in range(seeds) for name in names)

    def calls(one: Sequence[Call]) -> tuple[Call, ...]:
        return tuple(dataclasses.replace(call, agents=side_by_side(call.agents)) for call in one)

    critics = tuple(dataclasses.replace(each, names=side_by_side(each.names)) for each in job.critics)
    return dataclasses.replace(
        job,
        stack=dataclasses.replace(job.stack, agents=side_by_side(job.stack.agents)),
        calls=calls(job.calls),
        eval_calls=calls(job.eval_calls),
        batches=calls(job.batches),
        critics=critics,
    )


def _layout(config, devices: Sequence[jax.Device]) -> sharding.Layout:
    c = config.mesh
    if c.agent * c.data * c.model == 1:
        return sharding.ONE_DEVICE
    return sharding.Layout(sharding.make_mesh(c.agent, c.data, c.model, devices), c.fsdp)


def _job(config, name: str, agents: tuple[str, ...], layout: sharding.Layout, devices) -> Job:
    policy = Policy(models.of_config(config, name), jnp.dtype(config.policy.dtype), config.policy.remat)
    needed = config.sampling.max_prompt_tokens + agent_settings.longest(config)
    if needed > policy.config.max_positions:
        raise UserError(
            f"sampling.max_prompt_tokens + max_new_tokens = {needed} is more than the context of {name!r}, "
            f"{policy.config.max_positions} tokens"
        )
    mesh_checks.refuse_uncut(config.mesh.model, name, policy.config)
    stack_layout = layout.for_stack(len(agents), policy.config)
    policy = stack_layout.policy(policy)
    c = config.team
    scale = c.alpha / c.rank if c.mode == "adapters" else 1.0
    # As `team.build` does on such devices.
    dtype = jnp.dtype(config.sampling.dtype or policy.dtype)
    policy, sampler = attending(policy, dtype, config.policy.attention, devices[0], layout)
    # No tokenizer is read: the token that ends a completion does not affect shapes.
    stack = Stack(agents, policy, (0,), c.mode, scale, (), sampler, stack_layout)
    loss = training.loss_config(config)
    # The longest completion of any agent stands for all of them.
    longest = dataclasses.replace(loss.sampling, agents=(), max_new_tokens=loss.sampling.longest)
    loss = dataclasses.replace(loss, sampling=longest)
    samples = config.train.group + config.train.partner_samples
    return Job(
        stack=on_platform(stack, devices[0].platform, bool(config.model_options.quantize)),
        rank=c.rank,
        targets=tuple(c.targets),
        keep_reference=references.keeps_base(config),
        width=Sizes({}, (), tuple(config.sampling.widths)).unplanned(config.sampling.max_prompt_tokens),
        calls=sampler_calls.of_training(config, agents, samples),
        eval_calls=(),
        batches=sampler_calls.of_update(config, agents),
        updates=workload.updates_per_iteration(config),
        loss=loss,
        optimizer=training.build_optimizer(config),
        devices=devices,
        critics=fitted_models.of(config, agents, stack_layout),
        base_dtype=dtypes.widened(config.model_options.dtype or models.stored_dtype(name), policy.dtype).name,
        param_dtype=config.train.param_dtype,
        quantise=config.model_options.quantize,
        keep_beginning=references.keeps_beginning(config),
    )


SETTINGS = {
    "mode": "team.mode",
    "remat": "policy.remat",
    "prompts": "train.prompts_per_microbatch",
    "tokens": "train.tokens_per_microbatch",
    "agent": "mesh.agent",
    "data": "mesh.data",
    "model": "mesh.model",
    "fsdp": "mesh.fsdp",
}


def settings(config) -> search.Settings:
    """The settings of a config that a plan may change."""
    return search.Settings(**{name: _field(config, path) for name, path in SETTINGS.items()})


def with_settings(config, new: search.Settings):
    """The config with other settings."""
    changed = config.copy_and_resolve_references()
    for name, path in SETTINGS.items():
        section, field = path.split(".")
        changed[section][field] = getattr(new, name)
    return changed


def refusal(config, new: search.Settings) -> str:
    """The first reason why the config cannot be trained with other settings; '' if it can."""
    try:
        validate(with_settings(config, new))
    except UserError as error:
        return str(error).splitlines()[:2][-1].strip()
    return ""


def flags(old: search.Settings, new: search.Settings) -> str:
    """Command-line flags that change ``old`` settings to ``new`` ones."""
    pairs = [(path, getattr(old, name), getattr(new, name)) for name, path in SETTINGS.items()]
    return " ".join(f"--config.{path}={after}" for path, before, after in pairs if before != after)


def choose_mesh(config, devices: Sequence[jax.Device], promising) -> search.Settings:
    """Settings with a mesh of all devices: the fastest by estimate among the promising ones.

    Among equally fast ones, the one that needs least memory.
    """
    agents, chip = math.gcd(len(config.team.agents), len(devices)), chips.of_device(devices[0])
    data = len(devices) // agents
    usual = settings(config)._replace(agent=agents, data=data, model=1, fsdp=data > 1)
    every = usual, *search.meshes(usual, limits(config))
    shapes = [s for s in every if not refusal(config, s) and promising(s)]
    if chip is None or not shapes:
        return usual

    def cost(shape: search.Settings) -> tuple[float, float]:
        stack_jobs = jobs(with_settings(config, shape), devices)
        return seconds(stack_jobs, chip), sum(map(memory.at_least, stack_jobs))

    return min(shapes, key=cost)


def seconds(stack_jobs: Sequence[Job], chip: chips.Chip) -> float:
    """Estimated lower bound of the seconds of an iteration."""
    return sum(phase.seconds(chip) for job in stack_jobs for phase in estimate.phases(job))


def limits(config) -> search.Limits:
    """Bounds of the search for settings."""
    policies = [models.of_config(config, name) for name in remote.stacks(config)]
    divided = math.gcd(*(number for policy in policies for number in (policy.n_heads, policy.d_ff)))
    return search.Limits(agents=len(config.team.agents), divided=divided)


def _field(config, path: str):
    section, field = path.split(".")
    return config[section][field]


def devices(name: str) -> tuple[list[jax.Device], str]:
    """The devices to plan for, of a topology or of this machine, and their name."""
    if name:
        jax.config.update("jax_platforms", "cpu")  # JAX need not search for a device that is only described
        return topology.devices(name), name
    return jax.devices(), "this machine"


def chooses_mesh(config, devices: int) -> bool:
    """Whether the plan chooses the mesh: the config has none but may have one, with several devices."""
    return _lacks_mesh(config, devices) and not refusal(config, _over(config, devices))


def why_no_mesh(config, devices: int) -> str:
    """Why the plan chooses no mesh of several devices for a config without mesh; '' if it chooses one."""
    return refusal(config, _over(config, devices)) if _lacks_mesh(config, devices) else ""


def _lacks_mesh(config, devices: int) -> bool:
    c = config.mesh
    return devices > 1 and c.agent * c.data * c.model == 1


def _over(config, devices: int) -> search.Settings:
    """The settings of the config on a mesh of several devices."""
    return settings(config)._replace(data=devices)


def measuring(config, devices: Sequence[jax.Device], limit: float | None, tries: int):
    """The functions ``measure`` and ``promising`` for `search.nearest`.

    ``measure`` compiles settings and returns whether they fit, and the memory of every stack's programs.
    ``promising`` returns, without compiling, whether settings are worth trying; after the first measurement
    it allows ``tries`` more.
    """
    left = tries + 1

    def jobs_and_bytes(settings: search.Settings) -> tuple[list[Job], list[float], float]:
        stack_jobs = jobs(with_settings(config, settings), devices, limit)
        held = [memory.state_bytes(job) for job in stack_jobs]
        # While an update overlaps with the next rollout, the rollout uses copies of the trained parameters;
        # parameters of several seeds are put side by side before every call.
        copied = config.train.overlap + (len(config.seeds) > 1)
        copies = float(copied * sum(map(memory.trainable_bytes, stack_jobs)))
        return stack_jobs, held, copies

    def promising(settings: search.Settings) -> bool:
        if left <= 0 or limit is None:
            return False
        stack_jobs, held, copies = jobs_and_bytes(settings)
        most = max(memory.at_least(job) - job_bytes for job, job_bytes in zip(stack_jobs, held, strict=True))
        return most + sum(held) + copies <= limit

    @functools.cache
    def measure(settings: search.Settings):
        nonlocal left
        left -= 1
        stack_jobs, held, copies = jobs_and_bytes(settings)
        others = [sum(held) - job_bytes + copies for job_bytes in held]
        programs = [memory.of_programs(job, other) for job, other in zip(stack_jobs, others, strict=True)]
        return all(memory.fits(compiled, limit) for compiled in programs), programs

    return measure, promising
