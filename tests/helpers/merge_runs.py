"""Runs to merge: of a tiny random model that answers sums, with adapters or whole weights that nobody trained."""

import json

import jax
import numpy as np

from configs import reasoning
from jaxmarl_llm import update
from jaxmarl_llm.checkpoint import Checkpointer
from jaxmarl_llm.factory import teams, training

SMALL = {
    "sampling.max_new_tokens": 4, "eval.samples": 2, "sampling.max_prompt_tokens": 64, "log.report": False,
    "task.source": "sums[::40]", "task.eval_source": "sums[::12]", "task.test_source": "sums[::12]",
    "team.rank": 2, "team.alpha": 4.0, "eval.vote": "", "eval.problems": 4,
}  # fmt: skip


def config_of(**fields):
    """The config of a run: one agent, or as the fields say."""
    config = reasoning.get_config("solo,smoke")
    config.update_from_flattened_dict(SMALL | fields)
    return config


def make_run(folder, numbers: int, size: float = 0.3, **fields):
    """A finished run's config and checkpoints, its agents' weights random around where they began; its team.

    What is random follows from ``numbers``.
    """
    config = config_of(**fields)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    team = teams.build_team(config)
    random = np.random.default_rng(numbers)
    states = {}
    for i, member in enumerate(team.members):
        moved = jax.tree.map(
            lambda x: (x + size * random.standard_normal(x.shape)).astype(x.dtype), jax.device_get(member.trainable)
        )
        member.trainable = jax.tree.map(jax.numpy.asarray, moved)
        states[i] = update.init_state(member.trainable, training.build_optimizer(config))
    with Checkpointer(folder / "checkpoints") as saver:
        saver.save(3, states, team, {})
        saver.save_best(2, states, team, {})
    return team
