"""DPO of single turns: each agent learns to prefer its turns with the higher value (arXiv 2305.18290).

For turns w, l of agent i under one prompt x, where w has the higher value (`preferences.siblings`),

    loss_i = - log sigmoid(beta (log pi_i(w|x) - log pi_i(l|x) - (log ref_i(w|x) - log ref_i(l|x))))     (`losses.dpo`)

where ref_i are the parameters at the start of the stage, or uniform. The gradient is a policy gradient with
the advantages of `systems.madpo`, for each agent on its own pairs (P_i of them; the policy gradient divides
by 2 P_i completions):

    A(w) = - 2 P_i dL_i/dlog pi_i(w),        A(l) = - A(w)

With ``nll`` the mean of - log pi_i(w|x) per token is added to the loss with that weight: A(w) grows by
2 nll / T_w.

For a team of one agent that answers once, this is MADPO. SWEET-RL's actor (arXiv 2503.15478) and MALT's
verifier and refiner (arXiv 2412.01928) learn in this way.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import losses
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.preferences import Pool, siblings
from jaxmarl_llm.systems.preferences.pairs import Pair
from jaxmarl_llm.systems.types import Credit

Scores = Callable[[Forest, bool], list[np.ndarray]]
Drawn = Sequence[Sequence[Pair]]  # pairs of an update, one list for each agent


@dataclasses.dataclass(frozen=True)
class Dpo:
    """A pool of pairs of turns, ``models``, and the credit from them; see `types.System`.

    Attributes:
      models: the pairs.
      agents: the agents that learn.
      scores: ``scores(forest, reference)``: log-probabilities of every turn's tokens under the current
        policies, or the reference.
      batch: pairs of each agent in an update.
      collect: number of first iterations that only collect; no rollouts are made after them.
      beta: see `losses.dpo`.
      reference: whether the reference's log-probabilities are subtracted.
      nll: see `prefer`.
    """

    models: Pool
    agents: tuple[str, ...]
    scores: Scores
    batch: int
    collect: int
    beta: float = 0.1
    reference: bool = False
    nll: float = 0.0

    def assign(self, forest: Forest | None) -> Credit:
        """Add the forest's pairs to the pool, and return the credit of pairs from the pool.

        An agent without a pair has no turn in the credit, and does not learn. ValueError if there is no pair
        at all.
        """
        if forest is not None:
            self.models.add(forest)
        if self.models.done < self.collect:
            return magrpo.no_update(forest)
        self.models.require()
        reference = self._reference if self.reference else None
        inputs = self.models, self.agents, self.batch, self.scores, reference
        return prefer_drawn(*inputs, beta=self.beta, nll=self.nll)

    def _reference(self, drawn: Drawn, made: Forest) -> list[np.ndarray]:
        ref_scores = self.scores(made, True)
        return [sums(ref_scores, ids_P2) for ids_P2 in turn_ids(drawn)]

    def learn(self, credit: Credit) -> dict[str, float]:
        """Return the metrics of the loss and of the pool; there is no model to update."""
        self.models.done += 1
        return {"preference/pairs": float(self.models.size)} | (credit.for_models or {})


def prefer_drawn(
    pool: Pool,
    agents: Sequence[str],
    number: int,
    scores: Scores,
    reference: Callable[[Drawn, Forest], list[np.ndarray]] | None,
    *,
    beta: float,
    nll: float,
) -> Credit:
    """The credit of ``number`` pairs per agent, drawn from a pool.

    Args:
      pool, agents, number: as of `draw`.
      scores: as of `Dpo`.
      reference: maps the drawn pairs and their forest to `prefer`'s ``reference``; None: uniform.
      beta, nll: see `prefer`.
    """
    drawn = draw(pool, agents, number)
    made = siblings.forest_of(drawn, number)
    ref = None if reference is None else reference(drawn, made)
    return prefer(drawn, made, scores(made, False), ref, beta=beta, nll=nll)


def draw(pool: Pool, agents: Sequence[str], number: int) -> list[list[Pair]]:
    """Draw ``number`` pairs of each agent from the pool, or all if there are fewer."""
    return [pool.draw(number, 1 + n, agent) for n, agent in enumerate(agents)]


def turn_ids(drawn: Drawn) -> list[np.ndarray]:
    """Ids of the turns of each agent in `siblings.forest_of`, int (P_i, 2), the winner's first."""
    ends = np.cumsum([0, *(2 * len(pairs) for pairs in drawn)])
    return [np.arange(ends[n], ends[n + 1]).reshape(-1, 2) for n in range(len(drawn))]


def sums(scores: Sequence[np.ndarray], ids_P2: np.ndarray) -> np.ndarray:
    """Log-probability of each of these whole turns, from those of its tokens; float32 (P, 2)."""
    return np.array([scores[i].sum() for i in ids_P2.flat], np.float32).reshape(ids_P2.shape)


def prefer(drawn: Drawn, made: Forest, scores, reference=None, *, beta: float, nll: float = 0.0) -> Credit:
    """The credit of pairs of each agent.

    Args:
      drawn: pairs, one list for each agent.
      made: their forest, `siblings.forest_of`.
      scores: log-probabilities (L',) of every turn's tokens under the policies as they are.
      reference: log-probabilities of whole turns under the reference, (P_i, 2) for each agent; None: uniform.
      beta: see `losses.dpo`.
      nll: weight of a loss term, the mean over winners of - log pi(w|x) / T_w with T_w the tokens of w; it
        keeps winners from becoming less likely too.
    """
    advantages_R, metrics, gaps = np.zeros(len(made.turns), np.float32), {}, []
    for n, (pairs, ids_P2) in enumerate(zip(drawn, turn_ids(drawn), strict=True)):
        if not pairs:
            continue
        ref_P2 = None if reference is None else reference[n]
        advantages_P2, loss, margins_P = advantages(sums(scores, ids_P2), ref_P2, beta=beta)
        advantages_R[ids_P2] = advantages_P2
        agent = pairs[0].winner[0].agent
        if nll:
            tokens_P = np.array([len(made.turns[i].completion) for i in ids_P2[:, 0]])
            advantages_R[ids_P2[:, 0]] += 2 * nll / tokens_P
            metrics[f"{agent}/nll"] = float(np.mean([-scores[i].mean() for i in ids_P2[:, 0]]))
        metrics |= {f"{agent}/dpo_loss": loss, f"{agent}/dpo_accuracy": float((margins_P > 0).mean())}
        metrics[f"{agent}/dpo_margin"] = float(margins_P.mean())
        gaps += [pair.rewards[0] - pair.rewards[1] for pair in pairs]
    metrics["preference/gap"] = float(np.mean(gaps))
    made = made.with_logprobs(scores)
    return Credit(made, advantages_R, magrpo.returns(made), magrpo.groups(made), metrics)


def advantages(logprobs_P2, ref_P2=None, *, beta: float) -> tuple[np.ndarray, float, np.ndarray]:
    """Advantages (P, 2) of winners and losers, the mean loss, and margins (P,): beta times the difference.

    Args:
      logprobs_P2: log-probabilities of whole turns, the winner's first.
      ref_P2: the same under the reference; None: uniform.
      beta: see `losses.dpo`.
    """
    named = {} if ref_P2 is None else dict(ref_winner_P=ref_P2[:, 0], ref_loser_P=ref_P2[:, 1])
    logprobs_P2 = jnp.asarray(logprobs_P2, jnp.float32)
    loss, grad_P2 = _value_and_gradient(logprobs_P2, named, beta=beta)
    gaps_P2 = logprobs_P2 if ref_P2 is None else logprobs_P2 - ref_P2
    return (
        -2.0 * len(grad_P2) * np.asarray(grad_P2),
        float(loss),
        beta * np.asarray(gaps_P2[:, 0] - gaps_P2[:, 1]),
    )


@functools.partial(jax.jit, static_argnames="beta")
@jax.value_and_grad
def _value_and_gradient(logprobs_P2, named, beta):
    return losses.dpo(logprobs_P2[:, 0], logprobs_P2[:, 1], beta=beta, **named).mean()
