"""PPO's advantages of every token of an answer, from each agent's value model (arXiv 1707.06347, 1506.02438).

Let R be the return of an answer, V the value model's estimate after the prompt and the tokens so far, mu the
sampler and ref the policy with which the agent began:

    r_l = R of the last token, 0 of the others, - kl (log mu(a_l) - log ref(a_l))
    A_l = sum_k lam^k (r_{l+k} + V_{l+k+1} - V_{l+k}),  V = 0 after the last token           (`credit.gae`, gamma = 1)

The value model learns A_l + V_l (`losses.value_loss`). The update makes the passes over the completions
(``train.epochs``) and clips the ratio (``train.clip``).
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.critics import Critics
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit


@dataclasses.dataclass(frozen=True)
class TokenPpo:
    """Advantages of tokens from the returns of any system; see `types.System`.

    Attributes:
      of_returns: returns and groups of the turns; its advantages are not used.
      models: the value models of the agents that learn, with values after every token.
      config: turn weights; with ``normalise`` the advantages of all tokens of an agent in an iteration have
        mean 0 and standard deviation 1.
      lam: lambda of generalised advantage estimation, 0..1.
      kl: weight of the penalty of each token, in units of the return per nat.
      reference: log-probabilities of every turn's tokens under the agents' initial policies; read with
        ``kl``.
      warmup: number of first iterations, in which only the value models learn.
    """

    of_returns: Callable[[Forest], Credit]
    models: Critics
    config: CreditConfig
    lam: float = 0.95
    kl: float = 0.0
    reference: Callable[[Forest], list[np.ndarray]] | None = None
    warmup: int = 0

    def assign(self, forest: Forest) -> Credit:
        """Return the credit; its ``for_models`` are the texts, their values, and the targets."""
        compared = self.of_returns(forest)
        learners = {agent for member in self.models.team.members for agent in member.stack.agents}
        texts: dict[str, dict[int, np.ndarray]] = {agent: {} for agent in learners}
        for turn in forest.turns:
            if turn.agent in learners:  # the value after the last token is not needed
                texts[turn.agent][turn.id] = np.concatenate([turn.prompt, turn.completion])[:-1]
        values = self.models.values(texts)
        turns = [
            turn for turn in forest.turns if turn.id in values and not np.isnan(compared.returns[turn.id])
        ]
        advantages_TL = self._advantages(forest, turns, compared.returns, values)
        targets = {
            turn.id: _at_end(values[turn.id], values[turn.id][-len(own_L) :] + own_L)
            for turn, own_L in zip(turns, advantages_TL, strict=True)
        }
        if self.config.normalise and turns:
            advantages_TL = _normalised(turns, advantages_TL)
        learn = not self.warmup or self.models.done >= self.warmup
        weights_R = magrpo.weights(forest, self.config) * np.float32(learn)
        of_tokens = [np.zeros(len(turn.completion), np.float32) for turn in forest.turns]
        for turn, own_L in zip(turns, advantages_TL, strict=True):
            of_tokens[turn.id] = own_L * weights_R[turn.id]
        means_R = np.array([own_L.mean() if len(own_L) else 0.0 for own_L in of_tokens], np.float32)
        return dataclasses.replace(
            compared,
            advantages=means_R,
            token_advantages=of_tokens,
            for_models=(texts, values, targets),
            learn=learn,
        )

    def learn(self, credit: Credit) -> dict[str, float]:
        """Update the value models; returns their metrics."""
        return self.models.learn(*credit.for_models)

    def _advantages(self, forest: Forest, turns: list[Turn], returns_R, values) -> list[np.ndarray]:
        """Advantages (L',) of the tokens of each turn."""
        lengths_T = np.array([len(turn.completion) for turn in turns], np.int32)
        if not turns:
            return []
        values_TL, rewards_TL = np.zeros((2, len(turns), lengths_T.max()), np.float32)
        reference = self.reference(forest) if self.kl else None
        for t, (turn, length) in enumerate(zip(turns, lengths_T, strict=True)):
            values_TL[t, :length] = values[turn.id][-length:]
            rewards_TL[t, length - 1] = returns_R[turn.id]
            if reference is not None:
                rewards_TL[t, :length] -= self.kl * (turn.logprobs - reference[turn.id])
        columns = rewards_TL, values_TL, lengths_T
        advantages_TL = credit.on_host(credit.gae, *columns, lam=self.lam, length=len(turns))
        return [own_L[:length] for own_L, length in zip(advantages_TL, lengths_T, strict=True)]


def _at_end(values_P: np.ndarray, targets_L: np.ndarray) -> np.ndarray:
    """Targets of the last values of a text, NaN for the others."""
    targets_P = np.full(len(values_P), np.nan, np.float32)
    targets_P[len(values_P) - len(targets_L) :] = targets_L
    return targets_P


def _normalised(turns: list[Turn], advantages_TL: list[np.ndarray]) -> list[np.ndarray]:
    """Advantages minus their agent's mean over all tokens, divided by its standard deviation."""
    agent_T, number = credit.group_keys([turn.agent for turn in turns])
    lengths_T = [len(own_L) for own_L in advantages_TL]
    columns = np.concatenate(advantages_TL), np.repeat(np.asarray(agent_T), lengths_T)
    options = {"num_agents": number, "centre": True, "length": len(columns[0])}
    scaled = credit.on_host(credit.normalise_per_agent, *columns, **options)
    return np.split(scaled, np.cumsum(lengths_T)[:-1])
