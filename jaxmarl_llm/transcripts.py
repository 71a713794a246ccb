"""Transcripts: one record per joint action, all agents together, one file per step.

`transcripts/step_00012.jsonl` holds the joint actions of step 12. A file appears complete or not at all.
"""

import dataclasses
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

from jaxmarl_llm.utils import formats
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.files import atomic_write_text, read_json_lines

FOLDER_NAME = "transcripts"


@dataclasses.dataclass(frozen=True)
class AgentRecord:
    """The prompt and the answer of one agent.

    prompt and completion are texts as the model saw and wrote them; the lengths are in tokens. sample is the
    index in the group of this agent's samples, finish_reason is 'stop' or 'length', advantage is what the
    update used (None in evaluation). marginal is the joint answer's reward less that without this part (None
    where that is not known). id numbers the completions of the step, and parent is the id of the one that
    this one continues, None for none (both are None in evaluation and in transcripts of earlier versions).

    remark is the agent's only completion that continues this one and is no answer itself, None for none: in
    rounds of programs its lesson (LessonL) or reflection (Reflexion) about this program, or the plan of its
    next one (MapCoder).

    prefix is the text that the completion continues, the end of the prompt (`Turn.prefix`; '' in transcripts
    of earlier versions).

    prompt_ids and completion_ids are the token ids, and logprobs the log-probabilities in nats of the
    completion's tokens when they were sampled; None without `log.transcript_tokens`.
    """

    prompt: str
    completion: str
    prompt_length: int
    completion_length: int
    finish_reason: str
    sample: int
    advantage: float | None = None
    marginal: float | None = None
    remark: "AgentRecord | None" = None
    id: int | None = None
    parent: int | None = None
    prompt_ids: tuple[int, ...] | None = None
    completion_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    prefix: str = ""

    @property
    def message(self) -> str:
        """All that the agent has written in its message, which is what was judged."""
        return self.prefix + self.completion


@dataclasses.dataclass(frozen=True)
class JointAction:
    """One joint answer to one item: an `AgentRecord` per agent, and the judgement of the team.

    parts are the reward's named parts and total their sum on the reward's own scale (None: does not apply);
    verdict and failures come from the executor or the task. interactions: [caller, callee, function, calls,
    returned, raised, used] per function of one agent that another one called. turn counts the answers in a
    row from 0, follows is the index (from 0) in its step's file of the answer before this one, problem the
    item's index among those of the step (None as for ``id``). heard are the completions, each with its
    agent's name, that led to this answer without being part of it: the first answers of a discussion, and in
    rounds of programs the plan (MapCoder), lessons (LessonL) or reflections (Reflexion) that came before it,
    which are also remarks of earlier answers; and texts about it that no agent reads (the instructions of
    shortcuts, experience). done: an episode ended with it (worlds). Numbers that are not finite are stored
    as null.
    """

    step: int
    item: str
    agents: dict[str, AgentRecord]
    parts: dict[str, float | None]
    total: float | None
    verdict: str
    failures: tuple[str, ...] = ()
    turn: int = 0
    follows: int | None = None
    interactions: tuple[tuple, ...] = ()
    problem: int | None = None
    heard: tuple[tuple[str, AgentRecord], ...] = ()
    done: bool = False

    @property
    def outcome(self) -> str:
        """The reward as text, with the verdict if there is one: "reward 1.20, pass"."""
        total = "none" if self.total is None else f"{self.total:.2f}"
        return f"reward {total}, {self.verdict}" if self.verdict else f"reward {total}"


class TranscriptWriter:
    """Write `folder/transcripts/step_*.jsonl`."""

    def __init__(self, folder):
        self._folder = Path(folder)

    def write(self, step: int, actions: Sequence[JointAction]) -> Path:
        """Write all joint actions of a step at once, in order, in place of that step's earlier file."""
        for action in actions:
            if action.step != step:
                raise UserError(f"item {action.item!r} says step {action.step}, the file is for step {step}")
        records = [formats.marked(_plain(dataclasses.asdict(action))) for action in actions]
        lines = [json.dumps(record, allow_nan=False) for record in records]
        return atomic_write_text(_path(self._folder, step), "".join(line + "\n" for line in lines))


def read(folder, step: int) -> list[JointAction]:
    """The joint actions of a step of the run in `folder`.

    Raises ValueError naming the steps that exist if this one does not, or the file and line that is damaged.
    """
    path = _path(Path(folder), step)
    if not path.exists():
        existing = steps(folder)
        held = f"{len(existing)} steps from {existing[0]} to {existing[-1]}" if existing else "none"
        raise UserError(f"no transcript of step {step} in {path.parent}; there are: {held}")
    return read_json_lines(path, lambda record: _action(formats.upgraded(record, path)))


def steps(folder) -> list[int]:
    """The steps that have a transcript, ascending."""
    paths = (Path(folder) / FOLDER_NAME).glob("step_*")
    matches = (re.fullmatch(r"step_(\d+)\.jsonl", path.name) for path in paths)
    return sorted(int(match[1]) for match in matches if match)


def _path(folder: Path, step: int) -> Path:
    if step < 0:
        raise UserError(f"step must be 0 or more, got {step}")
    return folder / FOLDER_NAME / f"step_{step:05d}.jsonl"


def _action(record: dict) -> JointAction:
    agents = {name: _agent_record(fields) for name, fields in record["agents"].items()}
    interactions = tuple(map(tuple, record.get("interactions", ())))
    heard = tuple((name, _agent_record(fields)) for name, fields in record.get("heard", ()))
    converted = {
        "agents": agents,
        "failures": tuple(record["failures"]),
        "interactions": interactions,
        "heard": heard,
    }
    return JointAction(**{**record, **converted})


def _agent_record(record: dict) -> AgentRecord:
    remark = record.get("remark")
    arrays = ("prompt_ids", "completion_ids", "logprobs")
    tuples = {name: tuple(record[name]) for name in arrays if record.get(name) is not None}
    return AgentRecord(**record | tuples | {"remark": None if remark is None else _agent_record(remark)})


def _plain(value):
    """Convert a tree to JSON's own types; NumPy and JAX scalars become numbers, non-finite ones None."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
