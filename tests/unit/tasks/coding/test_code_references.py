"""Reference answers of coding are right programs: they are judged as answers, by the task's own executor."""

import pytest

from jaxmarl_llm.executor import Executor
from jaxmarl_llm.tasks import CodingTask
from jaxmarl_llm.tasks.coding.data_files import load_humaneval, load_starter
from jaxmarl_llm.tasks.coding.items import item_from_row

TEAM, ALONE = ("aux", "main"), ("main",)


def problem(name, signature, solution, calls, prompt=None):
    entry_point = signature.partition("(")[0]
    text = prompt or f'def {signature}:\n    """Text."""\n'
    test = "def check(candidate):\n" + "".join(f"    assert {call}\n" for call in calls.split("; "))
    row = {"task_id": name, "prompt": text, "entry_point": entry_point, "test": test}
    return item_from_row(row | {"canonical_solution": solution})


# Solutions with one function, the helper of which gets all, and solutions with an aux.
DIVISIBLE = [
    problem("import", "f(r)", "import math\n\n\ndef f(r):\n    return math.floor(r)\n", "candidate(1.5) == 1"),
    problem("constant", "f(s)", "AB = 'ab'\n\ndef f(s):\n    return sum(c in AB for c in s)\n",
            "candidate('bcb') == 2"),
    problem("decorator", "f(n)", "from functools import lru_cache\n\n@lru_cache(\n    None\n)\ndef f(n):\n"
            "    return n\n",
            "candidate(9) == 9"),
    problem("class", "f(x)", "class Box:\n    def __init__(self, v):\n        self.v = v\n\ndef f(x):\n"
            "    return Box(x + 1).v\n", "candidate(1) == 2"),
    problem("default", "f(x, by=2)", "def f(x: int, by: int = 2) -> int:\n    return x * by\n",
            "candidate(3) == 6; candidate(3, by=4) == 12; candidate(3, 4) == 12"),
    problem("default of a body", "f(x, by=2)", "    return x * by\n",
            "candidate(3) == 6; candidate(3, by=4) == 12"),
    problem("keyword only", "f(x, *, by)", "def f(x, *, by):\n    return x * by\n", "candidate(3, by=4) == 12"),
    problem("stars", "f(*xs, **kw)", "    return sum(xs) + kw.get('k', 0)\n",
            "candidate(1, 2) == 3; candidate(1, k=4) == 5"),
    problem("text", "f(a)", 'def f(a):\n    return f"""{a}\n\n  \nend"""\n',
            r"candidate('x') == 'x\n\n  \nend'"),
    problem("docstring", "f(a)", 'def f(a):\n    """One.\n\n    Two."""\n\n    # why\n    return a\n',
            "candidate(1) == 1"),
    problem("import in the prompt", "f(r)", "    return math.floor(r)\n", "candidate(1.5) == 1",
            'def f(r):\n    import math\n    """\n    Round down.\n    """\n'),
    problem("helper in the prompt", "f(r)", "    return one(r)\n", "candidate(1) == 2",
            'def one(x):\n    return x + 1\n\n\ndef f(r):\n    """Add one."""\n'),
    problem("in place", "f(xs)", "    xs.sort()\n",
            "candidate([]) is None; (lambda v: (candidate(v), v))([2, 1])[1] == [1, 2]"),
    problem("generator", "f(n)", "    yield from range(n)\n", "list(candidate(3)) == [0, 1, 2]"),
    problem("argument called value", "f(value)", "    return value + 1\n", "candidate(1) == 2"),
    problem("name in strings", "f(x)", "    return f'{x} f(x)'\n", "candidate(1) == '1 f(x)'"),
    problem("demonstration", "f(x)", "def f(x):\n    return x\n\nif __name__ == '__main__':\n"
            "    print(f(2))\n", "candidate(1) == 1"),
    problem("windows", "f(x)", "import math\r\n\r\ndef f(x):\r\n    return math.floor(x)\r\n",
            "candidate(1.5) == 1"),
    problem("aux", "f(x)", "def aux(x):\n    return x * 2\n\ndef f(x):\n    return aux(x) + 1\n",
            "candidate(1) == 3"),
    problem("aux with needs", "f(x)", "import math\nTWO, NONE = 2, []\n\ndef half(x):\n"
            "    return math.floor(x / TWO)\n\n"
            "def aux(x):\n    return half(x)\n\ndef f(x):\n    return aux(x) + math.floor(1.5)\n",
            "candidate(5) == 3"),
    problem("both need one", "f(x)", "import sys\nsys.setrecursionlimit(9999)\nONE = (1, 'a')\n\n"
            "def aux(x):\n    return x + ONE[0]\n\n"
            "def f(x):\n    return aux(x) + ONE[0]\n", "candidate(1) == 3"),
    problem("each other", "f(n)", "def aux(n):\n    return n == 0 or not f(n - 1)\n\ndef f(n):\n"
            "    return n == 0 or not aux(n - 1)\n",
            "candidate(1) is False; candidate(4) is True"),
]  # fmt: skip
# Nobody but a lone agent can write these.
UNDIVIDED = [
    problem("recursion", "f(n)", "def f(n):\n    return n and f(n - 1)\n", "candidate(3) == 0"),
    problem("functions", "f(n)", "def g(n):\n    return n\n\ndef f(n):\n    return g(n)\n",
            "candidate(3) == 3"),
    problem("lambda", "f(n)", "f = lambda n: n + 1\n", "candidate(3) == 4"),
    problem("aux in the prompt", "f(n)", "    return aux(aux(n))\n", "candidate(1) == 3",
            'def aux(x):\n    return x + 1\n\n\ndef f(n):\n    """Add two."""\n'),
    problem("argument called aux", "f(aux)", "    return aux + 1\n", "candidate(1) == 2"),
    problem("default that is an object", "f(x=None)", "NO = object()\n\ndef f(x=NO):\n    return x is NO\n"
            "", "candidate() is True"),
    problem("state", "f(x)", "SEEN = []\n\ndef aux(x):\n    SEEN.append(x)\n\ndef f(x):\n    aux(x)\n"
            "    return len(SEEN)\n",
            "candidate(1) == 1"),
    problem("global", "f(x)", "N = 0\n\ndef aux(x):\n    global N\n    N += x\n\ndef f(x):\n    aux(x)\n"
            "    return N\n", "candidate(1) == 1"),
    problem("call while loading", "f(x)", "def aux(x):\n    return x\n\nONE = aux(1)\n\ndef f(x):\n"
            "    return aux(x) + ONE\n",
            "candidate(1) == 2"),
]  # fmt: skip


def judged(items, agents):
    with Executor(workers=2) as executor:
        task = CodingTask(items, executor, agents)
        texts = [task.references(item) for item in items]
        return texts, task.judge(items, {agent: [text[agent] for text in texts] for agent in agents})


@pytest.mark.parametrize("items, agents", [(DIVISIBLE, TEAM), (DIVISIBLE + UNDIVIDED, ALONE)])
def test_reference_answers_pass_as_the_solutions_do(items, agents):
    texts, judgements = judged(items, agents)
    assert {i.task_id: j.failures for i, j in zip(items, judgements, strict=True) if j.verdict != "pass"} == {}
    assert all("\n\n" not in text for by_agent in texts for text in by_agent.values())


def test_solutions_that_are_not_divided():
    task = CodingTask(UNDIVIDED, None, TEAM)
    assert [item.task_id for item in UNDIVIDED if task.references(item) is not None] == []


def test_parts_have_what_they_need_and_no_more():
    (item,) = (item for item in DIVISIBLE if item.task_id == "aux with needs")
    assert CodingTask([item], None, TEAM).references(item) == {
        "aux": "import math\nTWO, NONE = 2, []\ndef half(x):\n    return math.floor(x / TWO)\ndef aux(x):\n"
            "    return half(x)",
        "main": "import math\ndef f(x):\n    return aux(x) + math.floor(1.5)",
    }  # fmt: skip


def test_one_function_each_where_the_function_alone_is_judged():
    by_name = {item.task_id: item for item in DIVISIBLE + UNDIVIDED}
    for agents, kept in ((TEAM, {"aux", "default"}), (ALONE, {"default"})):
        task = CodingTask(list(by_name.values()), None, agents, parsing="paper")
        for name in ("aux", "default", "import", "decorator", "class", "lambda"):
            assert (task.references(by_name[name]) is not None) == (name in kept), (agents, name)


@pytest.mark.parametrize("agents, number", [(TEAM, 162), (ALONE, 164)])
def test_reference_answers_of_humaneval_pass(agents, number):
    items = [item for item in load_humaneval() if CodingTask([item], None, agents).references(item)]
    judgements = judged(items, agents)[1]
    assert len(items) == number
    assert {i.task_id: j.failures for i, j in zip(items, judgements, strict=True) if j.verdict != "pass"} == {}


def test_reference_answers_of_some_starter_problems_pass():
    items = load_starter()[::20]
    _, judgements = judged(items, TEAM)
    assert {judgement.verdict for judgement in judgements} == {"pass"}
