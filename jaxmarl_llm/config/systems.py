"""The training systems: a row each, with fields that it decides or needs. docs/systems.md has the equations.

A new system is a row here, a file in ``jaxmarl_llm/systems`` and a row in ``jaxmarl_llm/factory/systems.py``.
"""

import dataclasses
from collections.abc import Iterable

from jaxmarl_llm.config.fields import as_tuple
from jaxmarl_llm.config.options import ConfigDict, field

GROUP, CRITIC, PAIRS, DEMONSTRATIONS, ROUTER = "group", "critic", "pairs", "demonstrations", "router"
COUNTERFACTUALS = ("nothing", "sample", "reference", "solo")
_CRITIC_DECIDES = ("baseline", "backup", "reduce", "turn_weights", "comlrl_compat")
# The loss of DPO is its own.
_DPO_DECIDES = tuple(
    """loss baseline normalise normalise_by discount backup reduce turn_weights turn_loss clip clip_high dual_clip
    ratio_level aggregation drop_truncated importance_cap overlap kl_coef entropy_coef minibatches epochs
    comlrl_compat""".split()
)
# The loss is cross-entropy.
_SFT_DECIDES = tuple(
    """loss baseline normalise normalise_by discount backup reduce turn_weights local_weight clip clip_high
    dual_clip ratio_level aggregation drop_truncated importance_cap overlap kl_coef entropy_coef comlrl_compat
    counterfactual hand_on stop_above turn_loss budget_tokens budget_answers epochs""".split()
)
# No agent learns.
_DER_DECIDES = tuple(
    """loss baseline normalise normalise_by discount backup turn_weights turn_loss local_weight clip aggregation
    drop_truncated importance_cap counterfactual minibatches epochs redraw comlrl_compat kl_coef entropy_coef""".split()
)


@dataclasses.dataclass(frozen=True)
class System:
    """A value of ``train.system``.

    Attributes:
      about: what agents learn from, for the documentation.
      learns_from: `GROUP` (returns of a group of samples), `CRITIC`, `PAIRS` (of joint answers, or of turns),
        `DEMONSTRATIONS`, or `ROUTER`: no agent learns.
      decides: fields of ``train`` that the system decides itself; they must have their defaults.
      needs: (field, allowed values, why).
      only_baseline: whether it is MAGRPO with another baseline; normalising by group makes them equal.
      offline: whether it collects pairs only at first, and then learns without further rollouts, or without
        further fits of its reward model.
    """

    about: str
    learns_from: str = GROUP
    decides: tuple[str, ...] = ()
    needs: tuple[str, tuple, str] | None = None
    only_baseline: bool = False
    offline: bool = False


SYSTEMS = {
    "magrpo": System("returns minus their group's mean"),
    "mareinforce": System("returns", decides=("baseline",), only_baseline=True),
    "marloo": System(
        "returns minus the mean of the other samples", decides=("baseline",), only_baseline=True
    ),
    "maremax": System("returns minus the greatest of the group", decides=("baseline",), only_baseline=True),
    "dr_mas": System(
        "MAGRPO's advantages divided by each agent's standard deviation",
        decides=("normalise", "normalise_by"),
    ),
    "at_grpo": System(
        "advantages in groups of the same agent and turn, with local rewards",
        decides=("normalise", "normalise_by", "discount", "backup", "turn_loss"),
        needs=("train.hand_on", ("best", "random"), "later turns answer one joint answer"),
    ),
    "maporl": System(
        "what an answer led to in later turns, and changes between right and wrong",
        decides=("discount", "backup", "reduce", "turn_loss", "local_weight"),
        needs=("train.later_samples", (1,), "influence is what follows an answer in its conversation"),
    ),
    "mlpo": System(
        "a leader's answers after the same answers of peers, which do not learn",
        decides=("baseline", "normalise", "normalise_by"),
        needs=("train.protocol", ("leader",), "the leader reads its peers"),
    ),
    "c3": System(
        "alternatives to an answer, after the same earlier answers, in a tree",
        decides=("baseline",),
        needs=("train.protocol", ("tree",), "alternatives are continuations of the same answer"),
    ),
    "ccpo": System(
        "the reward minus that of the joint answer without the agent's part",
        needs=("train.counterfactual", COUNTERFACTUALS, "credit is the reward less that without the agent"),
    ),
    "centralised": System(
        "MAGRPO of one agent that writes all roles",
        needs=("task.centralised", (True,), "one agent writes all roles"),
    ),
    "iac": System("a critic per agent", CRITIC, _CRITIC_DECIDES),
    "maac": System("one critic that reads all agents", CRITIC, _CRITIC_DECIDES),
    "madpo": System("pairs of joint answers collected first (DPO)", PAIRS, _DPO_DECIDES, offline=True),
    "madpo_iter": System("the same, with new pairs in every iteration", PAIRS, _DPO_DECIDES),
    "dpo": System(
        "pairs of an agent's turns under one prompt, collected first", PAIRS, _DPO_DECIDES, offline=True
    ),
    "malt": System(
        "values of a tree's answers: good ones are imitated, then preferred to their siblings",
        PAIRS,
        _DPO_DECIDES,
        needs=("train.protocol", ("tree",), "values are means over the continuations of an answer"),
        offline=True,
    ),
    "sweet": System(
        "texts of a dialogue, ranked by a critic that reads what the agent must not read",
        PAIRS,
        _DPO_DECIDES,
        needs=("train.protocol", ("dialogue",), "the critic reads what only the partner of a dialogue knows"),
        offline=True,
    ),
    "marlhf": System("a reward model, fitted to pairs of joint answers collected first", PAIRS, offline=True),
    "marlhf_iter": System("the same, fitted anew in every iteration", PAIRS),
    "der": System(
        "nothing: a router learns which agent to ask, by quality minus cost",
        ROUTER,
        _DER_DECIDES,
        needs=("train.protocol", ("routed",), "the router decides who answers"),
    ),
    "mutual": System(
        "an actor by its returns, its adviser by their gain over returns without advice",
        needs=("train.protocol", ("advice",), "one agent advises another"),
    ),
    "lessonl": System("what programs, and the lessons about them, led to, with the protocol of that name"),
    "sft": System(
        "demonstrations, see the section sft; answers are drawn with sft.prompts='rollout' only",
        DEMONSTRATIONS,
        _SFT_DECIDES,
    ),
}
CRITICS = tuple(name for name, row in SYSTEMS.items() if row.learns_from == CRITIC)
FROM_PAIRS = tuple(name for name, row in SYSTEMS.items() if row.learns_from == PAIRS)
OFFLINE = tuple(name for name, row in SYSTEMS.items() if row.offline)
ONLY_BASELINE = tuple(name for name, row in SYSTEMS.items() if row.only_baseline)
# Agents learn from pairs themselves, without a reward model.
DIRECT = ("madpo", "madpo_iter", "dpo", "malt", "sweet")
SFT = "sft"


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that ``train.system`` decides itself, or for which it needs another value."""
    c = config.train
    row = SYSTEMS.get(c.system)
    if row is None:
        return []
    bad = decided(config, row.decides, base)
    turned = c.system != "at_grpo" or c.turns > 1  # in one turn nothing is handed on
    if row.needs and turned:
        path, allowed, why = row.needs
        if field(config, path) not in allowed:
            wanted = " or ".join(map(repr, allowed))
            bad.append(f"{path}={field(config, path)!r}: train.system={c.system!r} needs {wanted}: {why}")
    if row.learns_from not in (GROUP, ROUTER) and config.team.mode == "frozen":
        bad.append(f"train.system={c.system!r}: team.mode='frozen' learns nothing")
    return bad


def decided(config: ConfigDict, names: Iterable[str], base: ConfigDict) -> list[str]:
    """One sentence per field of ``train`` that the system decides itself, and that is not the default."""
    c, bad = config.train, []
    for name in names:
        held = as_tuple(c[name])
        if held != base.train[name]:
            bad.append(f"train.{name}={held!r}: train.system={c.system!r} allows {base.train[name]!r} only")
    return bad
