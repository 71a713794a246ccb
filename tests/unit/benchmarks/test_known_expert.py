"""The expert of known skill: its advice against the reference solutions, and behind its endpoint."""

import json

import pytest

from benchmarks import known_expert
from jaxmarl_llm import experts
from jaxmarl_llm.experts import Request
from jaxmarl_llm.tasks.coding import expert_edits
from jaxmarl_llm.tasks.coding.items import item_from_row

AGENTS = ("aux", "main")
TESTS = "def check(candidate):\n    assert candidate(1) == 3\n"


def item(name, helper, main):
    entry = f"def {name}(x):\n    value = aux(x)\n    return {main}\n"
    solution = f"def aux(x):\n    return {helper}\n\n\n{entry}"
    prompt = f'def {name}(x: int) -> int:\n    """Return something of {name}."""\n'
    row = {"task_id": name, "prompt": prompt, "entry_point": name, "test": TESTS}
    return item_from_row(row | {"canonical_solution": solution})


ITEMS = [item("twice_more", "x * 2", "value + 1"), item("less_two", "x - 2", "value // 3")]


def question(problem, agents=AGENTS):
    completions = dict.fromkeys(agents, "def aux(x):\n    return x")
    return expert_edits.request_messages(problem, completions, agents)[-1]["content"]


def edits(expert, model, problem):
    return expert_edits.parse_edits(expert.answer(model, question(problem)), AGENTS)


def test_right_advice_is_the_reference_and_wrong_advice_is_another_program():
    expert = known_expert.KnownExpert(ITEMS)
    right = edits(expert, "skill-1", ITEMS[0])
    assert right == {
        "aux": "def aux(x):\n    return x * 2",
        "main": "def twice_more(x):\n    value = aux(x)\n    return value + 1",
    }
    wrong = edits(expert, "skill-0", ITEMS[0])
    spaces = {"right": {}, "wrong": {}}
    for name, codes in (("right", right), ("wrong", wrong)):
        exec("\n".join(codes.values()), spaces[name])  # our own reference, changed by our own code
    assert [spaces["right"]["aux"](n) for n in (1, 2, 5)] == [2, 4, 10]
    assert all(spaces["wrong"]["aux"](n) != spaces["right"]["aux"](n) for n in (1, 2, 5))
    assert all(spaces["wrong"]["twice_more"](n) != spaces["right"]["twice_more"](n) for n in (1, 2, 5))


def test_shuffled_advice_is_another_problem_under_the_wanted_names():
    shuffled = edits(known_expert.KnownExpert(ITEMS), "shuffled", ITEMS[0])
    assert shuffled["aux"] == "def aux(x):\n    return x - 2"
    assert shuffled["main"] == "def twice_more(x):\n    value = aux(x)\n    return value // 3"


def test_half_of_the_advice_is_right_whatever_the_order():
    items = [item(f"problem_{n}", "x * 2", f"value + {n}") for n in range(400)]
    expert = known_expert.KnownExpert(items)
    right = [edits(expert, "skill-0.5", each) == edits(expert, "skill-1", each) for each in items]
    assert 160 < sum(right) < 240  # four standard deviations
    again = [edits(expert, "skill-0.5", each) == edits(expert, "skill-1", each) for each in items[::-1]]
    assert again[::-1] == right


def test_one_agent_alone_gets_the_whole_reference():
    expert = known_expert.KnownExpert(ITEMS)
    answer = json.loads(expert.answer("skill-1", question(ITEMS[1], ("main",))))
    assert answer == {"main": ITEMS[1].canonical_solution}


@pytest.mark.parametrize("model", ["skill-2", "skill-", "wise", "0.5"])
def test_unknown_models_are_refused(model):
    with pytest.raises(ValueError, match=f"{model}.*allowed"):
        known_expert.skill(model)


def test_what_it_does_not_know_is_refused():
    expert = known_expert.KnownExpert(ITEMS[:1])
    with pytest.raises(ValueError, match="no problem whose reference"):
        expert.answer("skill-1", question(ITEMS[1]))
    with pytest.raises(ValueError, match="not one of"):
        expert.answer("skill-1", ITEMS[0].prompt)


def test_the_endpoint_answers_as_an_expert_of_the_package(tmp_path):
    pytest.importorskip("openai")
    with known_expert.Server(ITEMS) as server:
        options = dict(base_url=server.url, key_variable="", cache=str(tmp_path), retries=0)
        expert = experts.build("openai", "skill-1", **options)
        expert.check()
        messages = expert_edits.request_messages(ITEMS[0], dict.fromkeys(AGENTS, ""), AGENTS)
        (reply,) = expert.ask([Request(tuple(messages), "twice_more", 256)])
        assert expert_edits.parse_edits(reply.text, AGENTS)["aux"] == "def aux(x):\n    return x * 2"
        strange = experts.build("openai", "skill-1", **options)
        with pytest.raises(experts.ExpertError, match="no problem whose reference"):
            strange.ask([Request(({"role": "user", "content": "hello"},), "x", 16)])
