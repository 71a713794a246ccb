"""Dialogue: who reads what, when it ends, which of several candidates goes on, and that nothing hidden is read."""

import numpy as np
import pytest
from scripted_rounds import play

from jaxmarl_llm.config import base_config, validate
from jaxmarl_llm.config.workload import completions, joint_answers, learned
from jaxmarl_llm.factory import protocols
from jaxmarl_llm.forest import metrics
from jaxmarl_llm.protocols.dialogue import Dialogue, holds
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.tasks.reasoning import guess
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.testing import check_protocol

ITEMS = guess.load()[:2]  # left_low, left_half
FIELDS = {
    "task.kind": "reasoning", "task.source": "guess", "task.total": "last", "team.agents": ("actor", "partner"),
    "team.models": ("game-tiny", "scripted:answerer"), "train.protocol": "dialogue", "train.turns": 3,
    "train.joint_mode": "aligned", "train.backup": "last",
}  # fmt: skip


def task(items=ITEMS):
    return ReasoningTask(items, ("actor",), "last", partner="partner")


def dialogue(made, samples=1, turns=3, **options):
    return Dialogue(made.prompts, "partner", made.privileged, made.briefing, made.ends, samples, turns, **options)


def script(*by_turn):
    """Texts by turn of the actor, and then by sample and item; the partner's are those of the riddle."""

    def texts(request, n):
        if request.agent == "actor":
            row = by_turn[min(request.turn, len(by_turn) - 1)]
            return row if isinstance(row, str) else row[n % len(row)]
        return guess.Answerer()(request, 0)

    return texts


def config(**fields):
    made = base_config()
    made.update_from_flattened_dict(FIELDS | {name.replace("__", "."): value for name, value in fields.items()})
    return made


def test_each_reads_the_other_and_the_partner_alone_the_hidden_text():
    made = task()
    played = play(dialogue(made), made, texts=script("ask_A", "ask_B", "left_low"))
    assert [requests[0].agent for requests in played.steps] == ["actor", "partner", "actor", "partner", "actor"]
    chats = [[(m["role"], m["content"]) for m in requests[1].messages] for requests in played.steps]
    question, briefing = ("user", guess.QUESTION), made.briefing(ITEMS[1])
    own = [question, ("assistant", "ask_A"), ("user", "left"), ("assistant", "ask_B"), ("user", "half")]
    assert chats[0::2] == [own[:1], own[:3], own]
    first = ("user", f"{briefing}\n\nask_A")
    assert chats[1::2] == [[first], [first, ("assistant", "left"), ("user", "ask_B")]]
    assert played.judged == [2, 0, 2, 0, 2]
    assert [joint.total for joint in played.forest.joints] == [0, 0, 0, 0, 1, 0]
    assert [joint.follows for joint in played.forest.joints] == [None, None, 0, 1, 2, 3]
    texts = [[played.forest.turns[i].text for i in joint.heard] for joint in played.forest.joints[4:]]
    assert texts == [["low"], ["half"]]


def test_a_dialogue_ends_with_an_answer_and_the_others_go_on():
    made = task(ITEMS[:1])
    texts = script(("left_low", "ask_A", "middle_low"), ("ask_B",), ("ask_A",))
    played = play(dialogue(made, samples=3), made, texts=texts)
    assert [len(requests) for requests in played.steps] == [1, 1, 1, 1, 1]
    ends = [joint for j, joint in enumerate(played.forest.joints)
            if j not in {other.follows for other in played.forest.joints}]  # fmt: skip
    assert [(joint.turn, joint.total) for joint in ends] == [(0, 1), (0, 0), (2, 0)]  # the last text was a question
    # The share of dialogues that end right, whenever they end.
    assert metrics.reward_metrics(played.forest, made)["train/return"] == pytest.approx(100 / 3)


def test_no_more_steps_once_all_have_answered():
    made = task()
    played = play(dialogue(made, samples=2), made, texts=script("left_low"))
    assert len(played.steps) == 1 and played.judged == [4]


def test_credit_of_the_last_text_reaches_every_text_of_its_dialogue():
    made = task(ITEMS[:1])
    texts = script(("ask_A", "ask_B", "left_low", "right_low"), ("left_low", "left_half"))
    forest = play(dialogue(made, samples=4), made, texts=texts).forest
    credit = magrpo.assign(forest, CreditConfig(backup="last", turns=3))
    own = [turn for turn in forest.turns if turn.agent == "actor"]
    by_text = {turn.text: (turn.turn, float(credit.returns[turn.id])) for turn in own}
    assert by_text == {"ask_A": (0, 1), "ask_B": (0, 0), "right_low": (0, 0), "left_low": (1, 1), "left_half": (1, 0)}
    firsts = [credit.returns[turn.id] for turn in own if turn.turn == 0]
    assert firsts == [1, 0, 1, 0]  # right at once is worth what right at the end is
    groups = {turn.turn: set() for turn in own}
    for turn in own:
        groups[turn.turn].add(int(credit.groups[turn.id]))
    assert [len(keys) for keys in groups.values()] == [1, 1]
    np.testing.assert_allclose([credit.advantages[turn.id] for turn in own if turn.turn == 0], [0.5, -0.5] * 2)


def test_of_several_candidates_the_first_of_each_dialogue_goes_on_and_is_judged():
    made = task(ITEMS[:1])
    texts = script(("ask_A", "ask_B", "left_low", "right_low"), ("ask_B", "left_low"), ("left_low", "right_low"))
    played = play(dialogue(made, samples=2, candidates=2), made, texts=texts)
    sizes = [[(r.samples, r.extra) for r in requests] for requests in played.steps]
    assert sizes == [[(4, 2)], [(1, 0)] * 2, [(2, 1)] * 2, [(1, 0)] * 2, [(2, 1)] * 2]
    assert played.judged == [2, 0, 2, 0, 2]
    extra = [turn for turn in played.forest.turns if turn.extra]
    assert [turn.text for turn in extra if turn.turn == 0] == ["left_low", "right_low"]
    assert not {turn.id for turn in extra} & {i for joint in played.forest.joints for i in (*joint.turns, *joint.heard)}
    assert not {turn.id for turn in extra} & {turn.parent for turn in played.forest.turns}
    assert np.isnan(magrpo.returns(played.forest)[[turn.id for turn in extra]]).all()


@pytest.mark.parametrize("candidates", [1, 3])
def test_the_contract_of_protocols(candidates):
    made = task()
    options = dict(conversations=2, partners=("partner",))
    check_protocol(dialogue(made, samples=2, candidates=candidates), made, **options)
    check_protocol(dialogue(made, samples=2, candidates=candidates), made, texts=script("ask_A"), **options)


def test_a_prompt_with_the_hidden_text_is_refused_by_item_and_agent():
    item = ReasoningItem("p", "How many?", "4", hidden="There are  four.")
    made = task([item])
    leak = lambda request, n: "why?" if request.agent == "actor" else "I know: There are\nfour."  # noqa: E731
    with pytest.raises(ValueError, match="the prompt of agent 'actor' for item p holds the hidden text, which only"):
        play(dialogue(made), made, texts=leak)
    guessed = task([ReasoningItem("g", "Which number?", "4", hidden="4")])  # a guess of its own gives nothing away
    guess = lambda request, n: "Is it 4?" if request.agent == "actor" else "I do not tell."  # noqa: E731
    assert len(play(dialogue(guessed, samples=1), guessed, texts=guess).forest.turns) == 5
    in_question = task([ReasoningItem("q", "There are four. How many?", "4", hidden="There are four.")])
    with pytest.raises(ValueError, match="for item q holds the hidden text"):
        play(dialogue(in_question), in_question)
    assert not holds("There are fourteen.", "There are four") and not holds("any text", " ")


def test_what_an_iteration_of_dialogues_consists_of():
    made = config(train__prompts=2, train__group=4)
    assert (joint_answers(made), learned(made)) == (2 * 4 * 3, 2 * 4 * 3)  # at most
    assert completions(made) == 2 * 4 * (3 + 2)
    played = play(protocols.build(made, task(), None), task(), texts=script("ask_A"))
    assert len(played.forest.joints) == 24 and len(played.forest.turns) == 40
    in_evaluation = protocols.build(made, task(), None, 3)
    assert (in_evaluation.samples, in_evaluation.candidates) == (3, 1)


@pytest.mark.parametrize("fields, text", [
    ({"task__kind": "game", "task__source": "games"},
     "task.kind='game': train.protocol='dialogue' needs problems"),
    ({"task__kind": "coding", "task__centralised": True}, "task.centralised=True: in train.protocol='dialogue'"),
    ({"task__kind": "coding", "train__protocol": "simultaneous", "team__models": ("game-tiny", "scripted:describer")},
     "it replies to questions, allowed is train.protocol='dialogue'"),
    ({"train__turns": 1, "train__backup": "mean"}, "train.turns=1: train.protocol='dialogue' needs 2 or more"),
    ({"team__agents": ("one",), "team__models": ()}, "team.agents=('one',): train.protocol='dialogue' needs two"),
    ({"team__models": ("scripted:answerer", "game-tiny")},
     "the model 'scripted:answerer' of agent 'actor': train.protocol='dialogue' trains the first agent"),
    ({"team__models": ()}, "team.agent.partner.trainable: the partner of train.protocol='dialogue' knows the answer"),
    ({"train__system": "iac", "train__backup": "mean"}, "train.system='iac': train.protocol='dialogue' allows magrpo"),
    ({"train__backup": "mean"}, "train.backup='mean': in train.protocol='dialogue' the last text alone counts"),
    ({"train__hand_on": "best"}, "train.hand_on='best': train.protocol='dialogue' allows 'all' only"),
    ({"train__joint_mode": "cross"}, "train.protocol='dialogue': needs train.joint_mode='aligned'"),
    ({"task__source": "sums"}, "the model 'scripted:answerer' of agent 'partner': it knows the pairs of guess"),
    ({"eval__until_agreed": True}, "eval.until_agreed=True: in train.protocol='dialogue' one agent answers"),
])  # fmt: skip
def test_what_the_config_does_not_allow(fields, text):
    with pytest.raises(ValueError) as caught:
        validate(config(**fields))
    assert text in str(caught.value)


def test_the_config_is_allowed():
    validate(config())
