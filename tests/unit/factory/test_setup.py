"""jaxmarl_llm/factory/setup.py: the order of the problems, the random streams, and what configs become."""

import collections
import dataclasses
import itertools
import json
import logging
import types

import jax
import numpy as np
import pytest

from configs import coding
from jaxmarl_llm import sharding
from jaxmarl_llm.factory import randomness, systems, tasks, teams, training
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.tasks.coding import data_files


def config(**changes):
    made = coding.get_config("smoke")
    made.update_from_flattened_dict({name.replace("__", "."): value for name, value in changes.items()})
    return made


def graded(n_items):
    """Problems of grade 1, 2, 3, 4, 1, 2, ..."""
    return [types.SimpleNamespace(grade=1 + i % 4) for i in range(n_items)]


@pytest.mark.parametrize("n_items, prompts", [(12, 4), (12, 5), (3, 4), (1, 2), (7, 7)])
def test_every_item_comes_once_per_epoch(n_items, prompts):
    """All batches in a row are one permutation after another, also where batches cross epochs."""
    c = config(train__prompts=prompts, train__grade_every=0)
    batches = [randomness.batch_ids(c, graded(n_items), step) for step in range(3 * n_items)]
    assert {len(batch) for batch in batches} == {prompts}
    order = list(itertools.chain.from_iterable(batches))
    for epoch in range(len(order) // n_items):
        assert sorted(order[epoch * n_items : (epoch + 1) * n_items]) == list(range(n_items))


def test_grades_join_one_after_the_other_and_nothing_comes_again_too_soon():
    items = graded(40)  # ten of each grade
    orders = []
    for seed in (0, 1):
        c = config(train__prompts=4, train__grade_every=2, seed=seed)
        batches = [randomness.batch_ids(c, items, step) for step in range(30)]
        stages = [list(itertools.chain(*batches[start : start + 2])) for start in (0, 2, 4, 6)]
        for grade, stage in enumerate(stages, 1):
            assert {items[i].grade for i in stage} <= set(range(1, grade + 1))
        assert {items[i].grade for i in stages[0]} == {1} and 2 in {items[i].grade for i in stages[1]}
        # Ten iterations are one epoch; after it all items come in plain epochs.
        order = list(itertools.chain(*batches))
        assert all(sorted(order[start : start + 40]) == list(range(40)) for start in (0, 40, 80))
        orders.append(order[:8])
    assert orders[0] != orders[1] and orders[0] != sorted(orders[0])


def test_a_stage_longer_than_its_problems_begins_them_again():
    c = config(train__prompts=4, train__grade_every=5)
    batches = [randomness.batch_ids(c, graded(40), step) for step in range(10)]
    first, second = (list(itertools.chain(*batches[start : start + 5])) for start in (0, 5))
    assert sorted(first[:10]) == sorted(first[10:]) == list(range(0, 40, 4)) and first[:10] != first[10:]
    assert sorted(second) == [i for i in range(40) if i % 4 < 2]


def test_grades_need_not_be_known():
    """Data without difficulty has grade 0 throughout: there is nothing to wait for."""
    items = [types.SimpleNamespace(grade=0)] * 8
    c = config(train__prompts=4, train__grade_every=3)
    assert sorted(i for step in (0, 1) for i in randomness.batch_ids(c, items, step)) == list(range(8))


def test_order_depends_on_seed_and_step_alone():
    first = config(train__prompts=4, train__grade_every=0)
    again = config(train__prompts=4, train__grade_every=0, train__lr=0.5, train__steps=99)
    assert [randomness.batch_ids(first, graded(40), step) for step in (9, 3, 20)] == [
        randomness.batch_ids(again, graded(40), step) for step in (9, 3, 20)
    ]
    other = config(train__prompts=4, train__grade_every=0, seed=1)
    assert randomness.batch_ids(first, graded(40), 0) != randomness.batch_ids(other, graded(40), 0)
    epochs = [[randomness.batch_ids(first, graded(40), 10 * epoch + s) for s in range(10)] for epoch in range(2)]
    assert epochs[0] != epochs[1]


def test_further_draws_are_of_other_problems():
    """4 of 12 problems: two further draws have the other eight, the third has the iteration's own again."""
    c, items = config(train__prompts=4, train__grade_every=0), graded(12)
    for step in range(6):
        first = randomness.batch_ids(c, items, step)
        draws = [randomness.draw_ids(c, items, step, number) for number in (1, 2, 3, 4)]
        assert sorted(draws[0] + draws[1]) == sorted({*range(12)} - {*first})
        assert sorted(draws[2]) == sorted(first) and draws[3] == draws[0]  # all have come
        again = config(train__prompts=4, train__grade_every=0)
        assert draws[1] == randomness.draw_ids(again, items, step, 2)
    other = config(train__prompts=4, train__grade_every=0, seed=1)
    drawn = [[randomness.draw_ids(each, graded(40), step, 1) for step in range(4)] for each in (c, other)]
    assert drawn[0] != drawn[1] and len(set(map(tuple, drawn[0]))) == 4


def test_further_draws_are_of_the_grades_that_may_come():
    c, items = config(train__prompts=2, train__grade_every=2), graded(12)
    for step in range(9):
        drawn = {items[i].grade for number in range(1, 9) for i in randomness.draw_ids(c, items, step, number)}
        assert drawn == {*range(1, 1 + min(1 + step // 2, 4))}


def test_further_draws_of_the_same_problems_where_there_are_no_others():
    c = config(train__prompts=3, train__grade_every=0)
    assert [sorted(randomness.draw_ids(c, graded(3), 0, number)) for number in (1, 2)] == [[0, 1, 2]] * 2
    assert randomness.draw_ids(c, graded(1), 4, 1) == [0, 0, 0]


def test_streams_and_seeds_never_meet():
    keys = [
        tuple(jax.random.key_data(jax.random.fold_in(randomness.stream(config(seed=seed), name), step)).tolist())
        for seed in (0, 1, 2)
        for name in randomness.STREAMS
        for step in range(3)
    ]
    assert max(collections.Counter(keys).values()) == 1
    with pytest.raises(ValueError):
        randomness.stream(config(), "rollouts")


def test_options_reach_their_places():
    c = config(
        sampling__temperature=0.7, sampling__top_k=5, sampling__top_p=0.9, sampling__min_p=0.1,
        train__clip=0.2, train__ratio_level="sequence", train__aggregation="token", train__kl_coef=0.1,
        train__kl_kind="k2", train__entropy_coef=0.01, train__baseline="max", train__normalise=True,
        train__normalise_by="agent", train__backup="last", train__discount=0.9, train__reduce="sum",
        train__turn_weights=(1.0, 0.5), train__hand_on="best", train__turns=2, train__turn_loss="mean",
    )  # fmt: skip
    drawn = training.sampling_params(c)
    assert dataclasses.astuple(drawn) == (16, 0.7, 5, 0.9, 0.1, (), ())
    loss = training.loss_config(c)
    assert loss.sampling == drawn
    assert (loss.clip, loss.ratio_level, loss.aggregation) == (0.2, "sequence", "token")
    assert (loss.kl_coef, loss.kl_kind, loss.entropy_coef, loss.comlrl_compat) == (0.1, "k2", 0.01, False)
    plain = training.loss_config(config(train__clip=0.0))
    assert plain.clip is None and plain.importance_cap is None
    assert training.loss_config(config(train__clip=0.0, train__importance_cap=1.2)).importance_cap == 1.2
    assert loss.importance_bound == plain.importance_bound == 0
    half = training.loss_config(config(policy__dtype="bfloat16", train__importance_bound=0.03))
    assert (half.importance_cap, half.importance_bound) == (2.0, 0.03)
    for other in (dict(train__clip=0.2), dict(train__importance_cap=1.2), dict(train__importance_bound=0.0),
                  dict(train__comlrl_compat=True), dict(train__system="sft"), dict(train__system="madpo")):  # fmt: skip
        uncorrected = training.loss_config(config(policy__dtype="bfloat16", **other))
        assert uncorrected.importance_bound == 0
        assert uncorrected.importance_cap == other.get("train__importance_cap")
    wanted = magrpo.CreditConfig("max", True, 0.9, "sum", (1.0, 0.5), True, "agent", "last", 0.0, 2, "mean")
    assert systems.credit_config(c) == wanted
    assert (loss.dual_clip, loss.drop_truncated) == (None, False)
    dapo = config(
        train__clip=0.2, train__clip_high=0.28, train__dual_clip=3.0, train__drop_truncated=True,
        train__aggregation="constant", train__ratio_level="sequence_normalised",
    )  # fmt: skip
    loss = training.loss_config(dapo)
    assert (loss.clip, loss.dual_clip, loss.drop_truncated) == ((0.2, 0.28), 3.0, True)
    assert loss.division == {"aggregation": "constant", "token_budget": 16}
    assert loss.ratio_level == "sequence_normalised" and hash(loss)


def test_tasks_are_the_splits_of_their_sources():
    executor = object()
    c = config(task__source="starter", task__eval_source="starter[:4]", task__test_source="")
    train, validation, test = (tasks.build_task(c, executor, split) for split in ("train", "eval", "test"))
    assert train.items == tuple(data_files.load_items("starter", "train"))
    assert validation.items == tuple(data_files.load_items("starter", "validation")[:4])
    assert test.items == tuple(data_files.load_items("starter", "test"))
    same = tasks.build_task(config(task__eval_source="", task__source="starter[:2]"), executor, "eval")
    assert same.items == validation.items[:2]


class Words:
    """A tokenizer with a token per word."""

    def encode_chat(self, messages):
        return [word for message in messages for word in message["content"].split()]


def prompt_check(limit, long_prompts, lengths, **fields):
    items = [types.SimpleNamespace(task_id=f"p{n}", words="w " * n) for n in lengths]
    task = types.SimpleNamespace(
        items=items, prompts=lambda item: {"main": [{"role": "user", "content": item.words}]}
    )
    team = {"main": types.SimpleNamespace(remote=False, tokenizer=Words())}
    c = config(sampling__max_prompt_tokens=limit, sampling__long_prompts=long_prompts, **fields)
    teams.check_prompts(c, team, task)


def test_long_prompts(caplog):
    prompt_check(5, "error", [4, 5])
    with pytest.raises(ValueError, match=r"agent 'main' for p6 has 6 tokens, the limit is 5; raise sampling"):
        prompt_check(5, "error", [5, 6])
    with caplog.at_level(logging.WARNING):
        prompt_check(5, "truncate", [5, 6])
    assert [record.getMessage() for record in caplog.records] == [
        "the prompt of agent 'main' for p6 has 6 tokens: it will be cut on the left to 5"
    ]


def test_prompts_of_a_next_turn_that_may_not_fit(caplog):
    turns = {"train__turns": 2, "sampling__max_new_tokens": 3, "team__agents": ("main",)}
    with caplog.at_level(logging.WARNING):
        prompt_check(8, "error", [4, 5], **turns)
        prompt_check(7, "truncate", [4, 5], **turns)
        prompt_check(7, "error", [4, 5], **turns | {"train__turns": 1})
        assert not caplog.records
        prompt_check(7, "error", [4, 5], **turns)
    (record,) = caplog.records
    expected = "sampling.max_prompt_tokens=7: of agent 'main' a first prompt has 5 tokens and an answer may have 3,"
    assert record.getMessage().startswith(expected)


@pytest.mark.model
def test_random_model_follows_the_seed():
    one, same, other = (teams.load_model(config(seed=seed), "random-tiny") for seed in (3, 3, 4))
    leaves = [jax.tree.leaves(model.params) for model in (one, same, other)]
    assert all((a == b).all() for a, b in zip(leaves[0], leaves[1], strict=True))
    assert any((a != b).any() for a, b in zip(leaves[0], leaves[2], strict=True))
    shapes = jax.eval_shape(one.policy.init, jax.random.key(0), *[jax.numpy.zeros((1, 1), "int32")] * 2)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), one.params) == jax.tree.map(
        lambda x: (x.shape, x.dtype), shapes
    )


def test_run_folders(tmp_path):
    with pytest.raises(ValueError, match="holds no run: config.json is missing"):
        run_folder.load_run(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config(train__lr=0.25).to_dict()))
    read = run_folder.load_run(tmp_path)
    assert read.train.lr == 0.25
    (tmp_path / "config.json").write_text(json.dumps({**read.to_dict(), "model": 3}))
    with pytest.raises(ValueError, match=r"config.json cannot be used:\n  model=3: must be of type str"):
        run_folder.load_run(tmp_path)
    assert run_folder.new_workdir().startswith("runs/2")


def test_a_run_has_one_device_or_a_mesh_of_all():
    assert teams.layout(config()) is sharding.ONE_DEVICE
    actual = teams.layout(config(mesh__agent=2, mesh__model=4, mesh__fsdp=True))
    assert actual.mesh.devices.shape == (2, 1, 4) and actual.fsdp
    with pytest.raises(ValueError, match="mesh.agent=2 .* is a mesh of 2 devices, and there are 8"):
        teams.build_team(config(mesh__agent=2))


@pytest.mark.slow
@pytest.mark.model
def test_a_team_on_a_mesh_is_the_team(monkeypatch):
    """Its weights never are JAX arrays of one device."""
    plain = teams.build_team(config(team__mode="full"))
    monkeypatch.setattr(teams.jnp, "asarray", None)
    mesh = {"mesh__agent": 2, "mesh__data": 2, "mesh__model": 2, "mesh__fsdp": True}
    cut = teams.build_team(config(team__mode="full", **mesh))
    for a, b in zip(*(jax.tree.leaves(t.members[0].trainable) for t in (plain, cut)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert len(b.sharding.device_set) == 8
    table = cut.members[0].trainable["params"]["embed"]["embedding"]
    assert table.addressable_shards[0].data.size == table.size // 8


def test_a_run_of_other_devices_is_read_with_one(tmp_path):
    for agents, expected in ((8, 8), (16, 1)):
        (tmp_path / "config.json").write_text(json.dumps(config(mesh__agent=agents).to_dict()))
        assert run_folder.load_run(tmp_path).mesh.agent == expected
