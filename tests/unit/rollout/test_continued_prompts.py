"""Prompts of later turns: they begin with the ids that the agent has read and drawn before."""

import logging

import letter_team
import numpy as np
import pytest
import tiny

from jaxmarl_llm import sampling
from jaxmarl_llm.forest import SpeakRequest, Turn
from jaxmarl_llm.protocols import Discussion, Episode, Pipeline, Simultaneous
from jaxmarl_llm.protocols.turns import continued
from jaxmarl_llm.rollout import requests
from jaxmarl_llm.rollout.journal import Journal

TASK = letter_team.Task()
TREE = Simultaneous(TASK.prompts, 2, 2, TASK.feedback)
PROTOCOLS = {
    "tree": TREE,
    "chain of three": Simultaneous(TASK.prompts, 2, 3, TASK.feedback, hand_on="best"),
    "chains": Simultaneous(TASK.prompts, 3, 2, TASK.feedback, later_samples=1),
    "pipeline": Pipeline(TASK.prompts, 2, 2, TASK.feedback),
    "discussion": Discussion(TASK.prompts, 2),
}


def own_parents(forest):
    """Later turns of an agent, each with the turn of its own that it continues."""
    pairs = [(forest.turns[t.parent], t) for t in forest.turns if t.parent is not None]
    return [(before, turn) for before, turn in pairs if before.agent == turn.agent]


@pytest.mark.parametrize("name", [n if n == "tree" else pytest.param(n, marks=pytest.mark.slow) for n in PROTOCOLS])
def test_later_prompts_hold_what_was_read_and_drawn(name):
    forest, every_request = letter_team.run(PROTOCOLS[name])
    tokens = letter_team.letters()
    (end,) = tokens.eos_ids
    pairs, differ = own_parents(forest), 0
    assert len(pairs) >= 8 and any(not before.finished for before, _ in pairs)
    for before, turn in pairs:
        drawn = [i for i in before.completion.tolist() if i != end]
        question = every_request[turn.request].messages[-1]["content"]
        behind = [end, *tokens.encode(f"[user]{question}"), end, *tokens.encode("[assistant]")]
        assert turn.prompt.tolist() == [*before.prompt.tolist(), *drawn, *behind]
        anew = tokens.encode_chat(every_request[turn.request].messages)
        assert tokens.show(turn.prompt) == tokens.show(anew)
        differ += turn.prompt.tolist() != anew
    assert differ > 1  # or the test would say nothing
    for turn in forest.turns:
        np.testing.assert_allclose(turn.logprobs, letter_team.logprobs(turn), atol=2e-5)


def test_the_sampler_reads_each_earlier_prompt_once(monkeypatch):
    drawn, generate = [], sampling.generate

    def watched(*inputs, **options):
        drawn.append((inputs[3].shape, options["stems"] and options["stems"].tokens_NSQ.shape))
        return generate(*inputs, **options)

    monkeypatch.setattr(sampling, "generate", watched)
    letter_team.run(TREE)
    # Of two agents two prompts, then the rests of two prompts behind each, none of more than 32 tokens.
    assert drawn == [((2, 2, 32), None), ((2, 4, 32), (2, 2, 32))]


def test_first_prompts_are_what_they_were():
    forest, every_request = letter_team.run(TREE)
    for turn in forest.turns:
        if turn.turn == 0:
            assert turn.prompt.tolist() == letter_team.letters().encode_chat(every_request[turn.request].messages)


@pytest.mark.slow
def test_a_template_that_changes_earlier_answers_is_applied_anew():
    template = letter_team.TEMPLATE.replace("{{ m.content", "{{ 'this: ' if m.role == 'assistant' }}{{ m.content")
    forest, every_request = letter_team.run(TREE, template)
    assert len(own_parents(forest)) == 16
    for _, turn in own_parents(forest):
        assert turn.prompt.tolist() == letter_team.letters(template).encode_chat(every_request[turn.request].messages)


@pytest.mark.slow
def test_a_rollout_that_goes_on_from_its_journal_has_the_same_prompts(tmp_path):
    (whole, _), (kept, _) = letter_team.run(TREE), letter_team.run(TREE, journal=Journal(tmp_path))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["0000_joints.json", "0000_turns.json", "0001_joints.json", "0001_turns.json"]
    for name in names[2:]:
        (tmp_path / name).unlink()  # it was killed after the first turn
    again, _ = letter_team.run(TREE, journal=Journal(tmp_path))
    for forest in (kept, again):
        for turn, same in zip(whole.turns, forest.turns, strict=True):
            assert turn.prompt.tolist() == same.prompt.tolist()
            assert turn.completion.tolist() == same.completion.tolist() and turn.text == same.text
            np.testing.assert_array_equal(turn.logprobs, same.logprobs)


@pytest.mark.slow
def test_long_prompts_lose_tokens_on_the_left_as_before():
    limits = {"max_prompt_tokens": 40, "long_prompts": "truncate"}
    forest, _ = letter_team.run(TREE, **limits)
    free, _ = letter_team.run(TREE)
    shortened = [(before, turn) for before, turn in own_parents(forest) if turn.cut]
    assert shortened
    for before, turn in shortened:
        same = free.turns[before.id]  # of the first turn, whose prompts are short enough
        assert before.completion.tolist() == same.completion.tolist() and not before.cut
        whole = next(t for t in free.turns if t.parent == before.id).prompt.tolist()
        assert turn.prompt.tolist() == whole[-40:] and turn.cut == len(whole) - 40


def answered(cut=0):
    """A request and the answer to it, as `tiny.Tokenizer` has them."""
    request = SpeakRequest("a", 0, ({"role": "user", "content": "xyz"},), 1)
    ids = np.array([1, 2, 3]), np.array([4, 5]), np.zeros(2, np.float32)
    return request, Turn(0, 0, "a", 0, 0, 0, *ids, text="4 5", finished=False, cut=cut)


def test_what_a_cut_prompt_lacks_counts(caplog):
    before = answered(cut=7)
    chat = (*before[0].messages, {"role": "assistant", "content": "4 5"}, {"role": "user", "content": "ab"})
    later = SpeakRequest("a", 0, chat, 1, parent=0)
    whole = [1, 2, 3, 4, 5, *tiny.Tokenizer().encode_chat([{"content": "ab"}])]
    options = tiny.Tokenizer(), later
    assert requests.encode_cut(*options, 7, continued=before) == (whole, 7)
    with caplog.at_level(logging.WARNING):
        assert requests.encode_cut(*options, 5, "truncate", continued=before) == (whole[2:], 9)
    with pytest.raises(ValueError, match="for item 0 has 14 tokens, the limit is 6"):
        requests.encode_cut(*options, 6, continued=before)


def test_which_answer_a_request_continues():
    request, turn = answered()
    state = Episode(("x",), requests=[request], turns=[turn])
    reply, question = {"role": "assistant", "content": "4 5"}, {"role": "user", "content": "ab"}

    def after(*messages, agent="a", parent=0):
        return continued(state, SpeakRequest(agent, 0, messages, 1, parent=parent))

    chat = (*request.messages, reply, question)
    assert after(*chat) == (request, turn)
    assert after(*chat, question) is not None  # several messages may follow
    nothing = [
        after(*chat, parent=None), after(*chat, agent="b"), after(*chat[:2]), after(*chat[1:]),
        after({"role": "system", "content": "s"}, *chat), after(chat[0], {**reply, "content": "4 6"}, question),
        after(chat[0], {**reply, "role": "user"}, question), after(question),
    ]  # fmt: skip
    assert nothing == [None] * 8
