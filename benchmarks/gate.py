"""Measure what a gate changes for two cooks who plan rightly with probability .4: ReAd without a model.

    python -m benchmarks.gate --seeds=3

The cooks are scripts (`tasks.worlds.planner`), the rest is as in any run: configs/world.py:kitchen,gated,
evaluated as `experiments.evaluate` does, with samples of every start. Rows: no gate (the same cooks in a
pipeline), exact values of actions, learned ones, and a control: exact values of another state and action than
each question's. These carry no information and must change nothing. Prints means over the seeds, with minimum
and maximum in brackets: share of episodes that served all orders within the step limit, steps (an unfinished
episode counts as the limit), questions, share that was refused, answers that count although they were
refused, and for learned values the share of questioned actions that were in their data.
"""

import argparse

import numpy as np

from configs import world
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import evaluations, gates
from jaxmarl_llm.utils import console

COLUMNS = ("done", "steps", "questions", "refused", "fallbacks", "seen")
EPS = (0.0, 0.02, 0.05)
ARMS = {
    "no gate": {"train.protocol": "pipeline", "gate.retries": 10},
    **{f"exact, eps {eps:g}": {"gate.q": "exact", "gate.eps": eps} for eps in EPS},
    **{f"learned, eps {eps:g}": {"gate.q": "learned", "gate.eps": eps} for eps in EPS},
    "permuted, eps 0": {"gate.q": "permuted"},
    **{f"joint, {q}, eps 0": {"gate.q": q, "gate.mode": "joint"} for q in ("exact", "learned", "permuted")},
}


def measure(fields: dict, seed: int, samples: int) -> list[float]:
    """The numbers of `COLUMNS` of one row; NaN if it has none."""
    config = world.get_config("kitchen,gated")
    config.update_from_flattened_dict(fields | {"seed": seed, "eval.samples": samples})
    validate(config)
    counts = evaluations.evaluate_run(config, split="all")[1]["sampled"]["counts"]
    seen = gates.metrics(config).get("gate/seen", np.nan)
    return [*(counts[name]["mean"] for name in COLUMNS[:-1]), seen]


def cell(values: np.ndarray) -> str:
    """The mean over seeds, with minimum and maximum."""
    if np.isnan(values).any():
        return ""
    return f"{values.mean():.3g} [{values.min():.3g}, {values.max():.3g}]"


def main(argv=None) -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ..")
    parser.add_argument("--samples", type=int, default=16, help="episodes of each of the six starts")
    parser.add_argument("--arms", default="", help="rows that begin so; empty: all")
    args = parser.parse_args(argv)
    chosen = {name: fields for name, fields in ARMS.items() if name.startswith(args.arms)}
    rows = []
    for name, fields in chosen.items():
        values = np.array([measure(fields, seed, args.samples) for seed in range(args.seeds)])
        rows.append((name, *map(cell, values.T)))
        print(*rows[-1], sep=" | ", flush=True)
    console.table(rows, ("gate", *COLUMNS), f"{args.seeds} seeds, {6 * args.samples} episodes each")


if __name__ == "__main__":
    main()
