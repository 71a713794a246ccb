"""The host half of the bridge: token arrays to texts, texts to joint answers, joint answers to judgements."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxmarl_llm.forest import joint_samples
from jaxmarl_llm.rollout.bridge import Bridge, Scored
from jaxmarl_llm.tasks.judgement import History, Judgement, is_sequential
from jaxmarl_llm.tasks.judgement import judge as judge_by
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.utils import distributed


class Earlier(NamedTuple):
    """The joint answers before those of each row, as the callback receives them.

    tokens[agent] int32 (B, H, L) and lengths[agent] (B, H): what each agent wrote in at most H turns, oldest
    first. turns_B (B,): the number of earlier turns.
    """

    tokens: dict[str, np.ndarray]
    lengths: dict[str, np.ndarray]
    turns_B: np.ndarray


class TaskScorer:
    """Scores every joint answer of a batch with a task, in one call.

    Args:
      task: the items and their judge.
      tokenizers: agent -> tokenizer.
      joint_mode: ``aligned`` or ``cross``; see `forest.joint_samples`.
      extra: K, the number of each agent's last samples used only to judge its partners' samples.

    It is the scorer of a `bridge.Bridge`, and has its own bridge for `judge`.
    """

    def __init__(self, task: Task, tokenizers: dict[str, Any], joint_mode: str, extra: int = 0):
        self.task, self.agents, self.extra = task, tuple(task.agents), extra
        self.tokenizers, self._mode = {agent: tokenizers[agent] for agent in task.agents}, joint_mode
        self._bridge = Bridge(self, self.shape)

    @classmethod
    def of_team(cls, task: Task, team: Any, joint_mode: str, extra: int = 0) -> "TaskScorer":
        """Build a scorer with the tokenizers of a team."""
        return cls(task, {agent: team[agent].tokenizer for agent in task.agents}, joint_mode, extra)

    def combinations(self, samples: int) -> list[tuple[int, ...]]:
        """Sample indices of the joint answers to one prompt, in the order of their judgements.

        ``samples`` counts all samples of an agent, G + K.
        """
        return joint_samples(self._mode, len(self.agents), samples - self.extra, self.extra)

    def shape(self, prompts: int, samples: int) -> tuple[int, int]:
        """Shape (B, J) of the rewards for B prompts of G samples."""
        return prompts, len(self.combinations(samples))

    @property
    def sequential(self) -> bool:
        """Whether judgements depend on earlier answers, which `judge` then needs."""
        return is_sequential(self.task)

    def judge(
        self, tokens: dict, lengths: dict, items_B: np.ndarray, earlier: Earlier | None = None
    ) -> list[tuple[float, Judgement]]:
        """Rewards and judgements of all joint answers through the bridge, grouped by prompt.

        The rewards are float32, as the callback returned them; NaN where the reward does not apply. Each
        process judges its share of the prompts and receives the others'. ``earlier``: of a sequential task.
        """
        rows, count = np.flatnonzero(items_B >= 0), jax.process_count()
        own_items_B, own_rows = np.full_like(items_B, -1), rows[jax.process_index() :: count]
        own_items_B[own_rows] = items_B[own_rows]

        def judge_share() -> list:
            rewards_BJ, judgements = self._bridge.run(tokens, lengths, own_items_B, earlier)
            return list(zip(rewards_BJ[own_rows].ravel().tolist(), judgements, strict=True))

        shares = distributed.run_together(judge_share)
        size = len(self.combinations(next(iter(lengths.values())).shape[1]))
        places = [(n % count, n // count * size + j) for n in range(len(rows)) for j in range(size)]
        return [shares[process][place] for process, place in places]

    def judge_texts(
        self, items: Sequence[Any], completions: dict[str, list[str]], histories: Sequence[History] = ()
    ) -> list[Judgement]:
        """Judgements of joint answers given as texts, in order; the task judges them in one call.

        Each process judges its share and receives the others'. ``histories``: one for each answer; only a
        sequential task reads them.
        """
        count, share = jax.process_count(), slice(jax.process_index(), None, jax.process_count())

        def judge_share() -> list:
            own_texts = {agent: texts[share] for agent, texts in completions.items()}
            return judge_by(self.task, items[share], own_texts, histories[share]) if items[share] else []

        shares = distributed.run_together(judge_share)
        return [shares[n % count][n // count] for n in range(len(items))]

    def __call__(
        self, tokens: dict, lengths: dict, items_B: np.ndarray, earlier: Earlier | None = None
    ) -> Scored:
        """Total rewards, float32 (B, J), of tokens[agent] (B, G, L) cut to lengths[agent] (B, G).

        NaN where the reward does not apply, and in padding rows, whose item is negative.
        The record is a list of the judgements of the other rows' joint answers, in order. ``earlier``: of a
        sequential task.
        """
        prompts, samples = next(iter(lengths.values())).shape
        texts = self._texts(tokens, lengths)
        combinations, rows = self.combinations(samples), np.flatnonzero(items_B >= 0)
        completions = {
            agent: [texts[agent][b * samples + c[n]] for b in rows for c in combinations]
            for n, agent in enumerate(self.agents)
        }
        items = [self.task.items[int(items_B[b])] for b in rows for _ in combinations]
        histories = self._histories(earlier) if earlier else [()] * prompts
        before = [histories[b] for b in rows for _ in combinations]
        judgements = judge_by(self.task, items, completions, before) if items else []
        totals_BJ = np.full((prompts, len(combinations)), np.nan, np.float32)
        rewards = np.array([judgement.total for judgement in judgements], np.float32)
        totals_BJ[rows] = rewards.reshape(len(rows), -1)
        return Scored(totals_BJ, judgements)

    def _texts(self, tokens: dict, lengths: dict) -> dict[str, list[str]]:
        """Texts of each agent, row by row of (B, X, L) tokens."""
        return {
            agent: tokenizer.decode_completions(
                tokens[agent].reshape(lengths[agent].size, -1), lengths[agent].reshape(-1)
            )
            for agent, tokenizer in self.tokenizers.items()
        }

    def _histories(self, earlier: Earlier) -> list[tuple[dict[str, str], ...]]:
        """The joint answers before each row, as texts."""
        texts, most = (
            self._texts(earlier.tokens, earlier.lengths),
            next(iter(earlier.lengths.values())).shape[1],
        )
        return [
            tuple({agent: texts[agent][b * most + h] for agent in self.agents} for h in range(number))
            for b, number in enumerate(np.asarray(earlier.turns_B).tolist())
        ]
