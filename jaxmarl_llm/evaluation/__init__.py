"""How good a team is on given problems: `evaluator` has it answer them, `scores` computes means and pass@k."""

from jaxmarl_llm.evaluation.evaluator import (
    ROWS_PER_BATCH,
    Evaluations,
    batch_size,
    evaluate,
    plan_batches,
    prompt_sizes,
)

__all__ = ["ROWS_PER_BATCH", "Evaluations", "batch_size", "evaluate", "plan_batches", "prompt_sizes"]
