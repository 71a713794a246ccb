"""Canonical forms of problems, overlaps of splits, nearest neighbours."""

import dataclasses
import re

import pytest

from jaxmarl_llm.analysis.doctor import data
from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import tasks
from jaxmarl_llm.tasks import split_overlap
from jaxmarl_llm.tasks.coding.canonical import canonical_prompt, canonical_solution
from jaxmarl_llm.tasks.coding.data_files import load_humaneval, load_items
from jaxmarl_llm.tasks.coding.items import item_from_row
from jaxmarl_llm.tasks.coding.operations import operation_pair, operations
from jaxmarl_llm.tasks.split_overlap import Neighbour, Overlap, nearest, overlaps, similarity
from jaxmarl_llm.tasks.toys import convention
from jaxmarl_llm.tasks.toys.lock import load_items as load_locks
from jaxmarl_llm.tasks.writing.items import WritingItem

TEST = "def check(candidate):\n    assert candidate(1) == 1\n"


def item(task_id, signature="f(x)", doc="Return x.", solution="", **fields):
    prompt = f'def {signature}:\n    """{doc}"""\n'
    row = {"task_id": task_id, "prompt": prompt, "entry_point": signature.partition("(")[0], "test": TEST}
    return item_from_row(row | {"canonical_solution": solution} | fields)


def two_steps(helper, main, params="x"):
    first = f"def aux({params}):\n    return {helper}\n\n\n"
    second = f"def f({params}):\n    value = aux({params})\n    return {main}\n"
    return item("two", f"f({params})", "Doc", first + second)


def test_a_solution_up_to_names():
    one = item("a", "total(numbers)", solution=(
        "import math\n\ndef part(ns: list) -> int:\n    '''Sum.'''\n    return sum(n for n in ns)\n\n"
        "def total(numbers):\n    value: int = part(numbers)\n    return math.floor(value) + 1\n"
    ))
    other = item("b", "g(xs)", solution=(
        "def aux(max):\n    return sum(k for k in max)\n\n\n"
        "def g(xs):\n    # a comment\n    s = aux(xs)\n    return math.floor(s)+1\n"
    ))
    assert canonical_solution(one) == canonical_solution(other) == (
        "def f0(v0):\n    return sum((v1 for v1 in v0))\n\n"
        "def f1(v2):\n    v3 = f0(v2)\n    return math.floor(v3) + 1"
    )
    for changed in ("floor(s) + 2", "ceil(s) + 1"):
        text = other.canonical_solution.replace("floor(s)+1", changed)
        third = dataclasses.replace(other, canonical_solution=text)
        assert canonical_solution(third) != canonical_solution(one)


def test_a_solution_that_is_a_body_or_none():
    assert canonical_solution(item("a", solution="    return x * 2\n")) == "def f0(v0):\n    return v0 * 2"
    assert canonical_solution(item("a")) == ""
    assert canonical_solution(item("a", solution="  for x in\n  y ")) == "for x in y"
    assert all(canonical_solution(i).startswith("def f0(") for i in load_humaneval(0, 40) if not i.prelude)


def test_a_prompt_up_to_names():
    text = "Count n in line, as total(line,  2) does."
    one = canonical_prompt(item("a", "total(line: str, n) -> int", text))
    assert one == "count v1 in v0 , as f ( v0 , 2 ) does ."
    assert one == canonical_prompt(item("b", "g(x, y)", "Count y in x,\n    as g(x, 2) does."))
    assert one != canonical_prompt(item("b", "g(x, y)", "Count x in y, as g(x, 2) does."))
    broken = dataclasses.replace(item("c"), prompt="Some text\ndef f(x):\n  # no docstring")
    assert canonical_prompt(broken) == "some text def f ( v0 ) : # no docstring"


@pytest.mark.parametrize("solution, changes, equal", [
    ("def f(x):\n    try:\n        return int(x)\n    except ValueError as e:\n        return str(e)",
     {"e": "err"}, True),
    ("def f(x):\n    def g(n):\n        return n\n    return g(n=x)", {"n": "m", "g": "part"}, True),
    ("import asyncio\nasync def g(x):\n    return x\ndef f(x):\n    return asyncio.run(g(x))", {"g": "h"}, True),
    ("c = 0\ndef f(x):\n    global c\n    c += x\n    return c", {"c": "count"}, True),
    ("def f(x):\n    c = 0\n    def g():\n        nonlocal c\n        c += x\n    g()\n    return c", {"c": "d"}, True),
    ("def f(x):\n    match x:\n        case [a, *r]:\n            return a, r\n        case {'k': v, **m}:\n"
     "            return v, m\n        case int() as i:\n            return i",
     dict(zip("arvmi", "ghjkl", strict=True)), True),
    ("import math as m\ndef f(x):\n    return m.sqrt(x)", {"math as m": "math", "m.sqrt": "math.sqrt"}, True),
    ("from math import sqrt\ndef f(x):\n    return sqrt(x)", {"sqrt(x)": "root(x)", "sqrt\n": "sqrt as root\n"}, True),
    ("import math\ndef f(x):\n    return math.sqrt(x)", {"math": "cmath"}, False),
    ("class A:\n    'Box.'\n    n = 0\n    def at(self, v):\n        return self.n + v\n\n"
     "def f(x):\n    return A().at(v=x)",
     {"'Box.'": "'A.'", "n": "m", "at": "plus", "v": "w"}, True),
    ("class A:\n    def __init__(self, v):\n        self.v = v\n    def read(self):\n        return self.v\n\n"
     "def f(x):\n    return A(v=x).read()", {"A": "Box", "self": "me", "v": "w", "read": "value"}, True),
    ("class A:\n    def __len__(self):\n        return 0\n\ndef f(x):\n    return A()", {"__len__": "__bool__"}, False),
    ("class A:\n    def pop(self):\n        return 0\n\ndef f(x):\n    return x.pop()", {"pop": "append"}, False),
    ("from typing import NamedTuple\nclass P(NamedTuple):\n    a: int\n    b: int\n\ndef f(x):\n    return P(1, 2).a",
     {"a": "left", "b": "right"}, True),
    ("from typing import NamedTuple\nclass P(NamedTuple):\n    a: int\n    b: int\n\ndef f(x):\n    return P(1, 2).a",
     {"P(1, 2).a": "P(1, 2).b"}, False),
    ("def f(x):\n    return sorted(x, key=len)", {"key": "by"}, False),  # of a builtin
])  # fmt: skip
def test_every_name_that_a_solution_binds(solution, changes, equal):
    other = solution
    for old, new in changes.items():
        other = re.sub(r"\b" * old[0].isalnum() + re.escape(old) + r"\b" * old[-1].isalnum(), new, other)
    assert other != solution
    both = [canonical_solution(item("t", solution=text)) for text in (solution, other)]
    assert (both[0] == both[1]) == equal, both


def test_prompts_in_other_scripts():
    russian = canonical_prompt(item("a", "f(s, слово)", "Верни строку слово, Ёж."))
    assert russian == "верни строку v1 , ёж ."
    assert canonical_prompt(item("a", "f(s)", "返回s的倒序")) == "返 回 v0 的 倒 序"  # no spaces between words
    train = [item("ru", "f(s)", "Верни строку задом наперёд."), item("zh", "f(s)", "返回s的倒序的字符串")]
    other = [item("ru2", "f(s)", "Сделай буквы большими."), item("zh2", "g(t)", "返回t的倒序的字符串")]
    assert overlaps(train, other) == [Overlap("zh2", "zh", "prompt")]
    assert [near.similarity for near in nearest(train, other)] == [0.0, 1.0]
    # 返回s, 回s的, s的倒, 的倒序 of the first, and the same with 正 of the second: two of six
    assert similarity("返回s的倒序", "返回s的正序") == pytest.approx(2 / 6)


def test_prompts_without_a_docstring_keep_the_name_of_the_function():
    def bare(name, text):
        return dataclasses.replace(item(name, f"{name}(s)"), prompt=text)

    one, other = bare("reverse_words", "def reverse_words(s):\n"), bare("upper_case", "def upper_case(s):\n")
    assert canonical_prompt(one) == "def reverse_words ( v0 ) :" and overlaps([one], [other]) == []
    dots = [bare(name, f'def {name}(s):\n    """..."""\n') for name in ("reverse_words", "upper_case")]
    assert overlaps(dots[:1], dots[1:]) == []
    noted = [bare(name, f"# Reverse s.\ndef {name}(s):\n") for name in ("one", "two")]
    assert canonical_prompt(noted[0]) == canonical_prompt(noted[1]) == "# reverse v0 . def f ( v0 ) :"
    late = bare("one", 'def one(s):\n    import math\n    """Round s."""\n')
    assert canonical_prompt(late) == "round v0 ."


@pytest.mark.parametrize("one, other, equal", [
    (("a * b", "value + 3", "a, b"), ("y * z", "value + 99", "y, z"), True),  # names and constants
    (("x.upper()", "value[::-1]"), ("x[::-1]", "value.upper()"), True),  # the order
    (("x", "2 * value"), ("x", "value * 5"), True),
    (("x", "-value"), ("x", "value * 3"), True),
    (("x", "value - 3"), ("x", "value + 8"), True),
    (("x", "value / 2"), ("x", "value * 8"), True),
    (("x", "value * value"), ("x", "value ** 3"), True),
    (("x[0]", "value + 1"), ("x[-1]", "value + 1"), False),  # which item is no constant
    (("x", "value + 1"), ("x", "value * 1"), False),
    (("x", "value + 1"), ("x", "value + '1'"), False),
    (("a - b", "value + 1", "a, b"), ("a + b", "value + 1", "a, b"), False),
    (("max(x)", "value + 1"), ("min(x)", "value + 1"), False),
])
def test_pairs_of_operations(one, other, equal):
    assert (operation_pair(two_steps(*one)) == operation_pair(two_steps(*other))) == equal


def test_operations_are_helper_and_main():
    assert operations(two_steps("max(x)", "value - 2")) == (
        "def f0():\n    return max(v0)", "def f0():\n    return v0 + 'NUMBER'"
    )
    assert operations(item("a", solution="def f(x):\n    return x")) is None
    assert operation_pair(item("a")) is None


def test_overlaps():
    train = [item("a", "f(x)", "Double x.", "def f(x):\n    return 2 * x"), item("b", doc="Other.")]
    same_text = item("c", "g(n)", "Double  n.", "def g(n):\n    return n + n")
    same_code = item("d", "h(k)", "Two times k.", "def h(k):\n    return 2 * k")
    new = item("e", "f(x)", "Triple x.", "def f(x):\n    return 3 * x")
    assert overlaps(train, [new, same_text, same_code, train[1]]) == [
        Overlap("c", "a", "prompt"), Overlap("d", "a", "solution"), Overlap("b", "b", "prompt"),
    ]
    split_overlap.check_disjoint(train, [new])
    message = (
        r"^3 of 4 problems occur in training, names aside: 'c' \(prompt as that of 'a'\); 'd' \(solution as "
        r"that of 'a'\); 'b' \(equal prompt\)\. Choose splits, slices or files without common problems$"
    )
    with pytest.raises(ValueError, match=message):
        split_overlap.check_disjoint(train, [new, same_text, same_code, train[1]])


def test_overlaps_of_texts_and_of_what_has_none():
    train = [WritingItem("p/1", "A post about\n ducks.")]
    assert overlaps(train, [WritingItem("q/1", "A Post about ducks. "), WritingItem("q/2", "Else")]) == [
        Overlap("q/1", "p/1", "text")
    ]
    locks = load_locks("locks", "all")
    assert overlaps(locks, locks) == [] and split_overlap.parts(locks[0]) == {}


def test_similarity_by_hand():
    assert similarity("a b c d", "a b c d") == 1.0
    assert similarity("a b c d", "x a b c") == pytest.approx(1 / 3)  # abc; bcd, xab
    assert similarity("a b", "a b") == 1.0 and similarity("a b", "a c") == 0.0  # shorter than three tokens


def test_nearest():
    train = [WritingItem("t1", "one two three four"), WritingItem("t2", "two three four five six")]
    other = [WritingItem("o", "two three four five"), WritingItem("p", "nothing alike here at all")]
    assert nearest(train, other) == [Neighbour("o", "t2", "text", 2 / 3), Neighbour("p", "t1", "text", 0.0)]
    assert nearest([], other) == []


def test_checks_of_the_doctor():
    train, other = [item("a", doc="Double x at once.")], [item("b", doc="Double x at last.")]
    assert data.splits({"train": train, "test": other}) == (
        "splits", "ok",
        "1 of train, 1 of test: no text or solution occurs in two of them, names aside",
    )
    broken = data.splits({"train": train, "eval": other, "test": train})
    assert broken.status == "fail" and broken.sentence.startswith("of test, 1 of 1 problems occur in train")
    shared = data.splits({"train": train, "eval": other, "test": other})
    assert shared.status == "fail" and shared.sentence.startswith("of test, 1 of 1 problems occur in validation")
    neighbours = data.find_neighbours({"train": train, "test": other})
    assert data.nearest_neighbours(neighbours) == (
        "nearest neighbours", "ok",
        "similarity to training, of 1: prompt of test at most 0.20, mean 0.20 (b and a)"
    )
    assert data.table(neighbours)[2:] == ["| test | b | prompt | a | 0.20 |"]
    near = data.nearest_neighbours(data.find_neighbours({"train": train, "test": train}))
    assert near.status == "warn" and near.sentence.endswith("1 are 0.95 or more: are they the same problem?")
    locks = {"train": load_locks("locks", "all"), "eval": load_locks("locks", "all")}
    assert data.splits(locks).status == "skipped" and data.table(data.find_neighbours(locks)) == []
    assert data.nearest_neighbours(data.find_neighbours(locks)).status == "skipped"


def test_operations_that_training_has():
    train = [two_steps("max(x)", "value + 1"), two_steps("min(x)", "value * 2"), item("no", solution="")]
    other = [
        two_steps("max(x)", "value * 5"),
        two_steps("x.upper()", "max(value)"),
        two_steps("x + 1", "min(value)"),
    ]
    result = data.operations_seen({"train": train, "eval": train[2:], "test": other})
    assert result == (
        "operations seen",
        "ok",
        "problems of two steps, 3 of test: the helper step of 1, the main step of 1, both steps, in either "
        "place, of 2 occur in training, the pair of 0",
    )
    again = data.operations_seen({"train": train, "test": [two_steps("y + 7", "max(value)", "y")]})
    assert again.status == "warn" and "the pair of 1" in again.sentence
    assert data.operations_seen({"train": train, "test": train[2:]}).status == "skipped"


def test_humaneval_has_disjoint_splits():
    train, validation, test = (load_items("humaneval", s) for s in ("train", "validation", "test"))
    assert overlaps(train, validation) == overlaps(train, test) == overlaps(validation, test) == []


@pytest.mark.parametrize("kind, source, fields, wrong", [
    ("coding", "starter", {"eval_split": "test"}, "223 of 223 problems occur in validation, names aside"),
    ("tldr", "sample_posts", {"eval_split": "test"}, "15 of 15 problems occur in validation"),
    ("optimisation", "python", {"train_split": "all"}, "7 of 7 problems occur in training"),
    (f"{convention.__name__}:ConventionTask", "starter:steps", {"train_split": "all"}, "occur in training"),
])  # fmt: skip
def test_every_pair_of_splits_is_compared(kind, source, fields, wrong):
    config = base_config()
    config.task.update(kind=kind, source=source)
    splits = ("train", "eval", "test")
    fine = {split: tasks.build_task(config, None, split) for split in splits}
    tasks.check_splits(config, fine)
    config.task.update(fields)
    with pytest.raises(ValueError, match=wrong):
        tasks.check_splits(config, {split: tasks.build_task(config, None, split) for split in splits})
