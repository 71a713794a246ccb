"""Check that programs are isolated and that the memory is large enough."""

from collections.abc import Mapping

import jax
import psutil

from jaxmarl_llm.analysis.doctor.result import check
from jaxmarl_llm.analysis.planning import chips
from jaxmarl_llm.executor import levels
from jaxmarl_llm.metrics import peak_rss_mb

FULL = 0.8  # warn above this share of the memory, as the estimate is a lower bound


@check("executor level")
def executor_level(level: int | None, reason: str = "", refusal: Exception | None = None) -> tuple[str, str]:
    """Report how strongly programs are isolated.

    Args:
      level: level of the executor; None if the task runs no programs.
      reason: why the level is not higher.
      refusal: the error of an executor that refused to start.
    """
    if refusal is not None:
        raise refusal
    if level is None:
        return "skipped", "the task runs no programs"
    text = f"{level} of {max(levels.NAMES)}, {levels.NAMES[level]}"
    text += f"; not higher: {reason}" if reason else ""
    if level >= levels.DEFAULT_MIN_LEVEL:
        return "ok", text
    return (
        "warn",
        f"{text}; programs can read files and use the network: set executor.min_level=2 where possible",
    )


@check("memory")
def memory(parts: Mapping[str, float], used_mb: float, there_mb: float | None) -> tuple[str, str]:
    """Compare the memory that training will hold with the memory available.

    Args:
      parts: MB on one device by purpose, as far as they can be counted.
      used_mb: peak MB of this process so far.
      there_mb: MB that programs may take; None if unknown.
    """
    needed = max(sum(parts.values()), used_mb)
    shown = ", ".join(f"{name} {size:.0f}" for name, size in parts.items())
    text = f"arrays of {sum(parts.values()):.0f} MB ({shown}); {used_mb:.0f} MB used at most so far"
    if there_mb is None:
        return "warn", f"{text}; how much there is is not known: compare with the device"
    text += f", {there_mb:.0f} MB there"
    if needed <= FULL * there_mb:
        return "ok", text
    advice = (
        "lower train.tokens_per_microbatch, train.prompts or train.group, set team.mode='adapters', or cut "
        "with mesh.*; experiments.plan says what fits"
    )
    return ("fail" if needed > there_mb else "warn"), f"{text}: {advice}"


def used_mb() -> float:
    """Peak MB so far: of programs on the first device, or of this process if the device is a CPU."""
    stats = None if jax.default_backend() == "cpu" else jax.local_devices()[0].memory_stats()
    return stats["peak_bytes_in_use"] / 1e6 if stats else peak_rss_mb()


def available_mb() -> float | None:
    """MB that programs may take on the first device; on a CPU the free memory plus that of this process."""
    if jax.default_backend() != "cpu":
        limit = chips.memory_limit(jax.local_devices()[0])
        return limit and limit / 1e6
    return (psutil.virtual_memory().available + psutil.Process().memory_info().rss) / 1e6
