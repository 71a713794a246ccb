"""Collaborative writing: agents write about one text; one reward judges how well their texts fit together."""

from __future__ import annotations

from collections.abc import Sequence

from jaxmarl_llm.tasks.judgement import Judgement, check_batch
from jaxmarl_llm.tasks.writing import prompts as writing_prompts
from jaxmarl_llm.tasks.writing import reward
from jaxmarl_llm.tasks.writing.items import WritingItem
from jaxmarl_llm.tasks.writing.reward import Bands
from jaxmarl_llm.utils.errors import UserError

AGENTS = {"tldr": ("short", "long"), "arxiv": ("background", "method")}


class WritingTask:
    """Items, prompts per agent, and the judge.

    Args:
      items: the texts; see `writing.items.load_items`.
      kind: "tldr", summaries of a post, each more detailed than the one before; or "arxiv", the parts of an
        introduction to an abstract (`writing_prompts.PARTS`).
      agents: a name for each text, in that order, at most ``writing_prompts.MOST[prompts]``; or the name of
        one agent that writes two texts (see `split`); None: AGENTS.
      matching: how transition words are matched, see `writing.reward`.
      bands: the limits of the reward; None: `writing.reward.bands(kind)`.
      prompts: "examples" or "published", see `writing_prompts`.
    """

    part_names = reward.PART_NAMES
    reward_range = reward.REWARD_RANGE

    def __init__(
        self,
        items: Sequence[WritingItem],
        kind: str = "tldr",
        agents: Sequence[str] | None = None,
        matching: str = "paper",
        bands: Bands | None = None,
        prompts: str = "examples",
    ):
        if kind not in AGENTS:
            raise UserError(f"kind is {kind!r}; allowed: {', '.join(AGENTS)}")
        if prompts not in writing_prompts.PROMPTS:
            raise UserError(f"prompts is {prompts!r}; allowed: {', '.join(writing_prompts.PROMPTS)}")
        self.items = tuple(items)
        self.agents = tuple(AGENTS[kind] if agents is None else agents)
        self._kind, self._matching, self._prompts = kind, matching, prompts
        self._bands = reward.bands(kind) if bands is None else bands
        reward.check_matching(matching)
        most = writing_prompts.MOST[prompts]
        if not 1 <= len(self.agents) <= most or len(set(self.agents)) != len(self.agents):
            raise UserError(
                f"agents is {self.agents!r}; allowed with prompts={prompts!r}: 1 to {most} names that differ"
            )
        if not self.items:
            raise UserError("items is empty; a writing task needs at least one text")

    def prompts(self, item: WritingItem) -> dict[str, list[dict[str, str]]]:
        """Chat messages [{role, content}, …] per agent. No agent sees what the others read or answer."""
        writers = len(self.agents)
        parts = range(writers) if writers > 1 else (None,)
        options = dict(writers=max(writers, 2), prompts=self._prompts)
        return {
            agent: writing_prompts.render(self._kind, item, part, **options)
            for agent, part in zip(self.agents, parts, strict=True)
        }

    def judge(self, items: Sequence[WritingItem], completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of J joint actions, in order; action j answers items[j] with completions[agent][j].

        `failures` has the reasons of counts that stopped early. The reward does not read the items.
        Errors: ValueError for a missing agent or a wrong count.
        """
        check_batch(items, completions, self.agents)
        rows = zip(*(completions[agent] for agent in self.agents), strict=True)
        return [self._judgement(texts if len(texts) > 1 else split(texts[0])) for texts in rows]

    def score(
        self, items: Sequence[WritingItem], completions: dict[str, list[str]]
    ) -> list[dict[str, float]]:
        """Parts and "total" per joint action; see `judge`."""
        return [judgement.scores for judgement in self.judge(items, completions)]

    def normalise(self, scores: dict[str, float]) -> dict[str, float]:
        """`scores` (or means of them) on the paper's 0..100 scale; see `writing.reward.normalise`."""
        return reward.normalise(scores)

    def _judgement(self, texts: Sequence[str]) -> Judgement:
        parts, stops = reward.mark_all(texts, self._bands, self._matching)
        # "judged" also if the count stopped early: other verdicts would look like failed tests.
        return Judgement(parts, sum(parts.values()), "judged", stops)


def split(text: str) -> tuple[str, str]:
    """The two texts of an agent that works alone, without surrounding white space.

    Without the delimiter the second is empty, and an empty text earns nothing.
    """
    # The original cuts a text without delimiter after a third of its characters. That can be exploited: the
    # second part of any text is then twice as long as the first, which is the ratio that 'tldr' rewards.
    first, _, second = text.partition(writing_prompts.DELIMITER)
    return first.strip(), second.strip()
