"""A protocol of the user's own, given by its dotted name in ``train.protocol``.

    class MyProtocol:
        def __init__(self, config, task, samples): ...

A class, or a function that returns a `Protocol`, is called with the whole config, the task with its
``prompts`` and perhaps ``feedback``, and the number of samples. This number is None in training, where it is
``train.group``; in an evaluation it is the number of conversations per item. The object is made once and used
in every iteration; the state of an iteration is in the `Episode` that `step` and `observe` get.
"""

from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.exchange import FIELD, check_combinable
from jaxmarl_llm.protocols.types import Episode, Protocol, item_name
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
    return CustomProtocol(protocol, combined=samples is None and config.train.joint_mode == "cross")


class CustomProtocol:
    """A protocol of the user's own: UserCodeError if it raises, UserError if it ends without an answer to an item.

    ``combined``: samples of the agents are judged in all combinations, which is refused, with UserError, where
    an agent reads one sample of another.
    """

    def __init__(self, protocol: Protocol, combined: bool = False):
        self._protocol, self._combined = protocol, combined

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # isinstance sees the user's class
        return type(self._protocol)

    def step(self, state: Episode) -> list[SpeakRequest]:
        """The protocol's own requests."""
        requests = self._call("step", state)
        if state.turns and requests == []:
            judged = {joint.item for joint in state.joints}
            left = [item_name(item) for i, item in enumerate(state.items) if i not in judged]
            if left:
                wanted = "observe gives its nodes"
                raise UserError(f"{FIELD}: it ended without a joint answer to {left[0]}; {wanted}")
        return requests

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """The protocol's own nodes."""
        nodes = self._call("observe", state, turns)
        if self._combined and isinstance(nodes, list):
            check_combinable(nodes, state)
        return nodes

    def _call(self, method: str, state: Episode, *more: Any) -> Any:
        """The result of a method, as a list where it is one: a generator has run to its end, and may have raised."""
        try:
            given = getattr(self._protocol, method)(state, *more)
            values = dotted.listed(given)
            return given if values is None else values
        except UserError:
            raise
        except dotted.RAISED as error:
            if not dotted.raised_by_user(error):  # a bug of this package keeps its traceback
                raise
            number = state.turns[-1].step + 1 if state.turns else 0
            names = ", ".join(dict.fromkeys(map(item_name, state.items)))
            where = f"{FIELD}: {method} raised after {number} steps about {names}"
            raise dotted.UserCodeError(f"{where} ({dotted.reason(error)})") from error
