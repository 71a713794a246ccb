"""Whether an agent used the results of its partner's function, found by changing these results.

After the tests, some calls of the entry point are repeated, with the partners' replies taken from the record.
If the same replies give the same answer, the replies of a function are changed (all of them, or the first):
if the answer now differs, the caller used them. The caller also used them if it then calls another function
with other arguments, and used the replies of that function. Later calls of the same function prove nothing:
the k-th call gets the k-th reply, whatever its arguments are. An exception of the caller counts only if no
milder change left its answer the same, since an unused lookup in the result can fail too. The source text is
not inspected. "Not used" means that none of the tested changes made a difference; None means that no test was
possible (no call gave the same answer when repeated).
"""

from __future__ import annotations

import functools

from .. import wire
from ..channel.link import Gone
from .agents import MAX_TRACED, Agents, Trace

Function = tuple[str, str]  # the agent that defined it, and its name
_REFUSAL = {"raise": ["RuntimeError", "RuntimeError", "the record ends here"]}


def used(agents: Agents) -> dict[tuple[str, str], bool | None]:
    """{(agent whose function it is, its name): whether the entry point's agent used its results}."""
    was_used: dict[Function, bool | None] = {}
    leads_to: dict[Function, set[Function]] = {}  # functions that were asked something else
    try:
        for trace in agents.traces:
            script = _Script(trace)
            if _opaque(trace) or _ask(agents, trace, script) != trace.reply or not script.followed:
                continue
            for function in {(link.agent, name): None for link, name, _, _ in trace.partners}:
                if not was_used.get(function):
                    was_used[function] = _matters(
                        agents, trace, function, leads_to.setdefault(function, set())
                    )
    except Gone:
        pass  # the process ended while it was asked again: what is found so far stays
    finally:
        agents.script = None
    for _ in was_used:  # a chain of functions is at most as long as there are functions
        for function, others in leads_to.items():
            if any(map(was_used.get, others)):
                was_used[function] = True
    return was_used


def _matters(agents, trace, function: Function, others: set[Function]) -> bool:
    """Whether some change of replies changes the answer; adds functions called otherwise to ``others``."""
    unmoved = False  # a change left the answer as it was
    for change, first_only in _CHANGES:
        script = _Script(trace, change, function, first_only)
        if not script.differs:
            continue
        try:
            reply = _ask(agents, trace, script)
        except Gone:
            if agents.gone.status == "gone":
                return True  # it lived through the record and not through the change
            raise
        if reply != trace.reply and not (unmoved and "raise" in reply and "raise" not in trace.reply):
            return True
        unmoved |= reply == trace.reply
        others |= script.asked_else
    return False


def _ask(agents, trace: Trace, script) -> dict:
    agents.script = script
    return trace.link.ask(trace.request)


class _Script:
    """Answers the entry point's agent from the record, the k-th call of a function with its k-th reply.

    Attributes:
      differs: whether some reply differs from the record.
      asked_else: functions other than the changed one that were called otherwise than in the record.
      followed: whether exactly the recorded questions were asked, so far as they were.
    """

    def __init__(self, trace: Trace, change=None, changed: Function | None = None, first_only: bool = False):
        self.steps: dict[Function, list] = {}
        self.differs, self.asked_else, self.extra = False, set(), 0
        self._changed, self._left, self._same = changed, len(trace.partners), True
        for callee, name, request, reply in trace.partners:
            own = self.steps.setdefault((callee.agent, name), [])
            answer = reply
            if changed == (callee.agent, name) and not (first_only and own):
                answer = change(reply)
                self.differs |= answer != reply
            own.append((request, answer))

    @property
    def followed(self) -> bool:
        """Whether exactly the recorded questions were asked."""
        return self._same and self._left == 0

    def __call__(self, callee, name, request) -> dict:
        function = (callee.agent, name)
        steps = self.steps.get(function)
        if steps:
            expected, answer = steps.pop(0)
            self._left -= 1
            self._note(function, request == expected)
            return answer
        self._note(function, False)
        self.extra += 1
        if self.extra > MAX_TRACED:
            raise callee.gone("gone", "asked on and on")
        return _REFUSAL

    def _note(self, function: Function, same: bool) -> None:
        self._same &= same
        if not same and function != self._changed:
            self.asked_else.add(function)


def _opaque(trace) -> bool:
    """Whether objects that live in a process were passed, which cannot be repeated, or made values, which are
    not changed here."""
    messages = [trace.request, trace.reply, *(x for step in trace.partners for x in step[2:])]
    return len(trace.partners) > MAX_TRACED or any(map(_has_handle, messages))


def _has_handle(data) -> bool:
    if isinstance(data, dict):
        return any(_has_handle(part) for name, part in data.items() if name != "error")
    if type(data) is not list:
        return False
    handle = len(data) == 2 and data[0] in wire.HANDLES and type(data[1]) is int
    made = len(data) == 3 and data[0] == wire.MADE
    return handle or made or any(map(_has_handle, data))


def _revalue(change, reply: dict) -> dict:
    """A reply with its value changed, and without the changes that the call made to its arguments."""
    if "ok" not in reply:
        return reply
    try:
        return {"ok": wire.encode(change(wire.decode(reply["ok"])))}
    except (TypeError, wire.Unsupported):  # of a value that cannot be changed so, such as too deep a list
        return reply


def _exchange(reply: dict) -> dict:
    """An exception in place of None, and None in place of an exception: of functions that check something."""
    if "raise" in reply:
        return {"ok": wire.encode(None)}
    nothing = "ok" in reply and wire.decode(reply["ok"]) is None
    return {"raise": ["ValueError", "ValueError", "changed"]} if nothing else reply


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
            other = "".join(map(_next, value))
            return other if other != value else value + "x"
        case bytes():
            return value + b"x"
        case list() | tuple():
            return type(value)(map(_nudge, value)) if value else type(value)([0])
        case dict():
            return {key: _nudge(item) for key, item in value.items()} or {0: 0}
        case set() | frozenset():
            return type(value)(map(_nudge, value)) if value else type(value)([0])
        case range():
            return range(value.start, value.stop + 1, value.step)
    raise TypeError(f"no value near one of type {type(value).__name__}")


def _next(char: str) -> str:
    """The next digit or letter, in a circle; another character as it is."""
    for first, size in (("0", 10), ("a", 26), ("A", 26)):
        place = ord(char) - ord(first)
        if 0 <= place < size:
            return chr(ord(first) + (place + 1) % size)
    return char


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
            return tuple(map(_replace, value)) or (0,)
        case str() | bytes() | list() | dict() | set() | frozenset():
            return type(value)() if value else _nudge(value)
        case range():
            return range(0)
    raise TypeError(f"no value far from one of type {type(value).__name__}")


def _lift_first(value):
    """The first element of a sequence or dict far larger: some answers stay if all grow alike."""
    return _at(value, 0, 1009)


def _sink_last(value):
    """The last element far smaller."""
    return _at(value, -1, -1009)


def _at(value, place: int, shift: int):
    """A value with a shifted element at a place; in nested values at the same place within that element."""
    match value:
        case bool() | None:
            return _nudge(value)
        case int() | float():
            return value + shift
        case list() | tuple() if value:
            parts = list(value)
            parts[place] = _at(parts[place], place, shift)
            return type(value)(parts)
        case dict() if value:
            key = list(value)[place]
            return {**value, key: _at(value[key], place, shift)}
    return value


def _value(change):
    """The change of a reply that changes its value."""
    return functools.partial(_revalue, change)


# What is tried one after the other, reply -> reply, and whether on the first reply only.
_CHANGES = (
    (_value(_nudge), False), (_value(_nudge), True), (_value(_lift_first), False),
    (_value(_sink_last), False), (_value(_replace), False), (_value(_replace), True), (_exchange, False),
)  # fmt: skip
