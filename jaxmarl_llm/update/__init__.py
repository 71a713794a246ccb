"""One optimizer step of every agent of a stack, from the turns of a forest.

`batches` makes arrays of a forest, `packing` lays completions side by side without padding,
`policy_gradient` walks over the micro-batches, `agent_loss` is the loss of one agent, `token_scores` its
log-probabilities without all logits at once, `diagnostics` what is seen on the way, `step` the optimizer.
`custom_loss` takes in a loss of the user's, `comlrl_compat` has the reference implementation's.
"""

from jaxmarl_llm.update.agent_loss import LossConfig
from jaxmarl_llm.update.packing import Batch, Packed
from jaxmarl_llm.update.step import Rates, TrainState, descend, init_state, make_optimizer, train_step

__all__ = [
    "Batch",
    "LossConfig",
    "Packed",
    "Rates",
    "TrainState",
    "descend",
    "init_state",
    "make_optimizer",
    "train_step",
]
