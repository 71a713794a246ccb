"""The plan that a run prints before it starts: the parts of an iteration, and its memory."""

import dataclasses
import math

import jax

from jaxmarl_llm.config import agent_settings, engine, imitation, workload
from jaxmarl_llm.config.options import is_dotted
from jaxmarl_llm.factory import evaluations, references
from jaxmarl_llm.sharding import AXES, ONE_DEVICE
from jaxmarl_llm.update import token_scores
from jaxmarl_llm.utils import device_memory


def _megabytes(tree) -> float:
    """MB on one device; a shape without a sharding counts in full."""

    def held(x) -> int:
        return math.prod(x.sharding.shard_shape(x.shape) if x.sharding else x.shape) * x.dtype.itemsize

    return sum(map(held, jax.tree.leaves(tree))) / 1e6


def widths(prompt_sizes, team, ahead: bool) -> list[str]:
    """A line for every stack whose prompts have fixed widths: the widths, and the number of their programs.

    ``ahead``: whether the programs are compiled before they are needed.
    """
    when = ", compiled together when the first of them is called" if ahead else ""
    lines = []
    for sizes, member in zip(prompt_sizes, team.members, strict=True):
        if sizes and sizes.ladder:
            number, names = len(sizes.ahead), ", ".join(map(str, sizes.ahead))
            lines.append(
                f"prompts of {', '.join(member.stack.agents)}: padded to {names} tokens; {number} + {number} programs "
                f"of sampler and update for every number of prompts{when}"
            )
    return lines


def _devices(config, team) -> list[tuple[str, str]]:
    """The sharding of the arrays as a table row; [] without sharding."""
    sizes = {axis: config.mesh[axis] for axis in AXES}
    if math.prod(sizes.values()) == 1:
        return []
    stacks = [member.stack for member in team.members if not member.remote]
    kinds = "".join(
        f", parameters of {', '.join(stack.agents)} along {' and '.join(stack.layout.gathered)} too"
        for stack in stacks
        if stack.layout.gathered
    )
    cut = " x ".join(f"{size} {axis}" for axis, size in sizes.items())
    return [("devices", f"{cut}{kinds}; memory below is of one, of cache and logits of all")]


def _servers(config) -> list[tuple[str, str]]:
    """The servers that sample completions as a table row; [] if this process samples."""
    return [("drawn by", ", ".join(config.engine.servers))] if engine.by_servers(config) else []


def memory(config, team, states, seeds: int = 1) -> dict[str, float]:
    """MB that an iteration holds on one device, by purpose; activations are not counted.

    ``states`` may hold shapes. Cache and logits are counted for all devices together. ``seeds``: number of
    seeds trained together, which multiplies everything but the base.
    """
    members = [m for m in team.members if not m.remote]
    policies = [m.stack.policy.config for m in members]
    # As on a single device: the whole cache, not a shard.
    caches = [
        evaluations.training_cache_bytes(config, dataclasses.replace(m.stack, layout=ONE_DEVICE))
        for m in members
    ]
    cache = sum(caches) / 1e6
    of_each: dict[str, float] = {
        "learned": sum(_megabytes(s.trainable) for s in states.values()),
        "optimizer": sum(_megabytes(s.opt_state) for s in states.values()),
        "cache": cache,
        "logits": 3 * _logits_tokens(team) * max((p.vocab_size for p in policies), default=0) * 4 / 1e6,
    }
    if references.keeps_beginning(config):  # also before the training starts
        of_each["reference"] = of_each["learned"]
    base = sum(_megabytes(m.base) for m in members)
    return {"base": base} | {name: seeds * size for name, size in of_each.items()}


def planned_mb(config, team, states, models, seeds: int = 1) -> float:
    """Planned MB of one device: `memory`, `beside` and the gradients; activations are not counted."""
    parts, (learned, optimizer) = memory(config, team, states, seeds), beside(models)
    return sum(parts.values()) + seeds * (learned + optimizer) + max(parts["learned"], seeds * learned)


def used(config, team, states, models, seeds: int = 1) -> dict[str, float]:
    """`planned_mb` and the peak MB used on a device; {} if the backend does not report it, as on a CPU."""
    most = device_memory.peak(jax.local_devices()[0])
    if most is None:
        return {}
    return {"planned_mb": planned_mb(config, team, states, models, seeds), "peak_mb": most / 1e6}


def beside(models) -> tuple[float, float]:
    """MB of trained parameters, and of their optimizer states; ``models``: train states or their shapes."""
    parts = ([getattr(s, part) for s in models.values()] for part in ("trainable", "opt_state"))
    return tuple(map(_megabytes, parts))


def _beside(models, seeds: int) -> list[tuple[str, str]]:
    """Memory of critics and similar models as a table row; [] if there are none."""
    if not models:
        return []
    learned, optimizer = (seeds * size for size in beside(models))
    text = f"{learned:.1f} + {optimizer:.1f} MB, beside the agents"
    return [("memory: critics + optimizer", text)]


def _reference(size: dict[str, float]) -> list[tuple[str, str]]:
    """Memory of the copy of the initial parameters as a table row; [] if the reference needs none."""
    return [("memory: reference policy", f"{size['reference']:.0f} MB")] if "reference" in size else []


def _logits_tokens(team) -> int:
    """Tokens whose logits an update holds at a time."""
    return max((token_scores.CHUNK * len(m.stack.agents) for m in team.members if not m.remote), default=0)


def plan_rows(config, team, task, states, models, seeds: int = 1) -> list[tuple[str, str]]:
    """The sizes of an iteration and the device memory it needs, before anything is compiled.

    ``models``: states of the models that the system trains beside the agents. ``seeds``: number of runs
    trained together, as in `memory`.
    """
    c, b, size = config.train, config.train.prompts, memory(config, team, states, seeds)
    learners = ", ".join(agent for agent in team.agents if not team[agent].remote)
    return [
        *_answers(config, len(team.agents)),
        ("iterations", f"{c.steps}; {-(-len(task.items) // b)} are an epoch of {len(task.items)} problems")
        if not imitation.draws_nothing(config)
        else ("iterations", str(c.steps)),
        *_devices(config, team),
        *_servers(config),
        *_seeds(seeds),
        ("memory: shared base", f"{size['base']:.0f} MB"),
        (
            "memory: learned + optimizer",
            f"{size['learned']:.0f} + {size['optimizer']:.0f} MB for {learners}",
        ),
        *_reference(size),
        *_beside(models, seeds),
        ("memory: cache (sampling)", f"at most {size['cache']:.0f} MB"),
        (
            "memory: logits (update)",
            f"about {size['logits']:.0f} MB for {seeds * _logits_tokens(team)} tokens at a time",
        ),
    ]


def _answers(config, agents: int) -> list[tuple[str, str]]:
    """Completions sampled, judged and learned from, as table rows; less is known of a user's own protocol."""
    c, nodes = config.train, workload.nodes(config)
    if imitation.draws_nothing(config):
        read = f"{config.sft.batch} x {agents}: texts of up to {agent_settings.longest(config)} tokens"
        return [("demonstrations x agents", read), ("optimizer steps", f"{c.minibatches} per agent")]
    if is_dotted(c.protocol):
        return [("who speaks when", f"{c.protocol}, for {c.prompts} problems")]
    updates = workload.updates_per_iteration(config)
    drawn = workload.completions(config) - workload.counterfactual_completions(config)
    made = f"{drawn} completions, up to {agent_settings.longest(config)} tokens"
    samples = f"({c.group} + {c.partner_samples})" if c.partner_samples else c.group
    samples = f"{samples}, then {c.later_samples}" if c.later_samples else samples
    return [
        (
            f"{'problems' if c.turns == 1 else 'nodes of each turn'} x agents x samples",
            f"{' + '.join(map(str, nodes))} x {agents} x {samples}: {made}",
        ),
        ("joint answers judged", f"{workload.joint_answers(config)} ({c.joint_mode}), equal ones once"),
        *_counterfactuals(config),
        *_further_draws(c),
        ("optimizer steps", f"{updates} per agent, on {workload.learned(config)} completions each"),
    ]


def _counterfactuals(config) -> list[tuple[str, str]]:
    """The counterfactual answers judged in addition, as a table row; [] if there are none."""
    if not config.train.counterfactual:
        return []
    drawn = workload.counterfactual_completions(config)
    text = f"up to {workload.counterfactual_answers(config)} more, {drawn} completions drawn for them"
    return [(f"without an agent's part ({config.train.counterfactual})", text)]


def _seeds(seeds: int) -> list[tuple[str, str]]:
    """The number of runs that share the memory as a table row; [] for one run."""
    text = f"{seeds} at the same time, each does all that is above; memory below is of all, and at times"
    return [("seeds", f"{text} what they learn is there twice")] if seeds > 1 else []


def _further_draws(c) -> list[tuple[str, str]]:
    """How often an iteration may sample again, as a table row; [] if it may not."""
    text = f"up to {c.redraw}, each of all that is above, in place of problems without a signal"
    return [("further draws", text)] if c.redraw else []
