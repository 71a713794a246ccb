"""Measure the overhead in milliseconds of sending completions through the callback, with a free reward.

    python -m benchmarks.bridge_overhead
    python -m benchmarks.bridge_overhead --prompts=16 --samples=8 --joint_mode=aligned

Scores batches of token arrays twice: through the bridge (`TaskScorer.judge`: message, compiled program,
callback, rewards back) and by a plain call of the same scorer on the host. The difference is the bridge's.
Each batch has other tokens and another number of rows, as the turns of an iteration do. The table shows
medians and maxima; compiling has its own row, and all batches use one program.
"""

import argparse
import statistics
import time
from types import SimpleNamespace

import numpy as np

from benchmarks.tables import markdown
from jaxmarl_llm.rollout import bridge
from jaxmarl_llm.rollout.scoring import TaskScorer

AGENTS = ("aux", "main")
FREE = SimpleNamespace(total=1.0)


class FreeTask:
    """Every joint answer earns 1."""

    agents = AGENTS

    def __init__(self, number: int):
        self.items = range(number)

    def judge(self, items, completions):
        """The same reward for all."""
        return [FREE] * len(items)


class Numbers:
    """A tokenizer whose texts cost next to nothing."""

    def decode_completions(self, tokens_RL, lengths_R) -> list[str]:
        """One text for all rows."""
        return [""] * len(lengths_R)


def batches(prompts: int, samples: int, width: int, repeats: int) -> list[tuple]:
    """Token arrays, lengths and items of ``repeats`` batches, of one to four times ``prompts`` rows."""
    random, data = np.random.default_rng(0), []
    for n in range(repeats):
        rows = prompts << n % 3
        tokens = {a: random.integers(0, 1000, (rows, samples, width), np.int32) for a in AGENTS}
        lengths = {a: random.integers(1, width + 1, (rows, samples)).astype(np.int32) for a in AGENTS}
        data.append((tokens, lengths, np.arange(rows, dtype=np.int32) % prompts))
    return data


def measure(prompts: int, samples: int, width: int, joint_mode: str, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of the first call, of calls through the bridge, of plain calls, and of the overhead."""
    scorer = TaskScorer(FreeTask(prompts), dict.fromkeys(AGENTS, Numbers()), joint_mode)
    data = batches(prompts, samples, width, repeats + 3)
    bridge._program.cache_clear()
    compiling = [_milliseconds(scorer.judge, data[2])]  # the largest comes first
    bridged = [_milliseconds(scorer.judge, batch) for batch in data[3:]]
    plain = [_milliseconds(scorer, batch) for batch in data[3:]]
    overhead = [one - other for one, other in zip(bridged, plain, strict=True)]
    rows = {"first call (compiles)": compiling, "through the bridge": bridged, "plain call": plain}
    return rows | {"the bridge's overhead": overhead}


def _milliseconds(function, arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return 1000 * (time.perf_counter() - start)


def main():
    """Print the table."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--prompts", type=int, default=4, help="problems of an iteration")
    parser.add_argument("--samples", type=int, default=8, help="completions of each agent for a problem")
    parser.add_argument("--width", type=int, default=96, help="tokens of a completion")
    parser.add_argument("--joint_mode", choices=("aligned", "cross"), default="cross")
    parser.add_argument("--repeats", type=int, default=60)
    args = parser.parse_args()
    milliseconds = measure(args.prompts, args.samples, args.width, args.joint_mode, args.repeats)
    rows = [(name, f"{statistics.median(ms):.2f}", f"{max(ms):.2f}") for name, ms in milliseconds.items()]
    print(markdown(("ms a batch", "median", "greatest"), rows))
    print(f"\nprograms compiled: {bridge._program.cache_info().misses}")


if __name__ == "__main__":
    main()
