"""Configs of short trainings on the game: on demonstrations, and on its rewards."""

from configs import game
from jaxmarl_llm.tasks.toys.matrix_game import AGENTS, WORDS


def words(item):
    """The best joint action of a game in words, as each agent must write it."""
    return {agent: next(w for w in WORDS if item.action(n, w) == 0) for n, agent in enumerate(AGENTS)}


def game_config(**fields):
    config = game.get_config()
    config.update_from_flattened_dict({
        "train.system": "sft", "sft.source": "game_runs:words", "sft.batch": 6, "train.steps": 30,
        "train.lr": 1e-2, "save.every": 2, "eval.samples": 4, "train.prompts_per_microbatch": 6,
    } | fields)  # fmt: skip
    return config


def config_of(**fields):
    config = game.get_config()
    config.update_from_flattened_dict({
        "train.steps": 3, "train.group": 4, "save.every": 1, "eval.samples": 2, "train.lr": 1e-2,
    } | fields)  # fmt: skip
    return config
