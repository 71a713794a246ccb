"""Questions whose answers can be checked: every agent answers, and each answer is right or wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxmarl_llm.tasks.judgement import Judgement, check_batch, check_given
from jaxmarl_llm.tasks.programs.prompts import Messages
from jaxmarl_llm.tasks.reasoning import answers, prompts, votes
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.shown_scores import Scores
from jaxmarl_llm.utils.errors import UserError

TOTALS = ("mean", "last", "vote")


class ReasoningTask:
    """Items, prompts per agent, and the judge.

    Args:
      items: see `load.load_items`.
      agents: names, one or more that differ.
      total: the team's reward: the ``mean`` over its answers, 1 for a right one and 0 for another; the
        ``last`` agent's answer; or that of the majority (``vote``, see `votes.majority`).
      scores: the scores that agents see beside each answer between turns; None: no scores.
      scorers: number of agents, the last ones, that give no answer: the first of them scores the answer of
        the first agent, and so on (`protocols.retrieve`). Then ``last`` is the answer with the best score.
      partner: name of an additional agent that the agents may ask (`protocols.dialogue`): it knows the hidden
        text, which every item must have. '': none.
    Parts: ``right``, the share of right answers; ``right_last`` and ``right_vote``, whether the answers
    chosen by ``last`` and ``vote`` are right; ``answered``, the share of texts that have an answer.
    ``Judgement.local`` is, for every agent, whether its own answer is right. A scorer gets 1 - (s - right)^2
    for its score s, where right is 1 for a right answer, else 0; it gets 0 without a score.
    """

    reward_range = (0.0, 1.0)

    def __init__(
        self,
        items: Sequence[ReasoningItem],
        agents: Sequence[str] = ("first", "second"),
        total: str = "mean",
        scores: Scores | None = None,
        scorers: int = 0,
        partner: str = "",
    ):
        self.items, self.agents, self.partner = tuple(items), tuple(agents), partner
        check_given(self.items, self.agents)
        if total not in TOTALS:
            raise UserError(f"total is {total!r}; allowed: {', '.join(TOTALS)}")
        if scorers and len(self.agents) != 2 * scorers:
            raise UserError(
                f"scorers is {scorers} for agents {self.agents!r}; allowed: one for each of the others"
            )
        self._total, self._scores, self._scorers = total, scores, scorers
        self._writers = self.agents[: len(self.agents) - scorers]
        of_each = any(item.own_answers for item in self.items)
        if of_each and total == "vote":
            raise UserError("total is 'vote': these agents have answers of their own; allowed: mean, last")
        self.part_names = ("right", "right_last", *(() if of_each else ("right_vote",)), "answered")
        for item in self.items:
            if partner and not item.hidden.strip():
                raise UserError(
                    f"{item.task_id} has no field 'hidden', the text that the partner {partner!r} of a dialogue knows "
                    "and no agent reads"
                )
            places = max(len(item.clues), len(item.own_answers))
            if places and places != len(self.agents):
                raise UserError(f"{item.task_id} is for {places} agents, they are {self.agents!r}")

    def prompts(self, item: ReasoningItem) -> dict[str, Messages]:
        """Chat messages per agent: the question. Scorers get the answer to score from the protocol."""
        texts = {agent: prompts.question(item, place) for place, agent in enumerate(self._writers)}
        texts |= dict.fromkeys(self.agents[len(self._writers) :], f"{item.question}\n{prompts.SCORE}")
        if self.partner:
            texts = dict.fromkeys(self.agents, prompts.dialogue(item))
        return {agent: [{"role": "user", "content": text}] for agent, text in texts.items()}

    def privileged(self, item: ReasoningItem) -> str:
        """An item's text that critics and simulated partners may read, but no agent."""
        return item.hidden

    def briefing(self, item: ReasoningItem) -> str:
        """What the partner reads before the first question."""
        return prompts.briefing(item.hidden)

    def ends(self, answer) -> bool:
        """Whether an agent's text in a dialogue (`protocols.Answer`) is its answer, not a question.

        For choices of words, any text that names one; else a text that marks its answer
        (`answers.is_marked`).
        """
        item, (text, *_) = answer.item, answer.completions.values()
        return item.read(text) is not answers.NONE and (item.worded or answers.is_marked(text))

    def references(self, item: ReasoningItem) -> dict[str, str]:
        """Every agent's right answer; for a scorer "1", since the reference is right."""
        texts = {agent: item.answer_of(place) for place, agent in enumerate(self._writers)}
        return texts | dict.fromkeys(self.agents[len(self._writers) :], "1")

    def read(self, item: ReasoningItem, completions: dict[str, str]) -> list[answers.Answer]:
        """The answers of all agents that give one, in order."""
        return [item.read(completions[agent]) for agent in self._writers]

    def given_scores(self, completions: dict[str, str]) -> list[float]:
        """The scorers' scores in order, 0 to 1; NaN if a text has none, see `answers.read_score`."""
        return [answers.read_score(completions[agent]) for agent in self.agents[len(self._writers) :]]

    def agree(self, answer) -> bool:
        """Whether all agents of a judged answer (`protocols.Answer`) have given the same one."""
        given = self.read(answer.item, answer.completions)
        return given[0] is not answers.NONE and all(other == given[0] for other in given)

    def vote(self, item: ReasoningItem, chains: Sequence[dict[str, str]], rule: str) -> tuple[float, float]:
        """1 if the conversations' vote is right, else 0; the share that decided (`votes.over_chains`)."""
        given = [self.read(item, completions) for completions in chains]
        scores = [self.given_scores(completions) for completions in chains]
        answer, decided = votes.over_chains(rule, given, scores)
        return float(item.right(answer, len(self._writers) - 1)), decided

    def judge(self, items: Sequence[ReasoningItem], completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of J joint answers, in order; answer j answers items[j] with completions[agent][j].

        ``failures`` name the agents without an answer. Errors: UserError for a missing agent or a wrong count.
        """
        check_batch(items, completions, self.agents)
        rows = zip(*(completions[agent] for agent in self.agents), strict=True)
        pairs = zip(items, rows, strict=True)
        return [self._judgement(item, dict(zip(self.agents, texts, strict=True))) for item, texts in pairs]

    def score(
        self, items: Sequence[ReasoningItem], completions: dict[str, list[str]]
    ) -> list[dict[str, float]]:
        """Parts and "total" per joint answer; see `judge`."""
        return [judgement.scores for judgement in self.judge(items, completions)]

    def normalise(self, scores: dict[str, float]) -> dict[str, float]:
        """`scores` (or means of them) in percent, the total as "return"."""
        return {"return" if name == "total" else name: 100.0 * value for name, value in scores.items()}

    def feedback(self, judged: Sequence) -> list[dict[str, str]]:
        """What each agent reads before its next answer: the others' answers, with scores if there are any."""
        writers, number = range(len(self._writers)), len(self._writers)
        texts = [answer.completions[agent] for answer in judged for agent in self._writers]
        items, places = (
            [a.item for a in judged for _ in writers],
            [place for _ in judged for place in writers],
        )
        scores = self._scores(items, places, texts) if self._scores else []
        rows = [scores[j * number : (j + 1) * number] for j in range(len(judged))]
        return [self._revise(answer, row) for answer, row in zip(judged, rows, strict=True)]

    def _revise(self, answer, scores: Sequence[float]) -> dict[str, str]:
        by_agent = dict(zip(self._writers, scores, strict=True)) if scores else {}
        questions = dict.fromkeys(self.agents, "")
        for place, agent in enumerate(self._writers):
            others = {name: answer.completions[name] for name in self._writers if name != agent}
            again = prompts.question(answer.item, place)
            questions[agent] = prompts.revise(others, by_agent, by_agent.get(agent), again)
        return questions

    def _judgement(self, item: ReasoningItem, completions: dict[str, str]) -> Judgement:
        given = self.read(item, completions)
        right = [float(item.right(answer, place)) for place, answer in enumerate(given)]
        scores = self.given_scores(completions)
        picked = votes.best_place(scores) if scores else len(given) - 1
        parts = {"right": sum(right) / len(right), "right_last": right[picked]}
        if "right_vote" in self.part_names:
            parts["right_vote"] = float(item.right(votes.majority(given), 0))
        parts["answered"] = sum(answer is not answers.NONE for answer in given) / len(given)
        earned = [0.0 if math.isnan(s) else 1.0 - (s - r) ** 2 for s, r in zip(scores, right, strict=False)]
        silent = [agent for agent, answer in zip(self._writers, given, strict=True) if answer is answers.NONE]
        total = parts[{"mean": "right", "last": "right_last", "vote": "right_vote"}[self._total]]
        # "judged": other verdicts would be read as tests that failed.
        return Judgement(
            parts,
            total,
            "judged",
            tuple(f"{agent}: no answer" for agent in silent),
            local=dict(zip(self.agents, [*right, *earned], strict=True)),
        )
