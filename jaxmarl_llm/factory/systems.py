"""Build the system of a config: how rewards become each agent's learning signal."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import jax

from jaxmarl_llm import update
from jaxmarl_llm.config import critic, experience, imitation, router, workload
from jaxmarl_llm.config import maporl as maporl_fields
from jaxmarl_llm.config.systems import DIRECT, FROM_PAIRS, SFT
from jaxmarl_llm.factory import protocols, randomness, sweet, training
from jaxmarl_llm.protocols.routed import question_of
from jaxmarl_llm.systems import (
    actor_critic,
    at_grpo,
    c3,
    ccpo,
    centralised,
    critics,
    custom,
    der,
    dpo,
    dr_mas,
    lessonl,
    madpo,
    magrpo,
    malt,
    maporl,
    mareinforce,
    maremax,
    marlhf,
    marloo,
    mlpo,
    mutual,
    sft,
    token_ppo,
    verified,
)
from jaxmarl_llm.systems.critics import Critics
from jaxmarl_llm.systems.critics.shared_heads import Heads
from jaxmarl_llm.systems.experience import WithExperience
from jaxmarl_llm.systems.preferences import Pool, pairs_of, siblings, turn_scores
from jaxmarl_llm.systems.preferences.labelled import Labelled
from jaxmarl_llm.systems.preferences.reward_model import RewardModel
from jaxmarl_llm.systems.types import FromForest, System
from jaxmarl_llm.systems.verified import Together, Verified
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils.errors import UserError

# Systems that compute the credit from the forest alone.
FROM_FOREST = {
    "magrpo": magrpo.assign,
    "mareinforce": mareinforce.assign,
    "marloo": marloo.assign,
    "maremax": maremax.assign,
    "centralised": centralised.assign,
    "dr_mas": dr_mas.assign,
    "at_grpo": at_grpo.assign,
    "mlpo": mlpo.assign,
    "c3": c3.assign,
    "ccpo": ccpo.assign,
    "lessonl": lessonl.assign,
    "mutual": mutual.assign,
}


def build(
    config,
    team: Team,
    trainables: Callable[[], list],
    demonstrations: Sequence = (),
    task: Task | None = None,
) -> System:
    """The system of ``train.system``, with the models that it trains beside the agents.

    ``trainables`` returns the agents' current parameters, by position in the team; ``demonstrations`` are
    the data of train.system=sft; ``task`` supplies the hidden texts for the critic of train.system=sweet
    (None: no texts) and the initial programs of train.protocol=experience.
    """
    name, collect = config.train.system, workload.collecting(config)
    if experience.remembers(config):
        return WithExperience(protocols.memory(config, task), from_forest(config))
    if protocols.remembers(config):
        return lessonl.LessonLWithMemory(protocols.memory(config, task), credit_config(config))
    if protocols.keeps_peers(config):
        return mlpo.KeptPeers(protocols.peer_answers(config), credit_config(config))
    if name == SFT and imitation.on_rollouts(config):
        return sft.OnRollouts(demonstrations)
    if name == SFT:
        seed = (config.seed, randomness.STREAMS.index("demonstrations"))
        multiple = config.train.minibatches * config.train.prompts_per_microbatch
        return sft.Sft(sft.DemonstrationOrder(demonstrations, config.sft.batch, seed, multiple))
    if name == router.SYSTEM:
        return build_der(config, team, task)
    if name == maporl_fields.NAME:
        return build_maporl(config, team, trainables)
    if (assign := from_forest(config)) is not None:
        return FromForest(assign)
    if name == "sweet":
        return sweet.build(config, team, trainables, task)
    if name in DIRECT:
        c, sampling = config.preference, training.sampling_params(config)

        def scores(forest, reference: bool):
            return turn_scores.of_forest(forest, team, trainables(), sampling, reference=reference)

        if name == "malt":
            return build_malt(config, scores, collect)
        if name == "dpo":
            pool = build_pool(config, siblings.pairs_of)
            agents = tuple(config.team.agents)
            return dpo.Dpo(pool, agents, scores, c.batch, collect, c.beta, c.reference, c.nll)
        return madpo.Madpo(build_pool(config), scores, c.batch, c.beta, c.reference, collect)
    if name in FROM_PAIRS:
        return marlhf.Marlhf(build_reward_model(config, team), credit_config(config), collect)
    how, credit = recipe(config), credit_config(config)
    if config.critic.shared:
        heads = build_heads(config, team, trainables)
        return actor_critic.SharedActorCritic(how, heads, credit, coef=config.critic.coef)
    return actor_critic.ActorCritic(how, build_critics(config, team), credit, config.critic.warmup)


def own_states(config, team: Team, trainables: Sequence) -> Mapping[int, update.TrainState]:
    """Shapes of the states that ``train.system`` trains beside the agents; nothing is allocated.

    They are by position in the team, {} if only the agents learn; ``trainables``: the agents' parameters.
    """
    name = config.train.system
    if name == "sweet":
        return jax.eval_shape(lambda: sweet.build_critic(config, team).states)
    if name in FROM_PAIRS and name not in DIRECT:
        return jax.eval_shape(lambda: build_reward_critics(config, team).states)
    if maporl_fields.has_verifier(config):
        return jax.eval_shape(lambda: build_maporl(config, team, lambda: trainables).models.states)
    if not critic.used(config):
        return {}
    if config.critic.shared:
        return jax.eval_shape(lambda: build_heads(config, team, lambda: trainables).states)
    return jax.eval_shape(lambda: build_critics(config, team).states)


def from_forest(config):
    """The function forest -> `Credit`; None for a system that trains models of its own.

    ValueError if a dotted name does not resolve.
    """
    name = config.train.system
    if (
        critic.used(config)
        or name in FROM_PAIRS
        or name in (SFT, router.SYSTEM)
        or maporl_fields.has_verifier(config)
    ):
        return None
    if name == "maporl":
        return influence(config)
    assign = FROM_FOREST[name] if name in FROM_FOREST else custom.resolve(name)
    return functools.partial(assign, config=credit_config(config))


def influence(config) -> Callable:
    """MAPoRL's credit without value models."""
    fields = [field.name for field in dataclasses.fields(maporl.Influence)]
    options = maporl.Influence(**{name: config.maporl[name] for name in fields})
    return functools.partial(maporl.assign, config=credit_config(config), influence=options)


def credit_config(config) -> magrpo.CreditConfig:
    """The options that turn returns into advantages."""
    c = config.train
    return magrpo.CreditConfig(
        baseline=c.baseline,
        normalise=c.normalise,
        normalise_by=c.normalise_by,
        discount=c.discount,
        backup=c.backup,
        reduce=c.reduce,
        turn_weights=tuple(c.turn_weights),
        chain=c.hand_on != "all",
        local_weight=c.local_weight,
        turns=c.turns,
        turn_loss=c.turn_loss,
        group_by=c.group_by,
    )


def recipe(config) -> actor_critic.Recipe:
    """The critics' input for ``train.system``, and the settings that follow from it."""
    return actor_critic.RECIPES[config.train.system, config.critic.form]


def build_critics(config, team: Team) -> Critics:
    """The critics of ``train.system``, or the value models of the local agents."""
    c, t, by_token = config.critic, config.team, maporl_fields.has_values(config)
    joint = not by_token and recipe(config).joint
    if by_token:
        team = Team(tuple(member for member in team.members if not member.remote))
    options = dict(joint=joint, rank=t.rank, targets=tuple(t.targets))
    own = critics.build(team, randomness.stream(config, "critics"), **options)
    sizes = dict(updates=c.updates, rows=c.prompts_per_microbatch)
    return Critics(own, critic_optimizer(config), clip=c.clip, by_token=by_token, **sizes)


def build_der(config, team: Team, task: Task) -> der.Der:
    """A router and its credit. UserError if no router would learn."""
    if not router.learns(config):
        raise UserError(f"router.kind={config.router.kind!r}: nothing learns, use experiments.evaluate")
    question = functools.partial(question_of, task.prompts)
    own = config.router
    made = protocols.build_router(config, team), question, config.train.turns
    return der.Der(*made, discount=own.discount, lam=own.gae_lambda)


def build_maporl(config, team: Team, trainables: Callable[[], list]) -> System:
    """MAPoRL, with value models, a verifier, both, or neither."""
    if maporl_fields.has_values(config):
        system = build_token_ppo(config, team, trainables)
    else:
        system = FromForest(influence(config))
    if not config.maporl.verifier:
        return system
    verifier = build_verifier(config, team)
    models = Together(verifier, system.models) if system.models else verifier
    return Verified(system, verifier, models, config.preference.collect)


def build_token_ppo(config, team: Team, trainables: Callable[[], list]) -> token_ppo.TokenPpo:
    """MAPoRL with value models."""
    c, sampling = config.maporl, training.sampling_params(config)

    def reference(forest):
        return turn_scores.of_forest(forest, team, trainables(), sampling, reference=True)

    # Each turn counts as a separate problem.
    own = dataclasses.replace(credit_config(config), turn_loss="mean")
    fixed = influence(config), build_critics(config, team), own
    options = dict(lam=c.gae_lambda, kl=c.kl_reward, reference=reference, warmup=config.critic.warmup)
    return token_ppo.TokenPpo(*fixed, **options)


def build_heads(config, team: Team, trainables: Callable[[], Sequence]) -> Heads:
    """Value heads on the agents' own models."""
    c, key = config.critic, randomness.stream(config, "critics")
    optimizer = critic_optimizer(config)
    return Heads(team, key, trainables, optimizer, clip=c.clip, rows=c.prompts_per_microbatch)


def critic_optimizer(config):
    """The optimizer of one critic or head."""
    return update.make_optimizer(lr=config.critic.lr, steps=config.train.steps * config.critic.updates)


def build_malt(config, scores, collect: int) -> malt.Malt:
    """MALT's stages; ``scores``: see `dpo.Dpo`."""
    c, multiple = config.preference, config.train.prompts_per_microbatch
    seeds = [(config.seed, randomness.STREAMS.index(name)) for name in ("preferences", "demonstrations")]
    options = dict(most=c.pairs, selection=c.selection, begins_at=collect + config.malt.sft_steps)
    labelled = Labelled(seeds[0], config.team.agents[1:], config.malt.threshold, **options)

    def order(rows):
        return sft.DemonstrationOrder(rows, 2 * c.batch, seeds[1], multiple)

    return malt.Malt(labelled, scores, order, c.batch, collect, config.malt.sft_steps, c.beta, c.nll)


def build_pool(config, find: Callable = pairs_of) -> Pool:
    """An empty pool of preference pairs for ``train.system``; ``find``: see `Pool`."""
    c = config.preference
    options = dict(most=c.pairs, selection=c.selection, replay=c.replay, last=c.nearest, decay=c.decay)
    return Pool((config.seed, randomness.STREAMS.index("preferences")), find, **options)


def build_reward_model(config, team: Team, find: Callable = pairs_of, **options) -> RewardModel:
    """The reward model of ``train.system``, with its pairs; ``find``: see `Pool`, options: `RewardModel`."""
    c, optimizer = config.preference, reward_optimizer(config)
    sizes = dict(batch=c.batch, updates=c.model_updates, rows=c.pairs_per_microbatch)
    return RewardModel(
        build_reward_critics(config, team), optimizer, build_pool(config, find), **sizes, **options
    )


def build_verifier(config, team: Team) -> RewardModel:
    """The verifier of MAPoRL, with its pool of pairs."""
    return build_reward_model(
        config, team, verified.pairs_of, loss=verified.label_loss, metric="maporl/verifier_loss"
    )


def build_reward_critics(config, team: Team) -> Critics:
    """The networks of the reward model, which read joint answers."""
    c, t = config.preference, config.team
    options = dict(joint=True, rank=t.rank, targets=tuple(t.targets))
    own = critics.build(team, randomness.stream(config, "preferences"), **options)
    return Critics(own, reward_optimizer(config), rows=c.pairs_per_microbatch)


def reward_optimizer(config):
    """The optimizer of the reward model; every fit starts with a fresh state."""
    c = config.preference
    return update.make_optimizer(lr=c.model_lr, steps=c.model_updates)
