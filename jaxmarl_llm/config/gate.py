"""Fields of train.protocol=gated: which actions are refused, and which values decide it."""

from jaxmarl_llm.config import remote
from jaxmarl_llm.config.fields import Read, choice, number
from jaxmarl_llm.config.options import ConfigDict, is_dotted

NAME, PLANNER = "gated", "scripted:planner"
# Systems whose credit is that of the answers that count; others also read what agents think before an answer.
_SYSTEMS = ("magrpo", "mareinforce", "marloo", "maremax", "dr_mas")


def of(config: ConfigDict) -> bool:
    """Whether actions must pass a gate."""
    return config.train.protocol == NAME


def learns(config: ConfigDict) -> bool:
    """Whether the gate's values are learned."""
    return of(config) and config.gate.q == "learned"


def plans(config: ConfigDict) -> bool:
    """Whether any agent is the script that knows the right action."""
    return PLANNER in remote.agents(config).values()


_GATED = Read(of, "only train.protocol='gated' reads it")
_LEARNED = Read(learns, "only gate.q='learned' reads it")
_PLANNER = Read(
    lambda c: of(c) or plans(c), "only train.protocol='gated' and the model 'scripted:planner' read it"
)
FIELDS = (
    number("gate.eps", 0.0,
           "An action is refused unless its advantage over waiting is greater than this, in units of the return.",
           low=0, read=_GATED),
    number("gate.retries", 10, "How often an agent is asked again after a refused action; then the best "
           "refused action counts.",
           low=1, read=_GATED),
    choice("gate.mode", "sequential", "How agents plan a step.",
           {"sequential": "one after the other, each reads the actions chosen before",
            "joint": "all at once"},
           read=_GATED),
    choice("gate.q", "exact", "Where the values of actions come from: those of a planner that takes the "
           "right action with probability gate.planner, and sometimes waits (gate.waits).",
           {"exact": "iteration over all states of the world", "learned": "a network fitted to the "
            "planner's returns",
            "permuted": "a control: exact values of another state and action"}, read=_GATED),
    number("gate.discount", 0.95, "gamma of the values, above 0: what later steps earn is multiplied by "
           "it, once per step. It also says which action is right for scripted:planner.",
           low=0, high=0.999, read=_PLANNER),
    number("gate.planner", 0.0, "Probability that the planner, and each agent that is scripted:planner, "
           "takes the right action; else it takes any legal one.",
           low=0, high=1, read=_PLANNER),
    number("gate.waits", 0.25, "Probability that the planner waits instead of taking its chosen action.",
           low=0, high=0.9, read=_GATED),
    number("gate.episodes", 3000, "Episodes of the planner from which the values are learned.",
           low=1, read=_LEARNED),
    choice("gate.encoder", "ngrams", "Encoder of views and actions for the network; or the dotted name of "
           "a function of your own, texts -> vectors.",
           {"ngrams": "counts of words and pairs of words", "policy": "the first local model, adapters off"},
           dotted=True, read=_LEARNED),
    number("gate.hidden", 256, "Width of the network's two layers.", low=1),
    number("gate.lr", 1e-3, "Learning rate of the network's AdamW; it falls to 0.", low=0),
    number("gate.updates", 3000, "Updates of the network, on 256 actions each.", low=1),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that a gate, or a script that plans, does not allow."""
    return [*_planners(config), *(_gate(config) if of(config) else [])]


def _planners(config: ConfigDict) -> list[str]:
    """A script that cannot see the state, or a discount of 0."""
    bad, own = list[str](), config.gate
    if not (of(config) or plans(config)):
        return bad
    if own.discount == 0:
        bad.append(
            "gate.discount=0: waiting is worth gamma times the state, which says nothing then, allowed is any number "
            "above 0, up to 0.999"
        )
    if plans(config) and config.task.kind == "world" and not config.task.share_views:
        bad.append(
            "task.share_views=False: the model 'scripted:planner' has to see what all agents see, allowed is True"
        )
    return bad


def _gate(config: ConfigDict) -> list[str]:
    c, where, bad = config.train, "train.protocol='gated'", list[str]()
    if config.task.kind != "world":
        bad.append(
            f"task.kind={config.task.kind!r}: {where} compares actions with waiting, which only 'world' has, allowed "
            "is that"
        )
    if config.gate.mode == "joint" and len(config.team.agents) == 1:
        bad.append("gate.mode='joint': of one agent it is the same as 'sequential', say that")
    if c.system not in _SYSTEMS and not is_dotted(c.system):
        bad.append(f"train.system={c.system!r}: {where} allows {', '.join(_SYSTEMS)}")
    if c.counterfactual:
        bad.append(
            f"train.counterfactual={c.counterfactual!r}: with {where} others would have chosen otherwise without the "
            "agent's part, allowed is ''"
        )
    return bad
