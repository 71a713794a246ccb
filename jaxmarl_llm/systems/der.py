"""DER: a router chooses among agents that do not learn; it earns the quality of their answers minus the cost.

The t-th decision of a route earns the reward of the answer that it requested (`tasks.routed`); STOP earns
nothing. Each route is an episode, with generalised advantage estimation over its decisions:

    A_t = sum_k (gamma lambda)^k (r_(t+k) + gamma V_(t+k+1) - V_(t+k)),   V = 0 after the end

The router learns by PPO (arXiv 2412.07448; there the quality is BERTScore and the network reads the last
hidden state of a small language model). After ``turns`` answers a route ends without a decision.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.protocols.routed import Place, place_after
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.router import Router
from jaxmarl_llm.systems.types import Credit


class Decisions(NamedTuple):
    """The decisions of E routes, up to D each: places, choices (row by row), rewards (E, D), lengths (E,)."""

    places: list[Place]
    chosen: list[str | None]
    rewards_ED: np.ndarray
    lengths_E: np.ndarray


@dataclasses.dataclass(frozen=True)
class Der:
    """A router and its credit; see `types.System`.

    Attributes:
      models: the router.
      question: an item -> what the agents are asked about it.
      turns: most answers of a route.
      discount, lam: gamma and lambda.
    """

    models: Router
    question: Callable[[Any], str]
    turns: int
    discount: float = 0.95
    lam: float = 0.95

    def assign(self, forest: Forest) -> Credit:
        """No agent learns; for_models are the decisions of all routes."""
        made = decisions(forest, self.question, self.turns)
        return dataclasses.replace(
            magrpo.no_update(forest), for_models=made, extra_metrics=of_routes(forest, self.models.agents)
        )

    def learn(self, credit_: Credit) -> dict[str, float]:
        """Update the router; returns its metrics. Without any route that has a reward, it does and returns
        nothing.
        """
        made: Decisions = credit_.for_models
        if not made.places:
            return {}
        actions_X = self.models.actions(made.chosen)
        logprobs_XA, values_X = self.models.values(made.places)
        taken = np.arange(made.rewards_ED.shape[1]) < made.lengths_E[:, None]
        values_ED = np.zeros_like(made.rewards_ED)
        values_ED[taken] = values_X
        columns = made.rewards_ED, values_ED, made.lengths_E
        options = {"gamma": self.discount, "lam": self.lam, "length": len(made.lengths_E)}
        advantages_X = credit.on_host(credit.gae, *columns, **options)[:, : taken.shape[1]][taken]
        behaviour_X = np.take_along_axis(logprobs_XA, actions_X[:, None], 1)[:, 0]
        targets_X = advantages_X + values_X
        spread = advantages_X.std() or 1.0
        centred_X = (advantages_X - advantages_X.mean()) / spread
        return self.models.learn(made.places, actions_X, centred_X, targets_X, behaviour_X)


def decisions(forest: Forest, question: Callable[[Any], str], turns: int) -> Decisions:
    """The decisions of every route: the agents chosen, and STOP unless the route has ``turns`` answers.

    Routes with an answer to which the reward does not apply are left out.
    """
    places: list[Place] = []
    chosen: list[str | None] = []
    rewards: list[list[float]] = []
    for chain in forest.chains():
        joints = [forest.joints[j] for j in chain]
        if any(np.isnan(joint.total) for joint in joints):
            continue
        text = question(forest.items[joints[0].item])
        place, row = Place(text), []
        for joint in joints:
            turn = forest.turns[joint.turns[0]]
            places.append(place)
            chosen.append(turn.agent)
            row.append(joint.total)
            place = place_after(text, turn)
        if len(joints) < turns:
            places.append(place)
            chosen.append(None)
            row.append(0.0)
        rewards.append(row)
    rewards_ED = np.zeros((len(rewards), turns), np.float32)
    for e, row in enumerate(rewards):
        rewards_ED[e, : len(row)] = row
    return Decisions(places, chosen, rewards_ED, np.array([len(row) for row in rewards], np.int32))


def of_routes(forest: Forest, agents) -> dict[str, float]:
    """``router/answers``, the mean number of answers per route; ``<agent>/asked``, its share of answers."""
    chains = forest.chains()
    given = [forest.turns[joint.turns[0]].agent for joint in forest.joints]
    shares = {f"{agent}/asked": given.count(agent) / len(given) for agent in agents}
    return shares | {"router/answers": sum(map(len, chains)) / len(chains)}
