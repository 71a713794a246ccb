"""One agent for all roles: one chat, sections under tags, the task's own judge."""

from types import SimpleNamespace

import pytest

from jaxmarl_llm.protocols import Answer
from jaxmarl_llm.tasks.centralised import CentralisedTask, merge, split
from jaxmarl_llm.tasks.judgement import Judgement


class Echo:
    """Judges by keeping what each role said; tells everybody its own words."""

    agents, items, part_names, reward_range = ("aux", "main"), ("x",), ("p",), (0, 1)

    def prompts(self, item):
        return {
            agent: [
                {"role": "system", "content": "Write code."},
                {"role": "user", "content": f"{agent} asks {item}"},
                {"role": "assistant", "content": f"{agent} answers"},
                {"role": "user", "content": f"{agent} asks again"},
            ]
            for agent in self.agents
        }

    def judge(self, items, completions):
        rows = zip(items, *completions.values(), strict=True)
        local = dict(zip(self.agents, (1.0, 2.0), strict=True))
        return [Judgement({}, 1.0, "|".join((*completions, *row)), local=local) for row in rows]

    def normalise(self, scores):
        return scores

    def feedback(self, answers):
        return [{agent: f"{agent} said {a.completions[agent]}" for agent in self.agents} for a in answers]


def test_the_prompts_of_all_roles_in_one_chat():
    task = CentralisedTask(Echo(), "solo")
    assert task.agents == ("solo",) and task.roles == ("aux", "main")
    assert task.prompts("x") == {
        "solo": [
            {"role": "system", "content": "Write code."},
            {"role": "user", "content": "[aux]\naux asks x\n[main]\nmain asks x"},
            {"role": "assistant", "content": "[aux]\naux answers\n[main]\nmain answers"},
            {"role": "user", "content": "[aux]\naux asks again\n[main]\nmain asks again"},
        ]
    }


def test_every_role_is_judged_on_its_section():
    task = CentralisedTask(Echo(), "solo")
    (judged,) = task.judge(["x"], {"solo": ["[aux]\nA\n[main]\nM"]})
    assert judged.verdict == "aux|main|x|A|M" and judged.local == {}
    with pytest.raises(ValueError, match="completions come from agents"):
        task.judge(["x"], {"aux": ["A"]})


@pytest.mark.parametrize(
    "text, aux, main",
    [
        ("[main]\nM\n[aux]\nA\nB", "A\nB", "M"),  # any order, several lines
        ("A\nM", "", ""),  # no tags: nothing said
        ("[aux]\nA", "A", ""),
        ("[aux]\nA\n[aux]\nB\n[main]\nM", "B", "M"),
        ("[aux] x\nA\n[main]  \n  M", "", "  M"),  # a tag stands alone on its line; indentation is kept
        ("", "", ""),
    ],
)
def test_sections(text, aux, main):
    assert split(text, ("aux", "main")) == {"aux": aux, "main": main}


def test_feedback_comes_under_the_tags():
    answer = Answer("x", {"solo": "[aux]\nA\n[main]\nM"}, None)
    feedback = CentralisedTask(Echo(), "solo").feedback([answer])
    assert feedback == [{"solo": "[aux]\naux said A\n[main]\nmain said M"}]


@pytest.mark.parametrize(
    "by_role, expected",
    [
        ({"aux": "A", "main": "M"}, "[aux]\nA\n[main]\nM"),
        ({"aux": ["A", "B"], "main": ["M", "N"]}, ["[aux]\nA\n[main]\nM", "[aux]\nB\n[main]\nN"]),
        ({"aux": ("A",), "main": "M"}, ["[aux]\nA\n[main]\nM"]),
    ],
)
def test_reference_answers_of_all_roles(by_role, expected):
    task = Echo()
    task.references = lambda item: by_role
    assert CentralisedTask(task, "solo").references("x") == {"solo": expected}


def test_unequal_numbers_of_reference_answers():
    task = Echo()
    task.references = lambda item: {"aux": ["A", "B"], "main": ["M"]}
    with pytest.raises(ValueError, match="need equally many reference answers, there are: aux 2, main 1"):
        CentralisedTask(task, "solo").references("x")
    task.references = lambda item: None
    assert CentralisedTask(task, "solo").references("x") is None


def test_chats_that_cannot_be_merged():
    user, system = {"role": "user", "content": "?"}, {"role": "system", "content": "!"}
    with pytest.raises(ValueError, match="prompts of a, b differ in their order"):
        merge({"a": [user], "b": [system, user]})
    with pytest.raises(ValueError, match="a centralised task needs two or more"):
        CentralisedTask(SimpleNamespace(agents=("main",)))
