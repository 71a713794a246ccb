"""Values of the standard library and of a prelude's classes between processes: equal, of their type, both ways."""

import pytest
from crossing_values import IMPORTS, VALUES

from jaxmarl_llm.executor import Executor, Program
from jaxmarl_llm.executor.values import Classes
from jaxmarl_llm.executor.wire import Unsupported, WireError, decode, encode


@pytest.fixture(scope="module")
def executor():
    with Executor(workers=1) as executor:
        yield executor


def run(executor, source, *lines, prelude=IMPORTS):
    tests = "def check(candidate):\n" + "".join(f"    {line}\n" for line in lines)
    (report,) = executor.run([Program({"main": source}, "f", tests, prelude)])
    return report


def passes(executor, source, *lines, prelude=IMPORTS):
    report = run(executor, source, *lines, prelude=prelude)
    assert (report.verdict, report.failures) == ("pass", ())


def test_every_value_comes_back_as_it_was_sent_and_made(executor):
    """Made by the candidate, made by the tests and returned as it came; both equal and of the same type."""
    source = f"MADE = {{text: eval(text) for text in {VALUES!r}}}\n\ndef f(text, value=None):\n"
    source += "    made = MADE[text]\n"
    source += "    return made if value is None else (value == made, type(value) is type(made), value)\n"
    lines = []
    for text in VALUES:
        lines += [f"assert candidate({text!r}) == {text} and type(candidate({text!r})) is type({text})",
                  f"assert candidate({text!r}, {text}) == (True, True, {text})"]
    report = run(executor, source, *lines)
    assert (report.failures, report.passed, report.total) == ((), 2 * len(VALUES), 2 * len(VALUES))


@pytest.mark.parametrize("lines", [
    # what only the type can do
    ["assert candidate('Counter(\"aab\")').most_common(1) == [('a', 2)]"],
    ["d = candidate('defaultdict(lambda: 7)')", "assert d['x'] == 7"],
    ["d = candidate('defaultdict(list)')", "d[1].append(2)", "assert d == {1: [2]}"],
    ["assert candidate('Place(1)').y == 0 and isinstance(candidate('Place(1)'), Place)"],
    ["assert candidate('collections.namedtuple(\"Own\", \"a b\")(1, 2)').b == 2"],  # a class of the candidate's
    ["assert candidate('Colour.RED') is Colour.RED"],
    ["assert candidate('Amount(Decimal(3))').unit == 'g'"],
    ["assert sorted([candidate('date(2024, 1, 2)'), date(2023, 1, 1)])[0] == date(2023, 1, 1)"],
    ["assert {candidate('Fraction(1, 2)'): 1}[Fraction(1, 2)] == 1"],
    ["assert candidate('Decimal(1) / 8') + 1 == Decimal('1.125')"],
])
def test_values_have_the_methods_of_their_type(executor, lines):
    passes(executor, "def f(text):\n    return eval(text)\n", *lines)


@pytest.mark.parametrize("make, change, wanted", [
    ("deque([1])", "x.appendleft(0)", "deque([0, 1])"), ("bytearray(b'a')", "x.extend(b'b')", "bytearray(b'ab')"),
    ("Counter('a')", "x.update('ab')", "Counter('aab')"), ("defaultdict(list)", "x[1].append(2)", "{1: [2]}"),
    ("OrderedDict(a=1, b=2)", "x.move_to_end('a')", "OrderedDict(b=2, a=1)"),
    ("Box()", "x.items.append(3); x.count += 1", "Box([3], 1)"), ("[Box()]", "x[0].count = 5", "[Box([], 5)]"),
    ("(bytearray(),)", "x[0].append(65)", "(bytearray(b'A'),)"),
])
def test_changes_in_place_come_back(executor, make, change, wanted):
    passes(executor, f"def f(x):\n    {change}\n", f"x = {make}", "candidate(x)", f"assert x == {wanted}")


CATCHES = ["try:", "    candidate(%s)", "    caught = None", "except %s as error:", "    caught = error"]


@pytest.mark.parametrize("statement, kind, wanted", [
    ("raise KeyError('a')", "KeyError", "caught.args == ('a',)"),
    ("{}[3]", "KeyError", "caught.args[0] == 3"),
    ("raise KeyError(('a', 1))", "LookupError", "caught.args == (('a', 1),)"),
    ("raise TooSmall(1, 2)", "TooSmall", "(caught.number, caught.least, caught.args) == (1, 2, (1, 2))"),
    ("raise TooSmall(1, 2)", "ValueError", "isinstance(caught, TooSmall)"),
    ("raise StopIteration(5)", "StopIteration", "caught.value == 5"),
    ("next(iter([]))", "StopIteration", "caught.value is None"),
    ("raise StopIteration", "Exception", "type(caught) is StopIteration"),
    ("raise Exception('boom')", "Exception", "str(caught) == 'boom' and type(caught) is Exception"),
    ("b'\\xff'.decode()", "UnicodeDecodeError", "caught.start == 0"),
    ("raise ValueError(Decimal(1))", "ValueError", "caught.args == (Decimal(1),)"),
    ("class Own(ValueError): pass\n    raise Own('x', 1)", "ValueError", "caught.args == ('x', 1)"),
])
def test_exceptions_arrive_with_their_arguments(executor, statement, kind, wanted):
    catches = "\n    ".join(CATCHES) % ("", kind)
    passes(executor, f"def f():\n    {statement}\n", catches, f"assert {wanted}")


@pytest.mark.parametrize("line", [
    "assert all(map(candidate, [1, 2]))", "assert [x for x in map(candidate, [1])] == []",
    "assert list(zip(map(candidate, [1]))) == []",
    "assert not any(candidate(x) for x in iter(lambda: 0, 0)) and all(map(candidate, [1]))",
])
def test_a_stop_iteration_that_no_except_sees_passes_nothing(executor, line):
    report = run(executor, "def f(x):\n    raise StopIteration\n", line)
    assert (report.verdict, report.passed) == ("error", 0) and "StopIteration" in report.failures[0]


def test_a_stop_iteration_passes_nothing_where_agents_call_each_other_after_it(executor):
    main = "def f(x):\n    aux(x)\n    if not x:\n        raise StopIteration\n    return x\n"
    tests = "def check(candidate):\n    assert all(map(candidate, [0, 1])) and candidate(2) == 2\n"
    (report,) = executor.run([Program({"aux": "def aux(x):\n    return x\n", "main": main}, "f", tests)])
    assert (report.verdict, report.passed) == ("error", 0)


def test_a_stop_iteration_between_agents_is_the_callers(executor):
    aux = "class Steps:\n    def step(self):\n        raise StopIteration\n\ndef aux():\n    return Steps()\n"
    main = "def f(x):\n    try:\n        aux().step()\n    except StopIteration:\n        return x\n"
    tests = "def check(candidate):\n    assert candidate(1) == 1\n"
    (report,) = executor.run([Program({"aux": aux, "main": main}, "f", tests)])
    assert (report.verdict, report.failures) == ("pass", ())


@pytest.mark.parametrize("calls", [0, 1200])
def test_what_cannot_cross_between_agents_is_unsupported(executor, calls):
    aux = "def aux(levels):\n    return [aux(levels - 1)] if levels else []\n"
    main = f"def f(x):\n    for _ in range({calls}):\n        aux(1)\n    return len(aux(x))\n"
    tests = "def check(candidate):\n    assert candidate(3) == 1\n    assert candidate(70) == 1\n"
    (report,) = executor.run([Program({"aux": aux, "main": main}, "f", tests)])
    assert (report.verdict, report.passed) == ("unsupported", 1)
    assert report.interactions[0][3:6] == (2 * calls + 2, 2 * calls + 1, 0)


def test_generators_of_the_candidate_still_end(executor):
    passes(executor, "def f(n):\n    yield from range(n)\n", "it = candidate(1)", "assert next(it) == 0",
           "\n    ".join(["try:", "    next(it)", "    ended = False", "except StopIteration:", "    ended = True"]),
           "assert ended")


def test_a_source_that_repeats_the_preludes_classes_means_them(executor):
    source = "from dataclasses import dataclass\nimport enum\n\n@dataclass(frozen=True)\nclass Amount:\n"
    source += "    value: object\n    unit: str = 'g'\n\nclass Colour(enum.Enum):\n    RED = 1\n    BLUE = 2\n\n"
    source += "class TooSmall(ValueError):\n    pass\n\ndef f(x):\n    if x is None:\n        raise TooSmall(1, 2)\n"
    source += "    return Colour.RED if isinstance(x, Amount) else Amount(1)\n"
    catches = "\n    ".join(["try:", "    candidate(None)", "except TooSmall as error:", "    caught = error.args"])
    passes(executor, source, "assert candidate(1) == Amount(1)", "assert candidate(Amount(2)) is Colour.RED", catches,
           "assert caught == (1, 2)")


def test_values_cross_between_agents(executor):
    aux = "def aux(d):\n    if not d:\n        raise KeyError('none')\n"
    aux += "    return Place(d.day, 1), Counter(d.isoformat())\n"
    main = "def f(d):\n    try:\n        place, counts = aux(d)\n    except KeyError as error:\n"
    main += "        return error.args[0]\n"
    main += "    return place.x + counts['-']\n"
    tests = "def check(candidate):\n    assert candidate(date(2024, 1, 5)) == 7\n"
    tests += "    assert candidate(None) == 'none'\n"
    (report,) = executor.run([Program({"aux": aux, "main": main}, "f", tests, IMPORTS)])
    assert (report.verdict, report.failures) == ("pass", ())
    (row,) = report.interactions
    assert row[:6] == ("main", "aux", "aux", 2, 1, 1)


@pytest.mark.parametrize("place", ["{}", "[{}]", "{{'a': ({},)}}"])
def test_whether_a_made_value_was_used_is_left_open(executor, place):
    """Such values are not changed to see whether it matters; plain ones are, at the same place."""
    main = "def f(text):\n    value = aux(text)\n    return value is not None\n"
    check = "def check(candidate):\n    assert candidate({!r})\n"
    made = ("{1: 2}.keys()", "{1: 2}.values()", "{1: 2}.items()", "date(2024, 1, 2)", "Counter('a')", "deque([1])",
            "Place(1)", "Colour.RED", "Amount(Decimal(3))", "bytearray(b'a')", "iter([1])", "open")
    plain = ("7", "range(3)", "b'a'", "{1}", "1j", "(1, {2: 'a'})")
    expected = dict.fromkeys(made) | dict.fromkeys(plain, False)
    for text, used in expected.items():
        aux = f"def aux(text):\n    return {place.format(text)}\n"
        (report,) = executor.run([Program({"aux": aux, "main": main}, "f", check.format(text), IMPORTS)])
        assert (report.verdict, report.interactions[0].used) == ("pass", used), text


# What a hostile sender may put in place of what `encode` makes.
BAD = [
    ["made", "os.system", ["true"]], ["made", "builtins.eval", ["1"]], ["made", "builtins.object", []],
    ["made", "type", ["object"]], ["made", "type", ["eval"]], ["made", "decimal.Decimal", ["x"]],
    ["made", "fractions.Fraction", [1, 0]], ["made", "datetime.date", [0, 0, 0]],
    ["made", "exception", ["KeyboardInterrupt", ["t", []]]],
    ["made", "exception", ["int", ["t", []]]], ["made", "named", ["A", ["l", ["x", "x"]], ["l", [1, 2]]]],
    ["made", "named", ["A", ["l", ["a b"]], ["l", [1]]]], ["made", "named", ["A", ["l", ["__class__"]], ["l", [1]]]],
    ["made", "named", ["A", ["l", ["a"]], ["l", []]]], ["made", "dataclass", ["Box", ["d", []]]],
    ["made", "member", ["Colour", "GREEN"]], ["made", "member", ["Box", "x"]], ["made", "collections.deque", [5, None]],
    ["made", "prelude exception", ["Colour", ["t", []], ["d", []]]],
    ["made", "numpy.ndarray", ["|O", ["l", [1]], ["b", "00"]]],
    ["made"], ["made", "datetime.date"], ["made", 3, []], ["made", ["l", []], []],
]  # fmt: skip


@pytest.mark.parametrize("data", BAD)
def test_what_no_sender_makes_is_refused(data):
    space = {"__name__": "home"}
    exec(IMPORTS, space)
    with pytest.raises(WireError):
        decode(data, None, Classes(space))


def test_a_value_of_parts_that_its_type_is_not_meant_for_stays_in_its_process(executor):
    aux = "from collections import ChainMap\n\ndef aux(x):\n    return ChainMap(x)\n"
    for main, verdict in (("aux(x)\n    return 1", "pass"), ("return aux(x)", "unsupported")):
        program = Program({"aux": aux, "main": f"def f(x):\n    {main}\n"}, "f",
                          "def check(candidate):\n    assert candidate([1]) == 1\n")  # fmt: skip
        assert [report.verdict for report in executor.run([program])] == [verdict]


def test_values_of_unknown_types_do_not_travel():
    class Own:
        pass

    for value in (Own(), object(), open, [Own()], type, Own):
        with pytest.raises(Unsupported):
            encode(value)
