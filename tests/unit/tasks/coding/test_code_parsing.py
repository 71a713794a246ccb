"""task.parsing=python: right answers of every form earn what is right, totals worked out by hand.

An aux that is there and not called: structure 0.4 + 0.6, syntax 0.5, tests 1, cooperation 0: 2.5 of 4.
"""

import pytest

from jaxmarl_llm.executor import Executor
from jaxmarl_llm.tasks.coding import usage
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.sources import source
from jaxmarl_llm.tasks.coding.task import CodingTask

AUX = "def aux(x):\n    return x\n"
WITH_FENCE = 'def f(xs):\n    """Sort, as in\n\n    ```\n    f([2, 1])\n    ```\n    """\n    return sorted(xs)\n'


@pytest.fixture(scope="module")
def executor():
    with Executor(workers=1) as executor:
        yield executor


def item(test, prelude="", entry="f"):
    return CodingItem("t/1", f"def {entry}(x):\n", entry, f"def check(candidate):\n    {test}\n", ("x",), prelude)


def judged(executor, test, main, aux=AUX, parsing="python", **kwargs):
    problem = item(test, **kwargs)
    (judgement,) = CodingTask([problem], executor, parsing=parsing).judge([problem], {"aux": [aux], "main": [main]})
    return judgement


SORTS = "assert candidate([2, 1]) == [1, 2]"
IN_PLACE = "xs = [1, 2]\n    candidate(xs)\n    assert xs == [2, 3]"
RAISES = """try:
        candidate(-1)
        ok = False
    except ValueError:
        ok = True
    assert ok"""


@pytest.mark.parametrize("test, main", [
    # all that a file may hold besides the function
    (SORTS, "from typing import List\n\ndef f(xs: List[int]) -> List[int]:\n    return sorted(xs)"),
    (SORTS, "from __future__ import annotations\nimport bisect\n\ndef f(xs):\n    out = []\n    for x in xs:\n"
            "        bisect.insort(out, x)\n    return out"),
    (SORTS, "REVERSED = False\n\ndef f(xs):\n    return sorted(xs, reverse=REVERSED)"),
    (SORTS, "def _key(x):\n    return x\n\ndef f(xs):\n    return sorted(xs, key=_key)"),
    (SORTS, "def f(xs):\n    return sorted(xs, key=_key)\n\ndef _key(x):\n    return x"),
    (SORTS, "class Sorter:\n    def run(self, xs):\n        return sorted(xs)\n\n"
            "def f(xs):\n    return Sorter().run(xs)"),
    (SORTS, "def f(xs):\n    def key(x):\n        return x\n    return sorted(xs, key=key)"),
    (SORTS, "def f(xs):\n    return xs\n\ndef f(xs):\n    return sorted(xs)"),  # Python takes the second one
    (SORTS, "f = lambda xs: sorted(xs)"),
    (SORTS, "f = sorted"),
    (SORTS, "try:\n    from fast import f\nexcept ImportError:\n    def f(xs):\n        return sorted(xs)"),
    (SORTS, "import functools\n\ndef kept(g):\n    @functools.wraps(g)\n    def h(*a):\n        return g(*a)\n"
            "    return h\n\n@kept\ndef f(xs):\n    return sorted(xs)"),
    ("assert candidate(60) == 1548008755920",
     "from functools import lru_cache\n\n@lru_cache(None)\ndef f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)"),
    ("assert candidate(12, 18) == 6", "from math import gcd as f"),
    # functions without `return <value>`
    ("assert list(candidate(3)) == [3, 2, 1]", "def f(n):\n    while n:\n        yield n\n        n -= 1"),
    ("assert sum(candidate(4)) == 10", "def f(n):\n    yield from range(n + 1)"),
    (IN_PLACE, "def f(xs):\n    for i in range(len(xs)):\n        xs[i] += 1"),
    ("d = {'a': 1}\n    candidate(d)\n    assert d == {}", "def f(d):\n    d.clear()"),
    (RAISES, "def f(n):\n    if n <= 0:\n        raise ValueError(n)"),
    ("assert candidate(1) is None", "def f(n):\n    pass"),
    ("s = candidate()\n    s.push(3)\n    assert s.pop() == 3",
     "class f:\n    def __init__(self):\n        self.xs = []\n    def push(self, x):\n        self.xs.append(x)\n"
     "    def pop(self):\n        return self.xs.pop()"),
    # how the answer is put
    (SORTS, "Here is the function:\n\ndef f(xs):\n    return sorted(xs)\n\nIt sorts them."),
    (SORTS, "Sure!\n\n```python\nimport operator\n\ndef f(xs):\n    return sorted(xs)\n```\nDone."),
    (SORTS, f"```python\n{WITH_FENCE}```\nThat is all."),
    (SORTS, WITH_FENCE),
    ("assert candidate() == '```'", "```\ndef f():\n    return '```'\n```"),
    ("assert candidate() == '\\n```\\nx\\n'", "TEXT = '''\n```\nx\n'''\n\ndef f():\n    return TEXT"),
    (SORTS, "First a helper:\n\n```python\ndef key(x):\n    return x\n```\nand then\n\n```python\n"
            "def f(xs):\n    return sorted(xs, key=key)\n```"),
    (SORTS, "1. The key:\n\ndef key(x):\n    return x\n\n2. The rest:\n\ndef f(xs):\n    return sorted(xs, key=key)\n"),
    (SORTS, "   ```python\n   def f(xs):\n       return sorted(xs)\n   ```"),
    (SORTS, "def f(xs):\r\n    return sorted(xs)\r\n"),
    (SORTS, "def f(xs):\n    return sorted(xs)\n\nprint(f([3]))\nassert f([]) == 1"),  # demonstrations are left out
    (SORTS, "def f(xs):\n    return sorted(xs)\n\nNote: this sorts\n"),
])  # fmt: skip
def test_what_python_would_run_is_judged(executor, test, main):
    judgement = judged(executor, test, main)
    assert (judgement.verdict, judgement.total, judgement.failures) == ("pass", 2.5, ())
    assert judgement.parts == {"structure": 1.0, "syntax": 0.5, "tests": 1.0, "cooperation": 0.0}


@pytest.mark.parametrize("test, main, total, verdict", [
    (SORTS, "import sys\nsys.exit()\n\ndef f(xs):\n    return sorted(xs)", 1.5, "load-error"),  # top-level code runs
    (SORTS, "def f(xs):\n    return sorted(xs)\n\ndef f(xs):\n    return xs", 1.5, "fail"),
    (SORTS, "class Solution:\n    def f(self, xs):\n        return sorted(xs)", 0.4, "no-main"),  # a method
    (SORTS, "def g(xs):\n    return sorted(xs)", 0.4, "no-main"),
    (SORTS, "def f(xs:\n    return sorted(xs)", 1.0, "syntax"),
    (SORTS, "async def f(xs):\n    return sorted(xs)", 1.5, "unsupported"),  # a coroutine is no list
    (RAISES, "def f(n):\n    pass", 1.5, "fail"),
    ("", "", 0.4, "no-main"),
])
def test_what_python_would_not_run(executor, test, main, total, verdict):
    judgement = judged(executor, test or SORTS, main)
    assert (judgement.total, judgement.verdict) == (total, verdict)


@pytest.mark.parametrize("main, total", [
    # 1.0 + 0.5 + 1.0 + 1.5: aux doubles, and main's own function calls it
    ("def _twice(x):\n    return aux(x)\n\ndef f(x):\n    return _twice(x) + 1", 4.0),
    ("def f(x):\n    return _twice(x) + 1\n\ndef _twice(x):\n    v = aux(x)\n    return v", 4.0),
    ("import functools\n\ndef f(x):\n    return functools.reduce(lambda a, b: a + b, map(aux, [x])) + 1", 4.0),
    ("def aux(x):\n    return 2 * x\n\ndef f(x):\n    return aux(x) + 1", 2.5),  # its own aux is the one that runs
    ("def f(x):\n    return 2 * x + 1", 2.5),
])
def test_cooperation_through_functions_of_mains_own(executor, main, total):
    assert judged(executor, "assert candidate(3) == 7", main, aux="def aux(x):\n    return 2 * x").total == total


def test_agents_do_not_share_names_beside_their_functions(executor):
    """Both have a helper `_key` and a function `max`; each uses its own."""
    aux = "BASE = 10\n\ndef _key(x):\n    return x + BASE\n\ndef aux(x):\n    return max(_key(x), 0)"
    main = "def max(a, b):\n    return -1\n\ndef _key(x):\n    return aux(x) + 1\n\ndef f(x):\n    return _key(x)"
    assert judged(executor, "assert candidate(3) == 14", main, aux).total == 4.0
    leaky = "def f(x):\n    return BASE + aux(x)"
    judgement = judged(executor, "assert candidate(3) == 23", leaky, aux)
    assert (judgement.verdict, judgement.total) == ("error", 1.5)
    assert "name 'BASE' is not defined" in judgement.failures[0]


@pytest.mark.parametrize("main", [
    "def f(xs):\n    return sorted(xs, key=_key)\n\ndef _key(x):\n    return x", "def f(n):\n    yield n",
])
def test_the_papers_rule_stays_by_name(executor, main):
    judgement = judged(executor, SORTS, main, parsing="paper")
    whole = "return" in main
    assert (judgement.total, judgement.verdict) == ((1.5, "error") if whole else (0.4, "no-main"))


def test_the_papers_rule_takes_the_text_of_the_function():
    text = "import math\n\n@cache\ndef f(x):\n    return math.pi\n"
    assert source(text, "f", "paper") == "def f(x):\n    return math.pi"
    assert source(text, "f") == text.strip("\n")
    with pytest.raises(ValueError, match="parsing is 'loose'; allowed: python, paper"):
        CodingTask([item(SORTS)], None, parsing="loose")


@pytest.mark.parametrize("program, calls, ignores, thin", [
    ("def g(x):\n    return aux(x)\n\ndef f(x):\n    return g(x) + 1", True, False, False),
    ("def f(x):\n    g(x)\n    return x\n\ndef g(x):\n    aux(x)", True, True, False),
    ("def g(x):\n    return aux(x)\n\ndef f(x):\n    return x", False, False, False),  # never named by f
    ("import aux\n\ndef f(x):\n    return aux(x)", False, False, True),
    ("f = lambda x: aux(x)", True, False, True),
    ("def f(x):\n    return 1\n\ndef f(x):\n    return aux(x)", True, False, True),
    ("class f:\n    def run(self, x):\n        return aux(x) + 1", True, False, False),
    ("def f(x:\n    return aux(x)", False, False, False),
])
def test_what_the_text_of_a_program_says_of_the_helper(program, calls, ignores, thin):
    main = usage.main_text(program, "f")
    judged_text = usage.calls_function(main), usage.ignores_result(main), usage.is_thin_wrapper(main)
    assert judged_text == (calls, ignores, thin)
