"""Fields of train.protocol=routed: who decides which agent answers, what an answer costs, and how a router learns."""

from jaxmarl_llm.config import remote
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict, field, is_dotted

NAME, SYSTEM = "routed", "der"
# One agent answers at a time, so that no answers of a turn can agree or vote. Only the router decides which
# routes continue, each separately.
_DECIDES = ("eval.until_agreed", "eval.vote", "train.hand_on", "train.stop_above", "train.later_samples")


def of(config: ConfigDict) -> bool:
    """Whether agents answer one at a time, on routes."""
    return config.train.protocol == NAME


def learns(config: ConfigDict) -> bool:
    """Whether the router is a network."""
    return of(config) and config.router.kind == "learned"


_ROUTED = Read(of, "only train.protocol='routed' reads it")
_LEARNED = Read(learns, "only router.kind='learned' reads it")
FIELDS = (
    choice("router.kind", "learned", "Who decides which agent answers next, or that the last answer is "
           "final.",
           {"learned": "a network over a frozen encoder", "fixed": "no router: router.agent answers once",
            "prompt": "router.agent, by its text: it names one of the others, or stops",
            "cascade": "the next of team.agents, while the confidence of the last answer is below "
            "router.confidence"},
           read=_ROUTED),
    value("router.agent", "", "The agent that answers with router.kind=fixed, or that decides with "
          "router.kind=prompt.",
          Read(lambda c: of(c) and c.router.kind in ("fixed", "prompt"),
               "only router.kind='fixed' and 'prompt' read it")),
    number("router.confidence", -0.5,
           "Smallest mean log-probability of a token, in nats, with which router.kind=cascade accepts an "
           "answer.", low=-100,
           high=0,
           read=Read(lambda c: of(c) and c.router.kind == "cascade", "only router.kind='cascade' reads it")),
    value("router.costs", (), "Cost of an answer of each agent, in units of a right answer; empty: none.",
          _ROUTED),
    value("router.token_prices", (), "Costs by token instead: (price of a thousand prompt tokens, of a "
          "thousand completion tokens) of each agent, in units of a right answer.", _ROUTED),
    number("router.change", 1.0, "Weight in the reward of the change in quality from one answer to the "
           "next.", low=1e-6,
           read=_ROUTED),
    choice("router.encoder", "ngrams", "Encoder of questions and answers for the router; or the dotted "
           "name of a function of your own, texts -> vectors.",
           {"ngrams": "counts of words and pairs of words", "policy": "the first local model, adapters off"},
           dotted=True, read=_LEARNED),
    number("router.hidden", 256, "Width of the router's network.", low=1),
    number("router.lr", 1e-3, "Learning rate of the router's AdamW.", low=0),
    number("router.epochs", 4, "Passes over the decisions of an iteration.", low=1),
    number("router.clip", 0.3, "PPO's clip of the ratio.", low=1e-6),
    number("router.entropy", 0.01, "Weight of an entropy bonus.", low=0),
    number("router.discount", 0.95, "gamma: what later decisions earn is multiplied by this, once per "
           "decision.",
           low=0, high=1, read=_LEARNED),
    number("router.gae_lambda", 0.95, "lambda of generalised advantage estimation over a route's decisions.", low=0,
           high=1, read=_LEARNED),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that this protocol does not allow."""
    c, own = config.train, config.router
    bad: list[str] = []
    if not of(config):
        return bad
    agents, where = tuple(config.team.agents), "train.protocol='routed'"
    if len(agents) < 2:
        bad.append(f"team.agents={agents!r}: {where} needs two or more to choose from")
    if own.costs and len(own.costs) != len(agents):
        bad.append(f"router.costs={tuple(own.costs)!r}: allowed is one per agent ({len(agents)}), or none")
    if not all(type(cost) in (int, float) and 0 <= cost < 1e6 for cost in own.costs):
        bad.append(f"router.costs={tuple(own.costs)!r}: allowed are numbers from 0")
    bad += _token_prices(own, agents)
    if own.kind == "prompt" and len(agents) < 3:
        bad.append(
            f"team.agents={agents!r}: router.kind='prompt' needs one who decides and two or more others"
        )
    if own.kind in ("fixed", "prompt") and own.agent not in agents:
        bad.append(f"router.agent={own.agent!r}: allowed is one of {agents!r}")
    if own.kind == "cascade" and c.turns < len(agents):
        bad.append(f"train.turns={c.turns}: router.kind='cascade' may ask all of {agents!r}")
    if own.kind == "cascade":
        bad += _without_confidence(config, agents[:-1])
    for path in _DECIDES:
        held, default = field(config, path), field(base, path)
        if held != default:
            bad.append(f"{path}={held!r}: {where} allows {default!r} only")
    if c.system != SYSTEM and not is_dotted(c.system):
        bad.append(f"train.system={c.system!r}: with {where} the router learns, allowed is 'der'")
    if c.overlap:
        bad.append(
            f"train.overlap={c.overlap}: with {where} the router must have learned before it is asked again"
        )
    if config.task.centralised or config.task.kind in ("tldr", "arxiv", "game", "lock", "world", "commits"):
        bad.append(f"task.kind={config.task.kind!r}: {where} needs a task that one agent can answer")
    return bad


def _without_confidence(config: ConfigDict, agents: tuple[str, ...]) -> list[str]:
    """Agents before the last one of a cascade that do not give log-probabilities."""
    return [
        f"the model {name!r} of agent {agent!r}: router.kind='cascade' reads its log-probabilities, which it does not "
        "show, allowed is a model of ours, or the last agent"
        for agent, name in remote.agents(config).items()
        if agent in agents
    ]


def _token_prices(own: ConfigDict, agents: tuple[str, ...]) -> list[str]:
    """What is wrong with prices of tokens."""
    prices, bad = tuple(own.token_prices), []
    pairs = [tuple(pair) if isinstance(pair, tuple | list) else () for pair in prices]
    numbers = [x for pair in pairs for x in pair]
    if any(len(pair) != 2 for pair in pairs) or not all(
        type(x) in (int, float) and 0 <= x < 1e6 for x in numbers
    ):
        bad.append(f"router.token_prices={prices!r}: allowed are pairs of numbers from 0")
    elif prices and len(prices) != len(agents):
        bad.append(f"router.token_prices={prices!r}: allowed is one pair per agent ({len(agents)}), or none")
    if prices and own.costs:
        bad.append(
            f"router.costs={tuple(own.costs)!r}: allowed is () with router.token_prices, which is the cost"
        )
    return bad
