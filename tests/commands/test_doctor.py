"""experiments/doctor.py: the command on the smoke config, and configs with something wrong."""

import json

import jax
import pytest
import smoke_runs

from configs import tables
from jaxmarl_llm.analysis.doctor import examination, first_rollout
from jaxmarl_llm.executor.levels import ExecutorRefused
from jaxmarl_llm.factory import systems, tasks, teams
from jaxmarl_llm.runs import plan_table
from jaxmarl_llm.tasks.coding.task import CodingTask

pytestmark = pytest.mark.model  # for its tokenizer
NAMES = (
    "executor level", "rows", "splits", "operations seen", "nearest neighbours", "chat template", "prompt of aux",
    "prompt of main", "prompt lengths", "rollout", "temperature, truncation",
    "log-prob parity", "trained tokens", "reward scale", "zero-signal groups", "pairs",
    "reward purity", "reward order", "tokenizer round trip", "memory", "export round trip",
)  # fmt: skip
OF_POLICY = ("log-prob parity", "trained tokens", "export round trip")


def run(cache, *arguments):
    return smoke_runs.run(smoke_runs.command("doctor", "--config=configs/coding.py:smoke", *arguments), cache)


def test_the_smoke_config(compiled):
    done = run(compiled)
    assert done.returncode == 0, done.stdout + done.stderr
    first, *lines, last = done.stdout.splitlines()
    assert first == "examining configs/coding.py:smoke"  # before anything is imported for it
    prompts = [line[10:] for line in lines if line.startswith("        |")]
    lines = [line for line in lines if not line.startswith("        |")]
    assert prompts.count("<|im_start|>assistant") >= 2 and prompts[0].startswith("<|im_start|>system")
    assert [line[8:33].strip() for line in lines] == list(NAMES)
    actual = {line[8:33].strip(): line[:8].strip() for line in lines}
    # Random models write no Python: their reward is 0 whatever they say.
    warned = {name for name, status in actual.items() if status != "ok"}
    assert warned == {"reward scale", "zero-signal groups", "rollout", "pairs"}
    assert "fail" not in last and "3 warn" in last and "1 skipped" in last


def test_the_problems_alone(compiled):
    source = "--config.task.source=starter:steps[:20]"
    done = run(compiled, "--only=data", source, "--config.task.eval_source=", "--config.task.test_source=")
    assert done.returncode == 0, done.stdout + done.stderr
    _, *checked, last = done.stdout.partition("\n| split")[0].splitlines()
    assert [line[8:33].strip() for line in checked] == list(NAMES[1:5])
    assert "60 problems, checked by running their tests as a training does: no row is refused" in checked[0]
    assert "20 of train, 20 of eval, 20 of test" in checked[1] and last.startswith("4 ok; ")
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 80 and {row[0] for row in rows} == {"| eval", "| test"}
    assert [row[-1] for row in rows] == sorted((row[-1] for row in rows), reverse=True)


def test_what_is_wrong_is_said_and_the_rest_goes_on(compiled):
    done = run(compiled, "--json", "--config.sampling.max_prompt_tokens=100")
    assert done.returncode == 1
    actual = {name: (status, sentence) for name, status, sentence in map(dict.values, json.loads(done.stdout))}
    assert tuple(actual) == NAMES
    status, sentence = actual["prompt lengths"]
    assert status == "fail" and "raise sampling.max_prompt_tokens to" in sentence
    assert all(actual[name][0] == "ok" for name in OF_POLICY)


def test_a_config_that_cannot_be_used_is_an_error(compiled):
    done = run(compiled, "--config.train.group=1")
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "train.group=1" in done.stderr


def examined(tokens=4, **changes):
    config = smoke_runs.learning_config(**changes)
    return {result.name: result for result in examination.examine(config, tokens=tokens)}


def test_a_reward_that_raises_stops_nothing_else(compiled):
    with smoke_runs.programs_kept(compiled):
        actual = examined(task__reward="smoke_runs:raises")
    assert actual["reward scale"].status == "fail"
    assert actual["reward scale"].sentence.startswith("RewardError: the reward raised on task_id")
    for name in ("zero-signal groups", "pairs", "reward purity", "reward order"):
        assert actual[name] == (name, "skipped", "there are no rewards")
    assert all(actual[name].status == "ok" for name in OF_POLICY)


def test_a_machine_that_refuses_programs_stops_nothing_else(compiled, monkeypatch):
    def refuse(config):
        raise ExecutorRefused("min_level is 2, but the level available here is 1")

    monkeypatch.setattr(tasks, "build_executor", refuse)
    with smoke_runs.programs_kept(compiled):
        actual = examined(task__reward="")
        # Random models write no Python: nothing had to run.
        assert actual["executor level"].status == "fail"
        assert "min_level is 2" in actual["executor level"].sentence
        assert actual["log-prob parity"].status == actual["reward purity"].status == "ok"
        monkeypatch.setattr(CodingTask, "judge", lambda task, items, completions: task._executor.run([]))
        assert examined(task__reward="")["reward scale"].status == "skipped"


def test_agents_that_speak_one_after_the_other(compiled):
    with smoke_runs.programs_kept(compiled):
        actual = examined(train__protocol="pipeline", train__joint_mode="aligned", tokens=16)
    assert all(actual[name].status == "ok" for name in OF_POLICY)


def test_a_single_sample_and_a_critic(compiled):
    with smoke_runs.programs_kept(compiled):
        actual = examined(train__system="iac", train__group=1, train__joint_mode="aligned")
    assert tuple(actual) == NAMES
    assert all(actual[name].status == "ok" for name in OF_POLICY)
    assert actual["zero-signal groups"].sentence.endswith("what its critics did not expect, not from groups")


@pytest.mark.parametrize("system", ["maac", "iac", "marlhf", "madpo"])
@pytest.mark.parametrize("mode", ["adapters", "full"])
def test_shapes_are_those_of_what_a_system_trains(system, mode):
    config = smoke_runs.learning_config(team__mode=mode, train__system=system)
    team = teams.build_team(config)
    trainables = [member.trainable for member in team.members]
    shapes = systems.own_states(config, team, trainables)
    models = systems.build(config, team, lambda: trainables).models
    assert jax.tree.map(lambda x: (x.shape, x.dtype), shapes) == jax.tree.map(
        lambda x: (x.shape, x.dtype), dict(models.states)
    )
    assert bool(shapes) == (system != "madpo")
    learned, optimizer = plan_table.beside(models.states)
    sentence = examination.memory(config, team).sentence
    if mode == "full" and shapes:
        assert learned > 1 and f", critics {learned:.0f}, optimizer of critics {optimizer:.0f}" in sentence
    assert ("critics" in sentence) == bool(shapes)


def test_a_preference_without_pairs_fails(compiled):
    """Random models write no Python: all rewards are 0, and a training would end with an error."""
    with smoke_runs.programs_kept(compiled):
        options = dict(train__system="marlhf", train__joint_mode="aligned", preference__collect=1)
        actual = examined(task__reward="", **options)
        assert tuple(actual) == NAMES
        assert actual["pairs"].status == "fail" and "nothing to prefer" in actual["pairs"].sentence
        assert actual["zero-signal groups"].status == "skipped"
        assert examined(**options)["pairs"].status == "ok"


def test_the_rollout_is_small_and_otherwise_the_configs():
    config = smoke_runs.learning_config(train__prompts=4, train__prompts_per_microbatch=4)
    small = first_rollout.shrunk(config, problems=2, tokens=5)
    assert (small.train.prompts, small.train.minibatches, small.train.prompts_per_microbatch) == (2, 1, 2)
    assert small.sampling.max_new_tokens == 5 and config.sampling.max_new_tokens == 8
    assert small.train.group == config.train.group
    for path in ("seed", "model", "team", "task", "mesh", "policy", "eval"):
        assert small[path] == config[path]


def test_agents_with_tools_read_them(compiled):
    """Only the planner has answered: a random one names nobody who goes on."""
    with smoke_runs.programs_kept(compiled):
        actual = {result.name: result for result in examination.examine(tables.get_config("smoke"), tokens=4)}
    assert not [result for result in actual.values() if result.status == "fail"]
    for agent in ("planner", "caller"):
        assert "convert(value: number, from_unit: text" in actual[f"prompt of {agent}"].sentence
    assert "convert(" not in actual["prompt of summarizer"].sentence
    assert actual["export round trip"].sentence.startswith("planner, moved from its base")
