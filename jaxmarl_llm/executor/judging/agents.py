"""All agents of one program, seen from the tests: who defines what, and the calls between them observed.

Each agent's source runs in its own process. A function of another agent is a stub there: its first calls come
to the tests' side, which passes them on to the owner. So this side knows who called whom, how often and with
which outcome, and a candidate's process cannot falsify it. Later calls go from process to process
(`sandbox.lane`), and both sides count them.
"""

from __future__ import annotations

import collections
import dataclasses
import select

from ..channel.conversation import OBSERVED
from ..channel.link import Gone, Link

MAX_TRACES = 12  # calls of the entry point that are kept for `influence`
MAX_TRACED = 100  # calls between agents within one of them
_OUTCOMES = ("calls", "returned", "raised")


@dataclasses.dataclass
class Trace:
    """One call of the entry point and the calls of partners' functions that it led to, as they were sent.

    observe: how many of these shall come over this side at least: one more than are of use.
    """

    link: Link
    request: dict = dataclasses.field(default_factory=dict)
    reply: dict = dataclasses.field(default_factory=dict)
    partners: list = dataclasses.field(default_factory=list)  # (link of the callee, name, request, reply)
    observe: int = MAX_TRACED + 1


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
        self._poller = select.poll()
        for link in self.links.values():
            self._poller.register(link.fd, select.POLLIN)

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
            message |= {"shared": shared, "known": self._introduce(agent, defined)}
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
        names, positions = {}, [*self.links]
        for other, exports in defined.items():
            for name, export in exports.items():
                if name not in known:
                    names[name] = [*export, positions.index(other)] if export == ["call"] else export
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

    def attend_to(self, awaited: Link) -> None:
        """Serve what other agents ask until `awaited` has sent something: they may call each other directly."""
        while len(self.links) > 1:
            ready = {fd for fd, _ in self._poller.poll()}
            others = [link for link in self.links.values() if link.fd in ready and link is not awaited]
            if not others:
                return
            others[0].serve()

    def add_direct_calls(self) -> None:
        """Count the direct calls on which caller and callee report the same number.

        Only an agent with many calls here makes direct calls, and neither of the two alone can add any.
        """
        seen_here: collections.Counter = collections.Counter()
        for (caller, _, _), outcomes in self.counts.items():
            seen_here[caller] += outcomes["calls"]
        if not any(calls >= OBSERVED for calls in seen_here.values()):
            return
        made, served = {}, {}
        for link in self.links.values():
            for other, (made_there, served_there) in self._direct_calls(link).items():
                made |= {(link.agent, other, name): numbers for name, numbers in made_there.items()}
                served |= {(other, link.agent, name): numbers for name, numbers in served_there.items()}
        for call in made.keys() & served.keys():
            caller, callee, name = call
            if self.links[caller].partners.get(name) is self.links[callee]:
                outcomes = self.counts.setdefault(call, collections.Counter())
                for outcome, *numbers in zip(_OUTCOMES, made[call], served[call], strict=True):
                    outcomes[outcome] += min(numbers)

    def _direct_calls(self, link: Link) -> dict:
        """{other agent: ({function: (calls, returned, raised)} made, the same served)}, as one agent says."""
        others, named = [*self.links], {}
        for position, counts in link.load({"do": "calls"}).items():
            try:
                made, served = ({n: _counts(numbers) for n, numbers in side.items()} for side in counts)
                named[others[int(position)]] = made, served
            except (ValueError, TypeError, IndexError, AttributeError):
                raise link.gone("protocol", "malformed counts") from None
        return named

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


def _counts(numbers) -> list[int]:
    if len(numbers) != len(_OUTCOMES) or any(type(n) is not int or n < 0 for n in numbers):
        raise ValueError("no counts")
    return numbers


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
