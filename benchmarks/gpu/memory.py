"""The most memory of a device that iterations take, beside what `experiments.plan` counts for them."""

import jax

from benchmarks import ours
from benchmarks.gpu import rows
from benchmarks.gpu.cells import Case
from jaxmarl_llm.analysis.planning import from_config
from jaxmarl_llm.analysis.planning import memory as planned
from jaxmarl_llm.utils import device_memory

ITERATIONS = 2
GIB = 2.0**30


def measure(case: Case, model: str) -> list[dict]:
    """One row; run it in a process that has computed nothing, as a device's peak is that of the process."""
    config = case.config(model)
    side = ours.Ours(config)
    for _ in range(ITERATIONS):
        side.ask("iteration", case.new_tokens)
    used = device_memory.peak(jax.devices()[0])  # before the plan, whose compiler may try kernels out
    (job,) = from_config.jobs(config, jax.devices()[:1])
    programs = {"sampler": planned.of_sampler(job, job.calls[0]), "update": planned.of_update(job)}
    return [rows.machine() | row({name: program.total for name, program in programs.items()}, used)]


def row(plan: dict[str, float], used: float | None) -> dict:
    """GiB of each program by the plan, GiB used, and the ratio of these to the plan's fullest program."""
    values: dict = {f"plan of {name}, GiB": total / GIB for name, total in plan.items()}
    if used is None:
        return values | {"peak, GiB": "not known", "peak / plan": "-"}
    return values | {"peak, GiB": used / GIB, "peak / plan": used / max(plan.values())}
