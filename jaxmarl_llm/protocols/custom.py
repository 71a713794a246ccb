"""A protocol of the user's own, found by the dotted name in ``train.protocol``.

    class MyProtocol:
        def __init__(self, config, task, samples): ...

A class, or a function that returns a `Protocol`, is called with the whole config, the task with its
``prompts`` and perhaps ``feedback``, and the number of samples: None in training, where ``train.group`` says
it, else the conversations that an evaluation holds about each item. Its object is made once and serves every
iteration: what it must remember of one is in the `Episode` that `step` and `observe` are given.
"""

from jaxmarl_llm.protocols.types import Protocol
from jaxmarl_llm.utils import dotted

FIELD = "train.protocol"


def resolve(name: str):
    """The class or function that ``train.protocol`` names; ValueError if there is none."""
    return dotted.resolve(name, FIELD)


def build(name: str, config, task, samples: int | None) -> Protocol:
    """The protocol at a dotted name; ValueError names it and what is wrong with it."""
    made = resolve(name)
    try:
        protocol = made(config, task, samples)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        said = f"{FIELD} {name!r} raised when called with config, task, samples ({reason})"
        raise ValueError(said) from error
    missing = [part for part in ("step", "observe") if not callable(getattr(protocol, part, None))]
    if missing:
        raise ValueError(f"{FIELD} {name!r} gave a {type(protocol).__name__} without {', '.join(missing)}")
    return protocol
