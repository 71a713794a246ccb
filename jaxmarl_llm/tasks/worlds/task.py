"""Acting in a world: each turn is one step of an episode, whose return is the sum of the step rewards.

Agents read what they see and write an action. A world keeps no state of an episode, so earlier actions are
replayed from the start; states on the way are cached by the actions that led to them.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

from jaxmarl_llm.tasks.custom_reward import finite_number
from jaxmarl_llm.tasks.judgement import History, Judgement, check_batch, check_given
from jaxmarl_llm.tasks.types import Messages
from jaxmarl_llm.tasks.worlds import checks, views
from jaxmarl_llm.tasks.worlds.actions import read_action
from jaxmarl_llm.tasks.worlds.explore import called, legal_actions, walk
from jaxmarl_llm.tasks.worlds.types import Start, State, Step, World
from jaxmarl_llm.utils.errors import UserError

REMEMBERED = 1 << 16  # number of cached steps


@dataclasses.dataclass(frozen=True)
class _Place:
    """A point of an episode: its start, and all agents' actions in each turn so far."""

    start: Start = dataclasses.field(compare=False)  # it need not be hashable
    actions: tuple[tuple[str, ...], ...] = ()
    name: str = ""

    def after(self, joint: tuple[str, ...]) -> _Place:
        return dataclasses.replace(self, actions=(*self.actions, joint))

    def before(self) -> _Place:
        return dataclasses.replace(self, actions=self.actions[:-1])


def _at(start: Start) -> _Place:
    """Where an episode begins."""
    return _Place(start, (), start.task_id)


class Seen:
    """Prompts of states of a few episodes, to choose prompt sizes before the first rollout.

    ``items`` are the states; ``prompts`` are those of a task with remember=False.
    """

    def __init__(self, task: WorldTask, episodes: int = 20):
        self.items, self._task = list(walk(task.world, episodes, task._name)), task

    def prompts(self, state: State) -> dict[str, Messages]:
        """Chat messages per agent: the rules, and what it sees."""
        return self._task.prompts_in(state)


class WorldTask:
    """Episodes in a world as a sequential task (`types.SequentialTask`); its items are the world's starts.

    Args:
      world: the world in which agents act.
      items: the starts that are played; None: all of the world's.
      remember: later prompts continue the agent's earlier ones, so texts between turns leave the rules out;
        False: each prompt stands alone (`protocols.turns.MultiTurn.remember`).
      name: name of the world in errors.
      share_views: every agent reads the views of all agents, see `views.shared`.

    Parts: ``before``, the rewards of earlier steps; ``legal``, the share of acting agents (all but
    ``world.advisers``) whose text named a legal action. Any other text, or no text, counts as ``world.wait``.
    "return" is the sum of the rewards so far, scaled so that ``world.best`` is 100.
    """

    sequential = True
    part_names = ("before", "legal")
    reward_range = None

    def __init__(
        self,
        world: World,
        items: Sequence[Start] | None = None,
        remember: bool = False,
        name: str = "the world",
        share_views: bool = False,
    ):
        self._share = share_views
        self.items = tuple(world.starts() if items is None else items)
        self.agents, self.world, self._remember, self._name = tuple(world.agents), world, remember, name
        check_given(self.items, self.agents)
        self._acting = checks.acting(world, name)
        if not finite_number(world.best, f"{name}: best") > 0:
            raise UserError(f"{name}: best is {world.best!r}; allowed is any number above 0")
        self._steps: collections.OrderedDict[_Place, Step] = collections.OrderedDict()

    def prompts(self, item: Start) -> dict[str, Messages]:
        """Chat messages per agent: the rules, and what it sees at the start."""
        return self.prompts_in(self._state(_at(item)), item)

    def prompts_in(self, state: State, item: Start | None = None) -> dict[str, Messages]:
        """The same prompts in any state."""
        start = item or self.items[0]
        texts = {agent: self._text(state, agent, start, alone=True) for agent in self.agents}
        return {agent: [{"role": "user", "content": text}] for agent, text in texts.items()}

    def seen(self) -> Seen | None:
        """Prompts of later turns; None if they contain the earlier ones."""
        return None if self._remember else Seen(self)

    def state_after(self, item: Start, history: History) -> State:
        """The current state of a conversation, which must not be over."""
        return self._state(self._play(item, history)[0])

    def legal(self, state: State, agent: str) -> tuple[str, ...]:
        """The actions that an agent may take in a state."""
        return called(self.world, "legal", self._name, "a state", state, agent)

    def action(self, state: State, agent: str, text: str) -> str:
        """The legal action of a text in a state; `world.wait` if it names none."""
        named = read_action(text, self.legal(state, agent))
        return self.world.wait if named is None else named

    def judge(
        self, items: Sequence[Start], completions: dict[str, list[str]], histories: Sequence[History]
    ) -> list[Judgement]:
        """Judgements of one step each, in order; see `types.SequentialTask`.

        The first one is played twice. UserError, with the start and the turn, if the two results differ, for
        a reward that is not a finite number, and for a turn after an episode's end; UserCodeError if the
        world raises.
        """
        check_batch(items, completions, self.agents)
        rows = zip(*(completions[agent] for agent in self.agents), strict=True)
        judgements = []
        for item, texts, history in zip(items, rows, histories, strict=True):
            place, before = self._play(item, history)
            judgements.append(self._judged(place, dict(zip(self.agents, texts, strict=True)), before))
            if len(judgements) == 1:
                self._check_replay(item, [*history, dict(zip(self.agents, texts, strict=True))])
        return judgements

    def feedback(self, answers: Sequence) -> list[dict[str, str]]:
        """What each agent sees after its joint action."""
        texts = []
        for answer in answers:
            place, _ = self._play(answer.item, [*answer.history, answer.completions])
            state = self._state(place)
            texts.append(
                {a: self._text(state, a, answer.item, alone=not self._remember) for a in self.agents}
            )
        return texts

    def normalise(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Scores (or means of them) on the 0..100 scale; "return" is the sum of all rewards so far."""
        best = self.world.best
        named = {
            "return": 100 * (scores["before"] + scores["total"]) / best,
            "before": 100 * scores["before"] / best,
        }
        others = {name: 100 * value for name, value in scores.items() if name not in ("before", "total")}
        return named | others

    def _text(self, state: State, agent: str, item: Start, alone: bool) -> str:
        seen = self._seen(state, agent, item)
        return f"{self._call('rules', item, agent)}\n\n{seen}" if alone else seen

    def _seen(self, state: State, agent: str, item: Start) -> str:
        shown = {a: self._call("show", item, state, a) for a in (self.agents if self._share else (agent,))}
        return views.shared(shown, agent) if self._share else shown[agent]

    def _judged(self, place: _Place, texts: Mapping[str, str], before: float) -> Judgement:
        joint, legal = self._actions(place, texts)
        step = self._step(place.after(joint))
        acting = [named for named, acts in zip(legal, self._acting, strict=True) if acts]
        parts = {"before": before, "legal": sum(acting) / len(acting)}
        return Judgement(parts, step.reward, "judged", local=dict(step.local), done=bool(step.done))

    def _actions(self, place: _Place, texts: Mapping[str, str]) -> tuple[tuple[str, ...], list[bool]]:
        """The joint action of texts, and whether each text named a legal action."""
        named = [read_action(texts.get(agent, ""), self._legal(place, agent)) for agent in self.agents]
        joint = tuple(self.world.wait if action is None else action for action in named)
        return joint, [action is not None for action in named]

    def _legal(self, place: _Place, agent: str) -> tuple[str, ...]:
        """The actions that an agent may take; UserError if it may not wait."""
        turn = len(place.actions) + 1
        where = f"{place.name}, turn {turn}"
        return legal_actions(self.world, self._name, where, self._state(place), agent)

    def _play(self, item: Start, history: History) -> tuple[_Place, float]:
        """The current place of a conversation, and the sum of its rewards so far."""
        place, earned = _at(item), 0.0
        for texts in history:
            place = place.after(self._actions(place, texts)[0])
            step = self._step(place)
            earned += step.reward
            if step.done:
                raise UserError(
                    f"{self._name}: {item.task_id} ended in turn {len(place.actions)}, and went on"
                )
        return place, earned

    def _state(self, place: _Place) -> State:
        return self._step(place).state

    def _step(self, place: _Place) -> Step:
        """The last step before a place; at a start, a step with the first state."""
        if place in self._steps:
            self._steps.move_to_end(place)
            return self._steps[place]
        if not place.actions:
            step = Step(self._call("reset", place.start, place.start))
        else:
            before = self._state(place.before())
            joint = dict(zip(self.agents, place.actions[-1], strict=True))
            step = self._taken(place, before, joint)
        self._steps[place] = step
        if len(self._steps) > REMEMBERED:
            self._steps.popitem(last=False)
        return step

    def _taken(self, place: _Place, before: State, joint: dict[str, str]) -> Step:
        """The step of a joint action. UserError if it changed the state before, which others use."""
        turn = len(place.actions)
        can_change = not checks.is_constant(before)
        seen = self._shown(place.start, before, turn) if can_change else []
        step = self._call("step", place.start, before, joint, turn=turn)
        if can_change and (now := self._shown(place.start, before, turn)) != seen:
            raise UserError(
                f"{self._name}: step changed the state that it was given at {place.name}, turn {turn}, which then "
                f"shows {now!r:.80} in place of {seen!r:.80}; expected a new state"
            )
        return checks.with_numbers(step, self.agents, self._name, f"{place.name}, turn {turn}")

    def _shown(self, start: Start, state: State, turn: int) -> list[str]:
        """What all agents see of a state."""
        return [self._call("show", start, state, agent, turn=turn) for agent in self.agents]

    def _call(self, method: str, start: Start, *arguments, turn: int = 0):
        """Call a method of the world; errors name the start and the turn."""
        where = f"{start.task_id}, turn {turn}" if turn else start.task_id
        return called(self.world, method, self._name, where, *arguments)

    def _check_replay(self, item: Start, history: History) -> None:
        """Play a conversation again without cached steps, and compare."""
        fresh = WorldTask(self.world, [item], self._remember, self._name, self._share)
        place, other = _at(item), _at(item)
        for texts in history:
            place, other = (
                place.after(self._actions(place, texts)[0]),
                other.after(fresh._actions(other, texts)[0]),
            )
            if (facts := self._facts(place)) != (again := fresh._facts(other)):
                raise UserError(
                    f"{self._name}: {item.task_id}, turn {len(place.actions)}, played twice gave {facts} and {again}; "
                    "step must depend on the state and the actions alone"
                )

    def _facts(self, place: _Place) -> tuple:
        """What can be seen of the last step."""
        step = self._step(place)
        return step.reward, step.done, *self._shown(place.start, step.state, len(place.actions))
