"""The riddle guess: moves and replies, and exact credit against values by hand and against chance."""

import collections
import random

import pytest

from configs import reasoning
from jaxmarl_llm.experts import Request
from jaxmarl_llm.factory import built_models
from jaxmarl_llm.protocols import Answer
from jaxmarl_llm.tasks.reasoning import guess, prompts
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.load import load_items
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask

# By (attributes known, turns left), of one that asks half of the time; worked out by hand.
HALF = {(2, 1): 1 / 2, (1, 1): 1 / 6, (0, 1): 1 / 18, (2, 2): 3 / 4, (1, 2): 1 / 3, (0, 2): 5 / 36, (0, 3): 2 / 9}
A, B = ("ask_A", "middle"), ("ask_B", "high")
HISTORIES = {0: (), 1: (A,), 2: (A, B)}


def test_nine_pairs_of_which_one_agent_reads_the_same_question():
    items = load_items("guess")
    assert len({item.task_id for item in items}) == len({item.answer for item in items}) == 9
    assert {item.question for item in items} == {guess.QUESTION}
    task = ReasoningTask(items, ("actor",), total="last", partner="partner")
    for item in items:
        ((agent, (message,)),) = task.prompts(item).items()
        assert agent == "actor" and message["content"] == guess.QUESTION
        assert item.answer in task.privileged(item) and task.privileged(item) in task.briefing(item)
        assert item.answer not in message["content"]
    rewards = [[j.total for j in task.judge([item] * 9, {"actor": list(guess.PAIRS)})] for item in items]
    assert [sum(row) for row in rewards] == [1] * 9 and [row.index(1) for row in rewards] == list(range(9))


@pytest.mark.parametrize("text, ends", [("left_low", True), ("I say Left_Low!", True), ("ask_A", False), ("", False),
                                        ("left", False)])  # fmt: skip
def test_a_pair_ends_the_dialogue_and_a_question_does_not(text, ends):
    task = ReasoningTask(guess.load(), ("actor",), partner="partner")
    assert task.ends(Answer(task.items[0], {"actor": text}, None)) is ends


def test_other_answers_end_a_dialogue_where_they_are_marked():
    item = ReasoningItem("p", "How many?", "4", hidden="There are four.")
    task = ReasoningTask([item], ("actor",), partner="partner")
    assert task.prompts(item)["actor"][0]["content"] == f"How many?\n{prompts.ASK}"
    texts = {"Answer: 4": True, "so \\boxed{4}": True, "Are there 4?": False, "Answer: none": False}
    assert {text: task.ends(Answer(item, {"actor": text}, None)) for text in texts} == texts


def test_without_a_hidden_text_there_is_nothing_to_ask_about():
    with pytest.raises(ValueError, match="p has no field 'hidden', the text that the partner 'p2'"):
        ReasoningTask([ReasoningItem("p", "P?", "1")], ("actor",), partner="p2")


def test_the_script_replies_to_the_last_question_alone():
    briefing = prompts.briefing("The pair is right_half.")
    chat = [("user", f"{briefing}\n\nask_B"), ("assistant", "half"), ("user", "ask A")]
    texts = []
    for length in (1, 3):
        messages = tuple({"role": role, "content": text} for role, text in chat[:length])
        texts.append(guess.Answerer()(Request(messages, "guess"), 0))
    assert texts == ["half", "right"]
    assert guess.Answerer()(Request(({"role": "user", "content": "ask_A"},), "other"), 0) == "nothing"


def test_demonstrations_are_what_an_agent_that_asks_half_of_the_time_may_say():
    """The weights of each prompt add up to 1, replies agree with what was asked, and chances are those by hand."""
    by_prompt = collections.defaultdict(dict)
    for item in guess.load():
        for row in guess.half_asking(item):
            assert row["agent"] == "actor"
            exchanges = row["messages"][1:]
            history = tuple((exchanges[k]["content"], exchanges[k + 1]["content"]) for k in range(0, len(exchanges), 2))
            assert all(guess.reply(item.answer, text) == answer for text, answer in history)
            by_prompt[history].setdefault(row["text"], row["weight"])
    assert len(by_prompt) == 1 + 6 + 24
    assert all(sum(texts.values()) == pytest.approx(1) for texts in by_prompt.values())
    right = [guess.success(pair, by_prompt.__getitem__) for pair in guess.PAIRS]
    assert right == pytest.approx([HALF[0, 3]] * 9)


@pytest.mark.parametrize("known, left", HALF)
def test_exact_values_by_hand(known, left):
    value = guess.success("middle_high", guess.player(0.5), HISTORIES[known], left)
    assert value == pytest.approx(HALF[known, left])


def test_advantages_of_a_dialogue_add_up_to_its_outcome():
    policy = guess.player(0.5)
    gains = guess.advantages("middle_high", policy, ["ask_A", "ask_B", "middle_high"])
    assert gains == pytest.approx([1 / 3 - 2 / 9, 1 / 2 - 1 / 3, 1 / 2])
    again = guess.advantages("middle_high", policy, ["ask_A", "ask_A", "left_low"])
    assert again == pytest.approx([1 / 9, 1 / 6 - 1 / 3, -1 / 6]) and sum(again) == pytest.approx(-2 / 9)
    # The same move is worth as much as the hidden pair makes it.
    right, wrong = (guess.advantages(pair, policy, ["left_low"]) for pair in ("left_low", "left_half"))
    assert right[0] > 0 > wrong[0]
    # Over an agent's own texts they are 0 on average.
    for history, left in (((), 3), ((A,), 2), ((A, B), 1)):
        value = guess.success("middle_high", policy, history, left)
        moves = policy(history).items()
        mean = sum(p * (guess.after("middle_high", policy, history, left, text) - value) for text, p in moves)
        assert mean == pytest.approx(0)


def test_values_are_what_chance_gives():
    draws, policy, wins = random.Random(0), guess.player(0.7), 0
    for n in range(4000):
        pair, history = guess.PAIRS[n % 9], ()
        for _ in range(3):
            texts, weights = zip(*policy(history).items(), strict=True)
            (text,) = draws.choices(texts, weights)
            if text in guess.PAIRS:
                wins += text == pair
                break
            history = (*history, (text, guess.reply(pair, text)))
    exact = guess.success("left_low", policy)
    assert wins / 4000 == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 4000) ** 0.5)


@pytest.mark.parametrize("source", ["guess", "guess[:6]"])
def test_every_move_is_a_word_of_the_tiny_model(source):
    config = reasoning.get_config("guess")
    config.task.source = source
    tokenizer = built_models.game_model(config, (0,), on_host=True).tokenizer
    assert {len(tokenizer.encode(move)) for move in (*guess.PAIRS, "ask_A", "ask_B")} == {1}
