"""What is not plain data: objects, generators and functions stay where they are and are used from afar."""

import pytest

from jaxmarl_llm.executor import Executor, Limits, Program


@pytest.fixture(scope="module")
def executor(level):
    with Executor(workers=1, limits=Limits(cpu_seconds=1), min_level=1, level=level) as running:
        yield running


def run(executor, source, *lines, before=""):
    """A program whose check() has these lines."""
    tests = before + "def check(candidate):\n" + "".join(f"    {line}\n" for line in lines)
    (report,) = executor.run([Program({"main": source}, "f", tests)])
    return report


STACK = """
class f:
    kind = "stack"
    def __init__(self, *items):
        self.items = list(items)
    def push(self, item):
        self.items.append(item)
        return self
    def pop(self):
        return self.items.pop()
    def __len__(self):
        return len(self.items)
    def __iter__(self):
        return iter(self.items)
    def __getitem__(self, i):
        return self.items[i]
    def __setitem__(self, i, value):
        self.items[i] = value
    def __str__(self):
        return "stack of " + str(self.items)
    def __eq__(self, other):
        return True
    def __lt__(self, other):
        return True
    def __contains__(self, item):
        return True
"""


@pytest.mark.parametrize(
    "lines",
    [
        ["s = candidate()", "s.push(3).push(4)", "assert s.pop() == 4", "assert s.items == [3]"],
        ["assert len(candidate(1, 2)) == 2", "assert candidate.kind == 'stack'"],
        ["assert [x for x in candidate(1, 2)] == [1, 2]", "assert sum(candidate(5, 6)) == 11"],
        ["s = candidate(1, 2)", "s[0] = 9", "assert s[0] == 9 and s[-1] == 2"],
        ["s = candidate(1)", "s.items = [7, 8]", "assert str(s) == 'stack of [7, 8]'"],
        ["s = candidate()", "assert hasattr(s, 'push') and not hasattr(s, 'peek')", "assert s is not None"],
        [
            "try: candidate().pop()",
            "except IndexError as e: assert 'empty' in str(e)",
            "else: assert not candidate",
        ],
        # Membership is found by pulling: __contains__ would be the candidate's own verdict.
        ["assert 2 in candidate(1, 2)", "assert not (3 in candidate(1, 2))"],
    ],
)
def test_classes_can_be_tested(executor, lines):
    report = run(executor, STACK, *lines)
    assert report.verdict == "pass", report


@pytest.mark.parametrize(
    "line",
    [
        "assert candidate(1) == candidate(1)",
        "assert candidate(1) == [1]",
        "assert not candidate(1) != [1]",
        "assert [candidate(1)] == [[1]]",
        "assert candidate(1) < 5",
        "assert abs(candidate(1) - 3) < 1e-6",
        "assert candidate(1)",
        "assert not candidate()",
        "assert candidate(1) in {1, 2}",
        "assert {candidate(1)}",
        "assert max(candidate(1), 2) == 2",
    ],
)
def test_an_object_does_not_judge_itself(executor, line):
    report = run(executor, STACK, line)
    assert (report.verdict, report.passed) == ("unsupported", 0), report


@pytest.mark.slow
def test_generators_are_pulled(executor):
    source = "def f(n):\n    for i in range(n):\n        yield [i]\n"
    report = run(
        executor,
        source,
        "assert list(candidate(3)) == [[0], [1], [2]]",
        "g = candidate(10**12)",
        "assert next(g) == [0] and next(g) == [1]",
        "assert list(candidate(0)) == []",
    )
    assert report.verdict == "pass", report
    endless = "import itertools\ndef f(n):\n    return itertools.count()\n"
    assert run(executor, endless, "assert list(candidate(3)) == [0]").verdict != "pass"
    failing = "def f(n):\n    yield 1\n    raise KeyError(2)\n"
    assert run(executor, failing, "assert list(candidate(3)) == [1]").verdict == "error"


def test_functions_come_back_and_can_be_called(executor):
    source = "def f(n):\n    def add(x):\n        return x + n\n    return add\n"
    assert run(executor, source, "assert candidate(2)(3) == 5").verdict == "pass"


def test_the_tests_functions_and_iterators_can_be_passed(executor):
    source = "def f(key, items):\n    return sorted(items, key=key)[0] + sum(map(key, [1, 2]))\n"
    report = run(executor, source, "assert candidate(lambda x: -x, iter([5, 7])) == 4")
    assert report.verdict == "pass", report


TREE = "class Node:\n    def __init__(self, value, left=None):\n        self.value, self.left = value, left\n"


def test_objects_of_the_tests_are_read_and_changed(executor):
    source = (
        "def f(node):\n    total, seen = 0, set()\n    while node and node not in seen:\n"
        "        total += node.value\n        node.value = 0\n        seen.add(node)\n"
        "        node = node.left\n"
        "    return total\n"
    )
    lines = ["n = Node(1, Node(2))", "assert candidate(n) == 3", "assert n.left.value == 0"]
    assert run(executor, source, *lines, before=TREE).verdict == "pass"


@pytest.mark.parametrize(
    "source",
    [
        "def f(g, node):\n    return g.__globals__['SECRET']\n",
        "def f(g, node):\n    return g.__call__.__globals__['SECRET']\n",
        "def f(g, node):\n    return node.__init__.__globals__['SECRET']\n",
        "def f(g, node):\n    return node.method.__func__.__globals__['SECRET']\n",
        "def f(g, node):\n    return node._secret\n",
        "def f(g, node):\n    return node._peer.use(0, 'get', ('__globals__',), {})['SECRET']\n",
        "def f(g, node):\n    return node._peer.use(0, 'get', ('_secret',), {})\n",
        "def f(g, node):\n    return node._peer.use(1, 'get', ('_secret',), {})\n",
        "def f(g, node):\n    return node._peer.use(2, 'get', ('gi_frame',), {})\n",
        "def f(g, node):\n    return node._peer.use('candidate', 'call', (), {})\n",
        "def f(g, node):\n    return node._peer.use('f', 'get', ('SECRET',), {})\n",
        "def f(g, node):\n    return node._peer.use(99, 'call', (), {})\n",
        "def f(g, node):\n    return [node._peer.use(n, 'item', ('SECRET',), {}) for n in range(3)][0]\n",
        "def f(g, node):\n    return str(node)\n",
    ],
)
def test_nothing_else_of_the_tests_can_be_reached(executor, source):
    before = (
        "SECRET = 918273645\nclass Node:\n    _secret = SECRET\n    def method(self): pass\n"
        "def gen():\n    yield 1\n"
    )
    report = run(executor, source, "assert candidate(lambda: 1, Node()) == SECRET, gen()", before=before)
    assert report.verdict in ("error", "fail", "protocol"), report
    assert report.passed == 0


def test_objects_within_plain_data(executor):
    source = "class A:\n    v = 3\ndef f():\n    return {'a': [A(), A()], 'n': 1}\n"
    lines = ["d = candidate()", "assert d['n'] == 1", "assert [a.v for a in d['a']] == [3, 3]"]
    assert run(executor, source, *lines).verdict == "pass"
    as_key = "class A: pass\ndef f():\n    return {A(): 1}\n"
    assert run(executor, as_key, "assert candidate() == {}").verdict == "unsupported"


def test_objects_from_another_call_keep_their_identity(executor):
    source = "class A: pass\nkept = A()\ndef f(x=None):\n    return x is kept if x is not None else kept\n"
    lines = ["a = candidate()", "assert candidate(a) is True", "assert a is candidate()"]
    assert run(executor, source, *lines).verdict == "pass"


def test_questions_within_questions_end(executor):
    source = "def f(g):\n    return g(f)\n"
    report = run(executor, source, "def g(h): return h(g)", "assert candidate(g) == 1")
    assert report.verdict in ("error", "protocol", "fail"), report
