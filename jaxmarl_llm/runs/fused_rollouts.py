"""Drawn texts for a student: a team's own answers to its problems, each taught by its author."""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from jaxmarl_llm.factory import protocols, randomness, rollouts, teams, training
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.fusion import pieces, texts
from jaxmarl_llm.fusion.texts import Text
from jaxmarl_llm.protocols import Episode
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.runs.fused_texts import Lesson
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import files

ITEMS = 8  # problems that are answered together, whose texts are written together


class Requests:
    """A protocol that also keeps its requests, which show what every turn has read."""

    def __init__(self, protocol):
        self._protocol, self.kept = protocol, []

    def step(self, state: Episode):
        """The protocol's own requests."""
        requests = self._protocol.step(state)
        self.kept += requests
        return requests

    def observe(self, state: Episode, turns):
        """The protocol's own nodes."""
        return self._protocol.observe(state, turns)


def drawn(
    config,
    team: Team,
    lesson: Lesson,
    folder: pathlib.Path,
    samples: int,
    above: float | None,
    readers: Mapping[str, Any],
    memory,
    progress: Callable[[int, int], None],
) -> tuple[list[Text], dict[str, int]]:
    """Texts of the team's own answers to a task's problems, and how many answers were left out, by reason.

    Answers are left out if they were cut off, if decoding any reader's tokens does not return the text, or if
    they earn at most ``above`` (None: all count). Texts are written to ``folder`` after every few problems,
    and not drawn again.

    Args:
      config: the team's.
      team: its members, unchanged.
      lesson: what the texts are for.
      folder: where they are kept.
      samples: answers to each problem.
      above: a reward.
      readers: tokenizers of the student and of the other teachers, by name.
      memory: what the team's run has learned for its protocol, see `protocols.saved_memory`.
      progress: called with problems done and all.
    """
    scorer = TaskScorer.of_team(lesson.task, team, "aligned")
    trainables = [member.trainable for member in team.members]
    sizes = teams.prompt_sizes(config, team, [lesson.task])
    key, made = randomness.stream(config, "fusion"), []
    counts: dict[str, int] = {}
    numbers = range(len(lesson.task.items))
    for batch, begin in enumerate(range(0, len(numbers), ITEMS)):
        path = folder / f"{batch:05d}.jsonl"
        if not path.is_file():
            protocol = Requests(protocols.build(config, lesson.task, team, samples, memory=memory))
            forest = rollouts.run(
                protocol,
                team,
                trainables,
                scorer,
                numbers[begin : begin + ITEMS],
                jax.random.fold_in(key, batch),
                params=training.sampling_params(config),
                max_prompt_tokens=config.sampling.max_prompt_tokens,
                long_prompts=config.sampling.long_prompts,
                prompt_sizes=sizes,
            )
            stops = tuple(config.sampling.stop)
            own, left_out = _of_forest(forest, protocol.kept, lesson, team, above, readers, stops)
            files.atomic_write_text(folder / f"{batch:05d}.json", json.dumps(left_out))
            texts.write(path, own)
        made += texts.read(path)
        for reason, number in files.read_json(folder / f"{batch:05d}.json").items():
            counts[reason] = counts.get(reason, 0) + number
        progress(min(begin + ITEMS, len(numbers)), len(numbers))
    return made, counts


def _of_forest(
    forest: Forest, requests, lesson: Lesson, team: Team, above, readers, stops: Sequence[str]
) -> tuple[list[Text], dict]:
    """Texts of every conversation's last joint answer, up to a stop text; number left out, by reason."""
    made, left_out = [], dict.fromkeys(("cut off", "not as its tokens", "not above the reward"), 0)
    for chain in forest.chains():
        joint = forest.joints[chain[-1]]
        turns = {forest.turns[i].agent: forest.turns[i] for i in joint.turns}
        if not all(turn.finished for turn in turns.values()):
            left_out["cut off"] += 1
        elif above is not None and not joint.total > above:
            left_out["not above the reward"] += 1
        else:
            by_agent = {agent: _before(stops, turn.text) for agent, turn in turns.items()}
            read = {agent: requests[turn.request].messages for agent, turn in turns.items()}
            own = lesson.of_answer(forest.items[joint.item], by_agent, read)
            if all(_readable(text, team, readers) for text in own):
                made += own
            else:
                left_out["not as its tokens"] += 1
    return made, left_out


def _before(stops: Sequence[str], text: str) -> str:
    """The part before the first stop text."""
    for stop in stops:
        text = text.partition(stop)[0]
    return text


def _readable(text: Text, team: Team, readers: Mapping[str, Any]) -> bool:
    """Whether the student's tokens decode to the text, and those of each part's teacher to the part."""
    rows = [(text.agent, text.text), *((part.teacher, text.content(part)) for part in text.parts)]
    return all(
        pieces.round_trips(own, readers[name] if name in readers else team[name].tokenizer)
        for name, own in rows
    )
