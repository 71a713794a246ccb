"""Independent and centralised critics: IAC and MAAC (CoLLM-DC and CoLLM-CC, arXiv 2601.21972).

A critic says what an answer is expected to earn before it is given, so a single sample has an advantage: with
one-step targets (TD(0)), for joint answer j of a node, reward r_j and discount gamma,

    y_j = r_j + gamma * V(what follows j),      V of nothing is 0
    A_j = y_j - V(what j answers)

IAC: every agent has a critic of its own that reads the agent's prompt. MAAC: one critic reads the prompts of
all agents. The advantage of a completion is the mean over the joint answers that it is a part of; the critic
is taught the mean of y over the answers to what it has read (`losses.value_loss`). Values come from before
the update, and nothing flows through them into the policy.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.critics import TEAM, Critics, Texts
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Lesson

Values = Mapping[int, float]
Found = tuple[np.ndarray, dict[int, float]]


def requests(forest: Forest) -> Texts:
    """What the critics of IAC read: by agent and number of the request, the prompt's tokens (P',)."""
    found: dict[str, dict[int, np.ndarray]] = {}
    for turn in forest.turns:
        found.setdefault(turn.agent, {}).setdefault(turn.request, turn.prompt)
    return found


def nodes(forest: Forest) -> Texts:
    """What the critic of MAAC reads: by number of the node, the prompts of all turns that led to its answers,
    one after the other.
    """
    found: dict[int, np.ndarray] = {}
    for joint in forest.joints:
        if joint.node not in found:
            said = sorted((*joint.heard, *joint.turns))
            found[joint.node] = np.concatenate([forest.turns[i].prompt for i in said])
    return {TEAM: found}


def independent(forest: Forest, values: Values, discount: float = 1.0) -> Found:
    """Advantages of all turns, float32 (turns,), and the target of every request's value: IAC.

    A turn whose joint answers have no reward has advantage 0, a request of such turns alone no target.

    Args:
      forest: all turns of an iteration.
      values: V by number of the request.
      discount: gamma, 0..1.
    """
    later: dict[tuple[str, int], dict[int, float]] = {}
    for turn in forest.turns:
        if turn.follows is not None:
            later.setdefault((turn.agent, turn.follows), {})[turn.request] = values[turn.request]
    joint_M, turn_M = forest.memberships()
    pairs = zip(joint_M.tolist(), turn_M.tolist(), strict=True)
    next_M = [_mean(later.get((forest.turns[t].agent, j), {}).values()) for j, t in pairs]
    targets_R = _mean_by(forest.totals()[joint_M] + discount * np.array(next_M), turn_M, len(forest.turns))
    request_R = np.array([turn.request for turn in forest.turns], np.int32)
    values_R = np.array([values[r] for r in request_R.tolist()], np.float32)
    taught = _mean_by(targets_R, request_R, int(request_R.max()) + 1)
    return np.nan_to_num(targets_R - values_R), _known(taught)


def centralised(forest: Forest, values: Values, discount: float = 1.0) -> Found:
    """Advantages of all turns, float32 (turns,), and the target of every node's value: MAAC.

    As `independent`, with ``values`` by number of the node.
    """
    node_J, before_J = forest.nodes()
    later: dict[int, dict[int, float]] = {}
    for node, before in zip(node_J.tolist(), before_J.tolist(), strict=True):
        if before >= 0:
            later.setdefault(before, {})[node] = values[node]
    next_J = np.array([_mean(later.get(j, {}).values()) for j in range(len(node_J))])
    targets_J = (forest.totals() + discount * next_J).astype(np.float32)
    joint_M, turn_M = forest.memberships()
    advantages_J = targets_J - np.array([values[node] for node in node_J.tolist()], np.float32)
    advantages_R = _mean_by(advantages_J[joint_M], turn_M, len(forest.turns))
    return np.nan_to_num(advantages_R), _known(_mean_by(targets_J, node_J, int(node_J.max()) + 1))


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def _mean_by(values_M, keys_M, number: int) -> np.ndarray:
    """Mean of the numbers of each key, NaN where there is none."""
    keys_M = np.where(np.isnan(values_M), -1, keys_M)
    means = np.asarray(credit.segment_mean(np.nan_to_num(values_M), keys_M, num_groups=number))
    return np.where(np.asarray(credit.segment_count(keys_M, num_groups=number)) > 0, means, np.nan)


def _known(means: np.ndarray) -> dict[int, float]:
    return {key: float(mean) for key, mean in enumerate(means) if not np.isnan(mean)}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What the critics read of a forest, what follows from their values, and whether one reads for all."""

    read: Callable[[Forest], Texts]
    credit: Callable[[Forest, Values, float], Found]
    joint: bool


IAC = Recipe(requests, independent, joint=False)
MAAC = Recipe(nodes, centralised, joint=True)


@dataclasses.dataclass(frozen=True)
class ActorCritic:
    """A recipe with its critics, ``models``, at a discount; see `types.System`.

    With ``normalise`` in the config the advantages of each agent have mean 0 and standard deviation 1 over
    the iteration. Returns and groups are MAGRPO's: no credit comes of them.
    """

    recipe: Recipe
    models: Critics
    config: CreditConfig

    def lesson(self, forest: Forest) -> Lesson:
        """What the agents learn; its notes are what was read, the values, and what they should have been."""
        read = self.recipe.read(forest)
        values = self.models.values(read)
        advantages_R, targets = self.recipe.credit(forest, values, self.config.discount)
        if self.config.normalise:
            agent_R, number = credit.group_keys([turn.agent for turn in forest.turns])
            advantages_R = credit.normalise_per_agent(advantages_R, agent_R, num_agents=number, centre=True)
        returns_R, groups_R = magrpo.returns(forest, self.config), magrpo.groups(forest)
        return Lesson(forest, np.asarray(advantages_R), returns_R, groups_R, (read, values, targets))

    def learn(self, lesson: Lesson) -> dict[str, float]:
        """Teach the critics; their metrics."""
        return self.models.learn(*lesson.notes)
