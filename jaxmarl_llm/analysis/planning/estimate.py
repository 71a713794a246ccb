"""Lower bounds for the times of an iteration's phases: work and traffic over a chip's published rates."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxmarl_llm.analysis.planning import job as jobs
from jaxmarl_llm.analysis.planning import work
from jaxmarl_llm.analysis.planning.chips import Chip
from jaxmarl_llm.analysis.planning.job import Job
from jaxmarl_llm.analysis.planning.work import Work
from jaxmarl_llm.factory.sampler_calls import Call
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.utils import dtypes


@dataclasses.dataclass(frozen=True)
class Phase:
    """One phase of a stack's iteration.

    Attributes:
      name: what is done.
      needed: operations that the mathematics requires, of all agents on all devices.
      executed: operations of the busiest device.
      memory: bytes that it moves between memory and chip.
      links: bytes that it receives from other devices.
    """

    name: str
    needed: float
    executed: float
    memory: float
    links: float

    def seconds(self, chip: Chip) -> float:
        """Lower bound: the largest of the times of arithmetic, memory and links at their published rates."""
        return max(self.limits(chip).values())

    def limits(self, chip: Chip) -> dict[str, float]:
        """Seconds that arithmetic, memory and links each take alone."""
        return {
            "arithmetic": self.executed / chip.flops,
            "memory": self.memory / chip.hbm_bandwidth,
            "links": self.links / chip.link_bandwidth,
        }


def phases(job: Job) -> list[Phase]:
    """An iteration's phases (of prefill, decode and update), each summed over its calls or updates."""
    parts = {
        "prefill": [_prefill(job, call) for call in job.calls],
        "decode": [_decode(job, call) for call in job.calls],
    }
    if job.stack.mode != "frozen":
        batches = [_update(job, batch, first=i == 0) for i, batch in enumerate(job.batches)]
        parts["update"] = batches * job.updates
    return [_sum(name, part) for name, part in parts.items() if part]


def _sum(name: str, parts: list[Phase]) -> Phase:
    numbers = zip(*[dataclasses.astuple(part)[1:] for part in parts], strict=True)
    return Phase(name, *map(sum, numbers))


def model(job: Job) -> work.Model:
    """The job's model in the form that `work` reads."""
    return work.Model(job.config, job.stack.mode, job.rank, job.targets)


@dataclasses.dataclass(frozen=True)
class _Share:
    """One device's share of the arrays and the work of a call.

    Attributes:
      agents, copies: numbers of agents, and of different bases among them.
      weights: number of weights of one agent's model that the device multiplies with.
      gathered: number of these weights that other devices hold.
      itemsize: bytes of a number in the computation.
      kept: bytes of a stored weight.
      model: devices that share every product.
      inner: layers times features, whose partial sums these devices exchange.
    """

    agents: float
    copies: float
    weights: float
    gathered: float
    itemsize: int
    kept: float
    model: int
    inner: float

    def sums(self, tokens: float) -> float:
        """Bytes received to add up the partial products of ``tokens`` tokens, two sums per layer."""
        return 2 * 2 * (self.model - 1) / self.model * tokens * self.inner * self.itemsize

    @property
    def gather(self) -> float:
        """Bytes received to gather the weights of all its agents once."""
        return self.copies * self.gathered * self.kept


def _share(job: Job, agents: int, policy: Policy) -> _Share:
    cuts, layout, m = jobs.cuts(job.stack.layout, agents), job.stack.layout, model(job)
    local = agents / cuts.agent
    weights = m.parameters / cuts.model
    fsdp = layout.mesh is not None and layout.fsdp
    return _Share(
        agents=local,
        copies=local if m.mode == "full" else 1,
        weights=weights,
        gathered=weights * (cuts.rows - 1) / cuts.rows if fsdp else 0.0,
        itemsize=jnp.dtype(policy.dtype).itemsize,
        kept=jobs.bytes_of_weight(job),
        model=cuts.model,
        inner=job.config.n_layers * job.config.d_model,
    )


def _phase(
    name: str, total: Work, local: Work, share: _Share, reads: float, memory: float, tokens: float
) -> Phase:
    """A phase, from the work of all agents and that of one device.

    Args:
      total: work of all agents. local: one agent's work in this device's rows.
      reads: how often the device reads its weights. memory: other bytes that it moves.
      tokens: tokens whose partial products are added up between devices.
    """
    passes = reads * share.copies * share.weights * share.itemsize
    return Phase(
        name,
        total.needed,
        local.executed * share.agents / share.model,
        passes + memory,
        reads * share.gather + share.sums(tokens),
    )


def _prefill(job: Job, call: Call) -> Phase:
    m, n, share = model(job), len(call.agents), _share(job, len(call.agents), job.stack.sampler)
    prompts = jobs.cuts(job.stack.layout, n).of_rows(call.prompts)
    total, local = (work.prefill(m, p, job.width) for p in (call.prompts, prompts))
    cache = share.agents * prompts * jobs.cache_bytes(job, job.width, job.stack.sampler)
    return _phase("prefill", total * n, local, share, 1, cache, share.agents * prompts * job.width)


def _decode(job: Job, call: Call) -> Phase:
    m, n, share = model(job), len(call.agents), _share(job, len(call.agents), job.stack.sampler)
    cuts, rows, steps = jobs.cuts(job.stack.layout, n), call.prompts * call.samples, job.tokens - 1
    local_rows, prompts = cuts.of_rows(rows), cuts.of_rows(call.prompts)
    total, local = (work.decode(m, r, job.width, job.tokens) for r in (rows, local_rows))
    cached = prompts * jobs.cache_bytes(job, job.width, job.stack.sampler) + local_rows * jobs.cache_bytes(
        job, job.tokens, job.stack.sampler
    )
    return _phase(
        "decode",
        total * n,
        local,
        share,
        steps,
        steps * share.agents * cached,
        share.agents * local_rows * steps,
    )


def _update(job: Job, batch: Call, first: bool) -> Phase:
    m, n, share = model(job), len(batch.agents), _share(job, len(batch.agents), job.stack.policy)
    packed = jobs.pack(job, batch)
    sizes = _read(job, batch, packed)
    kl, remat = job.loss.reads_reference, job.stack.policy.remat
    total = work.update(m, sizes, remat, kl) * n
    local = work.update(m, sizes, remat, kl)
    groups, micro = packed.rows.tokens_MW.shape[:2]
    tokens = share.agents * (sizes.read_prompts * job.width + sizes.read_tokens)
    passes = 2 + (remat == "full") + kl  # forward, backward, and forward again
    learned = share.agents * (m.parameters if m.mode == "full" else m.adapter) / share.model
    fsdp = share.gathered > 0
    kept = learned / jobs.cuts(job.stack.layout, n).rows if fsdp else learned
    # Gradients of every micro-batch are added to the sum. AdamW reads and writes the weight and two moments,
    # and reads the gradient, which has the weight's dtype.
    weight, moments = (jnp.dtype(name).itemsize for name in (job.param_dtype, _moment_dtype(job)))
    step = 3 * weight + 4 * moments if first else 0
    traffic = kept * (3 * weight * groups * (1 + micro) + step)
    rows = jobs.cuts(job.stack.layout, n).rows
    summed = weight * learned * (rows - 1) / rows * groups * (1 + micro) * (1 if fsdp else 2)
    phase = _phase("update", total, local, share, passes * groups * (1 + micro), traffic, passes * tokens)
    return dataclasses.replace(phase, links=phase.links + summed)


def _moment_dtype(job: Job) -> str:
    """The dtype of the optimizer's moments."""
    state = jobs.parameters_and_state(job)[1]
    return next((x.dtype.name for x in jax.tree.leaves(state.opt_state) if dtypes.is_float(x)), "float32")


def _read(job: Job, batch: Call, packed) -> work.Update:
    """Count what one agent's shard of a packed batch holds, padding included."""
    groups, _, _, prompts = packed.prompts_XNDBP.shape[:4]
    _, micro, _, _, rows, width = packed.rows.tokens_MW.shape
    return work.Update(
        prompts=batch.prompts,
        width=job.width,
        completions=batch.prompts * batch.samples,
        tokens=job.tokens,
        read_prompts=groups * prompts,
        read_tokens=groups * micro * rows * width,
        row=width,
    )
