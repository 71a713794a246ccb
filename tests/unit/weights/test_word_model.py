"""weights/word_model.py and random_weights.py: texts that come back, and answers of the right form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import VARIANTS

from configs import game as game_config
from jaxmarl_llm import tokenizer, weights
from jaxmarl_llm.factory import tasks, teams
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.protocols import Answer
from jaxmarl_llm.protocols.hearing import with_quotes
from jaxmarl_llm.tasks.toys import matrix_game
from jaxmarl_llm.weights import random_weights, word_model

TEXTS = ("Say left, or right.", "[a]\n\n[b]\n", "paid -10 of 11")
HABITS = {word_model.START: ("left", "right"), "left": (word_model.END,), "right": (word_model.END,)}


def config(**changes):
    made = game_config.get_config()
    made.update_from_flattened_dict({name.replace("__", "."): value for name, value in changes.items()})
    return made


def test_known_texts_come_back():
    words = word_model.tokenizer(TEXTS)
    vocabulary = words.hf.get_vocab()
    assert {"Say", "left", ",", " ", "-10", "11", "[a]\n", "\n[b]\n"} < vocabulary.keys()
    for text in (*TEXTS, "left,right of -10", "leftright11", "[a]\nleft\n[b]\nright"):
        assert words.decode(words.encode(text)) == text
    assert len(words.encode("[a]\nleft\n[b]\nright")) == 4
    assert words.encode("up") == 2 * [vocabulary["<|unknown|>"]]
    assert words.vocab_size == len(vocabulary)
    assert words.eos_ids == (vocabulary["<|end|>"],) == (words.pad_id,)


def test_whole_texts_are_one_token_each():
    whole = ("def f(a):\n    return ", "a + b")
    words = word_model.tokenizer(TEXTS, whole)
    assert word_model.tokenizer(TEXTS).hf.get_vocab().items() < words.hf.get_vocab().items()
    for text, pieces in ((whole[0] + "a + b", 2), ("left a + b", 3)):
        assert len(words.encode(text)) == pieces
        assert words.decode(words.encode(text)) == text


def test_chats_end_where_the_answer_begins():
    words = word_model.tokenizer(TEXTS)
    messages = [{"role": "user", "content": "Say left"}, {"role": "assistant", "content": "right"}]
    pieces = words.hf.convert_ids_to_tokens(words.encode_chat(messages))
    assert pieces == [
        "<|user|>", "Say", " ", "left", "<|end|>", "<|assistant|>", "right", "<|end|>", "<|assistant|>",
    ]  # fmt: skip
    assert words.decode(words.encode_chat(messages)) == "Say leftright"


def test_a_saved_tokenizer_is_the_same(tmp_path):
    words = word_model.tokenizer(TEXTS)
    words.save(tmp_path)
    read = tokenizer.load(tmp_path)
    assert read.eos_ids == words.eos_ids and read.hf.get_vocab() == words.hf.get_vocab()
    messages = [{"role": "user", "content": "[a]\nSay left, or right."}]
    assert read.encode_chat(messages) == words.encode_chat(messages)
    assert read.decode(read.encode(TEXTS[1])) == TEXTS[1]


def test_the_policy_answers_in_form_and_knows_nothing_else():
    model = word_model.build(TEXTS, HABITS, (0, 3))
    known = model.tokenizer.hf.get_vocab()
    chat = model.tokenizer.encode_chat([{"role": "user", "content": "Say left, or right."}])
    tokens_BL = jnp.array([chat + [known["left"]]])
    logits, _ = model.policy.apply(model.params, tokens_BL, jnp.arange(tokens_BL.shape[1])[None])
    probs_LV = np.asarray(jax.nn.softmax(logits[0]))
    assert probs_LV[-2, [known["left"], known["right"]]].sum() > 0.8
    assert probs_LV[-2, [known["left"], known["right"]]].min() > 0.1
    assert probs_LV[-1, known["<|end|>"]] > 0.8
    assert probs_LV[0].max() < 0.5  # after <|user|>, which no habit names


def test_weights_follow_the_seed_and_habits_are_checked():
    one, same, other = (word_model.build(TEXTS, HABITS, (seed, 3)).params for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(same), strict=True))
    assert any((a != b).any() for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    with pytest.raises(ValueError, match=r"habits name \['up'\], which no text holds"):
        word_model.build(TEXTS, {"left": ("up",)}, (0,))


def test_random_leaves_have_the_spread_that_is_asked_for():
    policy = word_model.build(TEXTS, {}, (0,)).policy
    params = random_weights.draw(policy, (5,), lambda name, shape: 0.5 if "/mlp" in name else 3.0)["params"]
    assert params["embed"]["embedding"].dtype == np.float32
    assert abs(params["embed"]["embedding"].std() - 3.0) < 0.3
    assert (params["final_norm"]["scale"] == 1).all()
    gemma = random_weights.draw(Policy(VARIANTS["gemma3"]), (5,))["params"]
    scales = gemma["final_norm"]["scale"], gemma["layers"]["attn_post_norm"]["scale"]
    assert all((scale == 0).all() for scale in scales)  # which stands for 1


def test_a_model_can_be_saved_and_read(tmp_path):
    model = word_model.build(TEXTS, HABITS, (0, 3))
    weights.save(model, tmp_path / "model")
    read = weights.load(str(tmp_path / "model"))
    tokens, positions = jnp.array([[3, 7, 1, 9]]), jnp.arange(4)[None]
    np.testing.assert_allclose(
        read.policy.apply(read.params, tokens, positions)[0],
        model.policy.apply(model.params, tokens, positions)[0],
        rtol=1e-5, atol=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("fields", [
    {},
    {"team__agents": ("a",)},
    {"team__agents": ("ann", "bo", "cy")},
    {"team__agents": ("team",), "task__centralised": True},
])  # fmt: skip
def test_the_game_is_played_in_known_words(fields):
    """Prompts, what was heard, and every feedback that there can be."""
    c = config(**fields)
    task = tasks.build_task(c, None, "train")
    words = teams.load_model(c, "game-tiny").tokenizer
    texts = []
    for item in task.items:
        prompts = task.prompts(item)
        for messages in prompts.values():
            heard = messages if c.task.centralised else with_quotes(messages, dict.fromkeys(prompts, "left"))
            texts += [message["content"] for message in heard]
    roles = getattr(task, "roles", task.agents)
    for word in (*matrix_game.WORDS, ""):
        text = "\n".join(f"[{role}]\n{word}" for role in roles) if c.task.centralised else word
        answers = [Answer(item, dict.fromkeys(task.agents, text), None) for item in task.items]
        texts += [text for feedback in task.feedback(answers) for text in feedback.values()]
    for text in texts:
        assert words.decode(words.encode(text)) == text
        assert words.hf.unk_token_id not in words.encode(text)

