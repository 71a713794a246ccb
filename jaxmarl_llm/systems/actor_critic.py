"""Independent and centralised critics: IAC and MAAC (CoLLM-DC and CoLLM-CC, arXiv 2601.21972).

A critic predicts the return of an answer and is trained on one-step targets (TD(0)). For joint answer j with
reward r_j and discount gamma, where V is the critic of an answer's prompts and Q that of the answer itself:

    V form:  y_j = r_j + gamma * V(what follows j)              A_j = y_j - V(what j answers)
    Q form:  y_j = r_j + gamma * mean Q(the answers to that)    A_a = Q(a) - mean Q(the answers of a's group)

V and Q are 0 where nothing follows; `td_targets` defines what follows an answer. IAC: every agent has its own
critic, which reads the agent's prompt and, in the Q form, also its reply. MAAC: one critic reads those of all
agents. The V form needs only one sample per prompt. The Q form replaces expected SARSA's sum over all answers
by the mean of Q over a group, which needs two or more samples.

V is a baseline, so it must not depend on the answer that it is subtracted from. Where agents answer one after
the other (pipeline, discussion, tree), the joint critic therefore reads, for each answer, the prompts of the
answer's own step and of earlier steps; none of these contains the answer (`states`). Every state of a joint
answer is trained on the same target. The V in y_j is that of the last state of what follows, which holds the
histories of all agents (the first state of a pipeline holds only one agent's).

In the V form the advantage of a completion is the mean over the joint answers that contain it. In the Q form
of MAAC, Q(a) is the mean of Q(j) over them. Where all combinations are joint answers (``cross``), A is then
COMA's counterfactual advantage (arXiv 1705.08926, equation 4), averaged over the partners' samples: Q(j)
minus its mean over the agent's own samples with the partners' samples fixed. Samples replace the set of all
actions.

CoMLRL 1.4.3 takes A_a = y_a - Q(a) in its Q form. That measures only the error of Q for an answer already
given: with the correct Q every advantage has mean 0, and with deterministic rewards all are 0, so agents
learn nothing from a perfect critic. The baseline above does not depend on the answer and avoids this.

The critic is trained on the mean of y over the joint answers that belong to the text it reads
(`losses.value_loss`). Values are those before the update, and no gradient flows through them into the policy.
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
from jaxmarl_llm.systems.td_targets import ReturnOptions
from jaxmarl_llm.systems.types import Credit

Values = Mapping[int, float]
AdvantagesAndTargets = tuple[np.ndarray, dict[int, float]]
ONE_TURN = ReturnOptions()


def requests(forest: Forest) -> Texts:
    """Return the texts for the critics of IAC, V form: by agent and request number, the prompt (P',)."""
    prompts: dict[str, dict[int, np.ndarray]] = {}
    for turn in forest.turns:
        prompts.setdefault(turn.agent, {}).setdefault(turn.request, turn.prompt)
    return prompts


def states(forest: Forest) -> tuple[dict[tuple[int, ...], int], np.ndarray, np.ndarray]:
    """Number the states before answers: each is the requests of a joint answer up to the answer's own step.

    Returns:
      state numbers by sorted numbers of requests; the state of every pair of joint answer and turn, int32 in
      the order of `Forest.memberships`; the last state of every joint answer, int32 (J,), states after a call
      aside: only some conversations come to these.
    """
    numbers: dict[tuple[int, ...], int] = {}
    state_M, last_J, (first_R, _) = [], [], forest.call_chains()
    for joint in forest.joints:
        turns = [forest.turns[i] for i in (*joint.turns, *joint.heard)]
        requests_by_step = {
            step: tuple(sorted({turn.request for turn in turns if turn.step <= step}))
            for step in sorted({turn.step for turn in turns})
        }
        state_by_step = {
            step: numbers.setdefault(ids, len(numbers)) for step, ids in requests_by_step.items()
        }
        state_M += [state_by_step[turn.step] for turn in turns]
        last_J.append(state_by_step[max(turn.step for turn in turns if first_R[turn.id] == turn.id)])
    return numbers, np.array(state_M, np.int32), np.array(last_J, np.int32)


def joint_requests(forest: Forest) -> Texts:
    """Return the texts for the critic of MAAC, V form: by number of the state (`states`), the prompts of its
    requests, concatenated.
    """
    prompts = {turn.request: turn.prompt for turn in forest.turns}
    texts = {k: np.concatenate([prompts[r] for r in ids]) for ids, k in states(forest)[0].items()}
    return {TEAM: texts}


def replies(forest: Forest) -> Texts:
    """Return the texts for the critics of IAC, Q form: by agent and id of the turn, prompt and completion."""
    texts: dict[str, dict[int, np.ndarray]] = {}
    for turn in forest.turns:
        texts.setdefault(turn.agent, {})[turn.id] = _tokens(turn)
    return texts


def joint_replies(forest: Forest) -> Texts:
    """Return the texts for the critic of MAAC, Q form: by index of the joint answer, the prompts and
    completions of all its turns, concatenated.
    """
    joints = enumerate(forest.joints)
    return {
        TEAM: {
            j: np.concatenate([_tokens(forest.turns[i]) for i in sorted((*joint.heard, *joint.turns))])
            for j, joint in joints
        }
    }


def _tokens(turn: Turn) -> np.ndarray:
    return np.concatenate([turn.prompt, turn.completion])


def independent(forest: Forest, values: Values, later: ReturnOptions = ONE_TURN) -> AdvantagesAndTargets:
    """Advantages of all turns, float32 (turns,), and the target of every request's value: IAC, V form.

    A turn whose joint answers have no reward has advantage 0; a request with only such turns has no target.

    Args:
      forest: all turns of an iteration.
      values: V by number of the request.
      later: how rewards after an answer count.
    """
    request_R = np.array([turn.request for turn in forest.turns], np.int32)
    values_R = np.array([values[request] for request in request_R.tolist()], np.float32)
    targets_R = td_targets.of_turns(forest, values_R, later)
    request_targets = td_targets.mean_by(targets_R, request_R, int(request_R.max()) + 1)
    return np.nan_to_num(targets_R - values_R), _without_nan(request_targets)


def independent_q(forest: Forest, values: Values, later: ReturnOptions = ONE_TURN) -> AdvantagesAndTargets:
    """Advantages of all turns, float32 (turns,), and the target of every turn's value: IAC, Q form.

    Like `independent`, but ``values`` is Q by id of the turn. Turns without a reward do not count in group
    means.
    """
    values_R = np.array([values[turn.id] for turn in forest.turns], np.float32)
    targets_R = td_targets.of_turns(forest, values_R, later)
    return _minus_group_mean(forest, np.where(np.isnan(targets_R), np.nan, values_R)), _without_nan(targets_R)


def centralised(forest: Forest, values: Values, later: ReturnOptions = ONE_TURN) -> AdvantagesAndTargets:
    """Advantages of all turns, float32 (turns,), and the target of every state's value: MAAC, V form.

    Like `independent`, but ``values`` is by number of the state (`states`).
    """
    numbers, state_M, last_J = states(forest)
    values_S = np.array([values[state] for state in range(len(numbers))], np.float32)
    joint_M, turn_M = forest.memberships()
    y_M = td_targets.of_joints(forest, values_S[last_J], later)[joint_M]
    advantages_R = td_targets.mean_by(y_M - values_S[state_M], turn_M, len(forest.turns))
    targets_S = td_targets.mean_by(y_M, state_M, len(numbers))
    return np.nan_to_num(advantages_R), _without_nan(targets_S)


def centralised_q(forest: Forest, values: Values, later: ReturnOptions = ONE_TURN) -> AdvantagesAndTargets:
    """Advantages of all turns, float32 (turns,), and the target of every joint answer's value: MAAC, Q form.

    Like `independent_q`, but ``values`` is by index of the joint answer.
    """
    values_J = np.array([values[j] for j in range(len(forest.joints))], np.float32)
    targets_J = td_targets.of_joints(forest, values_J, later)
    values_R = _of_turns(forest, np.where(np.isnan(targets_J), np.nan, values_J))
    return _minus_group_mean(forest, values_R), _without_nan(targets_J)


def _of_turns(forest: Forest, values_J: np.ndarray) -> np.ndarray:
    """Mean over the joint answers that contain each turn, ignoring NaN."""
    joint_M, turn_M = forest.memberships()
    return td_targets.mean_by(values_J[joint_M], turn_M, len(forest.turns))


def _minus_group_mean(forest: Forest, values_R: np.ndarray) -> np.ndarray:
    """Values minus their group's mean; 0 where the value is NaN.

    A group is the answers to one prompt. Where every answer has its own prompt (after partners that answered
    first), it is the agent's answers at the same place of the conversation, as in MAGRPO. The k-th text of a
    chain of calls is compared with the k-th of the other chains from there, or with their last one: compared
    with calls alone, a call would not learn whether to call.
    """
    answers = collections.Counter(turn.request for turn in forest.turns)
    chains: dict[tuple, dict[int, list[int]]] = {}
    for turn, first in zip(forest.turns, forest.call_chains()[0].tolist(), strict=True):
        begun = forest.turns[first]
        alone = answers[begun.request] == 1
        stage = begun.request_stage
        place = (begun.agent, begun.item, stage, begun.follows) if alone else (begun.request,)
        chains.setdefault(place, {}).setdefault(first, []).append(turn.id)
    rows = [
        (ids[min(k, len(ids) - 1)], (place, k), k < len(ids))
        for place, of_place in chains.items()
        for k in range(max(map(len, of_place.values())))
        for ids in of_place.values()
    ]
    turn_M, places_M, own_M = map(list, zip(*rows, strict=True))
    values_M = values_R[turn_M]
    groups_M, number = credit.group_keys(places_M)
    groups_M = np.where(np.isnan(values_M), -1, groups_M)
    options = {"num_groups": number, "length": len(values_M)}
    advantages_M = credit.on_host(credit.group_advantage, values_M, groups_M, **options)
    advantages_R = np.zeros(len(values_R), np.float32)
    advantages_R[np.array(turn_M)[own_M]] = advantages_M[own_M]
    return advantages_R


def _without_nan(means: np.ndarray) -> dict[int, float]:
    return {key: float(mean) for key, mean in enumerate(means) if not np.isnan(mean)}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """An actor-critic method: texts for the critics, credit from their values, and whether all share one
    critic.
    """

    read: Callable[[Forest], Texts]
    credit: Callable[[Forest, Values, ReturnOptions], AdvantagesAndTargets]
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
    the iteration. Returns and groups are MAGRPO's; advantages do not use them.

    Attributes:
      warmup: number of first iterations, in which only the critics learn.
    """

    recipe: Recipe
    models: Critics
    config: CreditConfig
    warmup: int = 0

    def assign(self, forest: Forest) -> Credit:
        """Return the credit; its ``for_models`` are the critics' texts, their values, and the targets."""
        texts = self.recipe.read(forest)
        values = self.models.values(texts)
        later = ReturnOptions(self.config.discount, self.config.chain, self.config.turns)
        advantages_R, targets = self.recipe.credit(forest, values, later)
        returns_R, groups_R = magrpo.returns(forest, self.config), magrpo.groups(forest)
        if self.config.normalise:
            agent_R, number = credit.group_keys([turn.agent for turn in forest.turns])
            agent_R = np.where(np.isnan(returns_R), -1, agent_R)  # no reward: in no group, advantage 0
            options = {"num_agents": number, "centre": True, "length": len(agent_R)}
            advantages_R = credit.on_host(credit.normalise_per_agent, advantages_R, agent_R, **options)
        agents_learn = not self.warmup or self.models.done >= self.warmup
        advantages_R = np.asarray(advantages_R) * magrpo.return_weights(forest, self.config)
        advantages_R *= np.float32(agents_learn)
        return Credit(forest, advantages_R, returns_R, groups_R, (texts, values, targets), agents_learn)

    def learn(self, credit: Credit) -> dict[str, float]:
        """Update the critics; returns their metrics."""
        return self.models.learn(*credit.for_models)


@dataclasses.dataclass(frozen=True)
class SharedActorCritic(ActorCritic):
    """Actor-critic with heads on the agents' own bodies, trained on L_actor + ``coef`` * L_value."""

    models: Heads
    coef: float = dataclasses.field(kw_only=True)

    def assign(self, forest: Forest) -> Credit:
        """Return the credit; its ``for_models`` are the gradients of the heads and their metrics."""
        credit = super().assign(forest)
        body_gradients, *for_heads = self.models.gradients(*credit.for_models, self.coef)
        return dataclasses.replace(credit, for_models=for_heads, gradients=body_gradients)
