"""MAGRPO: multi-agent group relative policy optimisation (arXiv 2508.04652).

Every agent draws G completions for an item, joint answers earn one shared reward, and the advantage of a
completion is its return minus the mean return of its group. Agent i descends

    L(theta_i) = - (1/G) sum_g A_g log pi_theta_i(a_g | h_i)        (sum over the tokens of a_g, EOS included)

With ``aligned`` joint answers the return of sample g is the reward of joint answer g, for all agents alike.
With ``cross`` every combination of the agents' samples is executed, and the return of a sample is the mean
reward over the partners' samples. So the partners' luck hides less of the agent's own effect. K further
samples of each partner (`Turn.extra`), from which no agent learns, reduce the noise of that mean further.
They are independent of the agent's own samples, so the expected gradient stays (G - 1) / G times the true
one.

With several turns the return of a joint answer is its reward plus the discounted mean return of the answers
that follow it, or another backup of them. The losses of the turns are added: L = sum_t w_t L_t, each a mean
over the groups of its turn. A node that ended early counts as if it had continued with its mean reward.

L_t is the mean over the groups of turn t. Where most nodes ended early, the few that continued therefore
weigh as much as the whole first turn. In the gradient of the expected return, a node is weighted by its
discounted share in the return of its problem. For a node k turns after the first it is

    gamma^k / (B * product of the numbers of joint answers of the nodes before it that share the return)

(a chain, where one answer is handed on, has no such numbers). ``turn_loss="return"`` scales advantages so
that L has these weights (`return_weights`); ``mean`` keeps the published L.

Calls (of tools, or of another agent) are parts of the answer that they lead to. Conversations from the same
prompt are compared, each by its last turn, and all turns of a conversation get its advantage. Compared only
with other calls, a call would not learn whether to call: where all samples call, or only one does, its
advantage would be 0.
"""

import collections
import dataclasses

import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import CALL, Forest, marginals
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.utils.errors import UserError

NORMALISE_BY = ("group", "agent")
TURN_LOSSES = ("return", "mean")
GROUP_BY = ("turn", "prompt")


@dataclasses.dataclass(frozen=True)
class CreditConfig:
    """Options for turning returns into advantages; the defaults are the paper's.

    Attributes:
      baseline, normalise: see `credit.group_advantage`.
      normalise_by: the standard deviation to divide by: that of the returns of a ``group``, or of all
        advantages of an ``agent`` in the iteration (`credit.normalise_per_agent`), before ``turn_weights``.
      backup: what later answers add to a return, see `credit.backed_up_returns`.
      discount: gamma; what a later answer earns counts this much one turn earlier.
      reduce: with ``cross`` joint answers, a sample's return is their ``mean`` or their ``sum``.
      turn_weights: w_t, one per turn; () weighs all turns alike.
      chain: joint answers of a node share what follows (`credit.backed_up_returns`): for protocols that hand
        on only one of them.
      local_weight: weight of an agent's own reward, for systems that use it (`at_grpo`).
      turns: T, the largest number of turns of a conversation. It is not read from the forest, so that the
        return of an answer does not depend on whether another problem continued.
      group_by: which completions are compared, see `groups`.
      turn_loss: weights of later turns: those of the gradient of the ``return``, or the ``mean`` over the
        groups of each turn.
    """

    baseline: str = "mean"
    normalise: bool = False
    discount: float = 1.0
    reduce: str = "mean"
    turn_weights: tuple[float, ...] = ()
    chain: bool = False
    normalise_by: str = "group"
    backup: str = "mean"
    local_weight: float = 0.0
    turns: int = 1
    turn_loss: str = "return"
    group_by: str = "turn"

    def __post_init__(self):
        if self.group_by not in GROUP_BY:
            raise UserError(f"group_by={self.group_by!r}; allowed: {', '.join(GROUP_BY)}")
        if self.turn_loss not in TURN_LOSSES:
            raise UserError(f"turn_loss={self.turn_loss!r}; allowed: {', '.join(TURN_LOSSES)}")
        if self.normalise_by not in NORMALISE_BY:
            raise UserError(f"normalise_by={self.normalise_by!r}; allowed: {', '.join(NORMALISE_BY)}")


def joint_returns(forest: Forest, config: CreditConfig = CreditConfig()) -> np.ndarray:
    """Return of every joint answer, float32 (J,): its reward and what follows; NaN where none applies."""
    node_J, before_J = forest.nodes()
    key_J = np.arange(len(before_J), dtype=np.int32)
    if config.chain:
        key_J, before_J = node_J, np.where(before_J < 0, -1, node_J[before_J])
    num_turns = 1 + max((joint.turn for joint in forest.joints), default=0)
    options = {"turns": num_turns, "discount": config.discount, "backup": config.backup}
    rewards_J = forest.totals()
    if config.backup != "last":  # "last" treats the answers of a node that ended early as last answers
        rewards_J = rewards_J + left_out(forest, config.turns, config.discount)
    columns, size = (rewards_J, key_J, before_J), len(key_J)
    return credit.on_host(credit.backed_up_returns, *columns, num_keys=max(size, 1), length=size, **options)


def left_out(forest: Forest, turns: int, discount: float) -> np.ndarray:
    """Return the reward for the turns that a node skipped by ending early, float32 (J,): its mean reward
    each.

    All answers of a node get the same. Rewards add up over the turns: without it, answers before the node
    would have a smaller return than answers before a worse node that continued. ``turns``: T of a whole
    conversation. A joint answer of a later turn (of a discussion) skips nothing, nor does one that ends the
    episode of a sequential task: nothing more could be earned.
    """
    node_J, before_J = forest.nodes()
    rewards_J, turn_J = forest.totals(), np.array([joint.turn for joint in forest.joints], np.int32)
    ended_J = ~np.isin(node_J, node_J[before_J[before_J >= 0]])
    weights = np.cumsum([0.0] + [discount**k for k in range(1, turns)])  # for 0, 1, .. missing turns
    counts = np.bincount(node_J, ~np.isnan(rewards_J))
    means = np.bincount(node_J, np.nan_to_num(rewards_J)) / np.maximum(counts, 1)
    missing_J = np.maximum(turns - 1 - turn_J, 0)
    done_J = np.array([joint.done for joint in forest.joints], bool)
    return np.where(ended_J & ~done_J, weights[missing_J] * means[node_J], 0.0).astype(np.float32)


def returns(forest: Forest, config: CreditConfig = CreditConfig()) -> np.ndarray:
    """Return of every turn, float32 (turns,): mean, or sum, over the joint answers that contain it.

    Joint answers to which the reward does not apply are ignored, see `marginals.over_answers`. NaN for
    samples from which no agent learns (`Turn.extra`).
    """
    joint_M, _ = forest.memberships()
    mean_R = marginals.over_answers(forest, joint_returns(forest, config)[joint_M], config.reduce)
    return np.where([turn.extra for turn in forest.turns], np.nan, mean_R).astype(np.float32)


def groups(forest: Forest, by: str = "turn") -> np.ndarray:
    """Group key of every turn, int32 (turns,): an agent's turns at the same place of the tree are compared.

    Where each of them follows a different answer (chains of rounds that began separately), those of the same
    round are compared. With ``by="prompt"`` it is all turns with the same prompt of an item, at any turn
    index: actions in the same state of a world are compared (anchor states of GiGPO, arXiv 2505.10978).

    A chain of calls is represented by its last turn, and compared with chains that began at the same place.
    -1 (no group) for calls, except with ``by="prompt"``, and for samples from which no agent learns
    (`Turn.extra`).
    """
    if by == "prompt":
        prompts = [(turn.agent, turn.item, turn.prompt.tobytes()) for turn in forest.turns]
        keys_R = np.asarray(credit.group_keys(*zip(*prompts, strict=True))[0])
        return np.where([turn.extra for turn in forest.turns], -1, keys_R).astype(np.int32)
    nodes = places(forest)
    # Each chain of calls once, by its last turn.
    ends = [node for node, turn in zip(nodes, forest.turns, strict=True) if turn.kind != CALL]
    shared = {node[:3] for node, number in collections.Counter(ends).items() if number > 1}
    nodes = [node if node[:3] in shared else (*node[:3], None) for node in nodes]
    keys_R = np.asarray(credit.group_keys(*zip(*nodes, strict=True))[0])
    return last_of_calls(forest, np.where([turn.extra for turn in forest.turns], -1, keys_R))


def places(forest: Forest) -> list[tuple]:
    """Agent, item, stage and preceding answer of the request where each turn's chain of calls began."""
    first_R, _ = forest.call_chains()
    return [(t.agent, t.item, t.request_stage, t.follows) for t in (forest.turns[i] for i in first_R)]


def last_of_calls(forest: Forest, groups_R: np.ndarray) -> np.ndarray:
    """Group keys with -1 for calls, int32 (turns,): `compare` gives calls their answer's advantage."""
    return np.where([turn.kind == CALL for turn in forest.turns], -1, groups_R).astype(np.int32)


def sibling_groups(forest: Forest) -> np.ndarray:
    """Group key of every turn, int32 (turns,): an agent's turns after the same turn; calls as in `groups`."""
    first_R, _ = forest.call_chains()
    first_turns = [forest.turns[i] for i in first_R]
    groups_R, _ = credit.keys_by(
        "parent",
        item=[turn.item for turn in first_turns],
        agent=[turn.agent for turn in first_turns],
        parent=[turn.parent for turn in first_turns],
    )
    return last_of_calls(forest, groups_R)


def advantages(forest: Forest, config: CreditConfig = CreditConfig()) -> np.ndarray:
    """Group-relative advantage of every turn, float32 (turns,), in turn order (ids count from 0)."""
    return assign(forest, config).advantages


def assign(forest: Forest, config: CreditConfig = CreditConfig()) -> Credit:
    """Credit with the group-relative advantages of the forest's `returns` in its `groups`."""
    return compare(forest, returns(forest, config), groups(forest, config.group_by), config)


def no_update(forest: Forest) -> Credit:
    """The credit of an iteration in which no agent learns."""
    advantages_R = np.zeros(len(forest.turns), np.float32)
    return Credit(forest, advantages_R, returns(forest), groups(forest), learn=False)


def compare(forest: Forest, returns_R, groups_R, config: CreditConfig) -> Credit:
    """The credit from any returns and groups of a forest's turns, with the config's options.

    A call without a group has the advantage of the turn that its chain of calls ends with.

    ValueError if there are fewer turn weights than turns.
    """
    per_agent = config.normalise and config.normalise_by == "agent"
    advantages_R = credit.on_host(
        credit.group_advantage,
        returns_R,
        np.where(np.isnan(returns_R), -1, groups_R),  # no return: in no group, advantage 0
        num_groups=int(groups_R.max()) + 1,
        length=len(returns_R),
        baseline=config.baseline,
        normalise=config.normalise and not per_agent,
    )
    _, last_R = forest.call_chains()
    advantages_R = np.where(groups_R < 0, advantages_R[last_R], advantages_R)
    if per_agent:
        agent_R, num_agents = credit.group_keys([turn.agent for turn in forest.turns])
        agent_R = np.where(np.isnan(returns_R), -1, agent_R)
        columns, options = (advantages_R, agent_R), {"num_agents": num_agents, "length": len(agent_R)}
        advantages_R = credit.on_host(credit.normalise_per_agent, *columns, **options)
    return Credit(forest, advantages_R * weights(forest, config), returns_R, groups_R)


def weights(forest: Forest, config: CreditConfig) -> np.ndarray:
    """Factor of every turn's advantage, float32 (turns,): its turn's weight times `return_weights`."""
    return _turn_weights(forest, config.turn_weights) * return_weights(forest, config)


def return_weights(forest: Forest, config: CreditConfig) -> np.ndarray:
    """Factor of every turn's advantage that makes L the gradient of the return, float32 (turns,).

    L is a mean over the n completions of an agent in a turn; the factor is n times the discounted share of
    the completion in the expected return. It is discount^k where every node continued for k turns, and 1 with
    ``turn_loss="mean"``. All turns of a chain of calls have the share of the one answer that they form.
    """
    weights_R = np.ones(len(forest.turns), np.float32)
    if config.turn_loss == "mean":
        return weights_R
    shares_J = _shares(forest, config)
    places_R = places(forest)
    # Each chain of calls once, by its last turn.
    chains = [place for place, turn in zip(places_R, forest.turns, strict=True) if turn.kind != CALL]
    sizes = collections.Counter(chains)
    first_sizes = collections.Counter(
        (agent, stage) for agent, _, stage, follows in chains if follows is None
    )
    turn_sizes = collections.Counter((turn.agent, turn.stage) for turn in forest.turns)
    for turn, (agent, item, stage, follows) in zip(forest.turns, places_R, strict=True):
        share = (
            1 / first_sizes[agent, stage]
            if follows is None
            else shares_J[follows] / sizes[agent, item, stage, follows]
        )
        weights_R[turn.id] = share * turn_sizes[turn.agent, turn.stage]
    return weights_R


def _shares(forest: Forest, config: CreditConfig) -> np.ndarray:
    """Share of the answers that follow a joint answer in the mean return of all problems, float64 (J,)."""
    node_J, before_J = forest.nodes()
    sizes, first = np.bincount(node_J), len(np.unique(node_J[before_J < 0]))
    shares_J = np.zeros(len(node_J))
    for j, before in enumerate(before_J):  # an answer comes after the one that it follows
        share = 1 / first if before < 0 else shares_J[before]
        shares_J[j] = config.discount * share / (1 if config.chain else sizes[node_J[j]])
    return shares_J


def _turn_weights(forest: Forest, weights: tuple[float, ...]) -> np.ndarray:
    if not weights:
        return np.ones(len(forest.turns), np.float32)
    turn_R = np.zeros(len(forest.turns), np.int32)
    joint_M, turn_M = forest.memberships()  # of a discussion, whose turns have two rounds, the turn counts
    turn_R[turn_M] = np.array([joint.turn for joint in forest.joints], np.int32)[joint_M]
    if turn_R.max() >= len(weights):
        raise UserError(f"turn_weights={weights}; there are {turn_R.max() + 1} turns")
    return np.array(weights, np.float32)[turn_R]
