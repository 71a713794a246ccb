"""Score a finished run's answers with another reward: forests from transcripts, changes of advantages."""

import dataclasses
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.forest import ANSWER, REMARK, Forest, Joint, Turn
from jaxmarl_llm.forest.charges import charged, with_ends
from jaxmarl_llm.tasks.judgement import Judgement, judge
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.transcripts import AgentRecord, JointAction
from jaxmarl_llm.utils.errors import UserError

ZERO = 1e-6  # advantages of at most this size count as 0


@dataclasses.dataclass(frozen=True)
class Change:
    """The advantage of one completion before and after rescoring; ``sample`` as in `Turn`."""

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


KINDS = ("kept", "flipped", "silenced", "awakened")  # sign: same, opposite, 0 only after, 0 only before


def forest_of(
    actions: Sequence[JointAction],
    items: Mapping[str, Any],
    per_node: int,
    cross: bool,
    group: int | None = None,
) -> tuple[Forest, np.ndarray]:
    """The forest of a step's transcript, and the recorded advantage of every turn, float32 (turns,).

    Args:
      actions: all joint answers of a step, in order.
      items: the task's items, by ``task_id``.
      per_node: number of joint answers of one node; they are consecutive.
      cross: whether they share completions (all combinations of the agents' samples).
      group: G; samples from number G on are not trained on (`Turn.extra`); None: no such samples.

    ``id`` and ``problem`` tell which completions and problems are the same. In transcripts without them,
    the positions of the answers tell it, for all protocols except trees.

    Without `log.transcript_tokens` there are no token ids: prompts are empty, completions and
    log-probabilities are zeros of the right length. Remarks and plans in rounds of programs are left out.

    Raises:
      ValueError: for an item that the task does not have, and for answers that do not form such nodes.
    """
    turns: list[Turn] = []
    joints: list[Joint] = []
    advantages: list[float] = []
    forest_items: list[Any] = []
    ids: dict[tuple, int] = {}
    places: dict[int, int] = {}  # index of a problem in forest_items
    for j, action in enumerate(actions):
        node, first = j // per_node, actions[j - j % per_node]
        whole = len(actions) % per_node == 0
        if not whole or _place(action) != _place(first):
            raise UserError(f"step {action.step}: its joint answers are not nodes of {per_node} each")
        if action.item not in items:
            raise UserError(f"step {action.step}: the task has no item {action.item!r}")
        if action.follows is not None:
            item = joints[action.follows].item
        else:
            item = places.setdefault(node if action.problem is None else action.problem, len(places))
            forest_items += [items[action.item]][: len(places) - len(forest_items)]
        turn_ids: dict[str, list[int]] = {REMARK: [], ANSWER: []}
        parts = [(REMARK, *part) for part in action.heard] + [
            (ANSWER, *part) for part in action.agents.items()
        ]
        for kind, agent, speech in parts:
            key = (node, kind, agent, speech.sample if cross else j) if speech.id is None else (speech.id,)
            if key not in ids:
                ids[key] = len(turns)
                turn = _turn(len(turns), agent, item, action, speech, ids.get((speech.parent,)))
                extra = group is not None and speech.sample >= group
                turns.append(dataclasses.replace(turn, extra=extra, kind=kind))
                advantages.append(np.nan if speech.advantage is None else speech.advantage)
            turn_ids[kind].append(ids[key])
        judgement = Judgement(action.parts, action.total, action.verdict, action.failures, done=action.done)
        heard, answer = tuple(turn_ids[REMARK]), tuple(turn_ids[ANSWER])
        joints.append(Joint(item, answer, judgement, node, action.turn, action.follows, heard))
    return Forest(tuple(forest_items), tuple(turns), tuple(joints)), np.array(advantages, np.float32)


def _turn(
    number: int, agent: str, item: int, action: JointAction, speech: AgentRecord, parent: int | None
) -> Turn:
    blank = (0,) * speech.completion_length
    return Turn(
        id=number,
        request=number,
        agent=agent,
        item=item,
        turn=action.turn,
        sample=speech.sample,
        prompt=np.array(speech.prompt_ids or (), np.int32),
        completion=np.array(blank if speech.completion_ids is None else speech.completion_ids, np.int32),
        logprobs=np.array(blank if speech.logprobs is None else speech.logprobs, np.float32),
        text=speech.completion,
        finished=speech.finish_reason == "stop",
        parent=parent,
        follows=action.follows,
        cost=(speech.prompt_length, speech.completion_length),
        prefix=speech.prefix,
    )


def _place(action: JointAction) -> tuple:
    return action.item, action.turn, action.follows


def rejudged(forest: Forest, task: Task) -> Forest:
    """The forest with its texts judged by ``task`` in one call, and charged for the recorded tokens."""
    texts = forest.joint_texts(task.agents)
    items = [forest.items[joint.item] for joint in forest.joints]
    judgements = judge(task, items, texts, forest.histories())
    pairs = zip(forest.joints, judgements, strict=True)
    joints = tuple(dataclasses.replace(j, judgement=new, reward=None) for j, new in pairs)
    return charged(with_ends(dataclasses.replace(forest, joints=joints), task), task)


def changes(step: int, forest: Forest, before_R: np.ndarray, after_R: np.ndarray) -> list[Change]:
    """Return one `Change` per completion, in turn order."""
    names = [str(item.task_id) for item in forest.items]
    pairs = zip(forest.turns, before_R.tolist(), after_R.tolist(), strict=True)
    return [Change(step, names[t.item], t.agent, t.turn, t.sample, old, new) for t, old, new in pairs]


@dataclasses.dataclass(frozen=True)
class Order:
    """How two rewards rank the answers to the same problem of a step.

    pairs: pairs of answers to one problem that have both rewards. kept: pairs in the same order, or equal
    under both rewards; reversed: in the opposite order; tied: equal only after; parted: equal only before.
    problems: problems with such a pair; moved: problems where no answer is best under both rewards.
    """

    pairs: int = 0
    kept: int = 0
    reversed: int = 0
    tied: int = 0
    parted: int = 0
    problems: int = 0
    moved: int = 0


def order(groups: Sequence[Hashable], before_J, after_J) -> Order:
    """Compare the order of joint answers within groups; answers with a NaN reward are in no pair."""
    before_J, after_J = np.asarray(before_J, np.float64), np.asarray(after_J, np.float64)
    known_J, total = ~np.isnan(before_J) & ~np.isnan(after_J), Counter()
    members: dict[Hashable, list[int]] = {}
    for j in np.flatnonzero(known_J).tolist():
        members.setdefault(groups[j], []).append(j)
    for answers in (np.array(indices) for indices in members.values() if len(indices) > 1):
        i, j = np.triu_indices(len(answers), 1)
        signs = [np.sign(values[answers][i] - values[answers][j]) for values in (before_J, after_J)]
        best = [values[answers] == values[answers].max() for values in (before_J, after_J)]
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


def shares(rows: Sequence[Change]) -> dict[str, float]:
    """Share of each of `KINDS`, and ``correlation`` of the advantages (NaN if one side is constant)."""
    before, after = (np.array([getattr(change, side) for change in rows]) for side in ("before", "after"))
    kinds = [change.kind for change in rows]
    varied = len(rows) > 1 and before.std() > 0 and after.std() > 0
    correlation = float(np.corrcoef(before, after)[0, 1]) if varied else np.nan
    return {kind: kinds.count(kind) / len(rows) for kind in KINDS} | {"correlation": correlation}
