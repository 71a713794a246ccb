"""Fields of tools that agents call before they answer."""

from jaxmarl_llm.config.fields import Read, number, value
from jaxmarl_llm.config.options import ConfigDict, is_dotted

_TOOLS = Read(lambda config: bool(config.tools.functions), "tools.functions is empty, so that there are none")
FIELDS = (
    value("tools.functions", (),
          "Dotted names of functions that agents may call, with a docstring and typed parameters; empty: none."),
    value("tools.agents", (), "Agents that may call them; empty: all.", _TOOLS),
    number("tools.calls", 3, "Most calls before an answer.", low=1, read=_TOOLS),
)  # fmt: skip
PROTOCOLS = ("simultaneous", "pipeline", "discussion", "review", "leader", "teams", "planner")


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that tools do not allow."""
    own, c = config.tools, config.train
    bad: list[str] = []
    if not own.functions:
        return bad
    where, agents = "tools.functions", tuple(config.team.agents)
    names = tuple(own.functions)
    if not all(type(name) is str and is_dotted(name) for name in names):
        bad.append(f"{where}={names!r}: allowed are dotted names, module.function")
    if strangers := [name for name in own.agents if name not in agents]:
        bad.append(
            f"tools.agents={tuple(own.agents)!r}: {strangers[0]!r} is not among team.agents={agents!r}"
        )
    if c.protocol not in PROTOCOLS:
        bad.append(
            f"train.protocol={c.protocol!r}: with {where} allowed are {', '.join(map(repr, PROTOCOLS))}"
        )
    if c.joint_mode != "aligned":
        bad.append(
            f"train.joint_mode={c.joint_mode!r}: with {where} allowed is 'aligned', as calls lead to one answer"
        )
    if c.partner_samples:
        bad.append(f"train.partner_samples={c.partner_samples}: with {where} allowed is 0")
    if c.system == "mlpo":
        bad.append(f"train.system='mlpo': with {where} the leader's answers are not to one prompt")
    if c.counterfactual == "solo":
        bad.append(f"train.counterfactual='solo': with {where} allowed are other kinds")
    return bad
