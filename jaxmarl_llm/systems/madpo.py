"""MADPO: the team learns to prefer the joint answers that earned more (CoMLRL 1.4.3, after 2305.18290).

For a pair of joint answers w, l to one item, and Delta_i = log pi_i(w_i) - log pi_i(l_i) (with ``reference``,
minus the same difference under the untrained policy),

    loss_i = - log sigmoid(beta (Delta_i + sum_{j != i} stopgrad Delta_j))                   (`losses.madpo`)

It depends on agent i only through the log-probabilities of two completions. Its gradient is therefore a
policy gradient with these advantages (P pairs; the policy gradient divides by 2 P completions),

    A(w_i) = - 2 P dL/dlog pi_i(w_i) = 2 beta sigmoid(- beta sum_j Delta_j),        A(l_i) = - A(w_i)

computed with the parameters before the update: one update per iteration, then they are computed again.

In the first ``collect`` iterations MADPO collects pairs from the untrained team; it then learns from these
without more rollouts. MADPOIter makes a rollout in every iteration, and learns from pairs replayed from the
pool. (CoMLRL compares with answers of a second policy; here both answers are the team's own.)
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import losses
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo, preferences
from jaxmarl_llm.systems.preferences import Pool
from jaxmarl_llm.systems.types import Credit

Scores = Callable[[Forest, bool], list[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Madpo:
    """A pool of pairs, ``models``, and the credit from them; see `types.System`.

    Attributes:
      models: the pairs.
      scores: ``scores(forest, reference)``: log-probabilities of every turn's tokens under the policies as
        they are, or the reference.
      batch: pairs of an update.
      beta: see `losses.madpo`.
      reference: whether the reference's Delta is subtracted.
      collect: number of first iterations that only collect; no rollouts are made after them; 0: MADPOIter.
    """

    models: Pool
    scores: Scores
    batch: int
    beta: float = 0.1
    reference: bool = False
    collect: int = 0

    def assign(self, forest: Forest | None) -> Credit:
        """Add the forest's pairs to the pool, and return the credit of pairs from the pool.

        ValueError if no more rollouts are made and there is no pair.
        """
        pool = self.models
        if forest is not None:
            pool.add(forest)
        if pool.done < self.collect:
            return magrpo.no_update(forest)
        if forest is None:
            pool.require()
        pairs = pool.draw(self.batch) or [preferences.tie(forest)]
        return self._prefer(preferences.forest_of(pairs, self.batch))

    def learn(self, credit: Credit) -> dict[str, float]:
        """Return the metrics of the loss and of the pool; there is no model to update."""
        self.models.done += 1
        return {"preference/pairs": float(self.models.size)} | (credit.for_models or {})

    def _prefer(self, pairs: Forest) -> Credit:
        scores = self.scores(pairs, False)
        sides = sums(pairs, scores)
        reference = {}
        if self.reference:
            names = ("ref_winner_NP", "ref_loser_NP")
            reference = dict(zip(names, sums(pairs, self.scores(pairs, True)), strict=True))
        rewards_P2 = pairs.totals().reshape(-1, 2)
        differ_P = rewards_P2[:, 0] > rewards_P2[:, 1]
        results = advantages(*sides, mask_P=differ_P, beta=self.beta, **reference)
        advantages_NP2, loss, margins_P = results
        advantages_R = np.zeros(len(pairs.turns), np.float32)
        advantages_R[turn_ids(pairs)] = advantages_NP2
        metrics = {"madpo/loss": loss}
        if differ_P.any():
            metrics["madpo/accuracy"] = float((margins_P > 0)[differ_P].mean())
            metrics["madpo/margin"] = float(margins_P[differ_P].mean())
            metrics["preference/gap"] = float((rewards_P2[:, 0] - rewards_P2[:, 1])[differ_P].mean())
        pairs = pairs.with_logprobs(scores)
        return Credit(pairs, advantages_R, magrpo.returns(pairs), magrpo.groups(pairs), metrics)


def turn_ids(pairs: Forest) -> np.ndarray:
    """Ids of the turns of a forest of pairs, (N, P, 2), the winner's first."""
    ids_P2N = np.array([joint.turns for joint in pairs.joints]).reshape(-1, 2, len(pairs.joints[0].turns))
    return np.moveaxis(ids_P2N, 2, 0)


def sums(pairs: Forest, scores: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability of each agent's part of the winners and of the losers, float32 (N, P) each."""
    logprobs_R = np.array([scores_L.sum() for scores_L in scores], np.float32)
    logprobs_NP2 = logprobs_R[turn_ids(pairs)]
    return logprobs_NP2[..., 0], logprobs_NP2[..., 1]


def advantages(winner_NP, loser_NP, *, mask_P, beta: float, **reference):
    """Advantages (N, P, 2) of winners' and losers' completions, the mean loss, and margins (P,).

    The margin is beta times the sum of all agents' Delta; pairs with mask False have advantage 0. Arguments
    as of `losses.madpo`.
    """
    scores = [jnp.asarray(x, jnp.float32) for x in (winner_NP, loser_NP)]
    (_, (loss, margins_P)), grads = _value_and_gradients(*scores, jnp.asarray(mask_P), reference, beta=beta)
    return -2.0 * len(margins_P) * np.stack(grads, -1), float(loss), np.asarray(margins_P)


@functools.partial(jax.jit, static_argnames="beta")
@functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
def _value_and_gradients(winner_NP, loser_NP, mask_P, reference, beta):
    losses_N = losses.madpo(winner_NP, loser_NP, mask_P=mask_P, beta=beta, **reference).mean()
    deltas_NP = winner_NP - loser_NP
    if reference:
        deltas_NP = deltas_NP - (reference["ref_winner_NP"] - reference["ref_loser_NP"])
    return losses_N.sum(), (losses_N[0], beta * deltas_NP.sum(0))  # all agents have one loss
