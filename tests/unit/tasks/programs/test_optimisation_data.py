"""The package's own problems: references, rewrites and checkers do what the files say of them."""

import hashlib

import pytest

from jaxmarl_llm.executor import Executor, Limits, Program
from jaxmarl_llm.executor.cpp import tools as cpp_tools
from jaxmarl_llm.tasks.programs.optimisation_items import load_items

pytestmark = pytest.mark.slow

SMALL, MODERATE = 8, 32
SOURCES = ("python", "cpp")
ITEMS = {source: load_items(source) for source in SOURCES}
EVERY = [pytest.param(item, id=f"{source}/{item.task_id}") for source in SOURCES for item in ITEMS[source]]

# Runs where the tests do, after TESTS, SIZES and SEEDS. `spaces`: what a problem's tests define, by size.
COMMON = """
import copy, hashlib

spaces = {}
for size in SIZES:
    exec(TESTS[size], spaces.setdefault(size, {}))

def right(space, answer, given):
    return space["accept"](answer, *given) if "accept" in space else answer == space["expected"](*given)

def spoilt(answer):
    if isinstance(answer, (list, tuple)):
        return type(answer)([*answer[:-1], spoilt(answer[-1])]) if answer else [0]
    if isinstance(answer, dict):
        return {key: spoilt(value) for key, value in answer.items()} or {0: 0}
    if isinstance(answer, str):
        return answer + "x"
    return answer + 1 + abs(answer)
"""
# The wrong answers: nothing, text, the right one with a change at its end, and lists too long and too short.
REFERENCE = """
def check(candidate):
    for size, space in spaces.items():
        for seed in SEEDS:
            given = space["inputs"](seed)
            assert hashlib.sha256(repr(given).encode()).hexdigest() == DIGESTS[size][seed], "other inputs"
            kept = copy.deepcopy(given)
            answer = candidate(*given)
            assert right(space, answer, kept), f"turned down: size {size}, seed {seed}"
            bad = [None, "no answer", ["no", None], spoilt(answer)]
            if isinstance(answer, list):
                bad += [answer + answer[-1:]] * bool(answer) + [answer[:-1]] * bool(answer)
            for wrong in bad:
                taken = wrong != answer and right(space, wrong, kept)
                assert not taken, f"accepted: {wrong!r:.80} for {answer!r:.80}"
"""
REWRITE = """
def check(candidate):
    for size, space in spaces.items():
        for seed in SEEDS:
            given = space["inputs"](seed)
            kept = copy.deepcopy(given)
            assert right(space, candidate(*given), kept), f"wrong answer: size {size}, seed {seed}"
"""
VERDICTS = {"faster": {"pass"}, "slower": {"pass"}, "wrong": {"fail"}, "broken": {"load-error", "error"}}


def sizes_of(item, kind):
    """A problem may be timed at a small size: SIZE can be the exponent of a length."""
    sizes = (MODERATE,) if kind == "wrong" else (SMALL, MODERATE)
    return tuple(min(size, item.size) for size in sizes)


def inputs_of(item, size):
    space = {}
    exec(item.tests_of(size), space)
    return space["inputs"]


def digests(item, size, seeds):
    make = inputs_of(item, size)
    return [hashlib.sha256(repr(make(seed)).encode()).hexdigest() for seed in seeds]


def program(item, kind, source):
    sizes, seeds = sizes_of(item, kind), range(6)
    lines = [
        f"TESTS = {({size: item.tests_of(size) for size in sizes})!r}",
        f"SIZES, SEEDS = {sizes!r}, {seeds!r}",
        f"DIGESTS = {({size: digests(item, size, seeds) for size in sizes})!r}",
        COMMON,
        REFERENCE if kind == "reference" else REWRITE,
    ]
    fields = {"language": item.language, "signature": item.signature}
    return Program({"main": source}, item.entry_point, "\n".join(lines), **fields)


@pytest.fixture(scope="module")
def executor():
    # All inputs of a program count together, and slow ones may be timed at a size below MODERATE.
    with Executor(workers=2, limits=Limits(cpu_seconds=10), min_level=1) as running:
        yield running


@pytest.fixture(scope="module")
def reports(executor):
    """{source: {task_id: [(kind, source, Report), ...]}}; all programs of a language run in one batch."""
    known = {}

    def of(source):
        if source not in known:
            if source == "cpp":
                try:
                    cpp_tools.find()
                except cpp_tools.NoCompiler as error:
                    pytest.skip(str(error))
            rows = [
                (item, kind, text)
                for item in ITEMS[source]
                for kind, text in [("reference", item.source), *((r.kind, r.source) for r in item.rewrites)]
            ]
            actual = known[source] = {item.task_id: [] for item in ITEMS[source]}
            done = executor.run([program(*row) for row in rows])
            for (item, kind, text), report in zip(rows, done, strict=True):
                actual[item.task_id].append((kind, text, report))
        return known[source]

    return of


def reports_of(item, reports):
    return reports("cpp" if item.language == "c++" else "python")[item.task_id]


@pytest.mark.parametrize("item", EVERY)
def test_the_checker_takes_the_reference_and_nothing_else(item, reports):
    ((_, _, report),) = [row for row in reports_of(item, reports) if row[0] == "reference"]
    assert report.verdict == "pass", report.failures


@pytest.mark.parametrize("item", EVERY)
def test_rewrites_are_what_they_are_called(item, reports):
    for kind, text, report in reports_of(item, reports):
        if kind != "reference":
            assert report.verdict in VERDICTS[kind], (kind, text, report.verdict, report.failures)


@pytest.mark.parametrize("item", EVERY)
def test_inputs_follow_from_the_seed(item):
    # At a small size two seeds may give the same.
    for size, least in zip(sizes_of(item, "reference"), (6, 11), strict=True):
        first = digests(item, size, range(12))
        assert first == digests(item, size, range(12))
        assert len(set(first)) >= least, size
    # As in timing, which draws seeds from 2**32 on: no two inputs of a measurement are the same.
    assert len(set(digests(item, item.size, range(2**40, 2**40 + 4)))) == 4
