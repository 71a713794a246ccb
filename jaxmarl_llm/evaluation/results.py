"""Evaluations as JSON data and files: scores with intervals, pass@k, verdicts, every answer."""

import math
import pathlib

from jaxmarl_llm.evaluation import scores
from jaxmarl_llm.transcripts import TranscriptWriter
from jaxmarl_llm.utils import formats
from jaxmarl_llm.utils.statistics import bootstrap

MODES = ("sampled", "greedy")


def describe(evaluation: scores.Evaluation, ks) -> dict:
    """An evaluation as JSON data; scores and pass@k with their intervals on the 0..100 scale.

    A score that applied to no answer is null. pass@k is given for every k that the samples allow, if the
    answers were tested.
    """
    samples = len(evaluation.actions_BG[0])
    values = evaluation.scores()
    for k in ks if evaluation.tested else ():
        values |= evaluation.pass_scores(k) if k <= samples else {}
    return {
        "samples": samples,
        **({"answer_tokens": evaluation.answer_tokens()} if evaluation.tokens_BG else {}),
        "scores": _ends(values),
        **({"counts": _ends(evaluation.counts())} if evaluation.counts_BG else {}),
        "agents": {
            agent: {
                "completion_length": evaluation.completion_length(agent),
                "truncated": evaluation.truncated(agent),
            }
            for agent in evaluation.agents
        },
        "verdicts": evaluation.verdicts(),
        "items": [
            {"item": row[0].item, "totals": [a.total for a in row], "verdicts": [a.verdict for a in row]}
            | {name: _number(values[name][b]) for name in ("return", "pass@1") if name in values}
            for b, row in enumerate(evaluation.actions_BG)
        ],
    }


def _ends(values: dict) -> dict:
    """Means over the items with their intervals, by name."""
    means = {name: bootstrap.interval(per_item)._asdict() for name, per_item in values.items()}
    return {name: {key: _number(x) for key, x in ends.items()} for name, ends in means.items()}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def write(path, results: dict, report: dict) -> None:
    """Write the report as JSON, and a folder of the same name with every answer of each mode."""
    path = pathlib.Path(path)
    for mode, evaluation in results.items():
        TranscriptWriter(path.with_suffix("") / mode).write(report["step"], evaluation.all_actions)
    formats.write(path, report)
