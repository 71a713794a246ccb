"""Fields of the team: its agents, their models and parameters, and what they start from."""

import math
import re
from collections.abc import Sequence

from jaxmarl_llm.config.fields import Read, as_tuple, choice, number, value
from jaxmarl_llm.config.options import TAKEN, ConfigDict, field, is_taken
from jaxmarl_llm.utils.errors import UserError

# First parts of the names of metrics that belong to no agent; an agent's metrics begin with its name.
RESERVED = (
    "credit", "engine", "eval", "eval_executor", "eval_greedy", "executor", "expert", "gate", "lessons", "madpo",
    "malt", "maporl", "memory", "mlpo", "preference", "reward_model", "router", "seconds", "sft", "spent", "step",
    "sweet", "test", "test_greedy", "train",
)  # fmt: skip
WRITERS = {"examples": 3, "published": 5}  # by task.prompts: most agents of task.kind=tldr and arxiv
FIELDS = (
    value("team.agents", ("aux", "main"),
          "Names of the agents, in the order of the task's roles; a team may have one agent. Allowed are "
          "letters, digits and _, and no name with which other metrics begin, such as train."),
    value("team.models", (),
          "A model per agent; empty: the field model for all. expert:<name> is a model behind the endpoint "
          "of config.expert, which answers and does not learn. Scripts: scripted:mixture draws from the "
          "known rewrites of an optimisation problem; scripted:follower follows the lessons about a lock; "
          "scripted:repeater repeats a word of a riddle; scripted:answerer and scripted:describer are "
          "partners in a dialogue, who know the pair of the riddle guess, or the parts cut from "
          "descriptions of coding problems; scripted:cheap, scripted:mid and scripted:dear answer "
          "questions of routes; scripted:planner takes the right action of a world with probability "
          "gate.planner; scripted:guide is an adviser who knows the way to the ball."),
    value("team.agent", ConfigDict(),
          "Settings of single agents, team.agent.<name>.<field>: trainable (False: the agent answers with "
          "its start parameters), lr, temperature, top_p, top_k, min_p, max_new_tokens; a field that is "
          "not set has the value for all agents, in train.lr or sampling."),
    choice("team.mode", "adapters", "Which parameters are trained.",
           {"adapters": "LoRA adapters per agent on one shared base model",
            "full": "a copy of the model per agent",
            "frozen": "none"}),
    number("team.rank", 16, "Rank of the adapters; rank, alpha and targets are read only with "
           "team.mode=adapters.",
           low=1),
    number("team.alpha", 32.0, "Scale of the adapters: their product is multiplied by alpha / rank.",
           low=1e-6),
    value("team.targets", ("q", "k", "v", "o", "gate", "up", "down"), "Linear maps that get an adapter.",
          Read(lambda c: c.team.mode == "adapters", "only team.mode='adapters' has adapters")),
    value("team.begin", "",
          "Run folder whose agents' parameters the team starts from; they are also the reference policy of "
          "KL terms and comparisons; empty: the model as it is."),
    value("team.begin_map", (),
          'Agents of this team that start from another agent of that run, such as ("aux1=aux", '
          '"aux2=aux"); empty: from the agent of the same name.'),
    value("team.begin_step", "latest",
          "Checkpoint of that run: latest, best, or a number of iterations."),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per invalid field of the team."""
    agents, models = tuple(config.team.agents), config.team.models
    bad = _names(agents) + _models(config) + _targets(config.team, base)
    if config.policy.dtype == "float16" and config.team.mode != "frozen":
        bad.append(
            "policy.dtype='float16': small gradients would become 0, and there is no loss scaling against that; "
            "allowed are float32 and bfloat16, or team.mode='frozen'"
        )
    if models and len(models) != len(agents):
        bad.append(f"team.models={models!r}: allowed is one model per agent ({len(agents)}), or none")
    if config.task.centralised and len(agents) != 1:
        bad.append(f"team.agents={agents!r}: task.centralised allows one, who writes all roles")
    return bad + _writers(config.task, agents) + _begin(config.team, base.team)


def _writers(c: ConfigDict, agents: tuple) -> list[str]:
    """More writers of a text than there are prompts for."""
    if c.kind not in ("tldr", "arxiv") or len(agents) <= WRITERS.get(c.prompts, math.inf):
        return []
    where = f"task.kind={c.kind!r} with task.prompts={c.prompts!r}"
    return [f"team.agents={agents!r}: {where} allows 1 to {WRITERS[c.prompts]} names"]


def _models(config: ConfigDict) -> list[str]:
    """Models without a name."""
    sentence = "allowed are bundled names, folders, .gguf files and hub ids"
    bad = [] if config.model else [f"model='': {sentence}"]
    if not all(type(name) is str and name for name in config.team.models):
        bad.append(f"team.models={tuple(config.team.models)!r}: {sentence}")
    return bad


def _targets(c: ConfigDict, base: ConfigDict) -> list[str]:
    """Linear maps that cannot get an adapter, or an empty list of them."""
    given, known = tuple(c.targets), base.team.targets
    if c.mode != "adapters" or given and set(given) <= set(known) and len(set(given)) == len(given):
        return []
    return [f"team.targets={given!r}: allowed are one or more of {', '.join(known)}"]


def _names(agents: tuple) -> list[str]:
    """What is wrong with the agents' names: they begin metrics, and name folders of checkpoints."""
    where = f"team.agents={agents!r}:"
    odd = [
        name for name in agents if type(name) is not str or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    ]
    if odd:
        sentence = "names are made of letters, digits and _, and do not begin with a digit"
        return [f"{where} {odd[0]!r} is not allowed: {sentence}"]
    if len(set(agents)) != len(agents) or not agents:
        return [f"{where} allowed are one or more different names"]
    if attributes := [name for name in agents if is_taken(name)]:
        return [f"{where} {attributes[0]!r} is not allowed, {TAKEN}"]
    taken = [name for name in agents if name in RESERVED]
    return [f"{where} {taken[0]!r} is what other metrics begin with, choose another name"] if taken else []


def begins(config: ConfigDict) -> bool:
    """Whether the team begins with parameters that another run learned."""
    return bool(config.team.begin or config.warm_up.steps)


def check_read(config: ConfigDict, workdir) -> None:
    """ValueError, naming the field, if a team that begins from another run is used without a run folder.

    Its first parameters are only in its run folder (`jaxmarl_llm.runs.begin`).
    """
    if workdir or not begins(config):
        return
    path, nothing = ("team.begin", "") if config.team.begin else ("warm_up.steps", 0)
    raise UserError(
        f"{path}={field(config, path)!r}: without --workdir the untrained team would answer; give the run's "
        f"folder, or say --config.{path}={nothing!r}"
    )


def _begin(c: ConfigDict, base: ConfigDict) -> list[str]:
    """Invalid fields about the run from which a team begins."""
    bad, agents = [], tuple(c.agents)
    if not c.begin:
        for name in ("begin_map", "begin_step"):
            held = as_tuple(c[name])
            if held != base[name]:
                bad.append(f"team.{name}={held!r}: team.begin is '', allowed is {base[name]!r}")
        return bad
    if c.mode == "frozen":
        bad.append(f"team.begin={c.begin!r}: team.mode='frozen' has no parameters to begin with")
    if not re.fullmatch(r"latest|best|\d+", c.begin_step):
        bad.append(f"team.begin_step={c.begin_step!r}: allowed are latest, best, or a number of iterations")
    return bad + _bad_map(c.begin_map, agents, "team.begin_map")


def agent_names(pairs: Sequence[str], agents: Sequence[str], where: str) -> dict[str, str]:
    """Agent -> its name elsewhere, of texts such as ``'aux1=aux'``; ValueError, naming ``where``, for others."""
    if bad := _bad_map(pairs, agents, where):
        raise UserError(bad[0])
    return dict(pair.split("=") for pair in pairs)


def _bad_map(pairs: Sequence[str], agents: Sequence[str], where: str) -> list[str]:
    """What is wrong with a list of agents and their names elsewhere."""
    parts = [pair.split("=") if type(pair) is str else [] for pair in pairs]
    if not all(len(part) == 2 and all(part) for part in parts):
        return [f"{where}={tuple(pairs)!r}: allowed are pairs such as 'aux1=aux'"]
    names = [part[0] for part in parts]
    if len(set(names)) < len(names) or not set(names) <= set(agents):
        return [f"{where}={tuple(pairs)!r}: before '=' allowed is each of {agents!r} once"]
    return []
