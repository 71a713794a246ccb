"""The synthetic author: what it recognises, how often it writes what, and that it follows lessons."""

import collections
import dataclasses
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest

from jaxmarl_llm.experts import Request, Spent
from jaxmarl_llm.experts.scripted import Scripted
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.programs import optimisation_prompts, scripted_author
from jaxmarl_llm.tasks.programs.optimisation import OptimisationTask
from jaxmarl_llm.tasks.programs.optimisation_items import OptimisationItem, Rewrite, load_items
from jaxmarl_llm.tasks.programs.scripted_author import Mixture, pool

SLOW = "def f(n):\n    return sum([i for i in range(n)])\n"
REWRITES = (
    Rewrite("faster", "Use the closed formula.", "def f(n):\n    return n * (n - 1) // 2\n"),
    Rewrite("faster", "Sum the range itself.", "def f(n):\n    return sum(range(n))\n"),
    Rewrite("wrong", "Forget the last number.", "def f(n):\n    return sum(range(n - 1))\n"),
    Rewrite("slower", "Sort before summing.", "def f(n):\n    return sum(sorted(range(n)))\n"),
)
ITEM = OptimisationItem("reduce/f", "reduce", "python", "Sum.", "f", SLOW, "", 10, rewrites=REWRITES)
OTHER = OptimisationItem("scan/g", "scan", "python", "One.", "g", "def g(n):\n    return (1)\n", "", 10)
PROGRAM = f"Make this program faster.\n\n```python\n{SLOW}```"
LESSONS = PROGRAM + "\nLessons about Code A and Code B:\n1. {}\n2. {}"


def fenced(source):
    return f"```python\n{source.rstrip()}\n```"


def lesson_prompt(second):
    return f"Code A:\n```python\n{SLOW}```\nCode B:\n```python\n{second}```\nExplain in one sentence."


def drawn(prompt, number=4000, **options):
    author, rng = Mixture([OTHER, ITEM], **options), random.Random(0)
    return collections.Counter(author.write(ITEM, prompt, rng) for _ in range(number))


def test_programs_come_as_often_as_the_weights_say():
    actual = drawn(PROGRAM)
    # the first of the faster ones is strong; the broken one is the program up to its last bracket
    broken = "def f(n):\n    return sum([i for i in range("
    expected = {SLOW: 0.4, broken: 0.1}
    expected |= dict(zip((r.source for r in REWRITES), (0.01, 0.14, 0.25, 0.1), strict=True))
    assert set(actual) == {fenced(source) for source in expected}
    for source, share in expected.items():
        # within four standard deviations of a binomial
        assert abs(actual[fenced(source)] / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5


def test_weak_ones_share_and_what_is_missing_is_left_out():
    third = Rewrite("faster", "Add in a loop.", "def f(n):\n    return 3\n")
    item = dataclasses.replace(ITEM, rewrites=(*REWRITES, third))
    shares = [(draft.kind, weight) for draft, weight in pool(item)]
    assert shares[-3:] == [("strong", 0.01), ("weak", 0.07), ("weak", 0.07)]
    assert [draft.kind for draft, _ in pool(OTHER)] == ["unchanged", "broken"]  # nothing else is known of it


@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_lesson_names_the_technique_of_the_second_program(rewrite):
    actual = drawn(lesson_prompt(rewrite.source), 1000)
    assert 750 < actual[rewrite.technique] < 850 and set(actual) == {rewrite.technique, *scripted_author.VAGUE}
    reflowed = lesson_prompt("    " + rewrite.source.replace("\n", "\n    ") + "\n")
    assert set(drawn(reflowed, 20, vague=0)) == {rewrite.technique}


def test_programs_without_a_rewrite_are_recognised_too():
    assert set(drawn(lesson_prompt(SLOW), 20, vague=0)) == {"Leave the program as it is."}
    broken = "def f(n):\n    return sum([i for i in range(\n"
    assert set(drawn(lesson_prompt(broken), 20, vague=0)) == {"End the program in the middle of a call."}


def test_shown_lessons_are_built_on_unless_they_are_told_to_harm():
    fast, weak, bad = REWRITES[:3]
    # What is not told to harm counts as help, a wrong program too. A faster one is taken a step further.
    assert set(drawn(LESSONS.format(weak.technique, "Try hard."), 50, adopt=1)) == {fenced(fast.source)}
    assert set(drawn(LESSONS.format(fast.technique, "Try hard."), 50, adopt=1)) == {fenced(fast.source)}
    assert set(drawn(LESSONS.format(bad.technique, "Try hard."), 50, adopt=1)) == {fenced(bad.source)}
    assert len(drawn(LESSONS.format("Try hard.", scripted_author.VAGUE[0]), 1000, adopt=1)) == 6  # as without
    lesson = optimisation_prompts.lesson
    lessons = lesson(weak.technique, "ok", 1.05), lesson(bad.technique, "wrong", 0.0)
    actual = drawn(LESSONS.format(*lessons))
    # Half of the time a step beyond the helpful one, never the harmful one: the rest is 0.75 of all.
    assert abs(actual[fenced(fast.source)] / 4000 - (0.5 + 0.5 * 0.01 / 0.75)) < 0.03
    assert abs(actual[fenced(weak.source)] / 4000 - 0.5 * 0.14 / 0.75) < 0.03
    assert fenced(bad.source) not in actual and len(actual) == 5
    for came in (("ok", 1.0), ("ok", 0.5), ("build-error", 0.0)):
        useless = lesson(weak.technique, *came)
        assert fenced(weak.source) not in drawn(LESSONS.format(useless, "Try hard."), 500)


def test_the_prompts_of_the_task_are_understood():
    """Of every problem: the program, the lesson about it, and what a lesson is told to have led to."""
    judge = SimpleNamespace(judge=None, cap=10.0, require_compiler=bool)
    task = OptimisationTask(load_items("python"), judge, ("a",))
    author, rng = Mixture(task.items, vague=0, adopt=1), random.Random(0)

    def joined(messages):
        return "\n\n".join(message["content"] for message in messages)

    for item in task.items:
        assert scripted_author.find(task.items, joined(task.prompts(item)["a"])) is item
        for rewrite in item.rewrites:
            outcome = Outcome("ok", rewrite.source, 2.0)
            asked = joined(task.explain(item, outcome))
            assert scripted_author.find(task.items, asked) is item
            assert author.write(item, asked, rng) == rewrite.technique
            shown = joined(task.write_with_lessons(item, [(rewrite.technique, "ok", 2.0)]))
            assert author.write(item, shown, rng) == fenced(scripted_author.further(item, rewrite).source)


def test_what_is_asked_is_recognised():
    assert scripted_author.find([OTHER, ITEM], PROGRAM) is ITEM and scripted_author.find([OTHER], PROGRAM) is None
    assert scripted_author.asks_for_lesson(lesson_prompt(SLOW)) and not scripted_author.asks_for_lesson(PROGRAM)
    drafts = [draft for draft, _ in pool(ITEM)]
    assert scripted_author.second_program(ITEM, LESSONS.format("a", "b"), drafts) is None


def request(text, stream="", temperature=1.0):
    return Request(({"role": "user", "content": text},), "i", temperature=temperature, stream=stream)


def test_answers_follow_from_the_request_and_the_draw():
    def ask(seed, *requests):
        return [reply.text for reply in Scripted(Mixture([ITEM], seed)).ask(requests)]

    first = ask(0, *[request(PROGRAM)] * 400)
    assert len(set(first)) == 6 and first == ask(0, *[request(PROGRAM)] * 400)
    assert first != ask(1, *[request(PROGRAM)] * 400) and first != ask(0, *[request(PROGRAM, "x")] * 40)
    greedy = ask(0, *[request(PROGRAM, stream, 0.0) for stream in ("x", "y", "y")])
    assert len(set(greedy)) == 1
    with pytest.raises(ValueError, match="item 'i': no program of the author's problems is in the prompt"):
        ask(0, request("hello"))


def test_a_script_counts_what_it_was_asked():
    script = Scripted(lambda asked, draw: f"{asked.item}{draw}" * 3, Spent(requests=5))
    script.check()
    replies = script.ask([request("abc"), request("abc"), request("xyz")])
    assert [reply.text for reply in replies] == ["i0i0i0", "i1i1i1", "i0i0i0"]
    # 8 tokens a message and one for three bytes; six bytes said
    assert script.spent == Spent(requests=8, input_tokens=27, output_tokens=6)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(items=[]), "optimisation problems; got none"),
        (dict(items=["x"]), "optimisation problems; got str"),
        (dict(adopt=2), "adopt=2: allowed is 0 to 1"),
        (dict(weights={"wrong": 1}), "weights=.*: allowed are numbers from 0 for unchanged"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Mixture(**{"items": [ITEM]} | options)


def test_the_packages_own_problems_can_be_written():
    items = load_items("python")
    for item in items:
        drafts = [draft for draft, _ in pool(item)]
        for draft in drafts:
            text = f"Code A:\n{item.source}\nCode B:\n{draft.source}"
            assert scripted_author.find(items, text) is item
            assert scripted_author.second_program(item, text, drafts).source == draft.source
        with pytest.raises(SyntaxError):
            compile(scripted_author.cut_off(item.source), "cut", "exec")


def test_no_jax_is_needed():
    code = "import sys, jaxmarl_llm.tasks.programs.scripted_author; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
