"""experts/local.py: a tiny random model answers as an oracle says it must; the real one knows a capital."""

import numpy as np
import pytest
import tiny

from jaxmarl_llm import experts, weights
from jaxmarl_llm.experts import ExpertError, Reply, Request, Spent

LIMIT = 6


def question(text: str, **options) -> Request:
    return Request(({"role": "user", "content": text},), f"item-{text}", **({"max_tokens": LIMIT} | options))


def build(**options):
    return experts.build("local", "tiny", load=lambda name: tiny.model(), **options)


def greedy(text: str) -> Reply:
    """Token by token from logits without a cache; an end-of-text id, 3 or 5, ends it."""
    prompt = tiny.Tokenizer().encode_chat([{"content": text}])
    tokens = []
    while len(tokens) < LIMIT and not (tokens and tokens[-1] in tiny.Tokenizer.eos_ids):
        tokens.append(int(np.argmax(tiny.logits(tiny.params(), [*prompt, *tokens])[-1])))
    ended = tokens[-1] in tiny.Tokenizer.eos_ids
    return Reply(" ".join(map(str, tokens)), len(prompt), len(tokens), finished=ended)


@pytest.mark.slow
def test_greedy_answers_are_the_likeliest_tokens():
    texts = ["x", "hello", "a longer question", "zz", "why"]
    expert = build()
    expert.check([question(texts[0])])
    replies = expert.ask([question(text) for text in texts])
    assert replies == [greedy(text) for text in texts]
    asked = expert.ask([question("hello", temperature=0), question("x")])
    assert asked == [greedy("hello"), greedy("x")]
    every = [*replies, *asked]
    assert expert.spent == Spent(
        len(every), sum(reply.input_tokens for reply in every), sum(reply.output_tokens for reply in every)
    )


@pytest.mark.slow
def test_batches_longer_than_the_limit_and_mixed_settings_keep_the_order():
    from jaxmarl_llm.experts.local import Local

    source = Local("tiny", rows=2, load=lambda name: tiny.model())
    requests = [question(text, max_tokens=LIMIT - i % 2) for i, text in enumerate("abcdefg")]
    arrived = {}
    source.answer(requests, arrived.__setitem__)
    for i, text in enumerate("abcdefg"):
        assert arrived[i].text.split() == greedy(text).text.split()[: LIMIT - i % 2]


def test_drawn_answers_differ_and_come_again_with_the_same_seed():
    requests = [question("hello", temperature=1.0)] * 8
    first, again, other = (build(seed=seed).ask(requests) for seed in (0, 0, 1))
    assert first == again != other
    assert len({reply.text for reply in first}) > 1


def test_a_chat_that_does_not_fit_names_its_item():
    limit = tiny.POLICY.config.max_positions
    with pytest.raises(
        ExpertError, match=f"expert 'tiny' \\(local\\), item 'item-x+': a prompt of {limit - 5} "
    ):
        build().ask([question("hello"), question("x" * (limit - 5))])


def test_a_model_that_is_not_there_is_said_before_training():
    with pytest.raises(ValueError, match="no/such/model"):
        experts.build("local", "no/such/model/folder").check()
    with pytest.raises(ValueError, match="has no tokenizer"):
        model = weights.LoadedModel(tiny.POLICY, tiny.params(), None)
        experts.build("local", "mute", load=lambda name: model).check()


def test_answers_are_kept_and_replayed_without_the_model(tmp_path):
    replies = build(cache=str(tmp_path)).ask([question("hello"), question("x")])

    def load(name):
        raise AssertionError("the model is not needed")

    replay = experts.build("local", "tiny", cache=str(tmp_path), offline=True, load=load)
    replay.check()
    assert [reply.text for reply in replay.ask([question("x"), question("hello")])] == [
        replies[1].text,
        replies[0].text,
    ]


@pytest.mark.slow
@pytest.mark.model
def test_the_real_model_answers_a_question():
    expert = experts.build("local", "smollm2-135m-instruct")
    expert.check()
    (reply,) = expert.ask([question("What is the capital of France?", max_tokens=16)])
    assert "Paris" in reply.text and reply.finished
