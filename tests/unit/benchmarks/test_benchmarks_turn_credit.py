"""Parts of `benchmarks.turn_credit`: its dialogues are those of the riddle, and pairs are counted right."""

import random

import numpy as np
import pytest

from benchmarks import turn_credit
from configs import reasoning
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import built_models
from jaxmarl_llm.tasks.reasoning import guess


def test_pairs_in_the_right_order():
    truth, groups = np.array([2.0, 1.0, 1.0, 5.0]), np.array([0, 0, 0, 1])  # two pairs differ; the last is alone
    counted = {(3.0, 2.0, 1.0): 1.0, (1.0, 2.0, 0.0): 0.5, (1.0, 1.0, 1.0): 0.5, (0.0, 1.0, 1.0): 0.0}
    for credit, expected in counted.items():
        assert turn_credit.ranked(np.array([*credit, 9.0]), truth, groups) == expected


def test_a_dialogue_is_written_as_the_task_writes_it():
    config = reasoning.get_config("guess")
    validate(config)
    tokenizer, item = built_models.game_model(config, (0,)).tokenizer, guess.load()[0]
    texts = turn_credit.play(item.answer, guess.player(0.7), random.Random(2))
    assert 1 <= len(texts) <= 3 and all(text in guess.ASKS for text in texts[:-1])
    made = turn_credit.record(tokenizer, item, ["ask_A", "left_low"], privileged=True)
    (prompt, completion), last = made.sequence(0)[0], made.sequence(0)[1]
    shown = tokenizer.decode(prompt.tolist())
    assert shown.startswith("The pair is left_low.\n") and guess.QUESTION in shown and "unknown" not in shown
    assert tokenizer.decode(completion.tolist()) == "ask_A" and tokenizer.decode(last[0].tolist()).count("left") >= 1
    assert made.dialogues[0][0] == 1.0
    assert len(turn_credit.record(tokenizer, item, ["left_low"], False).hidden) == 0


@pytest.mark.parametrize("asks", [0.3, 0.7])
def test_outcomes_are_as_frequent_as_the_exact_value(asks):
    draws, policy = random.Random(0), guess.player(asks)
    ends = [turn_credit.play("left_low", policy, draws)[-1] == "left_low" for _ in range(3000)]
    exact = guess.success("left_low", policy)
    assert np.mean(ends) == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 3000) ** 0.5)
