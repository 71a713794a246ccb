"""MARLHF: reinforcement learning from a model of preferences between joint answers (CoMLRL 1.4.3).

A reward model s reads the prompts and completions of all agents, and learns from pairs of joint answers w, l
to one item,

    L(s) = - log sigmoid(s(w) - s(l))                                              (`losses.bradley_terry`)

after which the team learns as with MAGRPO, from s in place of the task's reward:

    A_g = S_g - S_bar        S_g the mean score of the joint answers that completion g is a part of

(``train.baseline`` and the rest of `magrpo.CreditConfig` make it MARLOO, MAReMax or MAREINFORCE). Metrics,
transcripts and evaluations still show the task's rewards.

MARLHF collects pairs from the untrained team in the first ``collect`` iterations and fits the model once.
MARLHFIter fits a new model in every iteration to pairs replayed from the pool, which include pairs of the
answers that it scores next.
"""

import dataclasses

import numpy as np

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.preferences import reward_model
from jaxmarl_llm.systems.preferences.reward_model import RewardModel
from jaxmarl_llm.systems.types import Credit


@dataclasses.dataclass(frozen=True)
class Marlhf:
    """A reward model, ``models``, and the credit from its scores; see `types.System`.

    ``collect``: number of iterations that only collect pairs; 0: MARLHFIter.
    """

    models: RewardModel
    config: CreditConfig
    collect: int = 0

    def assign(self, forest: Forest) -> Credit:
        """MAGRPO's credit from the scores; for_models holds how well these agree with the task's rewards.

        While there is no pair, answers cannot be compared, and all advantages are 0.
        """
        pool, metrics = self.models.pool, {}
        if pool.done < self.collect or not self.collect:
            pool.add(forest)
        if pool.done < self.collect:
            return magrpo.no_update(forest)
        if not pool.size:
            return dataclasses.replace(magrpo.no_update(forest), learn=True)
        if not self.collect:
            metrics = self.models.fit()
        scores_J = self.models.scores(forest)
        credit = magrpo.assign(scored(forest, scores_J), self.config)
        metrics |= reward_model.agreement(forest, scores_J)
        return dataclasses.replace(credit, forest=forest, for_models=metrics)

    def learn(self, credit: Credit) -> dict[str, float]:
        """Fit the model after the last collecting iteration; returns its metrics and the number of pairs.

        ValueError if there is no pair then.
        """
        pool = self.models.pool
        pool.done += 1
        metrics = dict(credit.for_models or {}) | {"preference/pairs": float(pool.size)}
        if pool.done == self.collect:
            metrics |= self.models.fit()
        return metrics


def scored(forest: Forest, scores_J) -> Forest:
    """The forest with scores as rewards, where the task's reward applies."""
    pairs = zip(forest.joints, np.asarray(scores_J).tolist(), strict=True)
    joints = [joint if np.isnan(joint.total) else dataclasses.replace(joint, reward=s) for joint, s in pairs]
    return dataclasses.replace(forest, joints=tuple(joints))
