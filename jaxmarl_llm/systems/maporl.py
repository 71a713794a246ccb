"""MAPoRL: answers are revised in turns, and credited with what they lead to (arXiv 2502.18439).

The agents answer alone, then again after reading each other (``train.later_samples=1``: every first answer
begins its own conversation). With R the influence-aware return of an answer plus bonuses for changes between
right and wrong (`credit.influence`), its advantage is

    A = R - mean of R          over the group (item, agent, turn)

V, from which R is computed, is the agent's own reward (`Judgement.local`). ``train.turn_weights=(0, 1)`` does
not train the first turn. The paper has three more parts: with ``maporl.value_model`` the advantages are those
of `token_ppo` from the same R, with ``maporl.verifier`` V is a learned score (`verified`), and with
``train.protocol=relay`` every turn has its own adapters.
"""

import dataclasses
import functools

import jax
import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Influence:
    """Arguments of `credit.influence_returns` and `credit.transition_bonuses`."""

    discount: float = 0.3
    horizon: str = "discounted"
    share: str = "all"
    with_majority: float = 0.0
    on_own: float = 0.0
    persuade: float = 0.0
    provoke: float = 0.0


def assign(forest: Forest, config: CreditConfig, influence: Influence = Influence()) -> Credit:
    """Credit with the advantages of every answer among those of its item, agent and turn."""
    fixed_config = dataclasses.replace(config, turn_loss="mean")  # each turn is a problem of its own
    return magrpo.compare(forest, returns(forest, influence), magrpo.groups(forest), fixed_config)


def returns(forest: Forest, influence: Influence) -> np.ndarray:
    """Influence-aware return of every turn, float32 (turns,), with bonuses; NaN outside conversations.

    That of a call is the return of the answer that it led to.
    """
    chains = conversations(forest)
    ids_CTN = np.array([[forest.joints[j].turns for j in chain] for chain in chains])
    returns_CTN = np.asarray(_returns(local_scores(forest, chains), influence))
    returns_R = np.full(len(forest.turns), np.nan, np.float32)
    returns_R[ids_CTN] = returns_CTN
    return returns_R[forest.call_chains()[1]]


@functools.partial(jax.jit, static_argnums=1)
def _returns(scores_CTN, influence: Influence) -> jax.Array:
    how = dataclasses.asdict(influence)
    of_returns = {name: how.pop(name) for name in ("discount", "horizon", "share")}
    bonuses = any(how.values())
    returns_CTN = credit.influence_returns(scores_CTN, **of_returns)
    return returns_CTN + credit.transition_bonuses(scores_CTN, **how) if bonuses else returns_CTN


def conversations(forest: Forest) -> list[list[int]]:
    """Indices of the joint answers of every conversation, from the first turn to the last.

    ValueError unless each joint answer is part of one conversation, and all are equally long.
    """
    chains = forest.chains()
    lengths = {len(chain) for chain in chains}
    if len(lengths) != 1 or sum(map(len, chains)) != len(forest.joints):
        raise UserError(
            "train.system='maporl' needs conversations of equally many turns, each answer followed by one at most"
        )
    return chains


def local_scores(forest: Forest, chains: list[list[int]]) -> np.ndarray:
    """Each agent's own reward, float32 (chains, T, N), agents in the order of the joint answers.

    NaN where the reward does not apply.

    ValueError, with the item, if a judgement does not give it for every agent.
    """
    rows = []
    for chain in chains:
        for joint in (forest.joints[j] for j in chain):
            agents, local = [forest.turns[i].agent for i in joint.turns], joint.judgement.local
            if missing := [agent for agent in agents if agent not in local]:
                name = getattr(forest.items[joint.item], "task_id", joint.item)
                raise UserError(
                    f"train.system='maporl': the task does not tell what {missing[0]} earned by itself at {name}"
                )
            judged = not np.isnan(joint.total)
            rows.append([local[agent] if judged else np.nan for agent in agents])
    return np.array(rows, np.float32).reshape(len(chains), -1, len(rows[0]))
