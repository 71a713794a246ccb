"""Leader, review, teams, retrieve: who reads what, scripted chains with known ends, chains that end early."""

import random
import re

import numpy as np
import pytest
import scripted_rounds
from scripted_rounds import play

from jaxmarl_llm.config import base_config, validate
from jaxmarl_llm.config.workload import completions, joint_answers, learned
from jaxmarl_llm.factory import protocols
from jaxmarl_llm.protocols import Episode, Simultaneous
from jaxmarl_llm.protocols.leader import leader
from jaxmarl_llm.protocols.retrieve import retrieve
from jaxmarl_llm.protocols.review import review
from jaxmarl_llm.protocols.teams import divided, teams
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.testing import check_protocol

ITEMS = (ReasoningItem("p", "P?", "1"), ReasoningItem("q", "Q?", "2"))


def task(*agents, items=ITEMS, **options):
    return ReasoningTask(items, agents, **options)


def contents(played, step):
    """{agent: last message} of the first item's first sample at a step."""
    last = {}
    for request in played.steps[step]:
        if request.item == 0:
            last.setdefault(request.agent, request.messages[-1]["content"])
    return last


def test_a_leader_reads_its_peers_and_they_read_it():
    made = task("x", "y", "lead")
    played = play(leader(made.prompts, 2, 2, later_samples=1), made)
    question = made.prompts(ITEMS[0])["x"][0]["content"]
    assert [sorted({r.agent for r in requests}) for requests in played.steps] == [["x", "y"], ["lead"]] * 2
    assert contents(played, 0) == {"x": question, "y": question}
    assert contents(played, 1) == {"lead": f"x wrote:\nx0\n\ny wrote:\ny0\n\n{question}"}
    again = contents(played, 2)["x"]
    assert again == contents(played, 2)["y"] and again.startswith("lead wrote:\nlead0\n\nAnswer the question again")
    last = contents(played, 3)["lead"]
    assert last.startswith("x wrote:\nx4\n\ny wrote:\ny4\n\nAnswer the question again") and "lead wrote" not in last
    assert played.judged == [0, 4, 0, 4] and [joint.follows for joint in played.forest.joints[4:]] == [0, 1, 2, 3]


def test_chains_of_one_sample_compete_with_those_that_began_beside_them():
    """With later_samples=1 the second answers of an item are one group, and last answers alone decide."""
    made = task("x", "lead")
    texts = lambda request, n: "1" if request.turn and n % 2 else "0"  # noqa: E731
    forest = play(leader(made.prompts, 2, 2, later_samples=1), made, texts=texts).forest
    config = CreditConfig(backup="last", turns=2)
    groups = magrpo.groups(forest)
    places = {}
    for turn in forest.turns:
        places.setdefault((turn.item, turn.agent, turn.turn), set()).add(int(groups[turn.id]))
    assert all(len(keys) == 1 for keys in places.values())
    assert len({min(keys) for keys in places.values()}) == len(places)
    credit = magrpo.assign(forest, config)
    last = {j: joint.total for j, joint in enumerate(forest.joints) if joint.turn == 1}
    for j, joint in enumerate(forest.joints):
        end = j if joint.turn else next(k for k in last if forest.joints[k].follows == j)
        assert [credit.returns[i] for i in joint.turns] == [last[end]] * 2
    assert np.abs(credit.advantages).sum() > 0


def test_a_reviewer_reads_the_last_version_only():
    made = task("a", "b", "c")
    played = play(review(made.prompts, 1), made)
    question = made.prompts(ITEMS[0])["a"][0]["content"]
    texts = [contents(played, step) for step in range(3)]
    assert texts[0] == {"a": question}
    assert texts[1]["b"].startswith(f"{question}\n\nThe answer so far, by a:\na0\n\nCheck it")
    assert texts[2]["c"].startswith(f"{question}\n\nThe answer so far, by b:\nb0\n\nCheck it")
    assert "a0" not in texts[2]["c"]
    assert played.judged == [0, 0, 2]


def test_reviewers_that_mend_and_break():
    """p' = p (1 - b) + (1 - p) r from p = .4, with r = .5 and b = .1; each within three standard errors."""
    agents, drawn, number = ("a", "b", "c", "d", "e"), random.Random(0), 3000
    items = [ReasoningItem(str(n), "How many?", "1") for n in range(number)]
    made = task(*agents, items=items, total="last")

    def text(request, n):
        so_far = re.search(r"by \w:\nIt is (\d)", request.messages[-1]["content"])
        chance = 0.4 if so_far is None else 0.9 if so_far[1] == "1" else 0.5
        return f"It is {int(drawn.random() < chance)}"

    rates = shares(review(made.prompts, 1), made, text)
    wanted = [0.4, 0.66, 0.764, 0.8056, 0.82224]
    assert wanted == pytest.approx([0.4, *(0.9 * p + 0.5 * (1 - p) for p in wanted[:-1])])
    for rate, p in zip(rates, wanted, strict=True):
        assert abs(rate - p) < 3 * (p * (1 - p) / number) ** 0.5


def shares(protocol, made, text):
    """Share of right answers by agent; `play` counts what agents wrote, which takes too long here."""
    state, texts = Episode(tuple(made.items)), {}
    while requests := protocol.step(state):
        first, number = len(state.turns), len(state.requests)
        new = [scripted_rounds._turn(first + n, number + n, r, 0, text(r, 0)) for n, r in enumerate(requests)]
        state.requests += requests
        state.turns += new
        for turn in new:
            texts.setdefault(turn.agent, []).append(turn.text)
    judgements = made.judge(made.items, texts)
    return [float(np.mean([judgement.local[agent] for judgement in judgements])) for agent in made.agents]


def test_two_teams_and_a_judge():
    assert divided("abc") == (("a", "b"), ("c",)) and divided("a") == (("a",), ())
    made = task("a", "b", "c", "d", "judge")
    played = play(teams(made.prompts, 1, 2, later_samples=1), made)
    question = made.prompts(ITEMS[0])["a"][0]["content"]
    judge = contents(played, 1)["judge"]
    first, second = "a wrote:\na0\n\nb wrote:\nb0", "c wrote:\nc0\n\nd wrote:\nd0"
    assert judge.startswith(f"First team:\n{first}\n\nSecond team:\n{second}\n\n{question}\nWhere the")
    again = contents(played, 2)
    assert {agent: text.partition("\n\n")[0] for agent, text in again.items()} == {
        "a": "b wrote:\nb0", "b": "a wrote:\na0", "c": "d wrote:\nd0", "d": "c wrote:\nc0",
    }  # fmt: skip
    (last,) = [r for r in played.steps[3] if r.item == 0]
    assert judge in [message["content"] for message in last.messages]  # what the judge read before


def test_a_scorer_reads_one_answer():
    made = task("a", "b", "sa", "sb", total="last", scorers=2)
    played = play(retrieve(made.prompts, 2, made.agents), made)
    assert [sorted({r.agent for r in requests}) for requests in played.steps] == [["a", "b"], ["sa", "sb"]]
    read = contents(played, 1)
    assert read["sa"].startswith("a wrote:\na0\n\nP?\n") and "b0" not in read["sa"] and "b wrote:\nb0" in read["sb"]
    assert played.judged == [0, 4] and len(played.forest.joints[0].turns) == 4


MADE = {
    "leader": lambda made: leader(made.prompts, 3, 2, later_samples=1),
    "review": lambda made: review(made.prompts, 3, 2, made.feedback),
    "teams": lambda made: teams(made.prompts, 3, 2),
    "retrieve": lambda made: retrieve(made.prompts, 3, made.agents),
}


@pytest.mark.parametrize("name", MADE)
def test_they_keep_the_contract(name):
    made = task("a", "b", "c", "d", scorers=2 * (name == "retrieve"))
    check_protocol(MADE[name](made), made)


def test_a_conversation_may_end_where_all_agree():
    made = task("a", "b")
    texts = lambda request, n: "2" if request.item == 0 else {"a": "3", "b": "4"}[request.agent]  # noqa: E731
    options = dict(later_samples=1, feedback=made.feedback)
    ended = play(Simultaneous(made.prompts, 2, 3, ends=made.agree, **options), made, texts=texts)
    whole = play(Simultaneous(made.prompts, 2, 3, **options), made, texts=texts)
    assert whole.judged == [4, 4, 4] and ended.judged == [4, 2, 2]
    assert {joint.item for joint in ended.forest.joints if joint.turn} == {1}


FOUR = {"task.kind": "reasoning", "task.source": "sums", "team.agents": ("a", "b", "c", "d"), "train.group": 3,
        "train.prompts": 2, "eval.chains": 1}  # fmt: skip


def config(fields):
    made = base_config()
    made.update_from_flattened_dict(FOUR | fields)
    validate(made)
    return made


@pytest.mark.parametrize("fields, turns", [
    ({"train.protocol": "leader"}, 1), ({"train.protocol": "review"}, 1), ({"train.protocol": "retrieve"}, 1),
    ({"train.protocol": "teams", "train.turns": 2, "train.later_samples": 1}, 2),
    ({"train.protocol": "leader", "train.turns": 2}, 2),
    ({"train.turns": 3, "train.later_samples": 1, "task.feedback": "heard"}, 3),
])  # fmt: skip
def test_an_iteration_is_as_large_as_planned(fields, turns):
    made = config(fields)
    own = task(*made.team.agents, scorers=2 * (made.train.protocol == "retrieve"))
    forest = play(protocols.build(made, own, None), own).forest
    assert completions(made) == len(forest.turns) and joint_answers(made) == len(forest.joints)
    assert learned(made) == len(forest.turns) // 4 and 1 + max(joint.turn for joint in forest.joints) == turns


@pytest.mark.parametrize("fields, message", [
    ({"train.protocol": "leader", "team.agents": ("a",)}, "train.protocol='leader' allows 2 or more names"),
    ({"train.protocol": "teams", "team.agents": ("a", "b")}, "train.protocol='teams' allows 3 or more names"),
    ({"train.protocol": "retrieve", "team.agents": ("a", "b", "c", "d", "e")}, "4 or more names, as many scorers"),
    ({"train.protocol": "retrieve", "task.kind": "coding", "team.agents": ("a", "b", "c", "main")},
     "task.kind='coding' reads no scores, allowed is 'reasoning'"),
    ({"train.protocol": "retrieve", "train.turns": 2, "task.feedback": "heard"}, "'retrieve': has one turn"),
    ({"train.protocol": "leader", "train.joint_mode": "cross"}, "needs train.joint_mode='aligned'"),
    ({"train.protocol": "leader", "train.turns": 2, "task.feedback": "heard"}, "task.feedback='heard': no turn"),
    ({"train.later_samples": 1}, "train.later_samples=1: with train.turns=1 no turn follows"),
    ({"train.later_samples": 1, "train.turns": 2, "train.hand_on": "best", "task.feedback": "heard"},
     "train.later_samples=1: with train.hand_on='best' a later answer has no other"),
    ({"train.later_samples": 2, "train.turns": 2, "train.joint_mode": "cross", "task.feedback": "heard"},
     "train.later_samples=2: needs train.joint_mode='aligned'"),
    ({"train.protocol": "review", "train.counterfactual": "solo"}, "with train.protocol='review' nobody hears"),
    ({"train.protocol": "review", "train.counterfactual": "nothing", "train.system": "ccpo"}, "would subtract what"),
    ({"eval.vote": "best"}, "eval.vote='best': train.protocol='simultaneous' has no scores, 'retrieve' has"),
    ({"eval.vote": "last", "train.protocol": "retrieve"}, "the scores decide, allowed are '' and 'best'"),
    ({"eval.vote": "judge", "team.agents": ("a", "b")}, "eval.vote='judge': needs two agents and a judge"),
    ({"eval.vote": "judge", "train.protocol": "relay", "train.turns": 2, "task.feedback": "heard"},
     "eval.vote='judge': needs two agents and a judge, .*, and with train.protocol='relay' a turn has 2 of them"),
    ({"eval.vote": "last", "task.source": "clues[:6]"}, "agents of clues have answers of"),
    ({"eval.vote": "last", "eval.chains": 9}, "eval.chains=9: allowed is 1 to eval.samples=4"),
    ({"eval.chains": 2}, "eval.chains=2: eval.vote is '', allowed is 1"),
    ({"eval.vote": "last", "task.source": "clues", "team.agents": ("a", "b")}, "agents of clues have answers of"),
    ({"eval.until_agreed": True}, "eval.until_agreed=True: only task.kind='reasoning' with train.turns above 1"),
])  # fmt: skip
def test_what_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        config(fields)


def test_requests_of_a_pipeline_are_as_before():
    """The steps that its kin have leave the pipeline as it was: one agent after the other, all texts quoted."""
    made = task("a", "b", "c")
    own = config({"team.agents": ("a", "b", "c"), "train.protocol": "pipeline", "train.group": 2})
    played = play(protocols.build(own, made, None), made)
    assert [[(r.agent, r.item, r.parent) for r in requests] for requests in played.steps] == [
        [("a", 0, None), ("a", 1, None)], [("b", 0, 0), ("b", 0, 1), ("b", 1, 2), ("b", 1, 3)],
        [("c", 0, 4), ("c", 0, 5), ("c", 1, 6), ("c", 1, 7)],
    ]  # fmt: skip
    assert contents(played, 2)["c"].startswith("a wrote:\na0\n\nb wrote:\nb0\n\nP?")
