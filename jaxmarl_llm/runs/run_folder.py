"""Run folders: read their configs, and name new ones."""

import math
import pathlib
import time

from ml_collections import config_dict

from jaxmarl_llm.config import base_config, saved, validate
from jaxmarl_llm.utils.errors import UserError


def load_run(workdir) -> config_dict.ConfigDict:
    """The config of a run folder or an exported team.

    Its mesh is that of the run if this machine has as many devices, else one device. ValueError if the config
    is missing or this version cannot use it.
    """
    import jax  # local import: a training needs `new_workdir` before JAX

    from jaxmarl_llm import saved_agents, sharding

    path = pathlib.Path(workdir) / "config.json"
    if saved_agents.is_team(workdir):
        path = path.with_name(saved_agents.TEAM_FILE)
        config = saved.as_config(saved.upgraded(saved_agents.read_team(workdir).get("config", {}), path))
    elif not path.is_file():
        raise UserError(f"{path.parent} holds no run: config.json is missing")
    else:
        saved.no_longer_in(path.parent)
        config = saved.as_config(saved.read(path))
    validate(config, str(path))
    if math.prod(config.mesh[axis] for axis in sharding.AXES) != jax.device_count():
        config.mesh = base_config().mesh
    return config


def new_workdir() -> str:
    """A new folder name under runs/."""
    return str(pathlib.Path("runs") / time.strftime("%Y%m%d-%H%M%S"))
