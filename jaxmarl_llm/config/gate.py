"""Fields of train.protocol=gated: which actions are refused, and where the values come from that decide it."""

from jaxmarl_llm.config import remote
from jaxmarl_llm.config.fields import Read, choice, number
from jaxmarl_llm.config.options import ConfigDict, is_dotted

NAME, PLANNER = "gated", "scripted:planner"
# Their credit is that of the answers that count; others read what every agent thinks before an answer.
_SYSTEMS = ("magrpo", "mareinforce", "marloo", "maremax", "dr_mas")


def of(config: ConfigDict) -> bool:
    """Whether actions have to pass a gate."""
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
    number("gate.retries", 10, "How often an action that is refused is asked again; after that the best one counts.",
           low=1, read=_GATED),
    choice("gate.mode", "sequential", "How agents plan a step.",
           {"sequential": "one after the other, each reads what those before it chose", "joint": "all at once"},
           read=_GATED),
    choice("gate.q", "exact", "Where values of actions come from: those of a planner that takes the right action with "
           "the chance gate.planner, and waits in between.",
           {"exact": "iteration over all states of the world", "learned": "a network fitted to its returns",
            "permuted": "exact ones of another state and action in place of each question's, a control"}, read=_GATED),
    number("gate.discount", 0.95, "gamma of the values, above 0: what a later step earns counts this much one step "
           "earlier. It also says which action is right for scripted:planner.", low=0, high=0.999, read=_PLANNER),
    number("gate.planner", 0.0, "Chance with which the planner, and each agent that is scripted:planner, takes the "
           "right action; else any legal one.", low=0, high=1, read=_PLANNER),
    number("gate.waits", 0.25, "Share of the planner's actions in whose place it waits.", low=0, high=0.9, read=_GATED),
    number("gate.episodes", 3000, "Episodes of the planner that the values are learned from.", low=1, read=_LEARNED),
    choice("gate.encoder", "ngrams", "What reads views and actions for the network; or the dotted name of a function "
           "of your own, texts -> vectors.",
           {"ngrams": "counts of words and pairs of words", "policy": "the first local model, adapters off"},
           dotted=True, read=_LEARNED),
    number("gate.hidden", 256, "Width of the network's two layers.", low=1),
    number("gate.lr", 1e-3, "Learning rate of its AdamW, which falls to 0.", low=0),
    number("gate.updates", 3000, "Its updates, on 256 actions each.", low=1),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that a gate, or a script that plans, does not allow."""
    return [*_planners(config), *(_gate(config) if of(config) else [])]


def _planners(config: ConfigDict) -> list[str]:
    """A script that cannot see the state, or values that say nothing."""
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
