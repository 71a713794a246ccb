"""Evaluate a team on given problems: `evaluator` lets it answer them, `scores` computes means and pass@k.

`results` describes evaluations as JSON data and writes them.
"""

from jaxmarl_llm.evaluation.evaluator import (
    ROWS_PER_BATCH,
    Evaluations,
    batch_size,
    evaluate,
    plan_batches,
    prompt_sizes,
)

__all__ = ["ROWS_PER_BATCH", "Evaluations", "batch_size", "evaluate", "plan_batches", "prompt_sizes"]
