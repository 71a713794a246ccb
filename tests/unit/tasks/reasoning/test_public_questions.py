"""Public questions as the installed package has them: right answers are right, others wrong. Skipped without it."""

import importlib.util

import pytest

from jaxmarl_llm.tasks import installed_data
from jaxmarl_llm.tasks.reasoning import benchmarks
from jaxmarl_llm.tasks.reasoning.load import load_items

OTHER = {"number": "The answer is 987654321.", "choice": "I do not know.", "text": "The answer is nothing of this."}


@pytest.mark.parametrize("name", ["gsm8k", "bbh"])
def test_fifty_questions_and_more_are_judged_as_they_should(name):
    """All of the test: by the reference, by the same in the words of a model, and by an answer of no question."""
    if importlib.util.find_spec(installed_data.MODULE) is None:
        pytest.skip("modelco is not installed")
    items = load_items(f"modelco:{name}", "test")
    assert len(items) >= 50
    for item in items:
        for text in (f"The answer is {item.answer}.", f"So I add them up.\nAnswer: {item.answer}"):
            assert item.right(item.read(text), 0), (item.task_id, text)
        assert not item.right(item.read(OTHER[item.kind]), 0), item.task_id


def test_answers_are_read_as_numbers_or_as_texts():
    """Without the package: rows as it has them, of MATH."""
    rows = {
        r"2\frac{1}{4}": ("number", "2.25"), r"12,\!650": ("number", "12650"), r"60^\circ": ("number", "60 degrees"),
        r"\$425": ("number", "$425"), r"20\text{ miles}": ("number", "20 miles"), r"\text{even}": ("text", "even"),
        "4x + 18": ("text", "4x + 18"), "1,3": ("text", "1,3"),
    }  # fmt: skip
    for answer, (kind, text) in rows.items():
        item = benchmarks._of_output("math/1", "test", {"input": "What is it?", "output": answer})
        assert item.kind == kind and item.right(item.read(f"The answer is {text}"), 0), answer


def test_answers_of_other_questions_are_wrong():
    """Each of fifty of GSM8K with the answer of the next one, where that is another number."""
    if importlib.util.find_spec(installed_data.MODULE) is None:
        pytest.skip("modelco is not installed")
    items = load_items("modelco:gsm8k", "test")[:51]
    pairs = [(item, other) for item, other in zip(items, items[1:], strict=False) if item.answer != other.answer]
    assert len(pairs) > 40
    assert not any(item.right(item.read(f"The answer is {other.answer}."), 0) for item, other in pairs)
