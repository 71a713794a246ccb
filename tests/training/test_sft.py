"""Supervised fine-tuning: its gradient is that of cross-entropy, by an independent computation, and only on
an agent's own tokens; its order follows from the seed; a run goes on as if it had not been stopped."""

import dataclasses
import json
from types import SimpleNamespace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import smoke_runs
import tiny
from game_runs import game_config

from configs import coding
from experiments import train
from jaxmarl_llm import adapters, losses, metrics
from jaxmarl_llm.config import agent_settings, validate
from jaxmarl_llm.factory import imitation, training
from jaxmarl_llm.forest import REMARK
from jaxmarl_llm.runs import budgets
from jaxmarl_llm.runs.learner import Learner
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems import sft
from jaxmarl_llm.systems.demonstrations import Encoded
from jaxmarl_llm.testing import small_forest
from jaxmarl_llm.update import LossConfig, batches, collate, init_state, make_optimizer, train_step

pytestmark = pytest.mark.usefixtures("programs_shared")
LOSS = LossConfig(SamplingParams(6), aggregation="token", given_texts=True, prompts_per_microbatch=2)
# (agent, prompt, completion with its end, weight)
ROWS = (
    ("a", [7, 8, 9], [20, 21, 3], 1.0), ("a", [11, 12], [22, 3], 0.5),
    ("b", [9, 10], [30, 31, 32, 3], 1.0), ("b", [13, 14, 15, 16], [33, 3], 2.0),
)  # fmt: skip


def encoded(rows=ROWS):
    return [Encoded(agent, np.array(p), np.array(c), "", weight) for agent, p, c, weight in rows]


def gradients(rows, lora):
    system = sft.Sft(sft.DemonstrationOrder(encoded(rows), 2, (0, 0)))
    credit = system.assign(None)
    (batch,) = collate.collate(credit.forest, credit.advantages, tiny.stack(), 6)
    return tiny.gradients(tiny.stack() if batch.agents is None else tiny.stack(batch.agents),
                          LOSS, tiny.params(), lora, batch)  # fmt: skip


def cross_entropy(lora, n, agent, rows):
    """`losses.cross_entropy` of an agent's weighted tokens, each text read from its beginning, no cache."""
    own = [row for row in rows if row[0] == agent]
    width = max(len(p) + len(c) for _, p, c, _ in own)
    ids, answered = np.zeros((len(own), width), np.int32), np.zeros((len(own), width), bool)
    for row, (_, prompt, completion, _) in enumerate(own):
        end = len(prompt) + len(completion)
        ids[row, :end], answered[row, len(prompt) : end] = [*prompt, *completion], True
    variables = adapters.merge(tiny.params(), jax.tree.map(lambda x: x[n], lora), tiny.SCALE)
    logits, _ = tiny.POLICY.apply(
        variables, jnp.array(ids), jnp.broadcast_to(jnp.arange(width)[None], ids.shape)
    )
    logprobs = jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), ids[:, 1:, None], -1)[..., 0]
    weights = np.array([[weight] for *_, weight in own], np.float32)
    return losses.cross_entropy(weights * logprobs, answered[:, 1:]).mean()


@pytest.mark.parametrize("begin", [[], [5] * 17])  # what all prompts begin with: then they lie in rows too
def test_the_gradient_is_that_of_cross_entropy(begin):
    lora, rows = tiny.lora(), [(agent, begin + prompt, *rest) for agent, prompt, *rest in ROWS]
    gradient, (loss, *_) = gradients(rows, lora)
    assert loss.count.tolist() == [5, 6]  # tokens with their end
    for n, agent in enumerate(tiny.AGENTS):
        value, expected = jax.value_and_grad(cross_entropy)(lora, n, agent, rows)
        np.testing.assert_allclose(loss.mean()[n], value, rtol=1e-5)
        for one, two in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one[n], two[n], rtol=1e-3, atol=1e-5)
            assert np.abs(two[n]).max() > 1e-4 and (two[1 - n] == 0).all()


@pytest.mark.parametrize("shards", [1, 2])
def test_prompts_lie_in_rows_with_their_only_text(shards):
    rows = [(agent, [5] * 17 + prompt, *rest) for agent, prompt, *rest in ROWS]
    credit = sft.Sft(sft.DemonstrationOrder(encoded(rows), 2, (0, 0))).assign(None)
    (batch,) = collate.collate(credit.forest, credit.advantages, tiny.stack(), 6)
    made = batches.prompts_in_rows(batch, shards)
    assert made.prompts_NBP.tolist() == [[[5]] * shards] * 2 and made.shared.lengths_N.tolist() == [15, 15]
    for n, agent in enumerate(tiny.AGENTS):
        texts = {(tuple(made.tokens_NRL[n, r, :length]), made.given_NR[n, r], made.advantages_NR[n, r])
                 for r, length in enumerate(made.lengths_NR[n])}  # fmt: skip
        assert texts == {((5, *p, *c), 1 + len(p), w) for owner, p, c, w in ROWS if owner == agent}


@pytest.mark.parametrize("change", ["other beginnings", "two texts to a prompt"])
def test_prompts_that_stay_apart(change):
    rows = ROWS
    if change == "two texts to a prompt":
        rows = [(agent, [5] * 18, *rest) for agent, _, *rest in ROWS]
    credit = sft.Sft(sft.DemonstrationOrder(encoded(rows), 2, (0, 0))).assign(None)
    (batch,) = collate.collate(credit.forest, credit.advantages, tiny.stack(), 6)
    assert batches.prompts_in_rows(batch) is batch


def learned(rows, lora):
    """What one update of the team on some demonstrations changes, and its metrics."""
    system = sft.Sft(sft.DemonstrationOrder(encoded(rows), 2, (0, 0)))
    credit, stack = system.assign(None), tiny.stack()
    optimizer = make_optimizer(lr=0.1, steps=1)
    packed = [LOSS.pack(b) for b in collate.collate(credit.forest, credit.advantages, stack, 6)]
    before = jax.device_get(lora)
    given = stack, LOSS, optimizer, tiny.params(), init_state(lora, optimizer), tuple(packed)
    state, metrics = jax.device_get(train_step(*given))
    return jax.tree.map(lambda new, old: np.abs(new - old), state.trainable, before), metrics


def test_an_agent_without_demonstrations_and_one_of_weight_0_do_not_move():
    for rows in (ROWS[:2], (*ROWS[:2], *((*row[:3], 0.0) for row in ROWS[2:]))):
        moved, metrics = learned(rows, tiny.lora())
        for change in jax.tree.leaves(moved):
            assert (change[1] == 0).all()
        assert sum(float(change[0].sum()) for change in jax.tree.leaves(moved)) > 0
        assert metrics["grad_norm"][1] == 0 and metrics["grad_norm"][0] > 0
        assert not {"ratio_mean", "approx_kl", "clip_fraction"} & set(metrics)


def test_answers_of_a_rollout_are_replaced_by_demonstrations():
    """An agent imitates its own ones for the problem, under the prompts that it read; elsewhere nothing."""
    forest = small_forest(tiny.AGENTS)  # two problems, two agents, two samples
    own = {("a", "item 0"): ([41, 3], [42, 43, 3]), ("b", "item 1"): ([51, 3],)}
    rows = [Encoded(agent, np.array([1]), np.array(text), "", 0.5, name=name)
            for (agent, name), texts in own.items() for text in texts]  # fmt: skip
    turns = (*forest.turns[:-1], dataclasses.replace(forest.turns[-1], kind=REMARK))
    credit = sft.OnRollouts(rows).assign(dataclasses.replace(forest, turns=turns))
    got = [(turn.agent, turn.item, turn.completion.tolist()) for turn in credit.forest.turns]
    assert got == [("a", 0, [41, 3]), ("a", 0, [42, 43, 3]), ("b", 0, []), ("b", 0, []),
                   ("a", 1, []), ("a", 1, []), ("b", 1, [51, 3]), ("b", 1, [])]  # fmt: skip
    assert credit.advantages.tolist() == [0.5, 0.5, 0, 0, 0, 0, 0.5, 0]
    for turn, before in zip(credit.forest.turns, forest.turns, strict=True):
        assert turn.prompt.tolist() == before.prompt.tolist() and len(turn.logprobs) == len(turn.completion)
    assert credit.metrics() == {"sft/demonstrations": 3, "sft/tokens": 7}


def test_one_answer_to_a_problem_imitates_all_its_demonstrations_in_turn():
    """With fewer answers than demonstrations the place in the batch, which epochs shuffle, decides."""
    forest = small_forest(tiny.AGENTS)
    rows = [Encoded("a", np.array([1]), np.array([text, 3]), "", 1.0, name=f"item {item}")
            for item in (0, 1) for text in (41, 42)]  # fmt: skip
    turns = tuple(turn for turn in forest.turns if turn.agent == "a" and turn.sample == 0)
    credit = sft.OnRollouts(rows).assign(dataclasses.replace(forest, turns=turns))
    assert [turn.completion.tolist() for turn in credit.forest.turns] == [[41, 3], [42, 3]]


def test_the_gradient_on_a_rollout_is_that_of_cross_entropy():
    forest, lora = small_forest(tiny.AGENTS), tiny.lora()
    texts = {("a", "item 0"): [20, 21, 3], ("a", "item 1"): [22, 3], ("b", "item 0"): [30, 3]}
    rows = [Encoded(agent, np.array([1]), np.array(text), "", 1.0, name=name)
            for (agent, name), text in texts.items()]  # fmt: skip
    credit = sft.OnRollouts(rows).assign(forest)
    (batch,) = collate.collate(credit.forest, credit.advantages, tiny.stack(), 6)
    gradient, (loss, *_) = tiny.gradients(tiny.stack(), LOSS, tiny.params(), lora, batch)
    read = [(turn.agent, turn.prompt.tolist(), texts.get((turn.agent, f"item {turn.item}")), 1.0)
            for turn in forest.turns]  # fmt: skip
    for n, agent in enumerate(tiny.AGENTS):
        expected = jax.grad(cross_entropy)(lora, n, agent, [row for row in read if row[2]])
        for one, two in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one[n], two[n], rtol=1e-3, atol=1e-5)
            assert np.abs(two[n]).max() > 1e-4
    assert loss.count.tolist() == [10, 4]


@pytest.mark.parametrize("prompts", ["given", "rollout"])
def test_second_answers_are_learned_on_rollouts(tmp_path, prompts):
    """Demonstrations of first answers alone leave a team that answers twice below one that imitates in both turns."""
    fields = {"sft.prompts": prompts, "train.turns": 2, "train.prompts": 6, "train.group": 1}
    summary = train.train(game_config(**fields), tmp_path)
    spent = budgets.Spending(game_config(**fields), (), metrics.read_metrics(tmp_path)).totals
    assert summary["after"]["return_turn1"] > 95
    if prompts == "given":
        assert summary["after"]["return_turn2"] < 80 and spent[budgets.ANSWERS] == 0
    else:
        assert summary["after"]["return_turn2"] > 95 and spent[budgets.ANSWERS] == 30 * 2 * 6


def test_the_loss_falls():
    optimizer, stack = make_optimizer(lr=0.02, steps=30), tiny.stack()
    state, system = init_state(tiny.lora(), optimizer), sft.Sft(sft.DemonstrationOrder(encoded(), 2, (0, 0)))
    seen = []
    for _ in range(30):
        credit = system.assign(None)
        (batch,) = collate.collate(credit.forest, credit.advantages, stack, 6)
        state, metrics = train_step(stack, LOSS, optimizer, tiny.params(), state, (LOSS.pack(batch),))
        seen.append(np.asarray(metrics["loss"]))
    assert (seen[-1] < 0.6 * seen[0]).all()


def test_ratios_of_given_texts_are_refused():
    for options in ({"clip": 0.2}, {"importance_cap": 2.0}):
        with pytest.raises(ValueError, match="given_texts=True with .*nobody drew"):
            LossConfig(SamplingParams(6), given_texts=True, **options)


def test_every_demonstration_comes_once_before_one_comes_again():
    rows = [Encoded("a", np.array([i]), np.array([3]), "", 1.0) for i in range(5)]
    rows += [Encoded("b", np.array([i]), np.array([3]), "", 1.0) for i in range(3)]
    order = sft.DemonstrationOrder(rows, 2, (1, 2))
    drawn = {"a": [], "b": []}
    for step in range(15):
        order.restore(step)
        for (row,) in order.next():
            drawn[row.agent].append(int(row.prompt[0]))
    for agent, size in (("a", 5), ("b", 3)):
        epochs = np.array(drawn[agent]).reshape(-1, size)
        assert (np.sort(epochs) == np.arange(size)).all()
        assert len({tuple(epoch) for epoch in epochs}) > 1
    other = sft.DemonstrationOrder(rows, 2, (1, 3))
    assert [row.prompt.tolist() for (row,) in order.next()] != [
        row.prompt.tolist() for (row,) in other.next()
    ]


def test_demonstrations_of_one_prompt_come_together():
    def rows(*prompts):
        return [Encoded("a", np.array([p]), np.array([10 + n, 3]), "", 1.0) for n, p in enumerate(prompts)]

    order = sft.DemonstrationOrder(rows(1, 2, 3, 1, 2, 3), 4, (0, 0))
    assert order.prompts == 2
    drawn = []
    for step in range(3):
        order.restore(step)
        for one, two in order.next():
            assert one.prompt == two.prompt and one.completion[0] + 3 == two.completion[0]
            drawn.append(int(one.prompt[0]))
    assert sorted(drawn) == [1, 1, 2, 2, 3, 3]
    turns = sft.Sft(order).assign(None).forest.turns
    assert [(turn.request, turn.item, turn.sample) for turn in turns] == [
        (0, 0, 0),
        (0, 0, 1),
        (1, 1, 0),
        (1, 1, 1),
    ]
    # Unequal numbers, and prompts that would be no multiple of what is read together: each by itself.
    assert sft.DemonstrationOrder(rows(1, 1, 2), 2, (0, 0)).prompts == 2
    assert sft.DemonstrationOrder(rows(1, 1, 2, 2), 4, (0, 0), multiple=4).prompts == 4


def test_a_team_learns_a_game_from_demonstrations_and_a_stopped_run_goes_on(tmp_path, monkeypatch):
    once, parts, config = tmp_path / "once", tmp_path / "parts", game_config()
    summary = train.train(config, once)
    assert summary["after"]["return"] > 95 > 60 > summary["before"]["return"]
    learn, calls = Learner.update, []

    def failing(self, credit):
        calls.append(1)
        if len(calls) == 12:
            raise RuntimeError("out of luck")
        return learn(self, credit)

    monkeypatch.setattr(Learner, "update", failing)
    with pytest.raises(RuntimeError, match="out of luck"):
        train.train(config, parts)
    train.train(config, parts)
    assert len(calls) == 31
    rows = smoke_runs.rows(parts)
    assert rows == smoke_runs.rows(once) and smoke_runs.summary(parts) == smoke_runs.summary(once)
    learned = [row for row in rows if "sft/tokens" in row]
    assert len(learned) == 30 and learned[0]["sft/demonstrations"] == 12
    assert learned[0]["sft/tokens"] == 24  # a word and the end
    assert learned[-1]["first/loss"] < 0.1 < learned[0]["first/loss"]
    assert not any("ratio0" in name or name.startswith("train/") for row in learned for name in row)
    left, right = (smoke_runs.saved_state(folder, config) for folder in (parts, once))
    chex.assert_trees_all_equal(left, right)


@pytest.mark.parametrize("fields, sentence", [
    ({"train.clip": 0.2}, "train.clip=0.2: train.system='sft' allows 0.0 only"),
    ({"train.importance_cap": 2.0}, "train.importance_cap=2.0: train.system='sft' allows 0.0 only"),
    ({"train.kl_coef": 0.1}, "train.kl_coef=0.1: train.system='sft' allows 0.0 only"),
    ({"train.aggregation": "token"}, "train.aggregation='token': train.system='sft' allows 'sequence' only"),
    ({"sft.source": "what is this"}, "sft.source='what is this': allowed are reference, the path"),
    ({"sft.batch": 5, "train.prompts_per_microbatch": 2}, "sft.batch=5: train.minibatches=1 times "),
    ({"team.mode": "frozen"}, "train.system='sft': team.mode='frozen' learns nothing"),
])  # fmt: skip
def test_fields_that_demonstrations_do_not_allow(fields, sentence):
    config = coding.get_config()
    config.update_from_flattened_dict({"train.system": "sft"} | fields)
    with pytest.raises(ValueError) as caught:
        validate(config)
    assert any(line.strip().startswith(sentence) for line in str(caught.value).split("\n"))


def test_reference_answers_that_are_too_long_are_left_out(capsys):
    letters = dict(encode=lambda text: [*range(len(text))], encode_chat=lambda _: [1], eos_ids=(9,))
    tokenizer = SimpleNamespace(**letters)
    team = type("Team", (dict,), {"agents": ("a",)})(a=SimpleNamespace(tokenizer=tokenizer, remote=False))
    texts = ["xyz", "x" * 64]
    task = SimpleNamespace(
        items=(SimpleNamespace(task_id="one"),), agents=("a",), prompts=lambda _: {"a": []},
        references=lambda _: {"a": texts},
    )  # fmt: skip
    config = coding.get_config()
    config.train.system = "sft"
    (kept,) = imitation.load(config, task, team)
    assert kept.text == "xyz"
    assert "1 of 2 reference answers are longer than sampling.max_new_tokens=64" in capsys.readouterr().out
    del texts[0]
    with pytest.raises(ValueError, match="sampling.max_new_tokens=64: every one of the 1 reference answers"):
        imitation.load(config, task, team)


LETTERS = SimpleNamespace(encode=lambda text: [*range(len(text))], encode_chat=lambda _: [1], eos_ids=(9,))


def with_limits(**fields):
    """A config in which the helper may write 8 tokens and main 40, and a problem of two reference answers each."""
    config = coding.get_config()
    config.train.system = "sft"
    fields = {"sampling.max_new_tokens": 16, "team.agent.aux.max_new_tokens": 8, "team.agent.main.max_new_tokens": 40,
              "team.agent.aux.temperature": 0.3} | fields  # fmt: skip
    agent_settings.declare(config, fields)
    config.update_from_flattened_dict(fields)
    validate(config)
    members = {name: SimpleNamespace(tokenizer=LETTERS, remote=False) for name in ("aux", "main")}
    texts = {"aux": ["x" * 7, "x" * 8], "main": ["x" * 39, "x" * 40]}
    task = SimpleNamespace(
        items=(SimpleNamespace(task_id="one"),), agents=("aux", "main"), prompts=lambda _: {"aux": [], "main": []},
        references=lambda _: texts,
    )  # fmt: skip
    return config, task, type("Team", (dict,), {"agents": ("aux", "main")})(**members)


def test_every_agent_has_its_own_longest_demonstration(capsys, tmp_path):
    config, task, team = with_limits()
    kept = imitation.load(config, task, team)
    assert [(row.agent, len(row.completion)) for row in kept] == [("aux", 8), ("main", 40)]
    assert (
        "2 of 4 reference answers are longer than sampling.max_new_tokens=8 of aux, 40 of main"
        in capsys.readouterr().out
    )
    row = {"task_id": "one", "agent": "main", "text": "x" * 39}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    config.sft.source = str(tmp_path / "rows.jsonl")
    (given,) = imitation.load(config, task, team)
    assert len(given.completion) == 40
    (tmp_path / "rows.jsonl").write_text(json.dumps(row | {"agent": "aux", "text": "x" * 8}))
    with pytest.raises(ValueError, match="has 9 tokens with its end, .*team.agent.aux.max_new_tokens, allows 8"):
        imitation.load(config, task, team)


def test_the_loss_has_room_for_the_longest_demonstration_of_each_agent():
    """Temperature and truncation of an agent's own are not applied either."""
    sampling = training.loss_config(with_limits()[0]).sampling
    assert (sampling.of("aux"), sampling.of("main")) == (SamplingParams(8), SamplingParams(40))
    same = training.loss_config(with_limits(**dict.fromkeys(
        ("team.agent.aux.max_new_tokens", "team.agent.main.max_new_tokens"), 16))[0])  # fmt: skip
    assert same.sampling == SamplingParams(16)  # one batch


def test_gradients_are_alike_where_agents_have_limits_of_their_own():
    lora = tiny.lora()
    system = sft.Sft(sft.DemonstrationOrder(encoded(), 2, (0, 0)))
    credit = system.assign(None)
    own = tuple((agent, SamplingParams(most)) for agent, most in (("a", 3), ("b", 4)))
    config = dataclasses.replace(LOSS, sampling=SamplingParams(2, agents=own))
    both = collate.of_learners(credit.forest, credit.advantages, tiny.stack(), config.sampling)
    assert [batch.tokens_NRL.shape[-1] for batch in both] == [3, 4]
    for n, (agent, batch) in enumerate(zip(tiny.AGENTS, both, strict=True)):
        own_lora = jax.tree.map(lambda x, n=n: x[n : n + 1], lora)
        gradient, _ = tiny.gradients(tiny.stack((agent,)), config, tiny.params(), own_lora, batch)
        expected = jax.grad(cross_entropy)(lora, n, agent, ROWS)
        for one, two in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one[0], two[n], rtol=1e-3, atol=1e-5)
            assert np.abs(two[n]).max() > 1e-4


def test_rows_with_prompts_of_their_own_are_refused_on_rollouts(monkeypatch):
    rows = [{"agent": "a", "messages": [{"role": "user", "content": "again?"}], "text": "x"}]
    monkeypatch.setattr(imitation.dotted, "resolve", lambda *_: lambda item: rows)
    task = SimpleNamespace(items=(SimpleNamespace(task_id="one"),), agents=("a",), prompts=lambda _: {"a": []})
    team = type("Team", (dict,), {"agents": ("a",)})(a=SimpleNamespace(remote=False))
    config = coding.get_config()
    config.update_from_flattened_dict({"train.system": "sft", "sft.source": "my:f", "sft.prompts": "rollout"})
    with pytest.raises(ValueError, match="the demonstration of 'a' for problem 'one' has a prompt of its own"):
        imitation.load(config, task, team)


def test_a_task_without_reference_answers(tmp_path):
    with pytest.raises(ValueError, match="task.kind='game' has no reference answers; give a .jsonl file"):
        train.train(game_config(**{"sft.source": "reference"}), tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()
