"""Whether an agent used what its partner's function gave it: seen by giving it something else.

After the tests are through, some calls of the entry point are asked once more, with the partners' replies
answered from the record. If the same replies give the same answer, a reply is changed: where the answer, or
what is asked of the partners, now differs, the caller used it. No text is looked at. "Not used" means that no
change tried made a difference; None that it could not be tried (no call whose repetition is stable).
"""

from __future__ import annotations

from .. import wire
from ..channel.link import Gone
from .agents import MAX_TRACED, Agents, Trace

_REFUSAL = {"raise": ["RuntimeError", "RuntimeError", "the record ends here"]}


def used(agents: Agents) -> dict[tuple[str, str], bool | None]:
    """{(agent whose function it is, its name): whether the entry point's agent used its results}."""
    found: dict[tuple[str, str], bool | None] = {}
    try:
        for trace in agents.traces:
            if _opaque(trace) or not _same(agents, trace, _Script(trace)):
                continue
            for callee, name in {(link.agent, name): None for link, name, _, _ in trace.partners}:
                if not found.get((callee, name)):
                    found[callee, name] = _matters(agents, trace, callee, name)
    except Gone:
        pass  # the process ended while it was asked again: what is found so far stays
    finally:
        agents.script = None
    return found


def _matters(agents, trace, callee, name) -> bool:
    """Whether some change of this function's replies changes what happens."""
    for change in _CHANGES:
        script = _Script(trace, change, (callee, name))
        try:
            if script.differs and not _same(agents, trace, script):
                return True
        except Gone:
            if agents.gone.status == "gone":
                return True  # it lived through the record and not through the change
            raise
    return False


def _same(agents, trace: Trace, script) -> bool:
    agents.script = script
    return trace.link.ask(trace.request) == trace.reply and script.followed


class _Script:
    """Answers the entry point's agent from the record."""

    def __init__(self, trace: Trace, change=None, which=None):
        self.asked, self.deviated, self.extra = 0, False, 0
        self.steps, self.differs = [], False
        for callee, name, request, reply in trace.partners:
            answer = reply
            if which == (callee.agent, name):
                answer = _changed(reply, change)
                self.differs |= answer != reply
            self.steps.append((callee, name, request, answer))

    @property
    def followed(self) -> bool:
        """Whether exactly the recorded questions were asked."""
        return not self.deviated and self.asked == len(self.steps)

    def __call__(self, callee, name, request) -> dict:
        if not self.deviated and self.asked < len(self.steps):
            expected, expected_name, expected_request, answer = self.steps[self.asked]
            if (callee, name, request) == (expected, expected_name, expected_request):
                self.asked += 1
                return answer
        self.deviated, self.extra = True, self.extra + 1
        if self.extra > MAX_TRACED:
            raise callee.gone("gone", "asked on and on")
        return _REFUSAL


def _opaque(trace) -> bool:
    """Whether objects that live in a process were passed: those cannot be repeated."""
    said = [trace.request, trace.reply, *(x for step in trace.partners for x in step[2:])]
    return len(trace.partners) > MAX_TRACED or any(map(_has_handle, said))


def _has_handle(data) -> bool:
    if type(data) is dict:
        return any(map(_has_handle, data.values()))
    if type(data) is not list:
        return False
    handle = len(data) == 2 and data[0] in wire.HANDLES and type(data[1]) is int
    return handle or any(map(_has_handle, data))


def _changed(reply: dict, change) -> dict:
    """A reply with another value, and without the changes that the call made to its arguments."""
    if "ok" not in reply:
        return reply
    return {"ok": wire.encode(change(wire.decode(reply["ok"])))}


def _nudge(value):
    """A value of the same type and size, near the old one."""
    match value:
        case None:
            return None
        case bool():
            return not value
        case int() | float() | complex():
            return value + 1
        case str():
            return value + "x"
        case bytes():
            return value + b"x"
        case list() | tuple():
            return type(value)(map(_nudge, value)) or [0]
        case dict():
            return {key: _nudge(item) for key, item in value.items()} or {0: 0}
        case set() | frozenset():
            return type(value)(map(_nudge, value)) or {0}
    return range(value.start, value.stop + 1, value.step)


def _replace(value):
    """A value of the same type, far from the old one."""
    match value:
        case None:
            return 0
        case bool():
            return not value
        case int() | float() | complex():
            return -value - 7
        case tuple():
            return tuple(map(_replace, value))
        case str() | bytes() | list() | dict() | set() | frozenset():
            return type(value)() if value else _nudge(value)
    return range(0)


_CHANGES = (_nudge, _replace)
