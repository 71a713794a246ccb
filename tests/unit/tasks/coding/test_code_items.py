"""Rows of JSONL files: what a good one becomes, and what is said about bad ones, with line numbers."""

import json

import pytest

from jaxmarl_llm.tasks.coding.items import load_jsonl, read_signature

ROW = {"task_id": "a", "prompt": "def f(x, y=1):\n    \"\"\"Doc.\"\"\"\n", "entry_point": "f",
       "test": "def check(candidate):\n    assert candidate(1) == 1\n"}


def write(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), "utf-8")
    return path


def test_a_good_row(tmp_path):
    row = {**ROW, "canonical_solution": "    return x\n", "grade": 2, "something": "else"}
    row |= {"statement": "goal", "split": "test"}
    (item,) = load_jsonl(write(tmp_path, row, ""))
    assert (item.task_id, item.entry_point, item.params, item.prelude) == ("a", "f", ("x", "y"), "")
    assert (item.canonical_solution, item.grade) == ("    return x\n", 2)
    assert (item.statement, item.split) == ("goal", "test")
    assert (item.prompt, item.test) == (ROW["prompt"], ROW["test"])
    assert item.columns == {"something": "else"} and isinstance(hash(item), int)


def test_mbpp_numbers_its_tasks(tmp_path):
    (item,) = load_jsonl(write(tmp_path, {**ROW, "task_id": 11}))
    assert item.task_id == "11"
    assert (item.canonical_solution, item.grade, item.statement, item.split) == ("", 0, "", "")


def test_all_bad_rows_are_reported_at_once(tmp_path):
    path = write(
        tmp_path,
        {**ROW, "task_id": "good"},  # line 1
        "{not json",  # line 2
        "",
        [1, 2],  # line 4
        {k: v for k, v in ROW.items() if k != "test"},  # line 5
        {**ROW, "prompt": "  ", "entry_point": 3},  # line 6
        {**ROW, "test": "def check(candidate:\n    assert 1"},  # line 7
        {**ROW, "test": "assert f(1) == 1"},  # line 8
        {**ROW, "test": "def check(candidate):\n    candidate(1)\n\nassert True"},  # line 9
        {**ROW, "prompt": "def g(x):\n    pass"},  # line 10
        {**ROW, "prompt": "def f(x"},  # line 11
        {**ROW, "task_id": "good"},  # line 12
        {**ROW, "task_id": "late", "grade": "hard", "canonical_solution": None},  # line 13
        {**ROW, "task_id": "taken", "params": 1, "completions": []},  # line 14
    )
    with pytest.raises(ValueError) as caught:
        load_jsonl(path)
    first, *lines = str(caught.value).split("\n")
    assert first == f"{path}: 12 bad row(s)"
    expected = {
        2: "invalid JSON", 4: "a JSON list, expected an object", 5: "no field 'test'",
        6: "field 'prompt' is empty; field 'entry_point' is 3, expected text", 7: "test does not parse",
        8: "test does not define check(candidate)", 9: "check() in test has no assert",
        10: "prompt has no 'def f('", 11: "the signature of 'f' in the prompt does not parse",
        12: "task_id 'good' was already used in line 1",
        13: "field 'canonical_solution' is None, expected text; field 'grade' is 'hard', expected a whole",
        14: "field 'completions' has a name that is taken, rename it; field 'params' has a name",
    }
    assert len(lines) == len(expected)
    for line, (number, complaint) in zip(lines, expected.items(), strict=True):
        named = f" ({'good' if number == 12 else {13: 'late', 14: 'taken'}.get(number, 'a')})"
        assert line.startswith(f"  line {number}{'' if number in (2, 4) else named}: ") and complaint in line


def test_a_split_and_a_statement_that_are_none(tmp_path):
    rows = [{**ROW, "task_id": f"t{k}", "split": "test"} for k in range(6)]
    rows[1]["split"] = "held_out"
    del rows[2]["split"]
    rows[3] |= {"statement": "two words", "split": None}
    rows[4]["statement"] = 3
    with pytest.raises(ValueError) as caught:
        load_jsonl(write(tmp_path, *rows))
    assert str(caught.value).split("\n")[1:] == [
        "  line 2 (t1): field 'split' is 'held_out', expected one of train, validation, test",
        "  line 3 (t2): no field 'split', which other rows have",
        "  line 4 (t3): field 'split' is None, expected one of train, validation, test; "
        "field 'statement' is 'two words', expected one word",
        "  line 5 (t4): field 'statement' is 3, expected one word",
    ]


def test_a_statement_that_is_the_name_of_another_result(tmp_path):
    words = ("low", "high", "greedy", "turns", "turn12", "grade3", "low_level", "turned", "graded", "steps")
    rows = [{**ROW, "task_id": f"t{k}", "statement": word} for k, word in enumerate(words)]
    with pytest.raises(ValueError) as caught:
        load_jsonl(write(tmp_path, *rows))
    assert str(caught.value).split("\n")[1:] == [
        f"  line {k + 1} (t{k}): field 'statement' is '{word}': return_{word} is another result"
        for k, word in enumerate(words[:6])
    ]


def test_an_empty_file_and_a_missing_one(tmp_path):
    with pytest.raises(ValueError, match=r"rows\.jsonl: no rows; expected .*task_id, prompt, test"):
        load_jsonl(write(tmp_path, "", "  "))
    with pytest.raises(ValueError, match=r"nowhere\.jsonl: cannot be read"):
        load_jsonl(tmp_path / "nowhere.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"task_id": "\xe9"}')
    with pytest.raises(ValueError, match=r"latin\.jsonl: cannot be read"):
        load_jsonl(tmp_path / "latin.jsonl")


@pytest.mark.parametrize("signature, params", [
    ("def f():", ()),
    ("def f(a: list[int], b: str = 'x)') -> dict[str, int]:", ("a", "b")),
    ("def f(\n    a,\n    b,\n):", ("a", "b")),
    ("def f(a, /, b, *args, c=1, **rest):", ("a", "b", "*args", "c", "**rest")),
    ("def f(a): return a", ("a",)),
])
def test_parameter_names(signature, params):
    assert read_signature(f"{signature}\n    \"\"\"It's prose (not code).\"\"\"\n", "f") == (params, "")


def test_prelude():
    helpers = "from typing import List\n\n\ndef g(x):\n    return x"
    assert read_signature(f"{helpers}\n\n\ndef f(x: List):\n    '''Doc'''\n", "f") == (("x",), helpers)
    # Text that is no Python before the function: its imports stay.
    prompt = "import math\nWrite this:\nfrom x\n\ndef f(x):\n    '''Doc'''\n"
    assert read_signature(prompt, "f") == (("x",), "import math")


@pytest.mark.parametrize("signature, arguments, passed", [
    ("def f(a: int, b) -> int:", "a, b", "a, b"),
    ("def f():", "", ""),
    ("def f(x: int, by: float = 2.5):", "x, by=2.5", "x, by"),
    ("def f(x, *, by: int, to=(1, 2)):", "x, *, by, to=(1, 2)", "x, by=by, to=to"),
    ("def f(a, /, b=None, *args: int, c=1, **rest):", "a, /, b=None, *args, c=1, **rest", "a, b, *args, c=c, **rest"),
])
def test_an_argument_list_as_text(tmp_path, signature, arguments, passed):
    (item,) = load_jsonl(write(tmp_path, {**ROW, "prompt": f'{signature}\n    """Doc."""\n'}))
    assert (item.arguments, item.passed) == (arguments, passed)
