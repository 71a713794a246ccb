"""jaxmarl_llm/resume_checks.py: what may be continued, and where."""

import os
import shutil
import types

import jax
import jax.numpy as jnp
import pytest
from checkpoint_teams import make_team

from jaxmarl_llm import adapters, resume_checks, update
from jaxmarl_llm.utils import dotted

CONFIG = {
    "seed": 0,
    "team": {"agents": ("aux", "main"), "rank": 16},
    "train": {"steps": 30, "lr": 2e-5, "decay": "constant"},
    "executor": {"workers": 0, "cpu_seconds": 2.0},
    "sampling": {"max_prompt_tokens": 768, "long_prompts": "error", "top_p": 1.0},
    "expert": {"model": "wise", "base_url": "http://a", "token_budget": 1000, "offline": False},
    "log": {"tensorboard": True},
    "save": {"every": 10},
    "model_options": {"date": "2026-03-05"},
}


def changed(**fields):
    config = {name: dict(value) if isinstance(value, dict) else value for name, value in CONFIG.items()}
    for path, value in fields.items():
        *groups, name = path.split("__")
        place = config
        for group in groups:
            place = place[group]
        place[name] = value
    return config


def test_the_same_run_may_go_on():
    read_back = changed(team__agents=["aux", "main"])  # JSON knows no tuples
    resume_checks.check_same_run(read_back, CONFIG)
    free = dict(executor__workers=4, executor__min_level=3, log__tensorboard=False, save__every=5)
    resume_checks.check_same_run(CONFIG, changed(train__steps=60, **free))
    resume_checks.check_same_run(CONFIG, changed(model_options__date=""))
    resume_checks.check_same_run(changed(model_options__date=""), CONFIG)


@pytest.mark.parametrize("fields", [
    dict(expert__token_budget=5000), dict(expert__base_url="http://b"), dict(expert__offline=True),
    dict(sampling__max_prompt_tokens=900), dict(sampling__long_prompts="truncate"),
])
def test_what_ended_a_run_may_be_mended(fields):
    resume_checks.check_same_run(CONFIG, changed(**fields))


def test_runs_of_before_dtypes_were_fields_go_on_in_float32():
    """As stored, a base holds the numbers that it held in float32; and nothing is rounded that could be weighed."""
    older = CONFIG | {"policy": {"dtype": "float32"}}
    now = older | {
        "model_options": {"date": "2026-03-05", "dtype": ""},
        "train": CONFIG["train"] | {"importance_bound": 0.01},
        "device": {"memory_fraction": 0.9},
    }
    resume_checks.check_same_run(older, now)
    narrow = now | {"model_options": now["model_options"] | {"dtype": "bfloat16"}}
    with pytest.raises(ValueError, match="model_options.dtype: saved 'float32', now 'bfloat16'$"):
        resume_checks.check_same_run(older, narrow)
    half = {"policy": {"dtype": "bfloat16"}}
    with pytest.raises(ValueError, match="train.importance_bound: saved 0.0, now 0.01$"):
        resume_checks.check_same_run(older | half, now | half)


def test_a_run_goes_on_over_the_base_that_it_had():
    """Runs of before it was a field had none that was quantised."""
    older = CONFIG | {"model_options": {"date": "2026-03-05"}}
    now = older | {"model_options": {"date": "2026-03-05", "dtype": "float32", "quantize": ""}}
    resume_checks.check_same_run(older, now)
    rounded = older | {"model_options": now["model_options"] | {"quantize": "nf4"}}
    with pytest.raises(ValueError, match="model_options.quantize: saved '', now 'nf4'$"):
        resume_checks.check_same_run(older, rounded)
    with pytest.raises(ValueError, match="model_options.quantize: saved 'nf4', now 'int8'$"):
        other = rounded["model_options"] | {"quantize": "int8"}
        resume_checks.check_same_run(rounded, rounded | {"model_options": other})


def test_where_prompts_were_cut_the_limit_stays():
    with pytest.raises(ValueError, match="sampling.max_prompt_tokens: saved 768, now 900$"):
        cut = {"sampling__long_prompts": "truncate"}
        resume_checks.check_same_run(changed(**cut), changed(**cut, sampling__max_prompt_tokens=900))


@pytest.mark.parametrize("fields, message", [
    (dict(expert__model="wiser"), "expert.model: saved 'wise', now 'wiser'$"),
    (dict(seed=1), "configuration: seed: saved 0, now 1$"),
    (dict(model_options__date="2026-03-06"), "model_options.date: saved '2026-03-05', now '2026-03-06'$"),
    (dict(team__rank=8, train__lr=1e-4), "team.rank: saved 16, now 8; train.lr: saved 2e-05, now 0.0001$"),
    (dict(team__agents=("aux",)), r"team.agents: saved \['aux', 'main'\], now \['aux'\]$"),
    (dict(executor__cpu_seconds=4.0), "executor.cpu_seconds: saved 2.0, now 4.0$"),
    (dict(train__clip=0.2), "train.clip: saved 0.0, now 0.2$"),
    (dict(executor={"workers": 0}), "executor.cpu_seconds: saved 2.0, now absent$"),
    (dict(logic=1), "logic: saved absent, now 1$"),  # only looks like the free group `log`
])
def test_every_other_difference_is_listed(fields, message):
    with pytest.raises(ValueError, match=message):
        resume_checks.check_same_run(CONFIG, changed(**fields))


def test_a_run_goes_on_no_less_isolated():
    for first, now in ((1, 1), (2, 3), (3, 3)):
        resume_checks.check_level(first, now, "runs/x")
    with pytest.raises(ValueError, match="runs/x began at isolation level 3 and would go on at level 2: res"):
        resume_checks.check_level(3, 2, "runs/x")


def test_steps_are_fixed_when_the_learning_rate_decays_over_them():
    with pytest.raises(ValueError, match="train.steps: saved 30, now 60"):
        resume_checks.check_same_run(
            changed(train__decay="cosine"), changed(train__decay="cosine", train__steps=60)
        )


def test_checkpoints_stay_where_they_decide_what_is_drawn_ahead():
    """With train.overlap the iteration behind a checkpoint is drawn by the team that the update made."""
    fields = {"train": CONFIG["train"] | {"overlap": True}, "save": {"every": 10, "keep": 2}}
    overlapping = CONFIG | fields
    with pytest.raises(ValueError, match="another configuration: save.every: saved 10, now 5$"):
        resume_checks.check_same_run(overlapping, overlapping | {"save": {"every": 5, "keep": 4}})
    resume_checks.check_same_run(overlapping, overlapping | {"save": {"every": 10, "keep": 4}})


def test_how_a_run_goes_on_is_said_where_its_folder_is_known():
    advice = "; to go on as it began give --config=runs/x/config.json, or take another --workdir$"
    with pytest.raises(ValueError, match=f"^the run in runs/x began with .*: seed: saved 0, now 1{advice}"):
        resume_checks.check_same_run(CONFIG, changed(seed=1), "runs/x")


def test_agents_to_restore():
    saved, ours = resume_checks.describe_team(make_team()), make_team(("main", "judge"))
    assert saved["main"]["rank"] == 8 and saved["main"]["targets"] == sorted(adapters.TARGETS)
    assert resume_checks.check_agents(saved, make_team(), None, "it") == ("aux", "main")
    assert resume_checks.check_agents(saved, ours, ["main"], "it") == ("main",)
    with pytest.raises(ValueError, match=r"it: the team has no agent 'aux', only \['judge', 'main'\]"):
        resume_checks.check_agents(saved, ours, ["aux"], "it")
    with pytest.raises(ValueError, match=r"it: the checkpoint has no agent 'judge', only \['aux', 'main'\]"):
        resume_checks.check_agents(saved, ours, ["judge"], "it")


def test_an_older_checkpoint_lacks_what_models_could_not_have():
    saved = resume_checks.describe_team(make_team())
    for fields in saved.values():
        del fields["policy"]["windows"], fields["policy"]["activation"]
    assert resume_checks.check_agents(saved, make_team(), None, "it") == ("aux", "main")
    saved["main"]["policy"]["activation"] = "gelu_tanh"
    with pytest.raises(ValueError, match="main.policy.activation: saved 'gelu_tanh', now 'silu'$"):
        resume_checks.check_agents(saved, make_team(), None, "it")


def test_writable_folder_is_made_and_left_empty(tmp_path):
    resume_checks.ensure_writable(tmp_path / "a" / "b", need_bytes=1)
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file/runs cannot be written to: Not a directory"):
        resume_checks.ensure_writable(tmp_path / "file" / "runs")


def test_full_disk_and_read_only_folder(tmp_path, monkeypatch):
    def refuse(number):
        def fail(*_):
            raise OSError(number, os.strerror(number))

        return fail

    monkeypatch.setattr(os, "fsync", refuse(28))
    with pytest.raises(ValueError, match="cannot be written to: No space left on device"):
        resume_checks.ensure_writable(tmp_path)
    monkeypatch.setattr(os, "open", refuse(30))
    with pytest.raises(ValueError, match="cannot be written to: Read-only file system"):
        resume_checks.ensure_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_told_in_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=2_500_000_000))
    resume_checks.ensure_writable(tmp_path, 2_500_000_000)
    with pytest.raises(ValueError, match="too full: 2.50 GB are free, the checkpoints need up to 3.00 GB"):
        resume_checks.ensure_writable(tmp_path, 3_000_000_000)


def test_needed_bytes():
    """Parameters 2 x 10 float32 = 80 bytes, Adam twice that, counters 4 bytes each."""
    trainable = {"w": jnp.zeros((2, 10))}
    optimizer = update.make_optimizer(lr=1.0, steps=1)
    state = jax.eval_shape(lambda x: update.init_state(x, optimizer), trainable)
    counters = [x for x in jax.tree.leaves(state) if x.dtype == jnp.int32]
    counted = 4 * sum(x.size for x in counters)
    whole = 80 + 160 + counted
    assert counted > 0
    assert resume_checks.needed_bytes({0: state}, keep=2) == 3 * whole + 2 * 80


def test_a_function_that_has_moved_is_the_same_function():
    old, new = ({"task": {"reward": f"jaxmarl_llm.tasks.{place}:distinct"}} for place in ("letters", "toys.letters"))
    resume_checks.check_same_run(old, new)
    assert dotted.resolve("jaxmarl_llm.tasks.letters:distinct", "task.reward").__name__ == "distinct"
    with pytest.raises(ValueError, match="task.reward: saved 'jaxmarl_llm.tasks.letters_of_mine:f', now"):
        resume_checks.check_same_run({"task": {"reward": "jaxmarl_llm.tasks.letters_of_mine:f"}}, new)
