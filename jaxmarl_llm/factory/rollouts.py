"""Rollouts of a run: `rollout.run` that stays within Linux's limit on memory maps and frees scarce memory."""

import dataclasses
import functools
from collections.abc import Sequence

from jaxmarl_llm import rollout
from jaxmarl_llm.forest import Forest, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols import Episode, Protocol
from jaxmarl_llm.rollout import overlapping
from jaxmarl_llm.utils import host_memory


@dataclasses.dataclass(frozen=True)
class RoomForPrograms:
    """A protocol that makes room for compiled programs before every step; each prompt width needs one.

    This discards all compiled programs of the process, so only commands use it, no library function.
    """

    protocol: Protocol

    def step(self, state: Episode) -> list[SpeakRequest]:
        """The requests of the wrapped protocol."""
        host_memory.make_room_for_programs()
        host_memory.give_back_if_scarce()
        return self.protocol.step(state)

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """The nodes of the wrapped protocol."""
        return self.protocol.observe(state, turns)


def run(protocol: Protocol, *args, parts: int = 1, **options) -> Forest:
    """`rollout.run` with the protocol in `RoomForPrograms`; for ``parts`` see `overlapping.in_parts`."""
    own = functools.partial(rollout.run, RoomForPrograms(protocol), *args)
    if parts == 1:
        return own(**options)
    cut = {name: options.pop(name) for name in ("item_ids", "key", "timer")}
    return overlapping.in_parts(functools.partial(own, **options), parts, **cut)
