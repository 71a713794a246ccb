"""Joint actions as the data of a page's transcript browser: every text once, in a limited size.

All data are unchecked model output. They become pure ASCII JSON without `<`, `>` and `&`, so that nothing in
them can end the surrounding script element, and the page's script only shows them as text.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from jaxmarl_llm import transcripts
from jaxmarl_llm.analysis.report.runs import EvaluationData, RunData
from jaxmarl_llm.transcripts import AgentRecord, JointAction

STEPS = 12  # maximal number of iterations of a run on the page
LIMIT = 10_000_000  # characters of JSON; pictures come on top


@dataclasses.dataclass(frozen=True)
class Source:
    """An entry that the browser offers: the joint actions of one step of a run, or of an evaluation.

    ``name`` is that of the run or evaluation, ``part`` the iteration or mode.
    """

    name: str
    part: str
    actions: Sequence[JointAction]


def choose(steps: Sequence[int], number: int) -> list[int]:
    """Choose at most ``number`` of the steps: the last, the first, and evenly spread ones in between."""
    if number >= len(steps):
        return list(steps)
    if number < 2:
        return list(steps[-1:]) if number else []
    return [steps[i * (len(steps) - 1) // (number - 1)] for i in range(number)]


def collect(
    runs: Sequence[RunData], evaluations: Sequence[EvaluationData], number: int, limit: int = LIMIT
) -> tuple[str, list[str]]:
    """The browser's data as text, and a sentence per run about what is in it.

    Evaluations are included completely, runs with at most ``number`` steps each; the number is halved until
    the text has no more than ``limit`` characters.
    """
    steps_by_run = {run.name: transcripts.steps(run.folder) for run in runs}
    number = min(number, max(map(len, steps_by_run.values()), default=0))
    chosen = {name: choose(steps, number) for name, steps in steps_by_run.items()}
    actions_by_step = {
        (run.name, step): transcripts.read(run.folder, step) for run in runs for step in chosen[run.name]
    }
    evaluated = [Source(e.name, mode, actions) for e in evaluations for mode, actions in e.actions.items()]
    while True:
        steps = [(name, step) for name in chosen for step in chosen[name]]
        sources = [Source(name, f"iteration {step}", actions_by_step[name, step]) for name, step in steps]
        text = to_json(embed([*evaluated, *sources]))
        if len(text) <= limit or not steps:
            return text, [_sentence(name, chosen[name], steps_by_run[name]) for name in chosen]
        number //= 2
        chosen = {name: choose(kept, number) for name, kept in chosen.items()}


def _sentence(name: str, chosen: Sequence[int], held: Sequence[int]) -> str:
    if not held:
        return f"{name} has no transcripts."
    if len(chosen) == len(held):
        return f"{name}: all {len(held)} iterations that have a transcript."
    return f"{name}: {len(chosen)} of the {len(held)} iterations ({', '.join(map(str, chosen)) or 'none'})."


def embed(sources: Sequence[Source]) -> dict[str, Any]:
    """The browser's data: "texts" and "speeches", each once, and "sources", whose actions hold their indices.

    A speech is [agent, prompt, message, prompt tokens, completion tokens, finish reason, sample,
    advantage, marginal, remark]; agent, prompt, message and finish reason are indices of texts, remark is
    one of speeches.
    """
    texts: dict[str, int] = {}
    speeches: dict[tuple, int] = {}

    def text(value) -> int:
        return texts.setdefault(str(value), len(texts))

    def speech(agent: str, record: AgentRecord) -> int:
        entry = (
            text(agent), text(record.prompt), text(record.message), _number(record.prompt_length),
            _number(record.completion_length), text(record.finish_reason), _number(record.sample),
            _number(record.advantage), _number(record.marginal),
            None if record.remark is None else speech(agent, record.remark),
        )  # fmt: skip
        return speeches.setdefault(entry, len(speeches))

    embedded = [
        {"name": s.name, "part": s.part, "actions": [_action(action, text, speech) for action in s.actions]}
        for s in sources
    ]
    return {"texts": list(texts), "speeches": list(speeches), "sources": embedded}


def _action(action: JointAction, text: Callable, speech: Callable) -> dict[str, Any]:
    return {
        "item": text(action.item),
        "verdict": text(action.verdict),
        "total": _number(action.total),
        "parts": [[text(name), _number(value)] for name, value in action.parts.items()],
        "turn": _number(action.turn),
        "follows": _number(action.follows),
        "failures": [text(failure) for failure in action.failures],
        "interactions": [[text(value) for value in interaction] for interaction in action.interactions],
        "speeches": [speech(agent, record) for agent, record in action.agents.items()],
        "heard": [speech(agent, record) for agent, record in action.heard],
    }


def _number(value) -> float | int | None:
    """A number with six digits; None for anything but finite numbers."""
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return (float(f"{value:.6g}") if isinstance(value, float) else value) if is_number else None


def to_json(data) -> str:
    """JSON that is safe in a script element: ASCII (so without U+2028 and U+2029), no <, > or &."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
