"""Every row of the reward table, with totals worked out by hand."""

import pytest

from jaxmarl_llm.executor import Interaction, Report
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.reward import compose, cooperation, finish, normalise, reward_range

ITEM = CodingItem(
    task_id="t/1", prompt="import math\ndef f(x):\n    ...\n", entry_point="f", params=("x",),
    prelude="import math", test="def check(candidate):\n    assert candidate(1) == 2\n",
)
AUX = "def aux(x):\n    return x + 1"
AUX_SILENT = "def aux(x):\n    print(x)"
AUX_BROKEN = "def aux(x:\n    return x"
USES = "def f(x):\n    v = aux(x)\n    return v + 1"
WRAPS = "def f(x):\n    return aux(x)"
ALONE = "def f(x):\n    return x + 2"
IGNORES = "def f(x):\n    aux(x)\n    return x + 2"
IGNORES_WIDE = "def f(x):\n    aux (x)\n    return x + 2"
SILENT = "def f(x):\n    print(x)"
BROKEN = "def f(x:\n    return x"


def report(passed, total=4, verdict="fail"):
    return Report(verdict, passed, total, (), {}, 2, 0.0, 0.0)


def total(aux, main, passed=0, of=4, **kwargs):
    """By the paper's rules."""
    draft = compose(ITEM, {"aux": aux, "main": main}, parsing="paper")
    seen = None if draft.program is None else report(passed, of)
    return finish(draft, seen, rule="paper", **kwargs)["total"]


@pytest.mark.parametrize("aux, main, passed, expected", [
    # structure: 0.4 for aux, 0.6 for main; without main everything stops
    ("", "", 4, 0.0),
    (AUX, "", 4, 0.4),
    (AUX_SILENT, SILENT, 4, 0.0),
    (AUX, SILENT, 4, 0.4),
    # syntax: +0.5, or stop
    ("", ALONE, 0, 0.6 + 0.5),
    (AUX, ALONE, 0, 1.0 + 0.5),
    ("", BROKEN, 4, 0.6),
    (AUX, BROKEN, 4, 1.0),
    (AUX_BROKEN, ALONE, 4, 1.0),  # aux has a return, so it counts, and then stops the whole
    (AUX_SILENT, ALONE, 0, 0.6 + 0.5),  # aux without return is left out
    # tests: passed / total
    ("", ALONE, 1, 0.6 + 0.5 + 0.25),
    ("", ALONE, 4, 0.6 + 0.5 + 1.0),  # what a perfect main earns alone
    (AUX, ALONE, 4, 1.0 + 0.5 + 1.0),  # aux is there, main does not call it
    # cooperation: +0.5 for a call, +1.0 unless a thin wrapper, -0.5 if ignored; only after a passed test
    (AUX, USES, 4, 4.0),
    (AUX, USES, 2, 1.0 + 0.5 + 0.5 + 1.5),
    (AUX, USES, 0, 1.0 + 0.5),
    ("", USES, 2, 0.6 + 0.5 + 0.5),  # main calls an aux that is not there
    (AUX_SILENT, USES, 2, 0.6 + 0.5 + 0.5),
    (AUX, WRAPS, 4, 1.0 + 0.5 + 1.0 + 0.5),
    (AUX, IGNORES, 4, 1.0 + 0.5 + 1.0 + 1.0),
    (AUX, IGNORES, 0, 1.0 + 0.5),  # nothing is subtracted before a test passes
])
def test_every_row_of_the_table(aux, main, passed, expected):
    assert total(aux, main, passed) == pytest.approx(expected, abs=1e-12)


def cooperates(rule, main, *rows, passed=2):
    """Cooperation part by a rule that asks the report; a row is (calls, returned, raised, used)."""
    draft = compose(ITEM, {"aux": AUX, "main": main})
    seen = tuple(Interaction("main", "aux", "aux", *row) for row in rows)
    actual = Report("fail", passed, 4, (), {}, 2, 0.0, 0.0, interactions=seen)
    return finish(draft, actual, rule=rule)["cooperation"]


# influence: 1.5 times the 2 of 4 tests that pass, or nothing
@pytest.mark.parametrize("main, rows, observed, influence", [
    (USES, [(3, 3, 0, True)], 1.5, 0.75),
    (USES, [(3, 3, 0, False)], 1.0, 0.0),  # the text reads it, and it makes no difference
    (USES, [(3, 0, 3, False)], 1.0, 0.0),
    (IGNORES, [(3, 3, 0, False)], 1.0, 0.0),
    (USES, [(3, 3, 0, None)], 1.5, 0.75),  # could not be tried: the text decides
    (IGNORES, [(3, 3, 0, None)], 1.0, 0.0),
    (WRAPS, [(3, 3, 0, True)], 0.5, 0.75),  # passing on is worth as much
    (WRAPS, [(3, 3, 0, None)], 0.5, 0.75),
    (USES, [], 0.0, 0.0),  # a call in the text that never happens
])
def test_cooperation_by_what_was_observed(main, rows, observed, influence):
    assert cooperates("observed", main, *rows) == observed
    assert cooperates("influence", main, *rows) == influence
    assert cooperates("influence", main, *rows, passed=4) == 2 * influence
    assert [cooperates(rule, main, *rows, passed=0) for rule in ("observed", "influence")] == [0.0, 0.0]


def test_calls_in_the_other_direction_are_no_cooperation_of_main():
    draft = compose(ITEM, {"aux": AUX, "main": USES})
    rows = ("aux", "main", "f", 1, 1, 0, None), ("main", "aux", "other", 1, 1, 0, True)
    seen = tuple(Interaction(*row) for row in rows)
    actual = Report("fail", 2, 4, (), {}, 2, 0.0, 0.0, interactions=seen)
    for rule in ("observed", "influence"):
        assert finish(draft, actual, rule=rule)["cooperation"] == 0.0


THREE = ("left", "right", "main")
TWO_CALLS = "def f(x):\n    v = aux1(x)\n    return v + aux2(x)"


@pytest.mark.parametrize("left, right, main, passed, by_text, by_facts", [
    # structure 0.2 for each helper, 0.6 for main; cooperation is the mean over both helpers
    ("aux1", "aux2", TWO_CALLS, 4, 2.5 + 1.5, 2.5 + 1.5),
    ("aux1", "aux2", TWO_CALLS, 2, 2.0 + 1.5, 2.0 + 0.75),
    ("aux1", "aux2", TWO_CALLS, 0, 1.5, 1.5),
    ("aux1", "", TWO_CALLS, 4, 2.3 + 0.75, 2.3 + 0.75),
    ("", "", TWO_CALLS, 4, 2.1, 2.1),
    ("aux2", "aux1", TWO_CALLS, 4, 2.1, 2.1),  # each the other's name
    ("aux1", "aux2", "def f(x):\n    return aux1(x)", 4, 2.5 + 0.25, 2.5 + 0.75),  # wraps one, leaves one
    ("aux1", "aux2", "def f(x):\n    aux2(x)\n    return aux1(x) + 1", 4, 2.5 + 1.25, 2.5 + 0.75),
    ("aux1", "aux2", "no", 4, 0.4, 0.4),
])
def test_two_helpers(left, right, main, passed, by_text, by_facts):
    texts = {"left": f"def {left}(x):\n    return x" if left else "no",
             "right": f"def {right}(x):\n    return x" if right else "", "main": main}
    draft = compose(ITEM, texts, THREE)
    rows = []
    for agent, name in (("left", "aux1"), ("right", "aux2")):
        used = f"= {name}" in main or f"+ {name}" in main or f"return {name}" in main
        if draft.program and agent in draft.program.sources and name in main:
            rows.append(Interaction("main", agent, name, 1, 1, 0, used))
    seen = Report("fail", passed, 4, (), {}, 2, 0.0, 0.0, interactions=tuple(rows)) if draft.program else None
    totals = [finish(draft, seen, THREE, rule=rule)["total"] for rule in ("paper", "influence")]
    assert totals == pytest.approx([by_text, by_facts], abs=1e-12)
    assert reward_range(THREE) == (0.0, 4.0)


def test_the_parts_and_their_sum():
    parts = finish(compose(ITEM, {"aux": AUX, "main": IGNORES}), report(3), rule="paper")
    assert parts == {"structure": 1.0, "syntax": 0.5, "tests": 0.75, "cooperation": 1.0, "total": 3.25}


def test_a_check_that_never_ran_has_no_ratio():
    assert total(AUX, USES, 0, of=0) == 1.5


def test_compat_only_changes_what_counts_as_ignored():
    assert total(AUX, IGNORES, 4) == 3.5
    assert total(AUX, IGNORES, 4, compat=True) == 4.0  # the pattern does not see `aux(x)`
    assert total(AUX, IGNORES_WIDE, 4, compat=True) == 3.5  # it sees `aux (x)`
    assert total(AUX, WRAPS, 4, compat=True) == 3.0


def test_cooperation_never_goes_below_zero():
    assert cooperation("def f(x):\n    return x") == 0.0
    assert cooperation("def f(x):\n    return aux(x)") == 0.5
    assert cooperation(IGNORES) == 1.0
    assert cooperation("def f(x):\n    def aux(y):\n        return y\n    return aux(x) + x") == 0.0


def test_the_program_holds_the_extracted_functions_only():
    chatter = f"Sure:\n```python\nimport os\n{AUX}\n\ndef f(x):\n    return 0\n```"
    answers = {"aux": chatter, "main": f"def aux(x):\n    return 0\n\n{USES}\n\nf(1)"}
    draft = compose(ITEM, answers, parsing="paper")
    assert draft.stop == ""
    assert dict(draft.program.sources) == {"aux": AUX, "main": USES}
    assert (draft.program.entry_point, draft.program.tests) == ("f", ITEM.test)
    assert draft.program.prelude == "import math"


def test_where_a_draft_stopped():
    assert compose(ITEM, {"aux": AUX, "main": "no"})[1:] == (None, "no-main", {"aux": 1.0, "main": 0.0})
    assert compose(ITEM, {"aux": AUX, "main": BROKEN})[1:] == (None, "syntax", {"aux": 1.0, "main": 1.0})


def test_agents_are_helper_and_main_by_order_not_by_name():
    draft = compose(ITEM, {"left": AUX, "right": USES}, ("left", "right"))
    assert list(draft.program.sources) == ["left", "right"]
    assert finish(draft, report(4), ("left", "right"), rule="paper")["total"] == 4.0


@pytest.mark.parametrize("main, passed, expected", [
    ("", 4, 0.0), (BROKEN, 4, 0.6), (ALONE, 0, 1.1), (ALONE, 2, 1.6), (ALONE, 4, 2.1),
    (f"{AUX}\n\n{USES}", 4, 2.1),  # no helper, no bonus
])
def test_one_agent_alone(main, passed, expected):
    draft = compose(ITEM, {"solo": main}, ("solo",))
    parts = finish(draft, report(passed), ("solo",))
    assert parts["total"] == pytest.approx(expected, abs=1e-12)
    assert parts["cooperation"] == 0.0


def test_normalise():
    parts = {"structure": 0.6, "syntax": 0.5, "tests": 0.25, "cooperation": 0.75, "total": 2.1}
    # 0.6/1, 0.5/0.5, 0.25/1, 0.75/1.5, 2.1/4
    assert normalise(parts) == pytest.approx(
        {"structure": 60.0, "syntax": 100.0, "tests": 25.0, "cooperation": 50.0, "return": 52.5})
    solo = {"structure": 0.6, "syntax": 0.5, "tests": 1.0, "cooperation": 0.0, "total": 2.1}
    names = ("structure", "syntax", "tests", "return")
    assert normalise(solo, ("solo",)) == pytest.approx(dict.fromkeys(names, 100))
    # HumanEval in one turn, from the published parts: (1*100 + 0.5*97.8 + 61.6 + 1.5*83.4) / 4 = 83.9.
    parts = {"structure": 1.0, "syntax": 0.489, "tests": 0.616, "cooperation": 1.251}
    assert normalise({**parts, "total": sum(parts.values())})["return"] == pytest.approx(83.9, abs=0.05)


def test_reward_range():
    assert reward_range(("aux", "main")) == (0.0, 4.0)
    assert reward_range(("solo",)) == (0.0, 2.1)


def test_nothing_raises_on_truncated_answers():
    for end in range(len(USES) + 1):
        for aux_end in (0, 5, 12, 20, len(AUX)):
            draft = compose(ITEM, {"aux": AUX[:aux_end], "main": USES[:end]})
            parts = finish(draft, draft.program and report(4), rule="paper")
            assert 0.0 <= parts["total"] <= 4.0
