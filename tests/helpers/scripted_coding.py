"""A coding problem with right answers, and an executor that follows a script."""

from jaxmarl_llm.executor import Interaction, Report
from jaxmarl_llm.tasks.coding.items import CodingItem

TEST = "def check(candidate):\n    assert candidate(1, 2) == 5\n    assert candidate(0, 0) == 2\n"
ITEM = CodingItem("t/1", 'def add_two(a, b):\n    """Return a + b + 2."""\n', "add_two", TEST, ("a", "b"))
AUX = "def aux(a, b):\n    return a + b"
MAIN = "def add_two(a, b):\n    v = aux(a, b)\n    return v + 2"
USED = (Interaction("main", "aux", "aux", 2, 2, 0, True),)


class Scripted:
    """An executor that gives out prepared reports and remembers what it was asked."""

    def __init__(self, *reports):
        self.reports, self.calls = list(reports), []

    def run(self, programs):
        self.calls.append(list(programs))
        return [self.reports.pop(0) for _ in programs]


def report(verdict, passed, total, *failures, interactions=()):
    return Report(verdict, passed, total, failures, {}, 2, 0.0, 0.0, interactions=interactions)
