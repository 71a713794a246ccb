"""Fields of credit: how rewards of joint answers become advantages of single completions."""

import math

from jaxmarl_llm.config import advice, critic, programs, systems, task
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict, is_dotted
from jaxmarl_llm.config.systems import COUNTERFACTUALS, ONLY_BASELINE


def _turns(config: ConfigDict) -> bool:
    c = config.train
    return c.turns > 1 or is_dotted(c.system) or is_dotted(c.protocol)


def _reduces(config: ConfigDict) -> bool:
    c = config.train
    shared = c.joint_mode == "cross" or c.partner_samples > 0 or c.protocol == "tree"
    return shared and task.several_agents(config) or is_dotted(c.system) or is_dotted(c.protocol)


_ONE_TURN = "with train.turns=1 no turn follows"
FIELDS = (
    choice("train.system", "magrpo", "What agents learn from, see docs/systems.md; or the dotted name of a "
           "function of your own, forest and credit settings -> credit.",
           {name: row.about for name, row in systems.SYSTEMS.items()}, dotted=True),
    number("train.group", 4, "G: samples per agent and problem; at least 2. With a critic of form v, or "
           "demonstrations, 1 is allowed.", low=2),
    choice("train.joint_mode", "aligned", "Which joint answers are judged.",
           {"aligned": "G: joint answer i has sample i of every agent", "cross": "all G**N of them"}),
    number("train.partner_samples", 0,
           "K: further samples of every agent for each problem, from which no agent learns. They are "
           "judged with the partners' samples, whose returns then depend less on chance.",
           low=0),
    choice("train.reduce", "mean", "How the returns of a sample's joint answers become one.",
           ("mean", "sum"), read=Read(_reduces, "a sample is in one joint answer")),
    number("train.discount", 1.0, "gamma: what later turns earn is multiplied by this, once per turn.",
           low=0, high=1, read=Read(_turns, _ONE_TURN)),
    choice("train.backup", "mean", "What later turns add to a return.",
           {"mean": "their mean return", "max": "their greatest return", "last": "only last answers count"}),
    value("train.turn_weights", (), "Weights of the advantages of each turn; empty: all equal."),
    choice("train.turn_loss", "return", "How the losses of turns are added.",
           {"return": "weighted as in the gradient of the return", "mean": "as published, the mean of each "
            "turn is added"},
           read=Read(_turns, _ONE_TURN)),
    number("train.local_weight", 0.0,
           "at_grpo: weight of an agent's own reward, which is added to the team's reward.", low=0),
    choice("train.counterfactual", "",
           "Also judge every joint answer without each agent's part, for the metrics credit/.. and for "
           "ccpo; empty: no. The values say what replaces this part.",
           {"": "", **dict(zip(COUNTERFACTUALS, (
               "no text", "the agent's next sample", "the greedy answer of the untrained agent",
               "no text, and agents that had read it answer again; with advice in whole new episodes"),
               strict=True))}),
    choice("train.group_by", "turn", "Which completions form the group whose returns are compared.",
           {"turn": "the agent's completions in the same turn",
            "prompt": "the agent's completions to the same prompt, "
            "in any turn (GiGPO); in a world the actions in the same state"}, read=Read(_turns, _ONE_TURN)),
    choice("train.baseline", "mean", "What is subtracted from the returns of a group.",
           {"mean": "", "leave_one_out": "mean of the other samples", "max": "", "none": ""}),
    value("train.normalise", False, "Divide advantages by a standard deviation, see train.normalise_by."),
    choice("train.normalise_by", "group", "Which values the standard deviation is taken of.",
           {"group": "the returns of the group", "agent": "all advantages of the agent in the iteration"}),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field of the credit that has no meaning beside other fields."""
    c = config.train
    own = [] if critic.used(config) else _coincides(c)
    return [
        *_credit(c),
        *_turn_weights(c),
        *_counterfactual(config),
        *_partners(config),
        *_local(config),
        *_grouped(c),
        *own,
    ]


def _grouped(c: ConfigDict) -> list[str]:
    """A way to form groups that the system does not have."""
    allowed = ("magrpo", "marloo", "maremax", "dr_mas", "ccpo", "mutual")
    if c.group_by == "turn" or c.system in allowed or is_dotted(c.system):
        return []
    return [f"train.group_by={c.group_by!r}: only train.system={', '.join(map(repr, allowed))} compare so"]


def _turn_weights(c: ConfigDict) -> list[str]:
    """Weights that are not one number per turn."""
    bad = []
    if c.turn_weights and len(c.turn_weights) != c.turns:
        bad.append(f"train.turn_weights={c.turn_weights!r}: allowed is one per turn ({c.turns}), or none")
    if not all(type(weight) in (int, float) and 0 <= weight < math.inf for weight in c.turn_weights):
        bad.append(f"train.turn_weights={c.turn_weights!r}: allowed are numbers from 0")
    elif c.turn_weights and not any(c.turn_weights):
        bad.append(f"train.turn_weights={c.turn_weights!r}: nobody would learn, allowed is one above 0")
    return bad


def _credit(c: ConfigDict) -> list[str]:
    """Settings of the credit that have no meaning together, or are equal to another setting."""
    bad, by_agent = [], c.normalise and c.normalise_by == "agent" or c.system == "dr_mas"
    if c.reduce == "sum" and (c.normalise or c.system in ("dr_mas", "at_grpo")):
        bad.append(
            "train.reduce='sum': is a number of times 'mean', and normalising divides that out again: it is the "
            "same as 'mean', say that"
        )
    how = "train.system='dr_mas'" if c.system == "dr_mas" else "train.normalise_by='agent'"
    if by_agent and c.baseline == "none":
        bad.append(f"{how}: needs a baseline, train.baseline is 'none'")
    if c.normalise_by == "agent" and not c.normalise:
        bad.append("train.normalise_by='agent': does nothing without train.normalise=True")
    if by_agent and c.baseline == "leave_one_out":
        bad.append(
            f"train.baseline='leave_one_out': is G/(G-1) times 'mean', and {how} divides that out again: it "
            "is the same as 'mean', say that"
        )
    if c.backup in ("max", "last") and c.turns == 1:
        bad.append(f"train.backup={c.backup!r}: with train.turns=1 there is nothing to back up, say 'mean'")
    shared = c.turns > 1 and c.hand_on != "all"
    if shared and (c.backup == "last" or c.backup == "max" and c.baseline != "none"):
        outcome = {"max": "it is the same as 'mean', say that", "last": "only the last turn would learn"}
        bad.append(
            f"train.backup={c.backup!r}: with train.hand_on={c.hand_on!r} the answers of a node share what "
            f"follows: {outcome[c.backup]}"
        )
    return bad


def _local(config: ConfigDict) -> list[str]:
    """A weight of local rewards in a task or system without them."""
    c = config.train
    if c.local_weight and c.system != "at_grpo":
        return [f"train.local_weight={c.local_weight}: only train.system='at_grpo' uses it, allowed is 0"]
    if c.local_weight and (why := _no_local_rewards(config)):
        return [f"train.local_weight={c.local_weight}: {why}, no agent earns by itself, allowed is 0"]
    return []


def _no_local_rewards(config: ConfigDict) -> str:
    """Why the task gives no rewards to single agents; '' if it may give them."""
    c = config.task
    if c.reward:
        return f"task.reward={c.reward!r} judges the joint answer alone"
    if c.centralised:
        return "task.centralised=True has one agent"
    return f"task.kind={c.kind!r} judges the joint answer alone" if c.kind in ("tldr", "arxiv") else ""


def _counterfactual(config: ConfigDict) -> list[str]:
    """Settings with which counterfactual answers are impossible or carry no information."""
    c, kind, why = config.train, config.train.counterfactual, []
    if not kind:
        return []
    if len(config.team.agents) < 2:
        why.append(f"team.agents={config.team.agents!r} has nobody beside the agent, allowed is ''")
    if c.protocol == "tree":
        why.append("train.protocol='tree' replays what follows each answer already, allowed is ''")
    if kind == "sample" and c.joint_mode == "cross":
        why.append("with train.joint_mode='cross' all other samples are judged and logged already, say ''")
    if kind == "sample" and min(c.group, c.later_samples or c.group) < 2:
        name = "group" if c.group < 2 else "later_samples"
        why.append(f"train.{name}={c[name]} has no other sample, allowed are nothing and reference")
    if kind == "solo" and c.protocol not in ("pipeline", "discussion", advice.NAME):
        why.append(f"with train.protocol={c.protocol!r} nobody hears the others, say 'nothing'")
    if kind == "solo" and c.turns > 1 and not advice.of(config):
        why.append(f"nothing else shares the nodes of later turns, train.turns is {c.turns}")
    if c.system == "ccpo" and kind != "solo" and c.protocol in ("pipeline", "discussion"):
        why.append(
            f"with train.protocol={c.protocol!r} partners wrote after reading the agent, and "
            "train.system='ccpo' would subtract what its answer led to, say 'solo'"
        )
    if c.system == "ccpo" and c.protocol in ("leader", "review", "teams", "retrieve"):
        why.append(
            f"with train.protocol={c.protocol!r} partners wrote after reading the agent, and train.system='ccpo' "
            "would subtract what its answer led to"
        )
    if c.protocol == "relay":
        why.append("with train.protocol='relay' an agent has no part in most answers, allowed is ''")
    if kind == "reference" and config.team.mode != "adapters":
        why.append(f"the untrained agent is the base without adapters, team.mode is {config.team.mode!r}")
    return [f"train.counterfactual={kind!r}: {reason}" for reason in why]


def _partners(config: ConfigDict) -> list[str]:
    """Settings that do not allow partner samples, from which no agent learns."""
    c, why = config.train, []
    if not c.partner_samples:
        return []
    allowed = ("magrpo", "dr_mas", "at_grpo", *ONLY_BASELINE)
    if len(config.team.agents) < 2:
        why.append(f"team.agents={tuple(config.team.agents)!r} has no partners, allowed is 0")
    if c.protocol != "simultaneous" or c.turns > 1:
        why.append(
            "needs one turn of train.protocol='simultaneous', they are "
            f"train.turns={c.turns} and {c.protocol!r}"
        )
    if c.system not in allowed:
        why.append(f"train.system={c.system!r} does not average over partners, {', '.join(allowed)} do")
    if c.counterfactual:
        why.append(f"does not go with train.counterfactual={c.counterfactual!r}")
    if config.task.kind in programs.JUDGED_ALONE:
        why.append(f"task.kind={config.task.kind!r} judges every agent alone")
    return [f"train.partner_samples={c.partner_samples}: {reason}" for reason in why]


def _coincides(c: ConfigDict) -> list[str]:
    """Systems and baselines that become equal to another one once advantages are normalised."""
    by_group = c.system == "at_grpo" or c.normalise and c.normalise_by == "group"
    by_agent = c.normalise and c.normalise_by == "agent"
    if c.system == "ccpo" and (c.joint_mode == "cross" or c.counterfactual == "solo"):
        return _keeps_counterfactual(c, by_group)
    if by_group and c.system in ONLY_BASELINE:
        return [
            f"train.system={c.system!r}: is train.system='magrpo' with train.normalise=True: normalising by "
            "group takes every baseline out again, say that"
        ]
    if by_group and c.baseline != "mean":
        return [
            f"train.baseline={c.baseline!r}: normalising by group takes every baseline out again: it is the "
            "same as 'mean', say that"
        ]
    if by_agent and c.system == "mareinforce":
        return ["train.normalise=True: train.system='mareinforce' compares with nothing, allowed is False"]
    if by_agent and c.system in ("marloo", "c3"):
        return [
            f"train.system={c.system!r}: is G/(G-1) times the group's mean, and train.normalise_by='agent' "
            "divides that out again: it is the same as train.baseline='mean', say that"
        ]
    return []


def _keeps_counterfactual(c: ConfigDict, by_group: bool) -> list[str]:
    """What CCPO does not allow if the reward without an agent is the same number for all its samples."""
    where = "train.joint_mode='cross'" if c.joint_mode == "cross" else "train.counterfactual='solo'"
    why = f"with {where} what others earn without an agent is one number for all its samples, and"
    if c.baseline != "none":
        return [
            f"train.baseline={c.baseline!r}: {why} a baseline takes it out again: train.system='ccpo' needs "
            "'none' there"
        ]
    if by_group:
        return [f"train.normalise=True: {why} normalising by group takes it out again, allowed is False"]
    return []
