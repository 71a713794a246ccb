"""From a config to the models that are fitted besides the agents: critics, reward models, verifiers."""

from jaxmarl_llm import sharding
from jaxmarl_llm.analysis.planning.job import Critics
from jaxmarl_llm.config import agent_settings, critic, maporl, workload
from jaxmarl_llm.config.systems import DIRECT, FROM_PAIRS
from jaxmarl_llm.factory import sampler_calls, sweet, systems
from jaxmarl_llm.sampling.padding import bucket, padded_size
from jaxmarl_llm.systems import verified
from jaxmarl_llm.systems.critics import TEAM, ValueLoss
from jaxmarl_llm.systems.critics.log_ratio import CRITIC
from jaxmarl_llm.systems.preferences import reward_model


def of(config, agents: tuple[str, ...], layout: sharding.Layout) -> tuple[Critics, ...]:
    """The models that a config fits besides the agents of one model, with the most and longest texts."""
    name, made = config.train.system, []
    if critic.used(config):
        made.append(_critics(config, agents, layout))
    if name == "sweet":
        made.append(_of_turns(config))
    elif name in FROM_PAIRS and name not in DIRECT:
        made.append(_of_pairs(config, layout, reward_model.pair_loss, len(agents), "reward model"))
    if maporl.has_verifier(config):
        made.append(_of_pairs(config, layout, verified.label_loss, 1, "verifier"))
    return tuple(made)


def _critics(config, agents: tuple[str, ...], layout: sharding.Layout) -> Critics:
    """The critics of an actor-critic."""
    c, by_token = config.critic, maporl.has_values(config)
    joint, replies = not by_token and systems.recipe(config).joint, by_token or c.form == "q"
    length = config.sampling.max_prompt_tokens + (agent_settings.longest(config) if replies else 0)
    names, calls = agents, sampler_calls.of_training(config, agents, config.train.group)
    calls_by_agent = [[call for call in calls if agent in call.agents] for agent in agents]
    number = max(
        sum(call.prompts * (call.samples if replies else 1) for call in agent_calls)
        for agent_calls in calls_by_agent
    )
    if joint:
        names = (TEAM,)
        number = workload.joint_answers(config) if replies else sum(workload.nodes(config))
        # A joint answer has one completion from each call of a turn.
        length *= sum(map(len, calls_by_agent)) // config.train.turns
    rows = c.prompts_per_microbatch * layout.for_stack(len(names)).shards
    texts, optimizer = padded_size(number, rows, 2 * number), systems.critic_optimizer(config)
    return Critics(names, c.shared, texts, bucket(length), rows, ValueLoss(c.clip), optimizer, by_token)


def _of_pairs(config, layout: sharding.Layout, loss, parts: int, title: str) -> Critics:
    """A model that reads pairs of answers, each of ``parts`` prompts and completions."""
    c = config.preference
    rows = c.pairs_per_microbatch * layout.for_stack(1).shards
    width = bucket(parts * (config.sampling.max_prompt_tokens + agent_settings.longest(config)))
    texts = -(-c.batch // rows) * rows
    fixed = (TEAM,), False, texts, width, rows, loss, systems.reward_optimizer(config)
    return Critics(*fixed, pairs=True, title=title)


def _of_turns(config) -> Critics:
    """The critic of pairs of dialogues; the hidden text is assumed to fit into the prompt length."""
    c, longest = config.preference, agent_settings.longest(config)
    prompt, rows = bucket(config.sampling.max_prompt_tokens), c.pairs_per_microbatch
    texts, turns = -(-c.batch // rows) * rows, ((prompt, longest),) * config.train.turns
    fixed = (CRITIC,), False, texts, prompt + longest, rows, None, sweet.critic_optimizer(config)
    return Critics(*fixed, pairs=True, turns=turns, title="critic of turns")
