"""What agents are told after a try: exact texts per mode and level, and what must never be told."""

import dataclasses
import itertools

import pytest

from jaxmarl_llm.executor import Executor, Limits, Report
from jaxmarl_llm.tasks.coding.feedback import MODES, feedback
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.problem_tests import revealed
from jaxmarl_llm.tasks.coding.reward import compose

TEAM = ("aux", "main")
TEST = "def check(candidate):\n    assert candidate(1) == 3\n    assert candidate(41) == 43\n"
ITEM = CodingItem("t/1", "def f(x, n):\n    ...\n", "f", TEST, ("x", "n"))
AUX = "def aux(x, n):\n    return x + 1"
AUX_SILENT = "def aux(x, n):\n    print(x)"
AUX_BROKEN = "def aux(x, n):\n    return x +"
USES = "def f(x, n):\n    v = aux(x, n)\n    return v + 1"
WRAPS = "def f(x, n):\n    return aux(x, n)"
IGNORES = "def f(x, n):\n    aux(x, n)\n    return x + 2"
ALONE = "def f(x, n):\n    return x + 2"
SILENT = "def f(x, n):\n    print(x)"
BROKEN = "def f(x, n):\n    return (x +)"
REVISE_AUX = "Revise aux. Answer with code only."
REVISE_F = "Revise f. Answer with code only."


def report(passed, total=4, *failures):
    return Report("pass" if passed == total else "fail", passed, total, failures, {}, 2, 0.0, 0.0)


FULL = report(4)
PART = report(1, 4, *[f"assert candidate({i}) == {i + 2} -> AssertionError" for i in (2, 3, 4)])


def feedback_texts(mode, aux, main, seen=None):
    """(to the helper, to main)"""
    return tuple(feedback(mode, ITEM, TEAM, {"aux": aux, "main": main}, seen, "paper", "paper").values())


PLACE = "Line 2, column 15: invalid syntax.\n    return x +"  # 4 + len("return x +") characters, and one on
PLACE_F = "Line 2, column 16: invalid syntax.\n    return (x +)"
FAILED = "Tests passed: 1 of 4.\nFailed: assert f(2) == 4 -> AssertionError"


@pytest.mark.parametrize("aux, main, seen, to_aux, to_main", [
    # stopped at main's structure
    ("", "", None, "aux: missing. Write def aux(x, n) with a return.\nf: missing.\nNot tested.",
     "f: missing. Write def f(x, n) with a return.\naux: missing.\nNot tested."),
    (AUX, "", None, "aux: found.\nf: missing.\nNot tested.",
     "f: missing. Write def f(x, n) with a return.\naux: found.\nNot tested."),
    (AUX_SILENT, SILENT, None, "aux: no return. Return a value.\nf: no return.\nNot tested.",
     "f: no return. Return a value.\naux: no return.\nNot tested."),
    (AUX_BROKEN, SILENT, None, f"aux: syntax error. {PLACE}\nf: no return.\nNot tested.",
     "f: no return. Return a value.\naux: syntax error.\nNot tested."),
    # stopped at the syntax
    (AUX_BROKEN, USES, None, f"aux: syntax error. {PLACE}\nNot tested.",
     "f: found.\naux: syntax error.\nf uses aux.\nNot tested."),
    (AUX, BROKEN, None, "aux: found.\nf: syntax error.\nNot tested.",
     f"f: syntax error. {PLACE_F}\naux: found.\nNot tested."),
    ("", BROKEN, None, "aux: missing. Write def aux(x, n) with a return.\nf: syntax error.\nNot tested.",
     f"f: syntax error. {PLACE_F}\naux: missing.\nNot tested."),
    # stopped at the tests
    (AUX, USES, report(0, 1, "assert candidate(1) == 3 -> TypeError: no"),
     "aux: found.\nTests passed: 0 of 1.\nFailed: assert f(1) == 3 -> TypeError: no",
     "f: found.\naux: found.\nf uses aux.\nTests passed: 0 of 1.\nFailed: assert f(1) == 3 -> TypeError: no"),
    (AUX, USES, PART, f"aux: found.\n{FAILED}", f"f: found.\naux: found.\nf uses aux.\n{FAILED}"),
    (AUX_SILENT, USES, PART, f"aux: no return. Return a value.\n{FAILED}",
     f"f: found.\naux: no return.\nf uses aux.\n{FAILED}"),
    # stopped at the use of aux
    ("", ALONE, FULL, "aux: missing. Write def aux(x, n) with a return.\nTests passed: 4 of 4.",
     "f: found.\naux: missing.\nf does not call aux. Use its result.\nTests passed: 4 of 4."),
    (AUX, ALONE, FULL, "aux: found.\nTests passed: 4 of 4.",
     "f: found.\naux: found.\nf does not call aux. Use its result.\nTests passed: 4 of 4."),
    (AUX, WRAPS, FULL, "aux: found.\nTests passed: 4 of 4.",
     "f: found.\naux: found.\nf only passes on what aux returns. Add a step of its own.\n"
     "Tests passed: 4 of 4."),
    (AUX, IGNORES, FULL, "aux: found.\nTests passed: 4 of 4.",
     "f: found.\naux: found.\nf ignores what aux returns. Use it.\nTests passed: 4 of 4."),
    # nothing wrong
    (AUX, USES, FULL, "aux: found.\nTests passed: 4 of 4.",
     "f: found.\naux: found.\nf uses aux.\nTests passed: 4 of 4."),
])
def test_level_feedback_at_every_level(aux, main, seen, to_aux, to_main):
    expected = (f"{to_aux}\n{REVISE_AUX}", f"{to_main}\n{REVISE_F}")
    assert feedback_texts("level_feedback", aux, main, seen) == expected


OK, NO = "ok", "failed"


@pytest.mark.parametrize("aux, main, seen, to_aux, to_main, everything", [
    ("", "", None, "Function: failed. Tests: not run.", "Function: failed. Tests: not run.", False),
    (AUX, SILENT, None, "Function: ok. Syntax: ok. Tests: not run.",
     "Function: failed. Tests: not run.", False),
    (AUX_BROKEN, USES, None, "Function: ok. Syntax: failed. Tests: not run.",
     "Function: ok. Syntax: ok. Tests: not run. Use of aux: ok.", False),
    (AUX, BROKEN, None, "Function: ok. Syntax: ok. Tests: not run.",
     "Function: ok. Syntax: failed. Tests: not run.", False),
    (AUX, USES, PART, "Function: ok. Syntax: ok. Tests: failed.",
     "Function: ok. Syntax: ok. Tests: failed. Use of aux: ok.", False),
    (AUX, USES, report(0, 0), "Function: ok. Syntax: ok. Tests: failed.",
     "Function: ok. Syntax: ok. Tests: failed. Use of aux: ok.", False),
    (AUX_SILENT, USES, FULL, "Function: failed. Tests: ok.",
     "Function: ok. Syntax: ok. Tests: ok. Use of aux: ok.", False),
    *[(AUX, main, FULL, "Function: ok. Syntax: ok. Tests: ok.",
       "Function: ok. Syntax: ok. Tests: ok. Use of aux: failed.", False)
      for main in (ALONE, WRAPS, IGNORES)],
    (AUX, USES, FULL, "Function: ok. Syntax: ok. Tests: ok.",
     "Function: ok. Syntax: ok. Tests: ok. Use of aux: ok.", True),
])
def test_level_passed_passed_and_plain(aux, main, seen, to_aux, to_main, everything):
    assert feedback_texts("level_passed", aux, main, seen) == (f"{to_aux}\n{REVISE_AUX}", f"{to_main}\n{REVISE_F}")
    bit = "All checks passed." if everything else "Not all checks passed."
    assert feedback_texts("passed", aux, main, seen) == (f"{bit}\n{REVISE_AUX}", f"{bit}\n{REVISE_F}")
    assert feedback_texts("plain", aux, main, seen) == (REVISE_AUX, REVISE_F)
    assert feedback_texts("plain", aux, main, None) == (REVISE_AUX, REVISE_F)


@pytest.mark.parametrize("main, seen, details, levels, everything", [
    ("", None, "f: missing. Write def f(x, n) with a return.\nNot tested.",
     "Function: failed. Tests: not run.", False),
    (BROKEN, None, f"f: syntax error. {PLACE_F}\nNot tested.",
     "Function: ok. Syntax: failed. Tests: not run.", False),
    (ALONE, PART, f"f: found.\n{FAILED}", "Function: ok. Syntax: ok. Tests: failed.", False),
    (ALONE, FULL, "f: found.\nTests passed: 4 of 4.", "Function: ok. Syntax: ok. Tests: ok.", True),
])
def test_one_agent_alone(main, seen, details, levels, everything):
    bit = "All checks passed." if everything else "Not all checks passed."
    for mode, text in zip(MODES, ("", f"{bit}\n", f"{levels}\n", f"{details}\n"), strict=True):
        assert feedback(mode, ITEM, ("main",), {"main": main}, seen, parsing="paper") == {"main": text + REVISE_F}


def test_main_may_pass_on_what_a_helper_returns_where_that_is_paid():
    for rule, used in (("influence", "f uses aux."), ("observed", "f only passes on")):
        details, levels = (
            feedback(mode, ITEM, TEAM, {"aux": AUX, "main": WRAPS}, FULL, rule)["main"]
            for mode in ("level_feedback", "level_passed")
        )
        assert used in details and f"Use of aux: {OK if rule == 'influence' else NO}." in levels


THREE = ("left", "right", "main")
LEFT, RIGHT = "def aux1(x, n):\n    return x + 1", "def aux2(x, n):\n    return n * 7"
BOTH = "def f(x, n):\n    v = aux1(x, n)\n    aux2(x, n)\n    return v + 1"


def test_two_helpers_read_nothing_of_each_other_and_main_reads_of_both():
    answer = {"left": LEFT, "right": RIGHT, "main": BOTH}
    given = feedback("level_feedback", ITEM, THREE, answer, FULL)
    assert given == {
        "left": "aux1: found.\nTests passed: 4 of 4.\nRevise aux1. Answer with code only.",
        "right": "aux2: found.\nTests passed: 4 of 4.\nRevise aux2. Answer with code only.",
        "main": "f: found.\naux1: found.\naux2: found.\nf uses aux1.\nf ignores what aux2 returns. Use it.\n"
        "Tests passed: 4 of 4.\nRevise f. Answer with code only.",
    }
    answer_broken = answer | {"right": "def aux2(x, n):\n    return n *"}
    broken = feedback("level_feedback", ITEM, THREE, answer_broken, None)
    assert broken["left"] == "aux1: found.\nNot tested.\nRevise aux1. Answer with code only."
    assert "aux2: syntax error." in broken["main"] and "aux1: found." in broken["main"]
    for error in ("right: NameError: name 'k'", "ValueError: return n * 7"):
        seen = report(0, 1, f"assert candidate(1) == 3 -> {error}")
        left_feedback = feedback("level_feedback", ITEM, THREE, answer, seen)["left"]
        assert "aux2" not in left_feedback and "n * 7" not in left_feedback


def test_agents_are_helper_and_main_by_order_not_by_name():
    given = feedback("level_feedback", ITEM, ("main", "aux"), {"aux": USES, "main": AUX}, FULL)
    assert given == dict(zip(("main", "aux"), feedback_texts("level_feedback", AUX, USES, FULL), strict=True))
    assert list(given) == ["main", "aux"]


def failed(line, aux=AUX, main=USES, item=ITEM, agent="main"):
    """How a failure is shown to an agent."""
    seen = report(0, 1, *([line] if isinstance(line, str) else line))
    text = feedback("level_feedback", item, TEAM, {"aux": aux, "main": main}, seen)[agent]
    (shown,) = [row for row in text.split("\n") if row.startswith("Failed: ")]
    return shown.removeprefix("Failed: ")


ENDED = "the candidate's process ended before the tests did"


@pytest.mark.parametrize("line, shown", [
    ("assert candidate(1) == 3 -> AssertionError", "assert f(1) == 3 -> AssertionError"),
    ("assert near(candidate(candidates), 1) -> TypeError: bad",
     "assert near(f(candidates), 1) -> TypeError: bad"),
    ("assert candidate('é') == 'ß' -> KeyError: 'é'", "assert f('é') == 'ß' -> KeyError: 'é'"),
    ("for i in range(9): -> ValueError: a\nb\n\nc",
     "for i in range(9): -> ValueError: a b c"),
    (f"assert candidate(9) -> {ENDED} (timeout-cpu)", "assert f(9) -> took too long"),
    (f"assert candidate(9) -> {ENDED} (killed)", "assert f(9) -> crashed"),
    (f"assert candidate(9) -> {ENDED} (protocol)", "assert f(9) -> ended too early"),
    ("aux: NameError: name 'y' is not defined", "aux: NameError: name 'y' is not defined"),
    ("main: NameError: name 'y' is not defined", "f: NameError: name 'y' is not defined"),
    ("the tests did not finish on the returned values (timeout-wall)", "took too long"),
    ("check() returned before its last assert", "check() returned before its last assert"),
    ("assert candidate(1) == [" + "1, " * 40 + "-> AssertionError",
     "assert f(1) == [" + "1, " * 33 + "1,... -> AssertionError"),  # 16 + 99 + 2 + 3 = 120 characters
    ("assert candidate(1) -> ValueError: " + "long " * 30,
     "assert f(1) -> ValueError: " + "long " * 15 + "lo..."),
    # of what is left of hidden tests only the exception, and only where nothing else failed
    ("if 'hidden': -> ValueError: bad", "ValueError: bad"),
    (("if 'hidden': -> ValueError: bad", "assert candidate(1) -> KeyError: 2"),
     "assert f(1) -> KeyError: 2"),
])
def test_how_a_failure_is_shown(line, shown):
    assert failed(line) == shown


def test_the_name_that_the_tests_give_to_the_candidate():
    item = dataclasses.replace(ITEM, test="def check(solve, /):\n    assert solve(1) == 3\n")
    assert failed("assert solve(1) == 3 -> AssertionError", item=item) == "assert f(1) == 3 -> AssertionError"


def test_messages_that_quote_the_partner_are_left_out():
    raises = "def aux(x, n):\n    if x:\n        raise ValueError('x is too large')\n    return x"
    line = "assert candidate(1) == 3 -> ValueError: x is too large"
    assert failed(line, aux=raises) == "assert f(1) == 3 -> ValueError"
    assert failed(line, aux=raises, agent="aux") == "assert f(1) == 3 -> ValueError: x is too large"
    assert failed(line) == "assert f(1) == 3 -> ValueError: x is too large"
    key = 'def aux(x, n):\n    return {}["price"]'
    assert failed("assert candidate(1) -> KeyError: 'price'", aux=key) == "assert f(1) -> KeyError"
    quoted = "assert candidate(1) -> SyntaxError: in 'return x + 1' (line 2)"
    assert failed(quoted) == "assert f(1) -> SyntaxError"
    assert failed("aux: ValueError: return x + 1", main=USES) == "aux: ValueError"


AUXES = ["", "I like prose.", AUX_SILENT, AUX_BROKEN, "def aux(x, n):\n    alpha = x\n    return alpha * 31",
         "def aux(x, n):\n    raise ValueError('alpha words')\n    return 5",
         "```python\n# alpha\n" + AUX + "\n```",
         "def aux(x, n):\n    return '''alpha", "def aux(x, n):\n    return alpha alpha", "\0",
         "def aux(\udce9): return 1"]
MAINS = ["", "No words at all.", SILENT, BROKEN, "def f(x, n):\n    beta = aux(x, n)\n    return beta - 17",
         "def f(x, n):\n    raise KeyError('beta key')\n    return 7", WRAPS,
         "def f(x, n):\n    aux(n, x)\n    return n", "def f(x, n):\n\treturn beta\n  beta",
         "def f(x, n): return 'βeta 日本' -",
         "@beta\ndef f(x, n):\n    def beta(): return aux(x)\n    return beta()"]
FAILURES = [(), ("assert candidate(1) == 3 -> AssertionError",),
            ("assert candidate(1) -> ValueError: alpha words",),
            ("assert candidate(1) -> KeyError: 'beta key'",), ("aux: ValueError: alpha words",),
            ("main: KeyError: 'beta key'",), ("assert candidate(1) -> E: return alpha * 31",)]


def own_lines(text, other):
    """The lines of a text that its partner did not write too; those of three characters say nothing."""
    mine, others = ({line.strip() for line in each.split("\n")} for each in (text, other))
    return [line for line in mine - others if len(line) > 3]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_no_agent_reads_its_partners_code(mode):
    for aux, main, lines in itertools.product(AUXES, MAINS, FAILURES):
        answers = {"aux": aux, "main": main}
        runs = compose(ITEM, answers).program is not None
        texts = feedback(mode, ITEM, TEAM, answers, report(0, 1, *lines) if runs else None)
        for agent, partner in (TEAM, TEAM[::-1]):
            text = texts[agent]
            assert not [line for line in own_lines(answers[partner], answers[agent]) if line in text]
            names = ("alpha", "beta") if lines in FAILURES[:2] else ()  # messages have them by themselves
            for word in ("alpha words", "beta key", "βeta", "31", "17", *names):
                leaked = word in answers[partner] and word not in answers[agent] and word in text
                assert not leaked, (agent, answers, lines)
            assert text.split("\n")[-1] == (REVISE_AUX if agent == "aux" else REVISE_F)


@pytest.mark.parametrize("bad", [
    "def f(x, n):\n    return x\0 + 1", "def f(x, n):\n    return " + "(" * 400 + "x" + ")" * 400,
    "def f(x, n):\n    return " + "-" * 9000 + "x",
])
def test_code_that_no_parser_takes(bad):
    first, *_ = feedback("level_feedback", ITEM, ("main",), {"main": bad}, None)["main"].split("\n")
    assert first.startswith("f: syntax error.")


def test_long_lines_are_cut():
    long = "def f(x, n):\n    return " + "x, " * 99 + "+"
    text = feedback("level_feedback", ITEM, ("main",), {"main": long}, None)["main"]
    assert text.split("\n")[1] == "    return " + "x, " * 35 + "x..."  # 11 + 105 + 1 + 3 = 120 characters


def test_texts_are_short():
    shown = feedback_texts("level_feedback", AUX_SILENT, WRAPS, PART)
    assert max(len(text.split()) for text in shown) <= 45


@pytest.mark.parametrize("mode, agents, completions, seen, message", [
    ("hints", TEAM, {"aux": AUX, "main": USES}, FULL,
     "feedback mode is 'hints'; allowed: plain, passed, level_passed, level_feedback"),
    ("expert_edits", TEAM, {"aux": AUX, "main": USES}, FULL, "feedback mode is 'expert_edits'"),
    ("passed", TEAM, {"main": USES}, FULL,
     r"completions come from agents \['main'\], expected \['aux', 'main'\]"),
    ("passed", TEAM, {"aux": AUX, "main": USES}, None,
     "item 't/1': the answer can be run and the report is None"),
    ("passed", TEAM, {"aux": AUX, "main": ""}, FULL,
     "item 't/1': the answer stopped at 'no-main' and the report"),
])
def test_bad_input_is_named(mode, agents, completions, seen, message):
    with pytest.raises(ValueError, match=message):
        feedback(mode, ITEM, agents, completions, seen)


ENDLESS = "def aux(x, n):\n    while True:\n        x += 1\n    return x"
RAISES = "def aux(x, n):\n    raise ValueError('alpha words')\n    return x"


WRONG = USES.replace("+ 1", "+ 3")  # f(1) is 5


@pytest.mark.slow
@pytest.mark.parametrize("aux, main, number, usage, tests", [
    (AUX, USES, 1, "uses aux.", "1 of 1."),
    (AUX, WRONG, 1, "uses aux.", "0 of 1.\nFailed: assert f(1, 0) == 3 -> AssertionError"),
    (AUX, WRONG, 0, "uses aux.", "0 of 2.\nFailed: assert f(1, 0) == 3 -> AssertionError"),
    (AUX, WRONG, -1, "uses aux.", "0 of 1.\nFailed: assert f(41, 0) == 43 -> AssertionError"),
    (AUX, USES.replace("+ 1", "+ y"), 1, "uses aux.",
     "0 of 1.\nFailed: assert f(1, 0) == 3 -> NameError: name 'y' is not defined"),
    (RAISES, USES, 1, "uses aux.", "0 of 1.\nFailed: assert f(1, 0) == 3 -> ValueError"),
    (ENDLESS, USES, 1, "uses aux.", "0 of 1.\nFailed: assert f(1, 0) == 3 -> took too long"),
    (AUX.replace("(x, n)", "(x, n=y)"), USES, 1, "uses aux.",
     "0 of 1.\nFailed: aux: NameError: name 'y' is not defined"),
])
def test_with_the_reports_of_the_real_executor(aux, main, number, usage, tests):
    test = TEST.replace("(1)", "(1, 0)").replace("(41)", "(41, 0)")
    item = dataclasses.replace(ITEM, test=test)
    program = compose(item, {"aux": aux, "main": main}).program
    program = dataclasses.replace(program, tests=revealed(test, number))
    with Executor(workers=1, min_level=1, limits=Limits(cpu_seconds=0.5)) as executor:
        (seen,) = executor.run([program])
    text = feedback("level_feedback", item, TEAM, {"aux": aux, "main": main}, seen)["main"]
    assert text == f"f: found.\naux: found.\nf {usage}\nTests passed: {tests}\n{REVISE_F}"
    assert "41" not in text or number == -1  # the assert that was not revealed
