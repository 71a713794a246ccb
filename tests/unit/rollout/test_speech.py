"""Requests to token ids, and how many rows are compiled for."""

import logging

import pytest
import tiny

from jaxmarl_llm.forest import SpeakRequest
from jaxmarl_llm.rollout import requests
from jaxmarl_llm.sampling import padding

REQUEST = SpeakRequest("aux", 4, ({"role": "user", "content": "abcdef"},), samples=1)
IDS = tiny.Tokenizer().encode_chat(REQUEST.messages)


def test_prompts_within_the_limit_are_left_alone(caplog):
    assert requests.encode_prompt(tiny.Tokenizer(), REQUEST, limit=6) == IDS
    assert requests.encode_prompt(tiny.Tokenizer(), REQUEST, limit=6, on_long="truncate") == IDS
    assert not caplog.records


def test_long_prompts_are_an_error():
    with pytest.raises(ValueError, match="'aux' for item 4 has 6 tokens, the limit is 5; raise "):
        requests.encode_prompt(tiny.Tokenizer(), REQUEST, limit=5)


def test_long_prompts_are_cut_on_the_left_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        assert requests.encode_prompt(tiny.Tokenizer(), REQUEST, limit=4, on_long="truncate") == IDS[2:]
        actual = requests.encode_cut(tiny.Tokenizer(), REQUEST, limit=4, on_long="truncate")
        assert actual == (IDS[2:], 2)
    assert "prompt of agent 'aux' for item 4 has 6 tokens: cut on the left to 4" in caplog.text


def test_few_sizes_are_compiled_for():
    # between 4 (problems) and 16 (all their joint answers): 4, 8, 16; a number that is given is never cut
    assert [padding.padded_size(n, 4, 16) for n in (1, 4, 5, 8, 9, 16)] == [4, 4, 8, 8, 16, 16]
    assert [padding.padded_size(n, 5, 15) for n in (5, 6, 11, 15)] == [5, 10, 15, 15]
    assert padding.padded_size(3, 2, 2) == 4
    # Nine joint answers of the second turn, all handed on: two minibatches must divide them in the third.
    assert [padding.padded_size(n, 2, 9) for n in (1, 3, 8, 9)] == [2, 4, 8, 10]
