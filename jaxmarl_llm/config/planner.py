"""What train.protocol=planner needs: three agents, and tools that the second one calls."""

from jaxmarl_llm.config import systems, tools
from jaxmarl_llm.config.options import ConfigDict, field, is_dotted

NAME = "planner"
# Systems whose credit is that of a whole conversation.
_SYSTEMS = ("magrpo", "mareinforce", "marloo", "maremax", "dr_mas", systems.SFT)
_DECIDES = (
    "train.turns",
    "train.partner_samples",
    "train.counterfactual",
    "eval.until_agreed",
    "eval.vote",
    "tools.agents",
)


def of(config: ConfigDict) -> bool:
    """Whether a planner decides who writes next."""
    return config.train.protocol == NAME


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that this protocol does not allow, or that would not be read."""
    c, bad, where = config.train, [], "train.protocol='planner'"
    if not of(config):
        return []
    agents = tuple(config.team.agents)
    if len(agents) != 3:
        bad.append(f"team.agents={agents!r}: {where} needs three, a planner, a caller and a summarizer")
    if not tools.offered(config):
        bad.append(f"tools.functions=(): {where} needs tools that the caller can call")
    if c.system not in _SYSTEMS and not is_dotted(c.system):
        bad.append(f"train.system={c.system!r}: {where} allows {', '.join(_SYSTEMS)}")
    for path in _DECIDES:
        held, default = field(config, path), field(base, path)
        if held != default:
            bad.append(f"{path}={held!r}: {where} allows {default!r} only")
    if config.task.centralised or config.task.kind in ("tldr", "arxiv", "game", "lock", "world", "commits"):
        bad.append(f"task.kind={config.task.kind!r}: {where} needs a task that one agent can answer")
    return bad
