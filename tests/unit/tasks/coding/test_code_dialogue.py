"""Coding problems whose description is cut: who reads what, when a dialogue ends, and what earns something."""

import pytest
from scripted_rounds import play

from jaxmarl_llm.executor import Executor
from jaxmarl_llm.experts import Request
from jaxmarl_llm.protocols import Answer
from jaxmarl_llm.protocols.dialogue import Dialogue, holds
from jaxmarl_llm.tasks import CodingTask
from jaxmarl_llm.tasks.coding import dialogue
from jaxmarl_llm.tasks.coding.data_files import load_starter
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.testing import check_protocol

PROMPT = 'import math\n\n\ndef area(r: int) -> float:\n    """Return the area of\n    a circle with radius r."""\n'
ITEM = CodingItem("t/1", PROMPT, "area", "def check(candidate):\n    assert candidate(0) == 0\n", ("r",), "import math")
WHOLE = "Return the area of a circle with radius r."


def task(items=(ITEM,), executor=None):
    return dialogue.CodingDialogue(CodingTask(items, executor, ("actor",)))


def test_the_agent_reads_half_of_the_description_and_the_partner_all():
    made = task()
    assert dialogue.halves(ITEM) == ("Return the area of a", "circle with radius r.")
    ((agent, messages),) = made.prompts(ITEM).items()
    question = messages[-1]["content"]
    assert agent == "actor" and "Return the area of a …" in question and "radius" not in question
    assert question.endswith(dialogue.ASK) and "import math" in question
    assert made.privileged(ITEM) == WHOLE and holds(made.briefing(ITEM), WHOLE)
    reply = dialogue.Describer([ITEM])
    chat = lambda text: Request(({"role": "user", "content": text},), "t/1")  # noqa: E731
    assert reply(chat(f"{made.briefing(ITEM)}\n\nof what?"), 0) == "The description goes on: circle with radius r."
    assert reply(chat("of what?"), 0) == "I do not know."


@pytest.mark.parametrize("text, ends", [("def area(r):\n    return 0", True), ("What is r?", False),
                                        ("def other(r):\n    return 0", False)])  # fmt: skip
def test_a_text_that_defines_the_function_ends_the_dialogue(text, ends):
    assert task().ends(Answer(ITEM, {"actor": text}, None)) is ends


def test_no_starter_problem_gives_its_description_away():
    items = load_starter("train", "goal")
    made, reply = task(items), dialogue.Describer(items)
    for item in items:
        prompt = made.prompts(item)["actor"][-1]["content"]
        rest = dialogue.halves(item)[1]
        assert rest and not any(holds(text, made.privileged(item)) for text in (prompt, rest))
        message = {"role": "user", "content": f"{made.briefing(item)}\n\nwhat?"}
        assert reply(Request((message,), item.task_id), 0).endswith(rest)


@pytest.mark.slow
def test_the_answer_is_tested_as_the_whole_problem_says():
    items = [ITEM, load_starter("train", "goal")[0]]
    with Executor(workers=1) as executor:
        made = task(items, executor)
        texts = {"t/1": "def area(r):\n    return math.pi * r * r", items[1].task_id: items[1].canonical_solution}

        def script(request, n):
            if request.agent != "actor":
                return dialogue.Describer(items)(request, 0)
            return texts[items[request.item].task_id] if request.turn else "What does it do?"

        protocol = Dialogue(made.prompts, "partner", made.privileged, made.briefing, made.ends, 1, 3)
        forest = play(protocol, made, texts=script).forest
        assert [joint.turn for joint in forest.joints] == [0, 0, 1, 1]
        assert [joint.judgement.verdict for joint in forest.joints[2:]] == ["pass"] * 2
        assert all(last.total > first.total for first, last in zip(forest.joints, forest.joints[2:], strict=False))
        check_protocol(protocol, made, texts=script, partners=("partner",), conversations=1)


BOTH = '"""Return x doubled and halved."""'


@pytest.mark.parametrize("before, docstring, after", [
    ('def f_part(x):\n    """A part of it here."""\n    return x\n\ndef f(x):\n    ', BOTH, "\n"),
    ("def f(x):\n    ", "'Return x doubled and halved.'", "\n"),
    ("def f(x):\n    ", 'r"""Return x doubled\n    and halved."""', "\n    y = x\n"),
    ("def f(x):\n    ", '("Return x doubled "\n     "and halved.")', "\n"), ("def  f(x):\n  ", BOTH, "\n"),
    ('def f(x="""a"""):\n    ', BOTH, "\n\ndef g(x):\n"), ("# ü\x0c def f\r\ndef f(x):\r\n    ", BOTH, "\r\n"),
    ('"""Text about def f."""\ndef f(x="ü"): ', BOTH, "\n"),
])  # fmt: skip
def test_nothing_but_the_docstring_of_the_function_is_cut(before, docstring, after):
    item = CodingItem("t/3", before + docstring + after, "f", ITEM.test, ("x",))
    task([item])
    assert dialogue.cut(item).prompt == f'{before}"""Return x doubled …"""{after}'


def test_marks_in_a_docstring_stay_what_they_are():
    item = CodingItem("t/4", "def f(x):\n    'Double \"\"\"x\"\"\" with \\\\d and halve it'\n", "f", ITEM.test, ("x",))
    task([item])
    assert dialogue.docstring(dialogue.cut(item)) == '"""'.join(["Double ", "x", " with \\d …"])


def test_a_problem_without_a_description_is_refused_by_name():
    bare = CodingItem("t/2", "def f(x):\n", "f", ITEM.test, ("x",))
    with pytest.raises(ValueError, match="t/2 has no docstring of two words or more in its prompt, which could be cut"):
        task([bare])
