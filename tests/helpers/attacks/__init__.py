"""Hostile programs as data, by what they are after. None may ever pass; see `record.Attack`.

forge, lies, patches, channel: a verdict, by exits and exceptions, by values, by patched runtimes and odd
texts, and by writing to the channel itself. partner: credit, by abusing the other agent. denial, memory: time
and memory. escape: files, processes and network. kernel: the same by system calls. state: the next program.
"""

from . import channel, denial, escape, forge, kernel, lies, memory, partner, patches, state
from .record import Attack

ATTACKS: tuple[Attack, ...] = (
    *forge.ATTACKS,
    *lies.ATTACKS,
    *patches.ATTACKS,
    *channel.ATTACKS,
    *partner.ATTACKS,
    *denial.ATTACKS,
    *memory.ATTACKS,
    *escape.ATTACKS,
    *kernel.ATTACKS,
    *state.ATTACKS,
)

__all__ = ["ATTACKS", "Attack"]
