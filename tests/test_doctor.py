"""experiments/doctor.py: the command on the smoke config, and configs with something wrong."""

import json

import pytest
import smoke_runs

from experiments import doctor, tasks
from jaxmarl_llm.executor.levels import ExecutorRefused
from jaxmarl_llm.tasks.coding import CodingTask

pytestmark = pytest.mark.model  # for its tokenizer
NAMES = (
    "executor level", "chat template", "prompt lengths", "rollout", "temperature, truncation",
    "log-prob parity", "trained tokens", "reward scale", "zero-signal groups", "reward purity",
    "reward order", "tokenizer round trip", "memory", "export round trip",
)  # fmt: skip
OF_POLICY = ("log-prob parity", "trained tokens", "export round trip")


def run(cache, *arguments):
    return smoke_runs.run(smoke_runs.command("doctor", "--config=configs/coding.py:smoke", *arguments), cache)


def raises(completions, **columns):
    raise KeyError("solution")


def test_the_smoke_config(compiled):
    done = run(compiled)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert [line[8:33].strip() for line in lines] == list(NAMES)
    found = {line[8:33].strip(): line[:8].strip() for line in lines}
    # Random models write no Python: their reward is 0 whatever they say.
    warned = {name for name, status in found.items() if status != "ok"}
    assert warned == {"reward scale", "zero-signal groups", "rollout"}
    assert "fail" not in last and "3 warn" in last


def test_what_is_wrong_is_said_and_the_rest_goes_on(compiled):
    done = run(compiled, "--json", "--config.sampling.max_prompt_tokens=100")
    assert done.returncode == 1
    found = {name: (status, sentence) for name, status, sentence in map(dict.values, json.loads(done.stdout))}
    assert tuple(found) == NAMES
    status, sentence = found["prompt lengths"]
    assert status == "fail" and "raise sampling.max_prompt_tokens to" in sentence
    assert all(found[name][0] == "ok" for name in OF_POLICY)


def test_a_config_that_cannot_be_used_is_an_error(compiled):
    done = run(compiled, "--config.train.group=1")
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "train.group=1" in done.stderr


def examined(**changes):
    config = smoke_runs.learning_config(**changes)
    return {result.name: result for result in doctor.examine(config, tokens=4)}


def test_a_reward_that_raises_stops_nothing_else(compiled):
    with smoke_runs.programs_kept(compiled):
        found = examined(task__reward="test_doctor:raises")
    assert found["reward scale"].status == "fail"
    assert found["reward scale"].sentence.startswith("RewardError: the reward raised on task_id")
    assert "reward purity" not in found
    assert all(found[name].status == "ok" for name in OF_POLICY)


def test_a_machine_that_refuses_programs_stops_nothing_else(compiled, monkeypatch):
    def refuse(config):
        raise ExecutorRefused("min_level is 2, but the level available here is 1")

    monkeypatch.setattr(tasks, "build_executor", refuse)
    with smoke_runs.programs_kept(compiled):
        found = examined(task__reward="")
        # Random models write no Python: nothing had to run.
        assert found["executor level"].status == "fail"
        assert "min_level is 2" in found["executor level"].sentence
        assert found["log-prob parity"].status == found["reward purity"].status == "ok"
        monkeypatch.setattr(CodingTask, "judge", lambda task, items, said: task._executor.run([]))
        assert examined(task__reward="")["reward scale"].status == "skipped"


def test_agents_that_speak_one_after_the_other(compiled):
    with smoke_runs.programs_kept(compiled):
        found = examined(train__protocol="pipeline", train__joint_mode="aligned")
    assert all(found[name].status == "ok" for name in OF_POLICY)
    # What random models say is read again as other tokens.
    assert found["tokenizer round trip"].status == "warn"


def test_a_single_sample_and_a_critic(compiled):
    with smoke_runs.programs_kept(compiled):
        found = examined(train__system="iac", train__group=1, train__joint_mode="aligned")
    assert set(found) == set(NAMES) - {"zero-signal groups"}
    assert all(found[name].status == "ok" for name in OF_POLICY)


def test_the_rollout_is_small_and_otherwise_the_configs():
    config = smoke_runs.learning_config(train__prompts=4, train__prompts_per_microbatch=4)
    small = doctor.shrunk(config, problems=2, tokens=5)
    assert (small.train.prompts, small.train.minibatches, small.train.prompts_per_microbatch) == (2, 1, 2)
    assert small.sampling.max_new_tokens == 5 and config.sampling.max_new_tokens == 8
    assert small.train.group == config.train.group
    for path in ("seed", "model", "team", "task", "mesh", "policy", "eval"):
        assert small[path] == config[path]
