"""Evaluations as JSON data and files: scores with intervals, pass@k, verdicts, every answer."""

import json
import math
import pathlib

from jaxmarl_llm.evaluation import scores
from jaxmarl_llm.transcripts import TranscriptWriter
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.statistics import bootstrap

MODES = ("sampled", "greedy")


def describe(found: scores.Evaluation, ks) -> dict:
    """An evaluation as JSON data; scores and pass@k with their intervals on the 0..100 scale.

    A score that applied to no answer is null. pass@k is there for every k that the samples allow, if the
    answers were tested.
    """
    samples = len(found.actions_BG[0])
    values = found.scores()
    for k in ks if found.tested else ():
        values |= found.pass_scores(k) if k <= samples else {}
    means = {name: bootstrap.interval(per_item)._asdict() for name, per_item in values.items()}
    return {
        "samples": samples,
        **({"answer_tokens": found.answer_tokens()} if found.tokens_BG else {}),
        "scores": {name: {key: _number(x) for key, x in ends.items()} for name, ends in means.items()},
        "agents": {
            agent: {"completion_length": found.completion_length(agent), "truncated": found.truncated(agent)}
            for agent in found.agents
        },
        "verdicts": found.verdicts(),
        "items": [
            {"item": row[0].item, "totals": [a.total for a in row], "verdicts": [a.verdict for a in row]}
            | {name: _number(values[name][b]) for name in ("return", "pass@1") if name in values}
            for b, row in enumerate(found.actions_BG)
        ],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def write(path, results: dict, report: dict) -> None:
    """The report as JSON, and beside it a folder of the same name with every answer, for each mode."""
    path = pathlib.Path(path)
    for mode, found in results.items():
        TranscriptWriter(path.with_suffix("") / mode).write(report["step"], found.all_actions)
    files.atomic_write_text(path, json.dumps(report, indent=2, allow_nan=False) + "\n")
