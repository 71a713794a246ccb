"""Q*'s search: which lines are asked for, which answers are judged, and in which order, with writers that are known."""

import itertools

import pytest
from scripted_steps import expanded, judged, played, prompts

from jaxmarl_llm.forest import LINE, REMARK, STEP
from jaxmarl_llm.protocols import step_values
from jaxmarl_llm.protocols.open_texts import Limits
from jaxmarl_llm.protocols.step_search import StepSearch
from jaxmarl_llm.protocols.step_values import Valued

BEST = "1\n0\n1"


def digits(item, prefix, sample):
    """A tree of depth 3: two different lines, the third one ends the answer."""
    return f"{sample}" + ("\n" if prefix.count("\n") < 2 else "<end>")


def exact(places):
    """1 for a text from which the best answer can still come."""
    return [Valued(float(BEST.startswith(place.text))) for place in places]


def search(values=step_values.nothing, agent="writer", rates=None, solved=None, valuer="", stop=(), **limits):
    limits = dict(samples=2, expansions=7, depth=3, answers=1, tokens=99) | limits
    return StepSearch(prompts, agent, Limits(**limits), values, rates, solved, valuer, stop)


def test_with_exact_values_three_expansions_and_the_best_answer():
    forest, requests = played(search(exact), digits)
    assert expanded(requests) == ["", "1\n", "1\n0\n"] and judged(forest) == [BEST]
    for request in requests:
        assert (request.kind, request.until, request.samples, request.agent) == (STEP, LINE, 2, "writer")
        assert request.messages == tuple(prompts("a")["writer"])
    # Each goes on from the turn that wrote its last line.
    assert [request.parent for request in requests] == [None, 1, 2]


def test_without_values_seven_and_any_answer():
    forest, requests = played(search(), digits)
    assert len(requests) == 7 and judged(forest) == ["0\n0\n0"]
    assert expanded(requests) == ["", "0\n", "1\n", "0\n0\n", "0\n1\n", "1\n0\n", "1\n1\n"]


def test_the_number_of_steps_is_depth_first():
    forest, requests = played(search(step_values.longest, answers=3, expansions=4), digits)
    assert expanded(requests) == ["", "0\n", "0\n0\n", "0\n1\n"]
    assert judged(forest) == ["0\n0\n0", "0\n0\n1", "0\n1\n0"]
    assert [joint.turn for joint in forest.joints] == [0, 1, 2]


def test_several_items_are_searched_apart():
    best = {"a": "1\n0\n1", "b": "0\n0\n0"}
    forest, requests = played(
        search(lambda places: [Valued(float(best[p.item].startswith(p.text))) for p in places]), digits, ("a", "b")
    )
    assert [judged(forest, i) for i in (0, 1)] == [[best["a"]], [best["b"]]]
    assert [len(expanded(requests, i)) for i in (0, 1)] == [3, 3]


def test_order_at_random_follows_from_the_seed():
    runs = [played(search(step_values.at_random(seed), answers=2), digits) for seed in (0, 0, 1, 2, 3)]
    orders = [expanded(requests) for _, requests in runs]
    assert orders[0] == orders[1] and len({tuple(order) for order in orders}) > 1


def test_process_rewards_count_as_g():
    """A line that is paid less comes later; with ``sum`` a good line makes up for it, with ``min`` never."""
    paid = {"0": -0.5, "1": 0.0}

    def rates(places, befores):
        assert all(place.text.startswith(before) for place, before in zip(places, befores, strict=True))
        return [paid[place.text[len(before)]] for place, before in zip(places, befores, strict=True)]

    for how, first in (("min", "1\n1\n1"), ("last", "1\n1\n1"), ("sum", "1\n1\n1")):
        forest, _ = played(search(rates=rates, aggregate=how), digits)
        assert judged(forest) == [first]
    paid["1"] = -1.0  # now "0" is the better line, but after it only "1" is drawn

    def then_ones(item, prefix, sample):
        return f"{sample if not prefix else 1}" + ("\n" if prefix.count("\n") < 2 else "<end>")

    orders = {}
    for how in ("min", "max", "last", "sum"):
        forest, requests = played(search(rates=rates, aggregate=how), then_ones)
        orders[how] = expanded(requests)
    # f of "0 1": min -1, max -.5, last -1, sum -1.5; of "1" -1; of "1 1": -1, and by sum -2. Of equals the older one.
    assert orders["max"] == ["", "0\n", "0\n1\n"]
    assert orders["min"] == orders["last"] == orders["sum"] == ["", "0\n", "1\n", "0\n1\n", "1\n1\n"]


def test_a_weight_of_0_leaves_g_alone():
    assert expanded(played(search(exact, weight=0.0), digits)[1]) == expanded(played(search(), digits)[1])


def test_equal_lines_are_one():
    forest, requests = played(search(samples=3), lambda item, prefix, g: "x" + ("\n" * (len(prefix) < 4) or "<end>"))
    assert expanded(requests) == ["", "x\n", "x\nx\n"] and judged(forest) == ["x\nx\nx"]


def test_blanks_behind_a_line_break_are_drawn_on_from_and_not_valued():
    """A token may hold a line break and the blanks of the next line."""
    seen = []

    def values(places):
        seen.extend(place.text for place in places)
        return step_values.nothing(places)

    lines = itertools.cycle(["def f():\n    ", "def f():\n", "pass<end>"])
    _, requests = played(search(values, samples=2), lambda item, prefix, g: "pass<end>" if prefix else next(lines))
    assert expanded(requests) == ["", "def f():\n    "] and seen == ["def f():\n", "def f():\n    pass"]


PROGRAM = ['def f():\n', '    """One\n', 'two\n', '    """\n', "    return 1<end>"]


def test_a_step_does_not_end_inside_of_a_string():
    def write(item, prefix, sample):
        return PROGRAM[prefix.count("\n")]

    seen = []

    def values(places):
        seen.extend((place.text.count("\n"), place.steps) for place in places)
        return step_values.nothing(places)

    forest, requests = played(search(values, strings=True, depth=5), write)
    assert [request.samples for request in requests] == [2, 2, 1, 1, 1, 1, 2]  # two strings, to their ends
    assert seen == [(1, 1), (4, 2), (4, 3)] and judged(forest) == ["".join(PROGRAM).replace("<end>", "")]
    seen.clear()
    forest, requests = played(search(values, strings=False, depth=5), write)
    assert seen == [(1, 1), (2, 2), (3, 3), (4, 4), (4, 5)] and len(requests) == 5


def test_answers_end_at_the_depth_and_at_the_most_tokens():
    forest, requests = played(search(depth=2, answers=4), lambda item, prefix, g: f"{g}\n")
    assert judged(forest) == ["0\n0\n", "0\n1\n", "1\n0\n", "1\n1\n"] and len(requests) == 3
    forest, _ = played(search(tokens=4, answers=1, expansions=9, depth=9), lambda item, prefix, g: f"{g}\n")
    assert judged(forest) == ["0\n0\n"]
    # Inside of a string, too.
    forest, _ = played(search(tokens=9, strings=True), lambda item, prefix, g: "x" if not prefix else 'y = """\n')
    assert len(judged(forest)) == 1


@pytest.mark.parametrize("stop, wanted", [
    ("\n\n", "x\ny\n\n"), ("z\n", "x\ny\n\nz\n"), ("\n", "x\n"), ("never", "x\ny\n\nz\nw"),
])  # fmt: skip
def test_answers_end_with_the_line_that_completes_a_stop_text(stop, wanted):
    """A completion ends with its line, so that a stop text with a line break may lie in several of them."""
    lines = {"": "x\n", "x\n": "y\n", "x\ny\n": "\n", "x\ny\n\n": "z\n", "x\ny\n\nz\n": "w<end>"}
    for strings in (False, True):
        forest, requests = played(search(stop=(stop,), depth=7, strings=strings), lambda item, prefix, g: lines[prefix])
        assert judged(forest) == [wanted] and len(requests) == wanted.count("\n") + (stop == "never")


def test_a_budget_without_an_answer_ends_with_the_best_text():
    forest, requests = played(search(expansions=3), digits)
    assert expanded(requests) == ["", "0\n", "1\n"] and judged(forest) == ["0\n0\n"]
    forest, _ = played(search(lambda places: [Valued(float(p.text == "1\n0\n")) for p in places], expansions=3), digits)
    assert judged(forest) == ["1\n0\n"]  # the best one that is open when nothing is left


def test_a_line_that_comes_to_no_end_is_left_out():
    def write(item, prefix, sample):
        return "long<cut>" if sample == 0 else digits(item, prefix, sample)

    forest, _ = played(search(), write)
    assert judged(forest) == ["1\n1\n1"]
    # One item without any: what there is counts as its answer.
    forest, _ = played(search(), lambda item, *rest: "long<cut>" if item == "a" else digits(item, *rest), ("a", "b"))
    assert judged(forest, 0) == ["long"] and judged(forest, 1) == ["0\n0\n0"]


def test_no_end_in_any_sample_is_refused():
    message = "qstar.step_tokens=4: no line of agent 'writer' ended in any of 4 samples; .* allowed is a number with"
    with pytest.raises(ValueError, match=message):
        played(search(), lambda item, prefix, g: "long<cut>", ("a", "b"))


def test_answers_are_judged_up_to_the_one_that_solves():
    wanted = search(exact, answers=8, stop_when_solved=True, solved=lambda judgement: judgement.text == BEST)
    assert judged(played(wanted, digits)[0]) == [BEST]
    every = search(exact, answers=8, solved=lambda judgement: judgement.text == BEST)
    assert len(judged(played(every, digits)[0])) == 8


def test_another_agent_is_asked_for_values():
    """Exact values in words, and in numbers that are none."""

    def reply(message):
        about = message.partition("begins:\n")[2] or message.partition("The answer:\n")[2]
        text = about.partition("\n\nHow likely")[0]
        return "surely 1" if BEST.startswith(text) else "no"

    forest, requests = played(search(None, valuer="judge"), digits, reply=reply)
    assert expanded(requests) == ["", "1\n", "1\n0\n"] and judged(forest) == [BEST]
    asked = [request for request in requests if request.agent == "judge"]
    assert {(request.kind, request.samples, request.prefix) for request in asked} == {(REMARK, 1, "")}
    assert len(asked) == 6
    assert [step_values.read(text) for text in ("0.25", "80 %", "-3", "well")] == [0.25, 1.0, 0.0, 0.0]


def test_values_of_a_function_get_questions_and_texts():
    def values(questions, texts):
        assert questions == ["about a"] * len(texts)
        return [float(BEST.startswith(text)) for text in texts]

    assert judged(played(search(step_values.of_function(values)), digits)[0]) == [BEST]


def test_tokens_that_values_take_are_kept_with_the_answers_before():
    protocol = search(lambda places: [Valued(float(place.steps), len(place.text)) for place in places], answers=2)
    forest, _ = played(protocol, digits)
    assert judged(forest) == ["0\n0\n0", "0\n0\n1"]
    assert protocol.reads == [(0, 0, n) for n in (2, 2, 4, 4, 5, 5)]
