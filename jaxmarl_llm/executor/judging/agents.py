"""All agents of one program, seen from the tests: who defines what, and every call between them observed.

Each agent's source runs in a process of its own. A function that another agent defined is a stub there: its
calls come to the tests' side, which passes them on to the owner. So who called whom, how often and with which
outcome is known here, and nothing that a candidate's process does to itself changes it.
"""

from __future__ import annotations

import collections
import dataclasses

from ..channel.link import Gone, Link

MAX_TRACES = 12  # calls of the entry point that are kept for `influence`
MAX_TRACED = 100  # calls between agents within one of them


@dataclasses.dataclass
class Trace:
    """One call of the entry point and the calls of partners' functions that it led to, as they were sent."""

    link: Link
    request: dict = dataclasses.field(default_factory=dict)
    reply: dict = dataclasses.field(default_factory=dict)
    partners: list = dataclasses.field(default_factory=list)  # (link of the callee, name, request, reply)


class Agents:
    """Links to the agents' processes, by agent, in the order of the sources."""

    def __init__(self, channels: dict[str, int], entry_point: str):
        self.links = {agent: Link(fd, agent, self) for agent, fd in channels.items()}
        self.entry_point = entry_point
        self.entry: Link | None = None
        self.calls = 0  # of the entry point, by the tests
        self.counts: dict[tuple[str, str, str], collections.Counter] = {}
        self.traces: list[Trace] = []
        self.script = None  # see `influence`: answers in place of the partners'
        self.gone: Gone | None = None
        self.classes = None  # the prelude's, `values.Classes`
        self.unhandled: Exception | None = None  # a StopIteration of a candidate's that no `except` has seen
        self._trace: Trace | None = None
        self._last: tuple = (None, "")

    def load(self, sources: dict[str, str], prelude: str, stdio: bool, shared=None) -> None:
        """Load every agent's source, each knowing what those before it define; Gone("load-error") if not.

        The entry point is the last definition of that name, or with `stdio` the last source as a script.
        Names that only later agents define are made known to the earlier ones at the end. Of all names only
        those in ``shared`` are made known, None: all.
        """
        *_, last = sources
        defined: dict[str, dict] = {}
        for agent, text in sources.items():
            message = {"do": "load", "agent": agent, "text": text, "prelude": prelude}
            message |= {"entry_point": self.entry_point, "script": stdio and agent == last}
            message["called"] = [self.entry_point, *(shared or ())]
            message["known"] = self._introduce(agent, defined)
            exports = _checked(self.links[agent], self.links[agent].load(message))
            defined[agent] = {n: export for n, export in exports.items() if shared is None or n in shared}
            if message["script"] or exports.get(self.entry_point) == ["call"]:
                self.entry = self.links[agent]
        for agent in sources:
            link = self.links[agent]
            known = set(link.partners) | set(defined[agent])
            later = {other: names for other, names in defined.items() if other != agent}
            if new := self._introduce(agent, later, known):
                link.load({"do": "meet", "known": new})
        if self.entry is None:
            raise self.links[last].gone("load-error", f"no function {self.entry_point!r} is defined")

    def _introduce(self, agent, defined, known=()) -> dict:
        """{name: what it is} of what others define; its calls will go to them."""
        names = {}
        for other, exports in defined.items():
            for name, export in exports.items():
                if name not in known:
                    names[name] = export
                    self.links[agent].partners[name] = self.links[other]
        return names

    def call(self, args, kwargs):
        """The tests call the entry point."""
        self.calls += 1
        trace = None
        if len(self.links) > 1 and len(self.traces) < MAX_TRACES and self._trace is None:
            trace = self._trace = Trace(self.entry)
        try:
            return self.entry.use(self.entry_point, "call", args, kwargs, trace)
        finally:
            if trace is not None:
                self._trace = None
                if trace.partners and trace.reply:
                    self.traces.append(trace)

    def between(self, caller: Link, callee: Link, name: str, request, answer) -> dict:
        """One agent calls another one's function; `answer()` passes the call on and gives the reply."""
        if self.script is not None:
            return self.script(callee, name, request)
        outcomes = self.counts.setdefault((caller.agent, callee.agent, name), collections.Counter())
        outcomes["calls"] += 1
        reply = answer()
        outcomes["returned" if "ok" in reply else "raised" if "raise" in reply else "unsupported"] += 1
        trace = self._trace
        if trace is not None and caller is trace.link and caller.nesting == 1:
            trace.partners.append((callee, name, request, reply))
        return reply

    # What the tests' side keeps track of for its links.

    def check_alive(self) -> None:
        """Raise the Gone of an earlier call again, which a bare `except` in the tests may have caught."""
        if self.gone:
            raise self.gone

    def handled(self, error: BaseException | None) -> None:
        """An `except` of the tests runs, for this exception."""
        while error is not None and error is not self.unhandled:
            error = error.__cause__ or error.__context__
        if error is not None:
            self.unhandled = None

    def remember(self, error: Exception, kind: str) -> Exception:
        """Note the verdict that an exception of a candidate's would give, and hand it back."""
        self._last = (error, kind)
        return error

    def kind_of(self, error: Exception) -> str:
        """Verdict for an exception in check(): the candidate's own, or a wrong answer."""
        raised, kind = self._last
        return kind if error is raised else "fail"


def _checked(link: Link, defined) -> dict:
    """{name: ["call"], ["value", data] or ["import", module, attribute]}, checked."""
    for name, export in defined.items():
        match export:
            case ["call"] | ["value", _]:
                continue
            case ["import", str(), str()]:
                continue
        raise link.gone("protocol", f"malformed definition of {name!r:.50}")
    return defined
