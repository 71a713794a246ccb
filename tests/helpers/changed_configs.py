"""Configs for tests: the default one with some fields changed, checked."""

from collections.abc import Callable, Mapping

from jaxmarl_llm.config import base_config, validate


def changed(good: Mapping) -> Callable:
    """A function that changes ``good`` fields of the default config, then those that it is given, and checks it."""

    def config(fields=()):
        made = base_config()
        made.update_from_flattened_dict(dict(good) | dict(fields))
        validate(made)
        return made

    return config
