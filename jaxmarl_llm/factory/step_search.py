"""Build train.protocol=qstar: the search over lines, its values, and the value model if there is one."""

import dataclasses
import pathlib
from collections.abc import Sequence

from jaxmarl_llm import update
from jaxmarl_llm.config import qstar
from jaxmarl_llm.config.options import is_dotted
from jaxmarl_llm.factory import built_models, randomness
from jaxmarl_llm.protocols import step_values
from jaxmarl_llm.protocols.open_texts import Limits
from jaxmarl_llm.protocols.step_search import Rates, StepSearch
from jaxmarl_llm.protocols.step_values import Place, Values
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems.critics.step_critic import StepCritic
from jaxmarl_llm.tasks.program_text.answers import line_reward
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import dotted, formats
from jaxmarl_llm.utils.errors import UserError

# Files in an output folder of experiments.values: the model's description, and the model.
ABOUT, MODEL = "values.json", "model"


def build(config, task, values: Values | None) -> StepSearch:
    """The protocol; ``values`` from `values_of`."""
    own, (writer, *others) = config.qstar, config.team.agents
    limits = Limits(
        samples=own.samples,
        expansions=own.expansions,
        depth=own.depth,
        tokens=config.sampling.max_new_tokens,
        answers=own.answers,
        weight=own.weight,
        aggregate=own.aggregate,
        strings=of_programs(config),
        stop_when_solved=config.search.stop_when_solved,
    )
    valuer = others[0] if own.value == qstar.ASKED else ""

    def solved(judgement) -> bool:
        return any(task.solved(outcome) for outcome in judgement.outcomes.values())

    stop = tuple(config.sampling.stop)
    return StepSearch(task.prompts, writer, limits, values, rates_of(config), solved, valuer, stop)


def of_programs(config) -> bool:
    """Whether answers are programs; in these no step ends inside a string."""
    return config.task.kind == "generation"


def values_of(config, team: Team) -> Values | None:
    """The value function h of ``qstar.value``; None if an agent estimates it.

    UserError for a folder without a model, or with a model of another base.
    """
    kind = config.qstar.value
    if kind == qstar.ASKED:
        return None
    if kind == qstar.FITTED:
        return fitted(load_critic(config, team))
    if is_dotted(kind):
        return _own(kind, "qstar.value")
    return {
        "none": step_values.nothing,
        "longest": step_values.longest,
        "random": step_values.at_random(config.seed),
    }[kind]


def _own(name: str, field: str) -> Values:
    """Values from the user's function that a field names."""
    return step_values.of_function(dotted.resolve(name, field), f"{field} {name!r}")


def fitted(critic: StepCritic) -> Values:
    """Values from a fitted model."""

    def values(places: Sequence[Place]) -> list[step_values.Valued]:
        given = critic.values([(place.messages, place.text) for place in places])
        return [step_values.Valued(value, tokens) for value, tokens in given]

    return values


def rates_of(config) -> Rates | None:
    """The process rewards of ``qstar.process``; None for "none"."""
    kind = config.qstar.process
    if kind == "none":
        return None
    if kind == "tokens":
        return _line_rewards
    rate = _own(kind, "qstar.process")
    return lambda places, befores: [each.value for each in rate(places)]


def _line_rewards(places: Sequence[Place], befores: Sequence[str]) -> list[float]:
    pairs = zip(places, befores, strict=True)
    return [line_reward(before, place.text[len(before) :]) for place, before in pairs]


def sampling(config, params: SamplingParams) -> SamplingParams:
    """Sampling parameters of the search: the writer samples one line at a time."""
    writer, most = config.team.agents[0], config.qstar.step_tokens
    line = dataclasses.replace(params.of(writer), max_new_tokens=most)
    others = tuple((agent, own) for agent, own in params.agents if agent != writer)
    return dataclasses.replace(params, agents=(*others, (writer, line)))


def build_critic(config, team: Team) -> StepCritic:
    """The initial value model, with adapters on the model of the last agent."""
    own, t = config.qstar, config.team
    optimizer = update.make_optimizer(lr=own.lr, steps=own.rounds * own.updates)
    options = dict(rank=t.rank, alpha=t.alpha, targets=tuple(t.targets))
    return StepCritic(
        team[t.agents[-1]], randomness.stream(config, "critics"), optimizer, rows=own.batch, **options
    )


def check_model(config) -> None:
    """UserError if a config's values are fitted ones and the folder ``qstar.model`` has none."""
    if config.qstar.value == qstar.FITTED and not (pathlib.Path(config.qstar.model) / ABOUT).is_file():
        raise UserError(
            f"qstar.model={config.qstar.model!r}: there is no model of experiments.values in this folder"
        )


def load_critic(config, team: Team) -> StepCritic:
    """The value model in the folder ``qstar.model``."""
    check_model(config)
    folder = pathlib.Path(config.qstar.model)
    own, saved = about(config, team), formats.read(folder / ABOUT)
    saved = {"seed": own.get("seed"), **saved}  # missing in files of earlier versions
    for name, now in own.items():
        if saved.get(name) != now:
            raise UserError(
                f"qstar.model={config.qstar.model!r}: its model has {name} {saved.get(name)!r}, this team {now!r}"
            )
    critic = build_critic(config, team)
    critic.load(folder / MODEL)
    return critic


def about(config, team: Team) -> dict:
    """The settings that a fitted model and the searching team must share; with the seed for a random base."""
    t = config.team
    model = team[t.agents[-1]].model_name
    drawn = {"seed": config.seed} if model in built_models.BUILDERS else {}
    return {"model": model, **drawn, "rank": t.rank, "alpha": t.alpha, "targets": list(t.targets)}


def check(config, team: Team, task) -> None:
    """UserError, before compilation, for a problem whose longest answer does not fit in a prompt."""
    writer, limit = config.team.agents[0], config.sampling.max_prompt_tokens
    for item in task.items:
        length = len(team[writer].tokenizer.encode_chat(task.prompts(item)[writer]))
        if length + config.sampling.max_new_tokens > limit:
            raise UserError(
                f"sampling.max_prompt_tokens={limit}: train.protocol='qstar' goes on from answers of up to "
                f"sampling.max_new_tokens={config.sampling.max_new_tokens} tokens after the {length} of the prompt for "
                f"{item.task_id}; allowed is {length + config.sampling.max_new_tokens} or more"
            )
