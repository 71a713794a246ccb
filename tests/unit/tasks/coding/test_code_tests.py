"""Tests cut into parts: texts and counts worked out by hand, recorded calls, and the executor's counting."""

import ast
import random

import pytest

from jaxmarl_llm.executor import Executor, Program
from jaxmarl_llm.tasks.coding.data_files import load_humaneval, load_starter
from jaxmarl_llm.tasks.coding.problem_tests import (
    HIDDEN,
    count_units,
    parameter,
    revealed,
    select_units,
    split,
)

TEST = """\
import math

TABLE = {1: 2}  # helper value


def near(a, b):
    return math.isclose(a, b)


def check(candidate):
    # two cases, a loop, and values between them
    import random
    x = 3
    assert candidate(x) == 4, 'three'
    assert True
    for y in range(2):
        assert near(candidate(y), y + 1)
    assert candidate(1) == TABLE[1]


DONE = True
"""
FIRST = """\
import math

TABLE = {1: 2}  # helper value


def near(a, b):
    return math.isclose(a, b)


def check(candidate):
    import random
    x = 3
    assert candidate(x) == 4, 'three'
    assert True


DONE = True
"""
MIDDLE = FIRST.replace("    assert candidate(x) == 4, 'three'\n    assert True\n", """\
    assert True
    for y in range(2):
        assert near(candidate(y), y + 1)
""")
LAST = FIRST.replace("assert candidate(x) == 4, 'three'\n    assert True", """\
assert True
    assert candidate(1) == TABLE[1]""")


def check_of(*lines):
    return "\n    ".join(["def check(candidate):", *lines]) + "\n"


def numbered(number):
    return check_of(*[f"assert candidate({i}) == {i + 1}" for i in range(number)])


def calls(test):
    """What check() asks a candidate that adds one: the arguments of its calls, in order."""
    seen, space = [], {}

    def candidate(value):
        seen.append(value)
        return value + 1

    exec(compile(test, "<test>", "exec", dont_inherit=True), space)
    space["check"](candidate)
    return seen


def test_texts_of_single_units():
    assert count_units(TEST) == 3
    assert [select_units(TEST, [i]) for i in range(3)] == [FIRST, MIDDLE, LAST]
    assert calls(TEST) == [3, 0, 1, 1]
    assert [calls(text) for text in (FIRST, MIDDLE, LAST)] == [[3], [0, 1], [1]]


def test_all_units_are_the_text_itself():
    assert select_units(TEST, [2, 0, 1]) == TEST
    assert revealed(TEST, 0) == revealed(TEST, 3) == revealed(TEST, 9) == revealed(TEST, -3) == TEST


@pytest.mark.parametrize("number, arguments", [
    (1, [0]), (2, [0, 1]), (4, [0, 1, 2, 3]), (0, [0, 1, 2, 3, 4]), (-1, [4]), (-2, [3, 4]),
    (-7, [0, 1, 2, 3, 4]),
])
def test_revealed_units(number, arguments):
    assert calls(revealed(numbered(5), number)) == arguments


@pytest.mark.parametrize("total, share, held", [
    (8, 0.25, [3, 7]), (8, 0.5, [1, 3, 5, 7]), (7, 0.3, [3, 6]), (6, 0.25, [2, 5]), (3, 0.01, [2]),
    (2, 0.25, [1]), (2, 0.99, [1]), (5, 0.99, [1, 2, 3, 4]), (4, 0.75, [1, 2, 3]),
    (25, 0.2, [4, 9, 14, 19, 24]),
])
def test_held_back_units_are_spread_evenly(total, share, held):
    used, rest = split(numbered(total), share)
    assert calls(rest) == held
    assert calls(used) == [i for i in range(total) if i not in held]
    assert split(numbered(total), share) == (used, rest)


def test_nothing_is_held_back_of_one_unit_or_with_a_share_of_zero():
    assert split(numbered(1), 0.5) == (numbered(1), None)
    assert split(numbered(8), 0) == (numbered(8), None)
    assert split(numbered(8), 0.0) == (numbered(8), None)


@pytest.mark.parametrize("lines, total", [
    (["pass"], 1),  # a check() without a unit is one
    (["'''Only words.'''", "candidate(1)"], 1),
    (["assert True"], 1),
    (["assert candidate(1) == 2"], 1),
    (["assert candidate(1) == 2"] * 3, 1),  # repeated
    (["assert candidate(1) == 2", "assert (candidate(1)  ==  2), 'again'"], 1),
    (["assert candidate(1) == 2; assert candidate(2) == 3"], 2),
    (["for i in range(9):", "    assert candidate(i) == i + 1"], 1),
    (["for i in range(9):", "    candidate(i)"], 1),
    (["for i in range(9):", "    candidate(i)", "assert candidate(1) == 2"], 1),
    (["r = candidate(1)", "assert r == 2", "assert 1 == 1"], 1),
    (["def g():", "    return candidate(1)", "assert g() == 2", "assert g() > 1"], 2),
    (["def g():", "    assert candidate(1) == 2", "g()"], 1),  # no top-level assert
    (["try:", "    candidate('é')", "    assert False", "except TypeError:", "    pass"], 1),
    (["with open('ü') as file:", "    assert candidate(1)", "while candidate(1) < 0:", "    assert 0"], 2),
    (["assert 'grün' != candidate('ß')", "assert candidate('日本') == '日本'"], 2),
])
def test_counts_by_hand(lines, total):
    assert count_units(check_of(*lines)) == total


def test_other_ways_to_write_check():
    assert count_units("def check(f, /):\n    assert f(1)\n    assert f(2)") == 2
    text = "import functools\n@functools.cache\ndef check(it): assert it(1) == 2; assert it(5) == 6"
    assert (parameter(text), count_units(text)) == ("it", 2)
    assert revealed(text, -1) == "import functools\n@functools.cache\ndef check(it):\n    assert it(5) == 6"
    assert calls(revealed(text, -1)) == [5]
    twice = numbered(2) + "\n\n" + check_of("assert candidate(7) == 8", "assert candidate(8) == 9")
    assert calls(revealed(twice, 1)) == [7]  # the last check() counts
    windows = TEST.replace("\n", "\r\n")
    assert revealed(windows, 1) == FIRST


def test_tests_that_call_the_function_by_its_own_name():
    text = check_of("assert f(1) == 2", "assert f(2) == 3", "assert candidate(3) == 4")
    assert (count_units(text, "f"), count_units(text)) == (3, 1)
    assert revealed(text, 1, "f") == check_of("assert f(1) == 2")
    used, held = split(text, 0.3, "f")
    assert (count_units(used, "f"), count_units(held, "f")) == (2, 1)


def test_repeated_asserts_go_with_their_unit():
    text = check_of("assert candidate(1) == 2", "assert candidate(2) == 3", "assert candidate(1) == 2")
    assert count_units(text) == 2
    assert calls(revealed(text, 1)) == [1, 1]
    assert calls(revealed(text, -1)) == [2]


@pytest.mark.parametrize("lines, kept", [
    (["for i in range(3):", "    r = candidate(i)", "    assert r == i + 1", "assert candidate(8) == 9"],
     ["assert candidate(8) == 9"]),
    # a name that the loop binds
    (["for i in range(3):", "    r = candidate(i)", "    assert r == i + 1", "assert r == 3"],
     [HIDDEN, "    for i in range(3):", "        r = candidate(i)", "        r == i + 1", "assert r == 3"]),
    # a list that it fills
    (["seen = []", "for i in range(2):", "    seen.append(candidate(i))", "    assert seen",
      "assert candidate(seen[-1]) == 3"],
     ["seen = []", HIDDEN, "    for i in range(2):", "        seen.append(candidate(i))", "        seen",
      "assert candidate(seen[-1]) == 3"]),
    # a name bound inside an assert, a function inside a block
    (["assert (r := candidate(1)) == 2", "assert r + 1 == 3"],
     [HIDDEN, "    (r := candidate(1)) == 2", "assert r + 1 == 3"]),
    (["if candidate(1):", "    def g(n):", "        return candidate(n)", "    assert g(1)", "assert g(2)"],
     [HIDDEN, "    if candidate(1):", "        def g(n):", "            return candidate(n)", "        g(1)",
      "assert g(2)"]),
    # what is needed by what is needed
    (["assert (a := candidate(1)) == 2", "assert candidate(7) == 8", "assert (b := a) == 2", "assert b > 0"],
     [HIDDEN, "    (a := candidate(1)) == 2", HIDDEN, "    (b := a) == 2", "assert b > 0"]),
    # what is imported or defined between the units changes nothing
    (["import math", "def g(n):", "    return n", "assert math.sqrt(g(candidate(3))) == 2",
      "assert math.floor(g(candidate(3))) == 4"],
     ["import math", "def g(n):", "    return n", "assert math.floor(g(candidate(3))) == 4"]),
])
def test_what_later_statements_need_stays(lines, kept):
    text = revealed(check_of(*lines), -1)
    assert ast.unparse(ast.parse(text)) == ast.unparse(ast.parse(check_of(*kept)))
    assert count_units(text) == 1
    calls(text)
    assert HIDDEN not in revealed(check_of(*lines), 1)  # nothing is needed by what comes before it


POOL = [  # statements over a candidate that adds one; all that they assert is true in any order
    "assert candidate({n}) == {m}", "assert candidate({n}) != 0, 'not {n}'", "assert candidate({n}) == {m}",
    "assert {n} < {m}", "assert True", "import math", "x = candidate({n})", "kept.append(candidate({n}))",
    "kept = []", "assert kept == kept + [] and candidate({n})",
    "assert (w := candidate({n})) == {m}", "assert w > 0",
    "assert len(kept) == size", "size = len(kept)", "assert x > 0",
    "for i in range(2):\n        assert candidate(i) == i + 1",
    "for i in range(2):\n        x = candidate(i)\n        assert x",
    "for _ in [1, 2]:\n        kept.append({n}); size += 1\n        assert candidate(size) == size + 1",
    "if candidate({n}):\n        kept += [candidate({n})]\n        size = len(kept)\n        assert size",
    "try:\n        candidate('ä')\n        assert False\n    except TypeError:\n        x = {m}",
    "while size < 3:\n        size += 1; kept.append({n})\n        assert candidate(size)",
    "def g(a):\n        return candidate(a)", "assert g({n}) == {m}", "assert math.sqrt(candidate({n})) > 0",
    "assert [candidate(i) for i in range({n})] == list(range(1, {m}))", "total = sum(kept)",
    "assert sum(kept) == total or candidate(1)",
    "with open('/dev/null') as file:\n        assert candidate({n})",
]


def random_test(rng):
    start = ["import math", "kept, size, w, x, total = [], 0, 1, 1, 0", "def g(a):\n        return a + 1"]
    chosen = []
    for template in rng.choices(POOL, k=rng.randint(1, 12)):
        n = rng.randint(0, 4)
        chosen.append(template.format(n=n, m=n + 1))
        if "kept" in chosen[-1] and "size" not in chosen[-1]:
            chosen.append("size = len(kept)")
    return check_of(*start, *chosen)


def unit_texts(test):
    """The units of a test as the executor would name them."""
    from jaxmarl_llm.executor.judging.units import build

    suite = build(test, "")
    return [ast.unparse(suite.statements[i]) for i in sorted(suite.units)]


@pytest.mark.parametrize("seed", range(60))
def test_any_selection_counts_what_was_chosen_and_still_holds(seed):
    rng = random.Random(seed)
    test = random_test(rng)
    calls(test)  # true of the whole
    texts = unit_texts(test)
    for _ in range(4 if texts else 0):
        chosen = sorted(rng.sample(range(len(texts)), rng.randint(1, len(texts))))
        part = select_units(test, chosen)
        assert unit_texts(part) == [texts[i] for i in chosen]
        assert len(calls(part)) <= len(calls(test))
        asserts = {ast.unparse(n) for n in ast.walk(ast.parse(part)) if isinstance(n, ast.Assert)}
        assert not asserts & {text for i, text in enumerate(texts) if i not in chosen}
    assert len(texts) or select_units(test, [0]) == test


@pytest.mark.slow
@pytest.mark.parametrize("load", [load_starter, load_humaneval])
def test_parts_of_the_data_sets(load):
    for item in load()[::3]:
        texts = unit_texts(item.test)
        assert count_units(item.test) == count_units(item.test, item.entry_point) == len(texts)
        assert unit_texts(revealed(item.test, 1)) == texts[:1]
        used, held = split(item.test, 0.25)
        assert (held is None) == (len(texts) == 1)
        if held:
            assert sorted(unit_texts(used) + unit_texts(held)) == sorted(texts)
            assert HIDDEN not in used + held


@pytest.mark.parametrize("call, message", [
    (lambda: split(TEST, 1), r"held_back is 1; allowed: a share in \[0, 1\)"),
    (lambda: split(TEST, -0.1), "held_back is -0.1"),
    (lambda: split(TEST, float("nan")), "held_back is nan"),
    (lambda: select_units(TEST, []), r"indices is \[\]; allowed: one or more of 0 to 2"),
    (lambda: select_units(TEST, [3]), r"indices is \[3\]"),
    (lambda: select_units(TEST, [0, -1]), r"indices is \[0, -1\]"),
    (lambda: revealed(TEST, 1.0), "number is 1.0; allowed: a whole number"),
    (lambda: revealed(TEST, None), "number is None"),
    (lambda: count_units("def check(candidate:"), "do not parse"),
    (lambda: count_units("x = 1"), "do not define check"),
    (lambda: count_units("def check():\n    assert True"), "do not define check"),
    (lambda: count_units("async def check(candidate):\n    assert candidate(1)"), "do not define check"),
    (lambda: parameter("x = 1"), "test is 'x = 1'; allowed: text that defines check"),
    (lambda: parameter("def check("), "allowed: text that defines check"),
])
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def canonical(item, test):
    """The item's own solution; a HumanEval one is the body that belongs under the prompt."""
    whole = f"def {item.entry_point}" in item.canonical_solution
    source = item.canonical_solution if whole else item.prompt + item.canonical_solution
    return Program({"main": source}, item.entry_point, test, item.prelude)


@pytest.mark.slow
def test_the_executor_counts_the_same():
    parts = []
    for item in load_starter():
        parts.append((item, item.test))
    for item in (*load_starter()[::5], *load_humaneval()[::8]):
        texts = (item.test, revealed(item.test, 1), *split(item.test, 0.3))
        parts += [(item, text) for text in dict.fromkeys(texts) if text]
    with Executor(workers=2, min_level=1) as executor:
        reports = executor.run([canonical(item, text) for item, text in parts])
    for (item, text), report in zip(parts, reports, strict=True):
        total = count_units(text)
        actual = (report.verdict, report.passed, report.total)
        assert actual == ("pass", total, total), (item.task_id, text, report)


def test_the_executor_shows_of_hidden_parts_their_first_line_only():
    lines = ["for i in [11, 22]:", "    r = candidate(i)", "    assert r == i", "assert candidate(r) == 24"]
    program = Program({"main": "def f(x):\n    return 1 // (x - 11)"}, "f", revealed(check_of(*lines), -1))
    with Executor(workers=1, min_level=1) as executor:
        (report,) = executor.run([program])
    assert (report.passed, report.total) == (0, 1)
    assert report.failures[0].startswith(f"{HIDDEN} -> ZeroDivisionError")
    assert "22" not in " ".join(report.failures)
