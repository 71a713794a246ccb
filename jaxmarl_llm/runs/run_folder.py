"""Run folders: the config of one, and the name of a new one."""

import math
import pathlib
import time

from ml_collections import config_dict

from jaxmarl_llm.config import base_config, saved, validate
from jaxmarl_llm.utils.errors import UserError


def load_run(workdir) -> config_dict.ConfigDict:
    """The config of a run folder, or of an exported team; ValueError if there is none, or one that this version
    cannot use.

    Its mesh is that of the run if there are as many devices here, else one device.
    """
    import jax  # here: a command that trains needs a name, `new_workdir`, before it needs JAX

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
    """A fresh folder name under runs/."""
    return str(pathlib.Path("runs") / time.strftime("%Y%m%d-%H%M%S"))
