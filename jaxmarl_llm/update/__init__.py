"""One optimizer step of every agent of a stack, from the turns of a forest.

`collate` turns a forest into arrays (`batches`), `packing` packs completions side by side without padding,
`gradient` loops over the micro-batches, `agent_loss` is the loss of one agent, `token_scores` computes its
log-probabilities without all logits at once, `diagnostics` the ratios, clipping and entropy, `optimizer` has
AdamW with its schedule and state, `step` is one update. `custom_loss` loads a user's loss function,
`comlrl_compat` has the loss of the reference implementation.
"""

from jaxmarl_llm.update.agent_loss import LossConfig
from jaxmarl_llm.update.batches import Batch
from jaxmarl_llm.update.optimizer import Rates, TrainState, descend, init_state, make_optimizer
from jaxmarl_llm.update.packing import Packed
from jaxmarl_llm.update.step import train_step

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
