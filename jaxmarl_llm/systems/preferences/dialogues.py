"""Dialogues of a run from which a critic learns, with the alternatives drawn beside the texts that continued.

Kept by iteration, in memory and in a file for each, as in `Pool`.
"""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.systems.critics.log_ratio import Sizes, Text, sizes_of
from jaxmarl_llm.utils import distributed, files
from jaxmarl_llm.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Record:
    """The dialogues about one item in one iteration.

    Attributes:
      item: its name.
      hidden: token ids that a critic reads before each prompt.
      visits: the texts that an agent wrote at each prompt, in the order of the requests.
      dialogues: the reward of each dialogue, and its texts as (visit, number in it).
    """

    item: str
    hidden: np.ndarray
    visits: tuple[tuple[Turn, ...], ...]
    dialogues: tuple[tuple[float, tuple[tuple[int, int], ...]], ...]

    def text(self, visit: int, number: int) -> Text:
        """A text as the critic reads it."""
        turn = self.visits[visit][number]
        return np.concatenate([self.hidden, turn.prompt]), turn.completion

    def places(self) -> list[tuple[int, int]]:
        """All texts as (visit, number in it)."""
        return [(v, a) for v, answers in enumerate(self.visits) for a in range(len(answers))]

    def sequence(self, d: int) -> list[Text]:
        """The texts of a dialogue."""
        return [self.text(*place) for place in self.dialogues[d][1]]


def records_of(forest: Forest, agent: str, hidden: Callable[[Any], np.ndarray]) -> list[Record]:
    """The dialogues of an agent, item by item; a dialogue whose end has no reward is left out.

    ``hidden``: item -> `Record.hidden`; items need a ``task_id``.
    """
    requests: list[dict[int, list[Turn]]] = [{} for _ in forest.items]
    for turn in forest.turns:
        if turn.agent == agent:  # the critic learns from the candidates too
            requests[turn.item].setdefault(turn.request, []).append(dataclasses.replace(turn, extra=False))
    place = {
        turn.id: (v, a)
        for of_item in requests
        for v, answers in enumerate(of_item.values())
        for a, turn in enumerate(answers)
    }
    dialogues: list[list] = [[] for _ in forest.items]
    followed = {joint.follows for joint in forest.joints}
    for j, joint in enumerate(forest.joints):
        if j not in followed and not np.isnan(joint.total):
            dialogues[joint.item].append(
                (float(joint.total), tuple(place[i] for i in _path(forest, j, agent)))
            )
    return [
        Record(str(item.task_id), hidden(item), tuple(map(tuple, own.values())), tuple(dialogues[i]))
        for i, (item, own) in enumerate(zip(forest.items, requests, strict=True))
    ]


def _path(forest: Forest, j: int | None, agent: str) -> list[int]:
    """Ids of an agent's turns in a joint answer and in those before it, the first one first."""
    ids: list[int] = []
    while j is not None:
        ids = [i for i in forest.joints[j].turns if forest.turns[i].agent == agent] + ids
        j = forest.joints[j].follows
    return ids


class Dialogues:
    """The records of a run.

    Args:
      agent: whose texts they are about.
      hidden: see `records_of`.
      seed: of the draws.
    """

    def __init__(self, agent: str, hidden: Callable[[Any], np.ndarray], seed: Sequence[int]):
        self._agent, self._hidden, self._seed = agent, hidden, tuple(seed)
        self._by_iteration: dict[int, list[Record]] = {}
        # Of `_pairs` and `sizes`, once they are known.
        self._better: tuple[list[tuple[Record, int]], np.ndarray] | None = None
        self._sizes: Sizes | None = None
        self._folder: pathlib.Path | None = None

    @property
    def records(self) -> list[Record]:
        """All records, in the order of their iterations."""
        return [record for _, shard in sorted(self._by_iteration.items()) for record in shard]

    def add(self, forest: Forest, iteration: int) -> None:
        """Keep the dialogues of an iteration; replaces what was kept for it before."""
        self.keep(records_of(forest, self._agent, self._hidden), iteration)

    def keep(self, records: Sequence[Record], iteration: int) -> None:
        """`add`, of records."""
        self._by_iteration[iteration], self._better, self._sizes = list(records), None, None
        if self._folder and distributed.is_main():
            path = self._folder / f"{iteration:06d}.jsonl"
            files.atomic_write_text(path, "".join(map(_line, records)))

    def draw(self, number: int, times: int) -> list[tuple[list[Text], list[Text]]]:
        """``number`` pairs of dialogues about one item, the better one first, drawn at random from all pairs.

        ``times`` numbers the draw; a pair may come twice. [] if no two dialogues about an item ended
        differently.
        """
        members, pairs_K2 = self._pairs()
        if not len(pairs_K2):
            return []
        random = np.random.default_rng((*self._seed, times))
        chosen = pairs_K2[random.integers(len(pairs_K2), size=number)]
        return [tuple(members[i][0].sequence(members[i][1]) for i in pair) for pair in chosen.tolist()]

    def require(self) -> None:
        """Raise ValueError if the critic has nothing to learn from."""
        if not len(self._pairs()[1]):
            raise UserError(
                f"after {len(self._by_iteration)} iterations no two dialogues about an item ended differently, so the "
                "critic has nothing to learn from: raise preference.collect or train.group, or take easier problems"
            )

    def sizes(self) -> Sizes:
        """Sizes that fit all dialogues and all single texts, as a critic reads them."""
        if self._sizes is None:
            turns = max((len(texts) for r in self.records for _, texts in r.dialogues), default=1)
            every = [[record.text(*place)] for record in self.records for place in record.places()]
            self._sizes = sizes_of(every)._replace(turns=turns)
        return self._sizes

    def _pairs(self) -> tuple[list[tuple[Record, int]], np.ndarray]:
        """All dialogues as (record, number in it), and the pairs (better, worse) of one item, int (K, 2)."""
        if self._better is not None:
            return self._better
        members = [(record, d) for record in self.records for d in range(len(record.dialogues))]
        rewards_M = np.array([record.dialogues[d][0] for record, d in members])
        of_item: dict[str, list[int]] = {}
        for m, (record, _) in enumerate(members):
            of_item.setdefault(record.item, []).append(m)
        pairs = [np.zeros((0, 2), np.int64)]
        for ids in map(np.array, of_item.values()):
            pairs.append(ids[np.argwhere(rewards_M[ids][:, None] > rewards_M[ids][None])])
        self._better = members, np.concatenate(pairs)
        return self._better

    @contextlib.contextmanager
    def kept_in(self, folder) -> Iterator[None]:
        """Write to ``folder``/dialogues, a JSON line for each record, a file for each iteration."""
        self._folder = pathlib.Path(folder) / "dialogues"
        yield

    def restore(self, step: int) -> None:
        """Restore the records of the first ``step`` iterations. ValueError names a file that is damaged."""
        self._better = self._sizes = None
        self._by_iteration = {
            int(path.stem): files.read_json_lines(path, _record_of)
            for path in sorted(self._folder.glob("*.jsonl"))
            if int(path.stem) < step
        }


def _line(record: Record) -> str:
    """A record as JSON: of every visit the prompt and the texts."""
    visits = [
        {
            "agent": answers[0].agent,
            "prompt": answers[0].prompt.tolist(),
            "answers": [
                {"tokens": turn.completion.tolist(), "text": turn.text, "finished": turn.finished}
                for turn in answers
            ],
        }
        for answers in record.visits
    ]
    fields = {"item": record.item, "hidden": record.hidden.tolist(), "visits": visits}
    return json.dumps(fields | {"dialogues": record.dialogues}) + "\n"


def _record_of(fields: dict[str, Any]) -> Record:
    """The record of a line's JSON object; log-probabilities are 0."""
    visits = []
    for visit in fields["visits"]:
        prompt, turns = np.array(visit["prompt"], np.int32), []
        for sample, answer in enumerate(visit["answers"]):
            tokens = np.array(answer["tokens"], np.int32)
            content = (prompt, tokens, np.zeros(len(tokens), np.float32), answer["text"], answer["finished"])
            turns.append(Turn(0, 0, visit["agent"], 0, 0, sample, *content))
        visits.append(tuple(turns))
    dialogues = tuple((float(reward), tuple(map(tuple, texts))) for reward, texts in fields["dialogues"])
    return Record(fields["item"], np.array(fields["hidden"], np.int32), tuple(visits), dialogues)
