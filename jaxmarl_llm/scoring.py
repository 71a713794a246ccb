"""The host half of the bridge: token arrays to texts, texts to joint answers, joint answers to judgements."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.forest import joint_samples


class TaskScorer:
    """Scores every joint answer of a batch with a task, in one call.

    Args:
      task: has ``items`` and ``judge(items, completions) -> judgements`` with a ``total`` each.
      tokenizers: agent -> tokenizer, in the order of the joint answer.
      joint_mode: ``aligned`` or ``cross``; see `forest.joint_samples`.

    ``judgements`` keeps those of the last call, for transcripts: B * J of them, joint answers of one item
    together.
    """

    def __init__(self, task: Any, tokenizers: dict[str, Any], joint_mode: str):
        self._task, self._tokenizers, self._mode = task, tokenizers, joint_mode
        self.judgements: Sequence[Any] = ()

    def shape(self, prompts: int, samples: int) -> tuple[int, int]:
        """Shape (B, J) of the rewards for B prompts of G samples."""
        return prompts, len(joint_samples(self._mode, len(self._tokenizers), samples))

    def __call__(self, tokens: dict, lengths: dict, items_B: np.ndarray) -> np.ndarray:
        """Total rewards, float32 (B, J), of tokens[agent] (B, G, L) cut to lengths[agent] (B, G)."""
        prompts, samples = next(iter(lengths.values())).shape
        texts = {
            agent: tokenizer.decode_completions(
                tokens[agent].reshape(prompts * samples, -1), lengths[agent].reshape(-1)
            )
            for agent, tokenizer in self._tokenizers.items()
        }
        combinations = joint_samples(self._mode, len(self._tokenizers), samples)
        completions = {
            agent: [texts[agent][b * samples + c[n]] for b in range(prompts) for c in combinations]
            for n, agent in enumerate(self._tokenizers)
        }
        items = [self._task.items[int(i)] for i in items_B for _ in combinations]
        self.judgements = self._task.judge(items, completions)
        totals = np.array([judgement.total for judgement in self.judgements], np.float32)
        return totals.reshape(prompts, len(combinations))
