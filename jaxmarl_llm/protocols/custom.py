"""A protocol of the user's own, given by its dotted name in ``train.protocol``.

    class MyProtocol:
        def __init__(self, config, task, samples): ...

A class, or a function that returns a `Protocol`, is called with the whole config, the task with its
``prompts`` and perhaps ``feedback``, and the number of samples. This number is None in training, where it is
``train.group``; in an evaluation it is the number of conversations per item. The object is made once and used
in every iteration; the state of an iteration is in the `Episode` that `step` and `observe` get.
"""

from jaxmarl_llm.protocols.exchange import FIELD
from jaxmarl_llm.protocols.types import Protocol
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError


def resolve(name: str):
    """The class or function that ``train.protocol`` names; ValueError if there is none."""
    return dotted.resolve(name, FIELD)


def build(name: str, config, task, samples: int | None) -> Protocol:
    """Build the protocol at a dotted name; ValueError gives the name and the fault."""
    factory = resolve(name)
    try:
        protocol = factory(config, task, samples)
    except dotted.RAISED as error:
        reason = f"{type(error).__name__}: {error}"
        message = f"{FIELD} {name!r} raised when called with config, task, samples ({reason})"
        raise dotted.UserCodeRefused(message) from error
    missing = [part for part in ("step", "observe") if not callable(getattr(protocol, part, None))]
    if missing:
        raise UserError(f"{FIELD} {name!r} gave a {type(protocol).__name__} without {', '.join(missing)}")
    return protocol
