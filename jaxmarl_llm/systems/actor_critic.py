"""Independent and centralised critics: IAC and MAAC (CoLLM-DC and CoLLM-CC, arXiv 2601.21972).

A critic says what an answer is expected to earn, and is taught one-step targets (TD(0)). Of joint answer j
with reward r_j and discount gamma, V being the critic of what an answer is given to, Q that of the answer:

    V form:  y_j = r_j + gamma * V(what follows j)              A_j = y_j - V(what j answers)
    Q form:  y_j = r_j + gamma * mean Q(the answers to that)    A_a = Q(a) - mean Q(the answers of a's group)

V and Q of nothing are 0; `td_targets` says what follows an answer. IAC: every agent has a critic of its own,
which reads the agent's prompt and in the Q form its reply too. MAAC: one critic reads those of all agents.
What V says of a prompt needs one sample; the mean of Q over a group stands for expected SARSA's sum over all
answers, and needs two or more.

V is a baseline, which must not know the answer that it is subtracted from: where agents speak one after the
other (pipeline, discussion, tree), the critic of all reads before each answer the prompts of the step in
which it was asked for and of the steps before, in which nobody had read it (`states`). Every state of a joint
answer is taught the same target; the V in y_j is that of the last state of what follows, which knows the
histories of all agents (the first one of a pipeline knows that of one agent only).

In the V form the advantage of a completion is the mean over the joint answers that it is a part of. In the Q
form Q(a) is that mean, with MAAC of Q(j). Where all combinations are joint answers (``cross``), A is then the
mean over the partners' samples of COMA's counterfactual advantage (arXiv 1705.08926, equation 4), Q(j) less
its mean over the agent's own samples with the partners' as they are; by samples instead of all actions.

CoMLRL 1.4.3 takes A_a = y_a - Q(a) in its Q form. Of an answer that was given already it says only by how
much Q is wrong about it: with the right Q every advantage has mean 0, and without randomness in the rewards
all are 0, so nothing is learned from the best critic that there is. Hence the baseline above, which does not
know the answer.

The critic is taught the mean of y over the joint answers that belong to what it has read
(`losses.value_loss`). Values come from before the update, and nothing flows through them into the policy.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.systems import magrpo, td_targets
from jaxmarl_llm.systems.critics import TEAM, Critics, Texts
from jaxmarl_llm.systems.critics.shared_heads import Heads
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.td_targets import Later
from jaxmarl_llm.systems.types import Credit

Values = Mapping[int, float]
Found = tuple[np.ndarray, dict[int, float]]
ONE_TURN = Later()


def requests(forest: Forest) -> Texts:
    """Return what the critics of IAC read, V form: by agent and number of the request, the prompt (P',)."""
    found: dict[str, dict[int, np.ndarray]] = {}
    for turn in forest.turns:
        found.setdefault(turn.agent, {}).setdefault(turn.request, turn.prompt)
    return found


def states(forest: Forest) -> tuple[dict[tuple[int, ...], int], np.ndarray, np.ndarray]:
    """Number what was known before each answer: the requests of its joint answer up to the answer's own step.

    Returns:
      state numbers by sorted numbers of requests; the state of every pair of joint answer and turn, int32 in
      the order of `Forest.memberships`; the last state of every joint answer, int32 (J,).
    """
    numbers: dict[tuple[int, ...], int] = {}
    state_M, last_J = [], []
    for joint in forest.joints:
        turns = [forest.turns[i] for i in (*joint.turns, *joint.heard)]
        known = {
            step: tuple(sorted({turn.request for turn in turns if turn.step <= step}))
            for step in sorted({turn.step for turn in turns})
        }
        own = {step: numbers.setdefault(requests, len(numbers)) for step, requests in known.items()}
        state_M += [own[turn.step] for turn in turns]
        last_J.append(own[max(own)])
    return numbers, np.array(state_M, np.int32), np.array(last_J, np.int32)


def joint_requests(forest: Forest) -> Texts:
    """Return what the critic of MAAC reads, V form: by number of the state (`states`), the prompts of its
    requests, one after the other.
    """
    prompts = {turn.request: turn.prompt for turn in forest.turns}
    known = {k: np.concatenate([prompts[r] for r in requests]) for requests, k in states(forest)[0].items()}
    return {TEAM: known}


def replies(forest: Forest) -> Texts:
    """Return what the critics of IAC read, Q form: by agent and id of the turn, prompt and completion."""
    found: dict[str, dict[int, np.ndarray]] = {}
    for turn in forest.turns:
        found.setdefault(turn.agent, {})[turn.id] = _said(turn)
    return found


def joint_replies(forest: Forest) -> Texts:
    """Return what the critic of MAAC reads, Q form: by index of the joint answer, prompt and completion of
    all turns that it comes from, one after the other.
    """
    every = enumerate(forest.joints)
    return {
        TEAM: {
            j: np.concatenate([_said(forest.turns[i]) for i in sorted((*joint.heard, *joint.turns))])
            for j, joint in every
        }
    }


def _said(turn: Turn) -> np.ndarray:
    return np.concatenate([turn.prompt, turn.completion])


def independent(forest: Forest, values: Values, later: Later = ONE_TURN) -> Found:
    """Advantages of all turns, float32 (turns,), and the target of every request's value: IAC, V form.

    A turn whose joint answers have no reward has advantage 0, a request of such turns alone no target.

    Args:
      forest: all turns of an iteration.
      values: V by number of the request.
      later: what comes after an answer, and how much of it counts.
    """
    request_R = np.array([turn.request for turn in forest.turns], np.int32)
    values_R = np.array([values[request] for request in request_R.tolist()], np.float32)
    targets_R = td_targets.of_turns(forest, values_R, later)
    taught = td_targets.mean_by(targets_R, request_R, int(request_R.max()) + 1)
    return np.nan_to_num(targets_R - values_R), _known(taught)


def independent_q(forest: Forest, values: Values, later: Later = ONE_TURN) -> Found:
    """Advantages of all turns, float32 (turns,), and the target of every turn's value: IAC, Q form.

    As `independent`, with ``values`` Q by id of the turn. What has no reward is in no group's mean.
    """
    values_R = np.array([values[turn.id] for turn in forest.turns], np.float32)
    targets_R = td_targets.of_turns(forest, values_R, later)
    return _compared(forest, np.where(np.isnan(targets_R), np.nan, values_R)), _known(targets_R)


def centralised(forest: Forest, values: Values, later: Later = ONE_TURN) -> Found:
    """Advantages of all turns, float32 (turns,), and the target of every state's value: MAAC, V form.

    As `independent`, with ``values`` by number of the state (`states`).
    """
    numbers, state_M, last_J = states(forest)
    values_S = np.array([values[state] for state in range(len(numbers))], np.float32)
    joint_M, turn_M = forest.memberships()
    y_M = td_targets.of_joints(forest, values_S[last_J], later)[joint_M]
    advantages_R = td_targets.mean_by(y_M - values_S[state_M], turn_M, len(forest.turns))
    taught = td_targets.mean_by(y_M, state_M, len(numbers))
    return np.nan_to_num(advantages_R), _known(taught)


def centralised_q(forest: Forest, values: Values, later: Later = ONE_TURN) -> Found:
    """Advantages of all turns, float32 (turns,), and the target of every joint answer's value: MAAC, Q form.

    As `independent_q`, with ``values`` by index of the joint answer.
    """
    values_J = np.array([values[j] for j in range(len(forest.joints))], np.float32)
    targets_J = td_targets.of_joints(forest, values_J, later)
    values_R = _of_turns(forest, np.where(np.isnan(targets_J), np.nan, values_J))
    return _compared(forest, values_R), _known(targets_J)


def _of_turns(forest: Forest, values_J: np.ndarray) -> np.ndarray:
    """Mean over the joint answers that each turn is a part of, without those that are NaN."""
    joint_M, turn_M = forest.memberships()
    return td_targets.mean_by(values_J[joint_M], turn_M, len(forest.turns))


def _compared(forest: Forest, values_R: np.ndarray) -> np.ndarray:
    """Values less their group's mean; 0 where there is none (NaN).

    A group is the answers to one prompt; where every answer has a prompt of its own (after partners that
    spoke first), those of the agent at the same place of the conversation, as in MAGRPO.
    """
    answers = collections.Counter(turn.request for turn in forest.turns)
    places = [
        (turn.request,) if answers[turn.request] > 1 else (turn.agent, turn.item, turn.turn, turn.follows)
        for turn in forest.turns
    ]
    groups_R, number = credit.group_keys(places)
    groups_R = np.where(np.isnan(values_R), -1, groups_R)
    options = {"num_groups": number, "length": len(values_R)}
    return credit.on_host(credit.group_advantage, values_R, groups_R, **options)


def _known(means: np.ndarray) -> dict[int, float]:
    return {key: float(mean) for key, mean in enumerate(means) if not np.isnan(mean)}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe: what critics read of a forest, what their values lead to, and whether one reads for all."""

    read: Callable[[Forest], Texts]
    credit: Callable[[Forest, Values, Later], Found]
    joint: bool


# By name and form of the critic.
RECIPES = {
    ("iac", "v"): Recipe(requests, independent, joint=False),
    ("iac", "q"): Recipe(replies, independent_q, joint=False),
    ("maac", "v"): Recipe(joint_requests, centralised, joint=True),
    ("maac", "q"): Recipe(joint_replies, centralised_q, joint=True),
}


@dataclasses.dataclass(frozen=True)
class ActorCritic:
    """A recipe with its critics, ``models``; see `types.System`.

    With ``normalise`` in the config the advantages of each agent have mean 0 and standard deviation 1 over
    the iteration. Returns and groups are MAGRPO's: no credit comes of them.

    Attributes:
      warmup: first iterations, in which only the critics learn.
    """

    recipe: Recipe
    models: Critics
    config: CreditConfig
    warmup: int = 0

    def assign(self, forest: Forest) -> Credit:
        """Return what the agents learn; its notes are what was read, the values, and what they should have
        been.
        """
        read = self.recipe.read(forest)
        values = self.models.values(read)
        later = Later(self.config.discount, self.config.chain, self.config.turns)
        advantages_R, targets = self.recipe.credit(forest, values, later)
        returns_R, groups_R = magrpo.returns(forest, self.config), magrpo.groups(forest)
        if self.config.normalise:
            agent_R, number = credit.group_keys([turn.agent for turn in forest.turns])
            agent_R = np.where(np.isnan(returns_R), -1, agent_R)  # no reward: no part in it, advantage 0
            options = {"num_agents": number, "centre": True, "length": len(agent_R)}
            advantages_R = credit.on_host(credit.normalise_per_agent, advantages_R, agent_R, **options)
        taught = not self.warmup or self.models.done >= self.warmup
        advantages_R = np.asarray(advantages_R) * magrpo.return_weights(forest, self.config)
        advantages_R *= np.float32(taught)
        return Credit(forest, advantages_R, returns_R, groups_R, (read, values, targets), taught)

    def learn(self, credit: Credit) -> dict[str, float]:
        """Teach the critics; their metrics."""
        return self.models.learn(*credit.for_models)


@dataclasses.dataclass(frozen=True)
class SharedActorCritic(ActorCritic):
    """Actor-critic with heads on the agents' own bodies, which learn from L_actor + ``coef`` * L_value."""

    models: Heads
    coef: float = dataclasses.field(kw_only=True)

    def assign(self, forest: Forest) -> Credit:
        """Return what the agents learn; its notes are the gradients of the heads and their metrics."""
        credit = super().assign(forest)
        of_bodies, *of_heads = self.models.gradients(*credit.for_models, self.coef)
        return dataclasses.replace(credit, for_models=of_heads, gradients=of_bodies)
