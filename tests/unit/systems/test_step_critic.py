"""Q of steps by a value model: fitted on a tree whose values are known, saved, and refused where it cannot be."""

import dataclasses
import functools
import itertools

import jax
import numpy as np
import pytest

from jaxmarl_llm import team, update
from jaxmarl_llm.credit import on_host, q_targets
from jaxmarl_llm.search.trees import Answer, tree_of
from jaxmarl_llm.systems.critics.step_critic import StepCritic, fit
from jaxmarl_llm.weights import word_model

CHATS = ([{"role": "user", "content": "write"}], [{"role": "user", "content": "read"}])
# Of the digits of an answer to "write" the second one counts half, with the first 1; to "read" the first one alone.
PAID = {0: lambda a, b: float(a == 1) * (0.5 + 0.5 * b), 1: lambda a, b: float(a == 0)}


def digit_tree():
    """All answers of two lines, a digit each, to two chats."""
    rows = [
        Answer(i, f"{a}\n{b}", PAID[i](a, b)) for i in (0, 1) for a, b in itertools.product((0, 1, 2), (0, 1))
    ]
    return tree_of(rows)


@functools.cache
def member():
    model = word_model.build(["write read 0 1 2\n"], {word_model.START: ("0", "1")}, (0,))
    return team.build({"m": model}, {"writer": "m"}, jax.random.key(0), mode="frozen").members[0]


def critic(seed=0, lr=0.01, steps=400):
    optimizer = update.make_optimizer(lr=lr, steps=steps)
    return StepCritic(member(), jax.random.key(seed), optimizer, rank=8, alpha=16.0, rows=8)


def exact(tree):
    """Oracle: what the best answer after each step earns."""
    return np.array([
        max(PAID[i](a, b) for a, b in itertools.product((0, 1, 2), (0, 1)) if f"{a}\n{b}".startswith(text))
        for i, text in zip(tree.item_S, tree.texts, strict=True)
    ])  # fmt: skip


@pytest.mark.slow
def test_fitted_q_of_a_value_model_comes_near_value_iteration():
    tree, model = digit_tree(), critic()
    label = lambda values_S: on_host(q_targets.fitted, values_S, tree.reward_S, tree.parent_S, length=len(values_S))  # noqa: E731
    metrics = fit(model, CHATS, tree, label, fixed=False, rounds=8, updates=50, batch=18, seed=(0,))
    chats = [CHATS[i] for i in tree.item_S]
    values_S = np.array([value for value, _ in model.values(list(zip(chats, tree.texts, strict=True)))])
    assert np.abs(values_S - exact(tree)).max() < 0.05
    assert metrics["steps"] == len(tree.texts) == 18 and metrics["explained"] > 0.98 and metrics["error"] < 0.05


@pytest.mark.slow
def test_a_model_is_saved_and_read_back(tmp_path):
    """And a step without a target, NaN, is never drawn."""
    tree, model = digit_tree(), critic(steps=3)
    seen = []
    learn = model.learn
    model.learn = lambda texts, targets: (seen.extend(texts), learn(texts, targets))[1]
    given_S = np.where(np.arange(18) % 2 == 0, 0.5, np.nan).astype(np.float32)
    fit(model, CHATS, tree, lambda values_S: given_S, fixed=True, rounds=1, updates=3, batch=8, seed=(0,))
    assert {text for _, text in seen} == {tree.texts[s] for s in range(0, 18, 2)} and len(seen) == 8 + 8 + 8
    model.save(tmp_path / "model")
    texts = [(CHATS[0], "1\n"), (CHATS[1], "")]
    other = critic(seed=1, steps=3)
    assert other.values(texts) != model.values(texts)
    other.load(tmp_path / "model")
    assert other.values(texts) == model.values(texts)
    chat = len(member().tokenizer.encode_chat(CHATS[0]))
    assert model.values(texts)[0][1] == chat + 2 and model.values([]) == []


class Table:
    """A model that is a table: what it learns is what it is shown; notes what is looked up."""

    def __init__(self):
        self.table, self.asked, self.shown = {}, [], []

    def values(self, texts):
        self.asked.append([text for _, text in texts])
        return [(self.table.get((chat[0]["content"], text), 0.0), 1) for chat, text in texts]

    def learn(self, texts, targets):
        self.shown.append([text for _, text in texts])
        self.table |= {(chat[0]["content"], text): y for (chat, text), y in zip(texts, targets, strict=True)}
        return 0.0


def test_a_table_comes_to_the_values_in_as_many_rounds_as_answers_have_steps():
    tree, table = digit_tree(), Table()
    label = lambda values_S: on_host(q_targets.fitted, values_S, tree.reward_S, tree.parent_S, length=len(values_S))  # noqa: E731
    metrics = fit(table, CHATS, tree, label, fixed=False, rounds=2, updates=3, batch=6, seed=(0,))
    assert (metrics["explained"], metrics["error"], metrics["steps"]) == (1.0, 0.0, 18.0)
    named = zip(tree.item_S, tree.texts, strict=True)
    np.testing.assert_allclose([table.table[CHATS[i][0]["content"], text] for i, text in named], exact(tree))
    leaves = sorted(text for text, leaf in zip(tree.texts, tree.leaf_S, strict=True) if leaf)
    assert sorted(table.asked[0]) == leaves  # the children of what was drawn
    assert [len(texts) for texts in table.shown] == [6] * 6


def test_targets_that_are_known_need_no_values():
    tree, table = digit_tree(), Table()
    fit(table, CHATS, tree, lambda values_S: exact(tree), fixed=True, rounds=2, updates=3, batch=6, seed=(0,))
    assert len(table.asked) == 1 and len(table.asked[0]) == 18  # at the end, to measure


@pytest.mark.slow
def test_the_team_is_as_it_was():
    before = jax.tree.map(np.asarray, member().base)
    model = critic(steps=2)
    model.learn([(CHATS[0], "1\n")] * 2, [1.0, 0.0])
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.asarray, member().base))


def test_what_is_refused():
    own = member()
    full = dataclasses.replace(own, stack=dataclasses.replace(own.stack, mode="full"))
    with pytest.raises(ValueError, match="team.mode='full': a value model of steps has adapters"):
        StepCritic(full, jax.random.key(0), None, rank=2, alpha=2.0)
    remote = dataclasses.replace(own, stack=dataclasses.replace(own.stack, mode=team.REMOTE))
    with pytest.raises(ValueError, match="a value model of steps"):
        StepCritic(remote, jax.random.key(0), None, rank=2, alpha=2.0)
