"""Joint actions as the data of a page's transcript browser: every text once, and no more than fits.

All of it is model output that nobody has looked at. It becomes JSON in pure ASCII without `<`, `>` and `&`,
so that nothing in it can end the element it stands in, and the page's script only ever shows it as text.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from jaxmarl_llm import transcripts
from jaxmarl_llm.analysis.report.runs import EvaluationData, RunData
from jaxmarl_llm.transcripts import AgentRecord, JointAction

LIMIT = 10_000_000  # characters of JSON; pictures come on top


@dataclasses.dataclass(frozen=True)
class Source:
    """A choice in the browser: the joint actions of one step of a run, or of an evaluation.

    ``name`` is that of the run or evaluation, ``part`` the iteration or mode.
    """

    name: str
    part: str
    actions: Sequence[JointAction]


def choose(steps: Sequence[int], number: int) -> list[int]:
    """At most ``number`` of the steps: the last, the first, and between them evenly spread ones."""
    if number >= len(steps):
        return list(steps)
    if number < 2:
        return list(steps[-1:]) if number else []
    return [steps[i * (len(steps) - 1) // (number - 1)] for i in range(number)]


def collect(
    runs: Sequence[RunData], evaluations: Sequence[EvaluationData], number: int, limit: int = LIMIT
) -> tuple[str, list[str]]:
    """The browser's data as text, and a sentence per run about what is in it.

    Evaluations are taken whole. Of each run there are ``number`` steps, or as often halved as it takes to
    stay below ``limit`` characters.
    """
    held = {run.name: transcripts.steps(run.folder) for run in runs}
    number = min(number, max(map(len, held.values()), default=0))
    chosen = {name: choose(steps, number) for name, steps in held.items()}
    read = {(run.name, step): transcripts.read(run.folder, step) for run in runs for step in chosen[run.name]}
    whole = [Source(e.name, mode, actions) for e in evaluations for mode, actions in e.actions.items()]
    while True:
        steps = [(name, step) for name in chosen for step in chosen[name]]
        sources = [Source(name, f"iteration {step}", read[name, step]) for name, step in steps]
        text = to_json(embed([*whole, *sources]))
        if len(text) <= limit or not steps:
            return text, [_sentence(name, chosen[name], held[name]) for name in chosen]
        number //= 2
        chosen = {name: choose(kept, number) for name, kept in chosen.items()}


def _sentence(name: str, chosen: Sequence[int], held: Sequence[int]) -> str:
    if not held:
        return f"{name} has no transcripts."
    if len(chosen) == len(held):
        return f"{name}: all {len(held)} iterations that have a transcript."
    return f"{name}: {len(chosen)} of the {len(held)} iterations ({', '.join(map(str, chosen)) or 'none'})."


def embed(sources: Sequence[Source]) -> dict[str, Any]:
    """The data: "texts" and "speeches", each thing once, and "sources" whose actions point into them.

    A speech is [agent, prompt, completion, prompt tokens, completion tokens, finish reason, sample,
    advantage, marginal, remark]; agent, prompt, completion and finish reason are indices of texts, remark is
    one of speeches.
    """
    texts: dict[str, int] = {}
    speeches: dict[tuple, int] = {}

    def text(value) -> int:
        return texts.setdefault(str(value), len(texts))

    def speech(agent: str, said: AgentRecord) -> int:
        entry = (
            text(agent), text(said.prompt), text(said.completion), _number(said.prompt_length),
            _number(said.completion_length), text(said.finish_reason), _number(said.sample),
            _number(said.advantage), _number(said.marginal),
            None if said.remark is None else speech(agent, said.remark),
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
        "interactions": [[text(value) for value in seen] for seen in action.interactions],
        "speeches": [speech(agent, said) for agent, said in action.agents.items()],
    }


def _number(value) -> float | int | None:
    """A number with six digits; None for what is none."""
    known = isinstance(value, int | float) and math.isfinite(value)
    return (float(f"{value:.6g}") if isinstance(value, float) else value) if known else None


def to_json(data) -> str:
    """JSON that can stand in a script element: ASCII (so also without U+2028 and U+2029), no <, > or &."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
