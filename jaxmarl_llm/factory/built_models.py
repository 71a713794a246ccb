"""Built-in models with random weights, selected by name; they need no files."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxmarl_llm import tokenizer as tokenizer_lib
from jaxmarl_llm import weights
from jaxmarl_llm.config import advice
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.protocols import discussion
from jaxmarl_llm.protocols.hearing import quoted
from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.centralised import tagged
from jaxmarl_llm.tasks.commits import six
from jaxmarl_llm.tasks.reasoning import guess, riddles
from jaxmarl_llm.tasks.toys import lock, matrix_game, sums
from jaxmarl_llm.tasks.worlds import explore
from jaxmarl_llm.tasks.worlds import load as worlds
from jaxmarl_llm.weights import model_files, random_weights, word_model


def random_model(config, seed: Sequence[int], on_host: bool = False) -> weights.LoadedModel:
    """`random_weights.TINY` with random weights and the default model's tokenizer, for smoke runs."""
    tokenizer = tokenizer_lib.load(model_files.find(model_files.DEFAULT))
    policy = Policy(random_weights.TINY, dtype=jnp.dtype(config.policy.dtype), remat=config.policy.remat)
    params = random_weights.draw(policy, seed)
    return weights.LoadedModel(policy, params if on_host else jax.tree.map(jnp.asarray, params), tokenizer)


def game_model(config, seed: Sequence[int], on_host: bool = False) -> weights.LoadedModel:
    """A tiny policy over the words of the config's toy task.

    The tasks: the matrix game (with ``task.centralised`` one agent answers for all), the lock, riddles,
    `guess` (the policy knows the form of its moves), a world, and the six commits.
    """
    how = dict(compute_dtype=jnp.dtype(config.policy.dtype), remat=config.policy.remat, on_host=on_host)
    if config.task.kind == "reasoning" and sources.parse(config.task.source)[0] == "guess":
        return word_model.build(guess.texts(), guess.habits(word_model.START, word_model.END), seed, **how)
    if config.task.kind == "commits":
        texts, names = [*six.texts(), quoted(dict.fromkeys(config.team.agents, ""))], six.NAMES
        habits = {word_model.START: names, **dict.fromkeys(names, (word_model.END,))}
        return word_model.build(texts, habits, seed, **how)
    if config.task.kind == "world":
        world = worlds.load_world(sources.parse(config.task.source)[0], tuple(config.team.agents))
        texts, actions = explore.vocabulary(world)
        if advice.of(config):
            texts.append(quoted(dict.fromkeys(world.agents, "")))
        habits = {word_model.START: tuple(actions), **dict.fromkeys(actions, (word_model.END,))}
        return word_model.build(texts, habits, seed, whole=actions, **how)
    agents = matrix_game.AGENTS if config.task.centralised else tuple(config.team.agents)
    nothing = dict.fromkeys(agents, "")
    shared = [quoted(nothing), discussion.AGAIN]
    words = {"lock": lock.texts, "reasoning": lambda: [*riddles.texts(agents), *shared]}
    of_games = lambda: [*matrix_game.texts(agents), tagged(nothing), *shared]  # noqa: E731
    return word_model.build(
        words.get(config.task.kind, of_games)(),
        matrix_game.habits(word_model.START, word_model.END, agents if config.task.centralised else ()),
        seed,
        **how,
    )


def code_model(config, seed: Sequence[int], on_host: bool = False) -> weights.LoadedModel:
    """A tiny policy that can write every one-line function of `tasks.toys.sums`."""
    return word_model.build(
        sums.texts(),
        sums.habits(word_model.START, word_model.END),
        seed,
        whole=sums.lines(),
        compute_dtype=jnp.dtype(config.policy.dtype),
        remat=config.policy.remat,
        on_host=on_host,
    )


BUILDERS = {"random-tiny": random_model, "game-tiny": game_model, "code-tiny": code_model}
