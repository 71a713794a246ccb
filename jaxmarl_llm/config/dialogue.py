"""What train.protocol=dialogue needs: an agent that learns, a partner that does not, and a hidden text to ask about."""

from jaxmarl_llm.config import agent_settings, remote, systems
from jaxmarl_llm.config.options import ConfigDict, field, is_dotted

NAME = "dialogue"
# Fields of how turns follow joint answers, which a dialogue decides itself.
_DECIDES = ("hand_on", "stop_above", "later_samples", "turn_weights", "counterfactual", "redraw")
# Systems whose credit is that of the last text of a dialogue.
_SYSTEMS = ("magrpo", "mareinforce", "marloo", "maremax", "dr_mas", "sweet")


def of(config: ConfigDict) -> bool:
    """Whether an agent asks a partner."""
    return config.train.protocol == NAME


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that makes a dialogue impossible, or that would not be read."""
    c = config.train
    if not of(config):
        return []
    bad = [*_agents(config), *_credit(config)]
    if config.task.kind not in ("reasoning", "coding") and not is_dotted(config.task.kind):
        bad.append(
            f"task.kind={config.task.kind!r}: train.protocol='dialogue' needs problems with a hidden text, allowed are "
            "'reasoning', 'coding' or a task of your own that has privileged, briefing and ends"
        )
    if config.task.centralised:
        bad.append(
            "task.centralised=True: in train.protocol='dialogue' one agent answers already, allowed is False"
        )
    if c.turns < 2:
        bad.append(
            f"train.turns={c.turns}: train.protocol='dialogue' needs 2 or more, a question and an answer"
        )
    for name in _DECIDES:
        held, default = field(config, f"train.{name}"), field(base, f"train.{name}")
        if held != default:
            bad.append(f"train.{name}={held!r}: train.protocol='dialogue' allows {default!r} only")
    if config.eval.until_agreed:
        bad.append("eval.until_agreed=True: in train.protocol='dialogue' one agent answers, allowed is False")
    return bad


def _agents(config: ConfigDict) -> list[str]:
    """A team that is not one agent that learns and one partner that knows the text."""
    agents = tuple(config.team.agents)
    if len(agents) != 2:
        return [
            f"team.agents={agents!r}: train.protocol='dialogue' needs two, the one that asks and its partner"
        ]
    actor, partner = agents
    if actor in remote.agents(config):
        return [
            f"the model {remote.agents(config)[actor]!r} of agent {actor!r}: train.protocol='dialogue' trains the "
            "first agent, which must be a model of ours"
        ]
    if agent_settings.trainable(config, partner):
        return [
            f"team.agent.{partner}.trainable: the partner of train.protocol='dialogue' knows the answer and must not "
            "learn, allowed is False"
        ]
    return []


def _credit(config: ConfigDict) -> list[str]:
    """A system that would reward questions, or reward an early answer once for each turn that it skips."""
    c = config.train
    if is_dotted(c.system):
        return []
    if c.system not in _SYSTEMS and c.system != systems.SFT:
        return [f"train.system={c.system!r}: train.protocol='dialogue' allows {', '.join(_SYSTEMS)}"]
    if c.system in _SYSTEMS[:-1] and c.backup != "last":
        return [
            f"train.backup={c.backup!r}: in train.protocol='dialogue' the last text alone counts, allowed is 'last'"
        ]
    return []
