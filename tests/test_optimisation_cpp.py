"""The C++ problems to make faster: complete, right where they must be, wrong where they must be."""

import math

import pytest

from jaxmarl_llm.executor import Executor, Limits, Program, available_level
from jaxmarl_llm.executor.cpp import tools
from jaxmarl_llm.executor.cpp.signature import parse
from jaxmarl_llm.tasks.optimisation_items import CATEGORIES, KINDS, load_items

ITEMS = load_items("cpp")
SMALL = 24
# As the executor checks timed answers, on three inputs; candidate(which, ...) is one of the right programs,
# or from RIGHT on one of the wrong ones.
CHECK = """
def check(candidate):
    import copy
    for which in range(COUNT):
        right = []
        for seed in range(3):
            given = inputs(seed)
            answer = candidate(which, *copy.deepcopy(given))
            right.append(accept(answer, *given) if "accept" in globals() else answer == expected(*given))
        assert candidate(0, *inputs(3)) is not None and all(right) == (which < RIGHT), (which, right)
"""


def namespace(item, size=SMALL):
    space = {}
    exec(item.tests_of(size), space)
    return space


def test_every_category_has_a_problem_with_rewrites():
    assert {item.category for item in ITEMS} == set(CATEGORIES) and len(ITEMS) >= 13
    for item in ITEMS:
        kinds = [rewrite.kind for rewrite in item.rewrites]
        assert kinds.count("faster") >= 2 and {"slower", "wrong"} <= set(kinds), item.task_id
        assert 5 <= item.source.count("\n") <= 25, item.task_id
        assert len({rewrite.technique for rewrite in item.rewrites}) == len(kinds), item.task_id


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.task_id)
def test_inputs_follow_seed_and_size(item):
    for size in (8, SMALL):
        inputs = namespace(item, size)["inputs"]
        assert inputs(5) == inputs(5) != inputs(6), size
    # The largest argument grows with SIZE; what passes between the processes stays small beside the work.
    largest, small = (
        max(len(a) for a in namespace(item, size)["inputs"](5) if hasattr(a, "__len__"))
        for size in (item.size, SMALL)
    )
    assert small <= 4 * SMALL and item.size / 2 <= largest <= 100_000


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.task_id)
def test_nonsense_is_refused_without_an_exception(item):
    space = namespace(item)
    given = space["inputs"](1)
    size = max(len(a) for a in given if hasattr(a, "__len__"))
    for n in (size, 2 * size - 1):
        for answer in (
            None,
            [],
            "x",
            1,
            0.5,
            math.nan,
            math.inf,
            [None] * n,
            [math.nan] * n,
            ["x"] * n,
            {1: 2},
        ):
            if "accept" in space:
                assert space["accept"](answer, *given) is False, answer
            else:
                assert (answer == space["expected"](*given)) is False, answer


def together(item, texts):
    """Several programs as one text, each in a namespace; an argument before the others chooses."""
    made = parse(item.signature)
    lines = [line for text in texts for line in text.splitlines() if line.startswith("#include")]
    for i, text in enumerate(texts):
        rest = [line for line in text.splitlines() if not line.startswith("#include")]
        lines += [f"namespace program_{i} {{", *rest, "}"]
    given = [(p.cpp, f"argument_{i}") for i, p in enumerate(made.parameters)]
    header = ", ".join(["int which", *map(" ".join, given)])
    header = f"{made.result.cpp} {made.name}({header})"
    names = ", ".join(name for _, name in given)
    lines.append(f"{header} {{\nswitch (which) {{")
    lines += [f"case {i}: return program_{i}::{made.name}({names});" for i in range(len(texts))]
    return "\n".join([*lines, "}\nreturn {};\n}"]), header


def test_programs_do_as_they_say():
    level, reason = available_level()
    try:
        tools.find()
    except tools.NoCompiler as error:
        pytest.skip(str(error))
    if level < 2:
        pytest.skip(reason)
    programs, wanted = [], []

    def add(item, text, tests, signature, verdict):
        tests = item.tests_of(SMALL) + tests
        programs.append(Program({"main": text}, item.entry_point, tests, language="c++", signature=signature))
        wanted.append((item.task_id, verdict))

    for item in ITEMS:
        texts = {kind: [r.source for r in item.rewrites if r.kind == kind] for kind in KINDS}
        right = [item.source, *texts["faster"], *texts["slower"]]
        text, signature = together(item, right + texts["wrong"])
        count = len(right) + len(texts["wrong"])
        add(item, text, f"COUNT, RIGHT = {count}, {len(right)}\n{CHECK}", signature, "pass")
        for broken in texts["broken"]:
            add(item, broken, "def check(candidate):\n    assert candidate()\n", item.signature, "load-error")
    with Executor(limits=Limits(cpu_seconds=10)) as executor:
        reports = executor.run(programs)
    for (name, verdict), report in zip(wanted, reports, strict=True):
        assert report.verdict == verdict, (name, report.failures)
