"""A finished run's answers under another reward: forests from transcripts, and which advantages change."""

import dataclasses
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.transcripts import AgentRecord, JointAction

ZERO = 1e-6  # an advantage of no more than this is none


@dataclasses.dataclass(frozen=True)
class Change:
    """The advantage of one completion before and after; ``sample`` as in `Turn`."""

    step: int
    item: str
    agent: str
    turn: int
    sample: int
    before: float
    after: float

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        old, new = (0 if abs(x) <= ZERO else np.sign(x) for x in (self.before, self.after))
        if old == new:
            return "kept"
        return "flipped" if old * new < 0 else "silenced" if new == 0 else "awakened"


KINDS = ("kept", "flipped", "silenced", "awakened")  # sign: the same, the other, none any more, one at last


def forest_of(
    actions: Sequence[JointAction],
    items: Mapping[str, Any],
    per_node: int,
    cross: bool,
    group: int | None = None,
) -> tuple[Forest, np.ndarray]:
    """The forest of a step's transcript, and the advantage of every turn as recorded, float32 (turns,).

    Args:
      actions: all joint answers of a step, in order.
      items: of the task, by ``task_id``.
      per_node: joint answers of one node, which follow each other.
      cross: whether they share completions (all combinations of the agents' samples).
      group: G, where later samples are those that nobody learns from (`Turn.extra`); None: there are none.

    Which completions and problems are the same is taken from ``id`` and ``problem``, in transcripts that have
    none from the places of the answers, which does for all protocols but trees.

    Prompts, tokens and turns that were heard without being part of an answer are not in a transcript:
    completions are zeros of the right length.

    Raises:
      ValueError: for an item that the task does not have, and answers that do not come in such nodes.
    """
    turns: list[Turn] = []
    joints: list[Joint] = []
    advantages: list[float] = []
    asked: list[Any] = []
    ids: dict[tuple, int] = {}
    places: dict[int, int] = {}  # of the problems among those asked
    for j, action in enumerate(actions):
        node, first = j // per_node, actions[j - j % per_node]
        whole = len(actions) % per_node == 0
        if not whole or _place(action) != _place(first):
            raise ValueError(f"step {action.step}: its joint answers are not nodes of {per_node} each")
        if action.item not in items:
            raise ValueError(f"step {action.step}: the task has no item {action.item!r}")
        if action.follows is not None:
            item = joints[action.follows].item
        else:
            item = places.setdefault(node if action.problem is None else action.problem, len(places))
            asked += [items[action.item]][: len(places) - len(asked)]
        said = []
        for agent, speech in action.agents.items():
            key = (node, agent, speech.sample if cross else j) if speech.id is None else (speech.id,)
            if key not in ids:
                ids[key] = len(turns)
                turn = _turn(len(turns), agent, item, action, speech, ids.get((speech.parent,)))
                extra = group is not None and speech.sample >= group
                turns.append(dataclasses.replace(turn, extra=extra))
                advantages.append(np.nan if speech.advantage is None else speech.advantage)
            said.append(ids[key])
        judgement = Judgement(action.parts, action.total, action.verdict, action.failures)
        joints.append(Joint(item, tuple(said), judgement, node, action.turn, action.follows))
    return Forest(tuple(asked), tuple(turns), tuple(joints)), np.array(advantages, np.float32)


def _turn(
    number: int, agent: str, item: int, action: JointAction, speech: AgentRecord, parent: int | None
) -> Turn:
    return Turn(
        id=number,
        request=number,
        agent=agent,
        item=item,
        turn=action.turn,
        sample=speech.sample,
        prompt=np.zeros(0, np.int32),
        completion=np.zeros(speech.completion_length, np.int32),
        logprobs=np.zeros(speech.completion_length, np.float32),
        text=speech.completion,
        finished=speech.finish_reason == "stop",
        parent=parent,
        follows=action.follows,
    )


def _place(action: JointAction) -> tuple:
    return action.item, action.turn, action.follows


def judged_again(forest: Forest, task: Task) -> Forest:
    """The forest with the task's judgements of the same texts, all in one call."""
    said = {agent: [] for agent in task.agents} | forest.joint_texts()
    found = task.judge([forest.items[joint.item] for joint in forest.joints], said)
    pairs = zip(forest.joints, found, strict=True)
    return dataclasses.replace(
        forest, joints=tuple(dataclasses.replace(j, judgement=own, reward=None) for j, own in pairs)
    )


def changes(step: int, forest: Forest, before_R: np.ndarray, after_R: np.ndarray) -> list[Change]:
    """Return one `Change` per completion, in turn order."""
    names = [str(item.task_id) for item in forest.items]
    pairs = zip(forest.turns, before_R.tolist(), after_R.tolist(), strict=True)
    return [Change(step, names[t.item], t.agent, t.turn, t.sample, old, new) for t, old, new in pairs]


@dataclasses.dataclass(frozen=True)
class Order:
    """How two rewards rank the answers to the same problem of a step.

    pairs: of answers to one problem that have both rewards. kept: of these, those in the same order, or equal
    both times; reversed: in the other one; tied: equal only afterwards; parted: equal only before. problems:
    those with such a pair; moved: those in which no answer is best both times.
    """

    pairs: int = 0
    kept: int = 0
    reversed: int = 0
    tied: int = 0
    parted: int = 0
    problems: int = 0
    moved: int = 0


def order(groups: Sequence[Hashable], before_J, after_J) -> Order:
    """Compare the order of joint answers within groups; one with a NaN reward is in no pair."""
    before_J, after_J = np.asarray(before_J, np.float64), np.asarray(after_J, np.float64)
    known_J, total = ~np.isnan(before_J) & ~np.isnan(after_J), Counter()
    members: dict[Hashable, list[int]] = {}
    for j in np.flatnonzero(known_J).tolist():
        members.setdefault(groups[j], []).append(j)
    for own in (np.array(found) for found in members.values() if len(found) > 1):
        i, j = np.triu_indices(len(own), 1)
        signs = [np.sign(values[own][i] - values[own][j]) for values in (before_J, after_J)]
        best = [values[own] == values[own].max() for values in (before_J, after_J)]
        total += Counter(
            pairs=len(i),
            kept=int((signs[0] == signs[1]).sum()),
            reversed=int((signs[0] * signs[1] < 0).sum()),
            tied=int(((signs[0] != 0) & (signs[1] == 0)).sum()),
            parted=int(((signs[0] == 0) & (signs[1] != 0)).sum()),
            problems=1,
            moved=int(not (best[0] & best[1]).any()),
        )
    return Order(**total)


def shares(found: Sequence[Change]) -> dict[str, float]:
    """Share of every one of `KINDS`, and ``correlation`` of the advantages (NaN if one side is constant)."""
    before, after = (np.array([getattr(change, side) for change in found]) for side in ("before", "after"))
    kinds = [change.kind for change in found]
    varied = len(found) > 1 and before.std() > 0 and after.std() > 0
    correlation = float(np.corrcoef(before, after)[0, 1]) if varied else np.nan
    return {kind: kinds.count(kind) / len(found) for kind in KINDS} | {"correlation": correlation}
