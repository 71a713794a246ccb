"""Repeated matrix games in words: a team must coordinate on a joint action, with a known optimum.

Two games of Claus and Boutilier (AAAI 1998, figures 3 and 4), both with hidden actions 0, 1 and 2:

    climbing    0    1    2          penalty    0    1    2
        0      11  -30    0              0     10    0    k
        1     -30    7    6              1      0    2    0
        2       0    0    5              2      k    0   10         k = -10

In both the best payoff is next to the worst, and a safer action is tempting: with a partner that plays at
random, action 2 of climbing and action 1 of penalty earn most. Each item is one of these games under a name.
The words for the actions are permuted for each item and agent, so an agent must read which game it is in and
learn what its words mean there. The prompt contains nothing else about the game.

For N agents the payoffs are those of `payoff`, which gives the matrices above for two agents.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.judgement import Judgement, check_batch, check_given
from jaxmarl_llm.tasks.toys.one_word import WORDS, named
from jaxmarl_llm.utils.errors import UserError

AGENTS = ("first", "second")
NAMES = {"climbing": ("red", "green", "blue"), "penalty": ("north", "east", "south")}
GRADES = {"penalty": 1, "climbing": 2}
SAFE = {"climbing": 2, "penalty": 1}
PENALTY = -10
BEST, WORST = {"climbing": 11, "penalty": 10}, {"climbing": -30, "penalty": PENALTY}
_PERMUTATIONS = tuple(itertools.permutations(range(3)))


@dataclasses.dataclass(frozen=True)
class GameItem:
    """A game under a name. grade: 1 penalty, 2 climbing; number: which permutations of the words it uses."""

    task_id: str
    game: str
    name: str
    number: int
    grade: int

    def action(self, agent: int, word: str) -> int:
        """The hidden action that a word means for an agent (by its place in the team)."""
        return _PERMUTATIONS[(self.number + 2 * agent) % len(_PERMUTATIONS)][WORDS.index(word)]


def load_items(source: str, split: str) -> list[GameItem]:
    """The items of 'games' (both kinds), 'climbing' or 'penalty'; with a slice: 'games[:2]'.

    Six items are too few to split: training and both evaluations use the same ones (split 'all'), with their
    own random draws. ValueError for another name or split, or no item.
    """
    name, part = sources.parse(source)
    if name not in ("games", *NAMES):
        raise UserError(f"source is {source!r}; allowed for a game: games, {', '.join(NAMES)}")
    if split != "all":
        raise UserError(f"split is {split!r}, which is empty: games are too few to divide; allowed: all")
    pairs = [(game, name) for game, names in NAMES.items() for name in names]
    items = [GameItem(f"{g}/{n}", g, n, i, GRADES[g]) for i, (g, n) in enumerate(pairs)]
    chosen = [item for item in items if name in ("games", item.game)][part]
    if not chosen:
        raise UserError(f"source {source!r} has no items")
    return chosen


def payoff(game: str, actions: Sequence[int]) -> int:
    """The payoff of a joint action, in the units of the matrices above, for any number of agents.

    climbing: 11 if all play 0, -30 if some play 0 and some 1, 0 if some but not all play 0 and no agent plays
      1.
    If no agent plays 0: 7 if all play 1, 5 if all play 2, 6 if all agents that play 1 come before all that
    play 2, else 0.
    penalty: 10 if all play 0 or all play 2, 2 if all play 1, k if some play 0 and some 2, else 0.
    """
    played = set(actions)
    if game == "climbing":
        if 0 in played:
            return 11 if played == {0} else -30 if 1 in played else 0
        if len(played) == 1:
            return 7 if played == {1} else 5
        return 6 if list(actions) == sorted(actions) else 0
    if len(played) == 1:
        return 2 if played == {1} else 10
    return PENALTY if {0, 2} <= played else 0


class GameTask:
    """Items, prompts per agent, and the judge.

    Args:
      items: see `load_items`.
      agents: one or more different names, in the order of the actions in `payoff`.

    The total of a joint answer is its payoff, scaled to 0 for the game's worst and 1 for its best. An answer
    is an action if it names one of WORDS, once (`one_word.named`); if any agent's answer is not, the joint
    answer earns 0.
    Parts: ``optimal`` (1 for the best payoff), ``safe`` (1 if all play the safe action), ``valid`` (the share
    of answers that are actions).
    """

    part_names = ("optimal", "safe", "valid")
    reward_range = (0.0, 1.0)

    def __init__(self, items: Sequence[GameItem], agents: Sequence[str] = AGENTS):
        self.items, self.agents = tuple(items), tuple(agents)
        check_given(self.items, self.agents)

    def prompts(self, item: GameItem) -> dict[str, list[dict[str, str]]]:
        """Chat messages [{role, content}, …] per agent. No agent sees the others' prompts or answers."""
        return {
            agent: [{"role": "user", "content": f"Game {item.name}. You are {agent}. {_ask()}"}]
            for agent in self.agents
        }

    def judge(self, items: Sequence[GameItem], completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of J joint actions, in order; action j answers items[j] with completions[agent][j].

        Errors: ValueError for a missing agent or a wrong count.
        """
        check_batch(items, completions, self.agents)
        rows = zip(*(completions[agent] for agent in self.agents), strict=True)
        return [self._judgement(item, answers) for item, answers in zip(items, rows, strict=True)]

    def score(self, items: Sequence[GameItem], completions: dict[str, list[str]]) -> list[dict[str, float]]:
        """Parts and "total" per joint action; see `judge`."""
        return [judgement.scores for judgement in self.judge(items, completions)]

    def normalise(self, scores: dict[str, float]) -> dict[str, float]:
        """`scores` (or means of them) on the 0..100 scale, the total as "return"; 100 is the optimum."""
        return {"return" if name == "total" else name: 100.0 * value for name, value in scores.items()}

    def feedback(self, answers: Sequence) -> list[dict[str, str]]:
        """Feedback to each agent on judged answers before it tries again: all actions and their payoff."""
        return [self._told(answer.item, answer.completions) for answer in answers]

    def _told(self, item: GameItem, completions: dict[str, str]) -> dict[str, str]:
        answers = [completions[agent] for agent in self.agents]
        actions = self._actions(item, answers)
        words = [named(text) or "nothing" for text in answers]
        played = ", ".join(f"{agent} said {word}" for agent, word in zip(self.agents, words, strict=True))
        text = f"{played}: {_paid(item, actions)} of {BEST[item.game]}. {_ask()}"
        return dict.fromkeys(self.agents, text)

    def _actions(self, item: GameItem, answers: Sequence[str]) -> list[int | None]:
        """The hidden action of each answer, None if an answer is not an action."""
        return [item.action(n, word) if (word := named(text)) else None for n, text in enumerate(answers)]

    def _judgement(self, item: GameItem, answers: Sequence[str]) -> Judgement:
        actions = self._actions(item, answers)
        worst, best, paid = WORST[item.game], BEST[item.game], _paid(item, actions)
        valid = [action is not None for action in actions]
        parts = {
            "optimal": float(paid == best),
            "safe": float(set(actions) == {SAFE[item.game]}),
            "valid": sum(valid) / len(valid),
        }
        local = {agent: float(ok) for agent, ok in zip(self.agents, valid, strict=True)}
        # "judged": other verdicts would look like failed tests.
        return Judgement(parts, (paid - worst) / (best - worst), "judged", local=local)


def _paid(item: GameItem, actions: Sequence[int | None]) -> int:
    return WORST[item.game] if None in actions else payoff(item.game, actions)


def _ask() -> str:
    return f"Say {', '.join(WORDS[:-1])} or {WORDS[-1]}."


def texts(agents: Sequence[str]) -> list[str]:
    """Texts that together hold every word of all possible prompts and feedback of these agents."""
    task = GameTask(load_items("games", "all"), agents)
    prompts = [m["content"] for item in task.items for chat in task.prompts(item).values() for m in chat]
    feedback = f"{_ask()} said nothing, : of " + " ".join(str(paid) for paid in range(WORST["climbing"], 12))
    return [*prompts, feedback]


def habits(start: str, end: str, roles: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """The words that may follow each word of an answer, from ``start`` to ``end``: exactly one action.

    roles: for one agent that writes for all (`centralised`), with each action under its role's tag.
    """
    if not roles:
        return {start: WORDS, **dict.fromkeys(WORDS, (end,))}
    first, *later = (f"\n[{role}]\n" for role in roles)
    first = first.removeprefix("\n")
    return {start: (first,), **dict.fromkeys((first, *later), WORDS), **dict.fromkeys(WORDS, (*later, end))}
