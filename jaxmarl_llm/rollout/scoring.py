"""The host half of the bridge: token arrays to texts, texts to joint answers, joint answers to judgements."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxmarl_llm.forest import joint_samples
from jaxmarl_llm.rollout.bridge import Bridge, Scored
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.utils import distributed


class TaskScorer:
    """Scores every joint answer of a batch with a task, in one call.

    Args:
      task: the items and their judge.
      tokenizers: agent -> tokenizer.
      joint_mode: ``aligned`` or ``cross``; see `forest.joint_samples`.
      extra: K, of each agent's samples the last ones, that are judged for the partners' sake alone.

    It is the scorer of a `bridge.Bridge`, and holds one itself for `judge`.
    """

    def __init__(self, task: Task, tokenizers: dict[str, Any], joint_mode: str, extra: int = 0):
        self.task, self.agents, self.extra = task, tuple(task.agents), extra
        self._tokenizers, self._mode = {agent: tokenizers[agent] for agent in task.agents}, joint_mode
        self._bridge = Bridge(self, self.shape)

    @classmethod
    def of_team(cls, task: Task, team: Any, joint_mode: str, extra: int = 0) -> "TaskScorer":
        """Build a scorer with the tokenizers of a team."""
        return cls(task, {agent: team[agent].tokenizer for agent in task.agents}, joint_mode, extra)

    def combinations(self, samples: int) -> list[tuple[int, ...]]:
        """Sample indices of the joint answers to one prompt, in the order of their judgements.

        ``samples`` are all of an agent, G + K.
        """
        return joint_samples(self._mode, len(self.agents), samples - self.extra, self.extra)

    def shape(self, prompts: int, samples: int) -> tuple[int, int]:
        """Shape (B, J) of the rewards for B prompts of G samples."""
        return prompts, len(self.combinations(samples))

    def judge(self, tokens: dict, lengths: dict, items_B: np.ndarray) -> list[tuple[float, Judgement]]:
        """Rewards and judgements of all joint answers through the bridge, those of one prompt together.

        The rewards are float32, as the callback returned them; NaN where the reward does not apply. Each
        process judges its share of the prompts and receives the others'.
        """
        asked, count = np.flatnonzero(items_B >= 0), jax.process_count()
        mine_B, share = np.full_like(items_B, -1), asked[jax.process_index() :: count]
        mine_B[share] = items_B[share]

        def own() -> list:
            rewards_BJ, judgements = self._bridge.run(tokens, lengths, mine_B)
            return list(zip(rewards_BJ[share].ravel().tolist(), judgements, strict=True))

        shares = distributed.run_together(own)
        size = len(self.combinations(next(iter(lengths.values())).shape[1]))
        places = [(n % count, n // count * size + j) for n in range(len(asked)) for j in range(size)]
        return [shares[process][place] for process, place in places]

    def judge_texts(self, items: Sequence[Any], completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of joint answers that are given as texts, in order; the task judges them in one call.

        Each process judges its share, and learns of the others' judgements.
        """
        count, share = jax.process_count(), slice(jax.process_index(), None, jax.process_count())

        def own() -> list:
            said = {agent: texts[share] for agent, texts in completions.items()}
            return list(self.task.judge(items[share], said)) if items[share] else []

        shares = distributed.run_together(own)
        return [shares[n % count][n // count] for n in range(len(items))]

    def __call__(self, tokens: dict, lengths: dict, items_B: np.ndarray) -> Scored:
        """Total rewards, float32 (B, J), of tokens[agent] (B, G, L) cut to lengths[agent] (B, G).

        NaN where the reward does not apply, and in rows whose item is negative: they only fill up the batch.
        The record is a list of the judgements of the other rows' joint answers, in order.
        """
        prompts, samples = next(iter(lengths.values())).shape
        texts = {
            agent: tokenizer.decode_completions(
                tokens[agent].reshape(prompts * samples, -1), lengths[agent].reshape(-1)
            )
            for agent, tokenizer in self._tokenizers.items()
        }
        combinations, asked = self.combinations(samples), np.flatnonzero(items_B >= 0)
        completions = {
            agent: [texts[agent][b * samples + c[n]] for b in asked for c in combinations]
            for n, agent in enumerate(self.agents)
        }
        items = [self.task.items[int(items_B[b])] for b in asked for _ in combinations]
        judgements = list(self.task.judge(items, completions)) if items else []
        totals_BJ = np.full((prompts, len(combinations)), np.nan, np.float32)
        rewards = np.array([judgement.total for judgement in judgements], np.float32)
        totals_BJ[asked] = rewards.reshape(len(asked), -1)
        return Scored(totals_BJ, judgements)
