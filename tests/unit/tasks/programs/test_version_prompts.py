"""The prompts of an instructor and an assistant, and what the synthetic author makes of them."""

import collections
import random
from types import SimpleNamespace

import pytest

from jaxmarl_llm.tasks.coding import data_files
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.programs import (
    generation_prompts,
    optimisation_prompts,
    prompts,
    techniques,
    version_prompts,
)
from jaxmarl_llm.tasks.programs.optimisation import OptimisationTask
from jaxmarl_llm.tasks.programs.optimisation_items import load_items
from jaxmarl_llm.tasks.programs.scripted_author import Mixture, find

ITEMS = load_items("python")
ITEM = next(item for item in ITEMS if item.task_id == "search/count_known")
OTHER = next(item for item in ITEMS if item.task_id == "histogram/most_common_word")
TASK = OptimisationTask(ITEMS, SimpleNamespace(judge=None, cap=10.0, require_compiler=bool), ("assistant",))
SETS, IN = ITEM.faster  # "Make a set .. look each word up", "Use the operator in .."
LOOK_UP = "Count all words in one pass with a dict, and choose among its items."  # of the kind of SETS


def text_of(messages):
    return "\n\n".join(message["content"] for message in messages)


def ok(rewrite, score=2.0):
    return Outcome("ok", rewrite.source, score)


def test_without_examples_the_prompts_are_plain():
    """Character for character what two agents that remember nothing would read."""
    asked = optimisation_prompts.asked(ITEM)
    code = IN.source.strip()
    assert text_of(TASK.instruct(ITEM, ok(IN))) == (
        f"{asked.text}\n\nThe last version:\n```python\n{code}\n```\n"
        "It is right, and 2.00 times as fast as the given program.\n\n"
        "Say what to change next, so that the program gets better. Do not write code. Answer in one or two sentences."
    )
    assert TASK.instruct(ITEM, None) == TASK.instruct(ITEM, None, ())
    assert text_of(TASK.instruct(ITEM, None)) == f"{asked.text}\n\n{version_prompts.ASK} {prompts.SENTENCES}"
    messages = TASK.carry_out(ITEM, ok(IN), "Use\n a set.", ())
    assert messages[:-1] == list(asked.example)
    assert messages[-1]["content"] == (
        f"The last version:\n```python\n{code}\n```\n\nWhat to change: Use a set.\n\n{asked.text}"
    )
    # Without an instruction and without a version before it is the first prompt of all methods.
    assert TASK.carry_out(ITEM, None, " ") == prompts.write(asked)


def test_examples_stand_before_the_problem():
    shown = text_of(TASK.instruct(ITEM, None, [(OTHER.source, "Use\na dict.")]))
    before, after = shown.split(optimisation_prompts.asked(ITEM).text)
    assert (
        before
        == f"What made other programs better:\n\n```python\n{OTHER.source.strip()}\n```\nInstruction: Use a dict.\n\n"
    )
    assert after == text_of(TASK.instruct(ITEM, None)).removeprefix(optimisation_prompts.asked(ITEM).text)
    shown = TASK.carry_out(ITEM, None, "Use a set.", [("Use a dict.", OTHER.source)])[-1]["content"]
    assert shown.startswith(
        "How instructions for other programs were carried out:\n\nInstruction: Use a dict.\n```python\n"
    )
    assert shown.endswith(TASK.carry_out(ITEM, None, "Use a set.")[-1]["content"])


def test_a_version_that_is_none():
    nothing = Outcome("no-program")
    assert "The last version held no code." in text_of(TASK.instruct(ITEM, nothing))
    assert "The last version held no code." in text_of(TASK.carry_out(ITEM, nothing, "Use a set."))
    assert "last version" not in text_of(TASK.instruct(ITEM, None))


def test_prompts_of_generation():
    item = data_files.load_items("starter[:1]")[0]
    asked = generation_prompts.asked(item)
    wrong = Outcome("wrong", "def f(): return 1", 1.0, total=3, log="assert f() == 'SECRET'")
    result = generation_prompts.result(item, wrong)
    shown = version_prompts.instruct(asked, wrong.program, result)
    assert "It passes 1 of 3 tests." in text_of(shown) and "SECRET" not in text_of(shown)
    direct = text_of(version_prompts.direct(asked, "def f(): return 1", "def f(): return 2"))
    assert direct.index("return 1") < direct.index("Code B") < direct.index("return 2")


@pytest.mark.parametrize("text, kinds", [
    ("Count all words in one pass with a dict.", {"look up"}), ("Use itertools.accumulate.", {"run along"}),
    ("Sort the points and look at a slice.", {"sort", "slice"}), ("Leave the program as it is.", set()),
    ("Compute the range of the values before the loop.", {"remember"}), ("Try hard.", set()),
])  # fmt: skip
def test_kinds_of_techniques(text, kinds):
    assert techniques.kinds(text) == kinds


def test_the_instructions_in_a_prompt():
    prompt = text_of(TASK.carry_out(ITEM, None, "Use a set.", [("Use a dict.", "x"), ("Sort.", "y")]))
    assert (
        techniques.examples(prompt) == ["Use a dict.", "Sort."] and techniques.change(prompt) == "Use a set."
    )
    assert techniques.change(text_of(TASK.instruct(ITEM, None, [("x", "Sort.")]))) == ""
    assert techniques.alike(ITEM, [LOOK_UP]) == [SETS] and techniques.alike(ITEM, ["Try hard."]) == []


def drawn(messages, number=2000, **options):
    author, rng = Mixture(ITEMS, **options), random.Random(0)
    return collections.Counter(author.write(ITEM, text_of(messages), rng) for _ in range(number))


def close(count, share, number=2000):
    return abs(count / number - share) < 4 * (share * (1 - share) / number) ** 0.5


def test_the_author_instructs():
    plain = drawn(TASK.instruct(ITEM, None))
    assert close(plain["Leave the program as it is."], 0.4) and close(plain[SETS.technique], 0.01)
    assert close(plain[IN.technique], 0.14)
    # Half of the time it sees that an example has a technique of the kind of one that it knows.
    fitting = drawn(TASK.instruct(ITEM, None, [(OTHER.source, LOOK_UP)]))
    assert close(fitting[SETS.technique], 0.5 + 0.5 * 0.01)
    assert drawn(TASK.instruct(ITEM, None, [(OTHER.source, "Try hard.")])) == plain
    # Half of the time it goes a step beyond the last version, if that is a faster one.
    assert close(drawn(TASK.instruct(ITEM, ok(IN)))[SETS.technique], 0.5 + 0.5 * 0.01)
    wrong = next(rewrite for rewrite in ITEM.rewrites if rewrite.kind == "wrong")
    assert drawn(TASK.instruct(ITEM, ok(wrong))) == plain
    # What has been done is not named again for the sake of an example.
    again = drawn(TASK.instruct(ITEM, ok(SETS), [(OTHER.source, LOOK_UP)]))
    assert close(again[SETS.technique], 0.5 + 0.5 * 0.01)  # as the fastest one


def test_the_author_carries_out():
    fence = f"```python\n{SETS.source.rstrip()}\n```"
    assert close(drawn(TASK.carry_out(ITEM, None, SETS.technique))[fence], 0.5 + 0.5 * 0.01)
    shown = TASK.carry_out(ITEM, None, SETS.technique, [(LOOK_UP, OTHER.source)])
    assert close(drawn(shown)[fence], 0.9 + 0.1 * 0.01)
    other = TASK.carry_out(ITEM, None, SETS.technique, [("Try hard.", OTHER.source)])
    assert close(drawn(other)[fence], 0.5 + 0.5 * 0.01)
    assert close(drawn(TASK.carry_out(ITEM, None, "Try hard."))[fence], 0.01)
    with pytest.raises(ValueError, match="practised=1.5: allowed is 0 to 1"):
        Mixture(ITEMS, practised=1.5)


def test_the_author_says_what_leads_to_the_better_version():
    wrong = next(rewrite for rewrite in ITEM.rewrites if rewrite.kind == "wrong")
    for before in (ITEM.source, IN.source, wrong.source):
        assert set(drawn(TASK.direct(ITEM, before, SETS.source), 20, vague=0)) == {SETS.technique}
    assert set(drawn(TASK.direct(ITEM, SETS.source, IN.source), 20, vague=0)) == {IN.technique}


def test_the_problem_is_the_one_after_the_examples():
    for item, other in zip(ITEMS, (*ITEMS[1:], ITEMS[0]), strict=True):
        for last in (None, ok(item.rewrites[0]), Outcome("ok", item.source, 1.0)):
            assert find(ITEMS, text_of(TASK.instruct(item, last, [(other.source, "Try.")]))) is item
            assert find(ITEMS, text_of(TASK.carry_out(item, last, "Try.", [("Try.", other.source)]))) is item
        assert find(ITEMS, text_of(TASK.direct(item, item.source, item.rewrites[0].source))) is item
