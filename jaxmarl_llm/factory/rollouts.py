"""Rollouts of a run: `rollout.run` that takes no more memory maps than Linux allows, and leaves memory to others."""

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
    """A protocol that makes room for compiled programs before every step: every width of prompts is one.

    This forgets everything that the process has compiled, so only a command does it, no library function.
    """

    protocol: Protocol

    def step(self, state: Episode) -> list[SpeakRequest]:
        """The protocol's own requests."""
        host_memory.make_room_for_programs()
        host_memory.give_back_if_scarce()
        return self.protocol.step(state)

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """The protocol's own nodes."""
        return self.protocol.observe(state, turns)


def run(protocol: Protocol, *args, parts: int = 1, **options) -> Forest:
    """`rollout.run` of the protocol `RoomForPrograms`; in several ``parts`` see `overlapping.in_parts`."""
    own = functools.partial(rollout.run, RoomForPrograms(protocol), *args)
    if parts == 1:
        return own(**options)
    cut = {name: options.pop(name) for name in ("item_ids", "key", "timer")}
    return overlapping.in_parts(functools.partial(own, **options), parts, **cut)
