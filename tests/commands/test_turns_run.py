"""Real runs in two turns: programs per iteration, records, an expert between turns, what fails is resumed."""

import functools
import json

import expert_server
import pytest
import smoke_runs

from experiments import train
from jaxmarl_llm import checkpoint, sampling, transcripts, update
from jaxmarl_llm.experts import ExpertError
from jaxmarl_llm.runs import run as run_lib
from jaxmarl_llm.runs import training_loop

pytestmark = pytest.mark.model  # for its tokenizer
# Nothing that makes programs larger than these tests need.
PLAIN = {"train.minibatches": 1, "train.kl_coef": 0.0, "eval.every": 0, "eval.before": False}
TURNS = PLAIN | {"train.turns": 2, "train.joint_mode": "aligned"}


def config(**changes):
    actual = smoke_runs.learning_config(train__steps=2, **changes)
    actual.update_from_flattened_dict(TURNS)
    return actual


@pytest.fixture
def counted(monkeypatch):
    """Names of the device programs, in the order they were called."""
    called = []
    for module, name in ((sampling, "generate"), (update, "train_step")):
        real = getattr(module, name)

        @functools.wraps(real)
        def counting(*args, _real=real, _name=name, **fields):
            called.append(_name)
            return _real(*args, **fields)

        monkeypatch.setattr(module, name, counting)
    return called


def test_the_update_reads_the_first_prompt_once_for_answers_that_are_held_together(tmp_path, compiled, monkeypatch):
    c = config(task__feedback="plain", train__group=4, task__source="starter[7:9]")
    c.train.steps, c.train.prompts_per_microbatch = 1, 2
    real, learned = update.train_step, []

    def watched(*args, **fields):
        learned.append(args[5])
        return real(*args, **fields)

    watched.__dict__.update(real.__dict__)
    monkeypatch.setattr(update, "train_step", watched)
    with smoke_runs.programs_kept(compiled):
        train.train(c, str(tmp_path / "run"))
    first, second = learned[0]
    assert first.stems is None
    groups, agents = second.prompts_XNDBP.shape[:2]
    assert (groups, agents) == (4, 2)  # of two of the eight prompts each: four go on from each of the two problems
    assert second.stems.tokens_NSQ.shape[:4] == (4, 2, 1, 1)
    firsts = {tuple(stem[-int(n):]) for stem, n in zip(second.stems.tokens_NSQ[:, 0, 0, 0].tolist(),
                                                       second.stems.lengths_NS[:, 0, 0, 0], strict=True)}  # fmt: skip
    assert len(firsts) == 2


def test_two_turns_are_three_programs_and_compile_once(tmp_path, compiled, counted, monkeypatch):
    c = config(task__feedback="plain", train__group=4, task__source="starter[7:9]")
    c.train.steps = 6
    programs = [sampling.generate.__wrapped__, update.train_step.__wrapped__]
    called, compilations, iterate = [], [], training_loop.iterate

    def watched(run, ahead, step):
        counted.clear()
        actual = iterate(run, ahead, step)
        called.append(tuple(counted))
        compilations.append([program._cache_size() for program in programs])
        return actual

    monkeypatch.setattr(training_loop, "iterate", watched)
    with smoke_runs.programs_kept(compiled):
        train.train(c, str(tmp_path / "run"))
    assert called == [("generate", "generate", "train_step")] * 6  # depth * 2 would be four
    assert compilations[-1] == compilations[1], compilations  # the same two problems every time


def test_what_a_run_in_two_turns_leaves_behind(tmp_path, compiled):
    fields = TURNS | {f: v for f, v in smoke_runs.LEARNING.items() if f not in TURNS} | {"train.steps": 2}
    done = smoke_runs.run(smoke_runs.train_command(tmp_path / "run", fields), compiled)
    assert done.returncode == 0, done.stderr
    rows = smoke_runs.rows(tmp_path / "run", "train/")
    assert {"train/turn1/return", "train/turn2/return", "train/return"} <= set(rows[0])
    # Every first answer was handed on, so the final ones are those of the second turn.
    assert rows[0]["train/return"] == rows[0]["train/turn2/return"]
    actions = transcripts.read(tmp_path / "run", 0)
    assert [(a.turn, a.follows) for a in actions] == [(0, None)] * 4 + [(1, i // 2) for i in range(8)]
    second = actions[4].agents["main"].prompt
    assert actions[0].agents["main"].completion.strip() in second and "Revise" in second
    after = json.loads((tmp_path / "run" / "summary.json").read_text())["after"]
    assert after["return"] == after["return_turn2"]
    assert after["return_turns"] == pytest.approx((after["return_turn1"] + after["return_turn2"]) / 2)


def expert_fields(server):
    return dict(
        task__feedback="expert_edits", expert__model="wise", expert__base_url=f"{server.url}/v1",
        expert__key_variable="", expert__retries=0,
    )  # fmt: skip


def test_an_expert_is_asked_between_turns_and_its_failure_is_resumed(tmp_path, compiled):
    edits = json.dumps({"aux": "def aux(x):\n    return x", "main": ""})
    with expert_server.Server(rule=lambda asked: expert_server.Say(edits)) as server:
        c = config(**expert_fields(server))
        asked = {"n": 0}

        def dies_in_the_second_iteration(request):
            asked["n"] += request is not None
            return expert_server.Say(edits) if asked["n"] <= 4 else expert_server.Say(status=400, body="{}")

        server.rule = dies_in_the_second_iteration
        with smoke_runs.programs_kept(compiled):
            with pytest.raises(ExpertError, match="starter/"):
                train.train(c, str(tmp_path / "run"))
            assert checkpoint.read_meta(tmp_path / "run" / "checkpoints")["step"] == 1  # not lost
            agents = transcripts.read(tmp_path / "run", 0)[4].agents
            assert "def aux(x):" in agents["aux"].prompt and "leave it as it is" in agents["main"].prompt
            server.rule = lambda request: expert_server.Say(edits)
            assert train.train(c, str(tmp_path / "run"))["after"]["step"] == 2
    spent = smoke_runs.rows(tmp_path / "run", "expert/")[-1]
    assert spent["expert/requests"] >= 8 and spent["expert/output_tokens"] > 0


def test_an_expert_that_is_not_there_is_said_before_training(tmp_path, monkeypatch):
    with expert_server.Server() as server:
        fields = expert_fields(server) | {"expert__key_variable": "NO_SUCH_KEY"}
    monkeypatch.setattr(run_lib.teams, "build_team", lambda config, **_: pytest.fail("training has begun"))
    with pytest.raises(ValueError, match="NO_SUCH_KEY"):
        train.train(config(**fields), str(tmp_path / "run"))
    with pytest.raises(ExpertError, match="wise"):
        train.train(config(**(fields | {"expert__key_variable": ""})), str(tmp_path / "other"))


BROKEN = {"calls": 0, "from": 99}


def breaking(completions, task_id, **columns):
    """The learning reward, until it breaks."""
    BROKEN["calls"] += 1
    if BROKEN["calls"] >= BROKEN["from"]:
        raise LookupError("no such file")
    return smoke_runs.distinct_letters(completions, task_id, **columns)


@pytest.mark.parametrize("eval_every", [0, 2], ids=["in an iteration", "in an evaluation"])
def test_a_reward_that_raises_names_the_item_and_loses_nothing(tmp_path, compiled, monkeypatch, eval_every):
    c = smoke_runs.learning_config(train__steps=3, save__every=99, task__reward=f"{__name__}:breaking")
    c.update_from_flattened_dict(PLAIN | {"eval.every": eval_every})
    monkeypatch.setitem(BROKEN, "calls", 0)
    monkeypatch.setitem(BROKEN, "from", 3)  # one call per iteration: what comes after two of them fails
    with smoke_runs.programs_kept(compiled):
        with pytest.raises(RuntimeError, match="the reward raised on task_id starter/.*no such file"):
            train.train(c, str(tmp_path / "run"))
        assert checkpoint.read_meta(tmp_path / "run" / "checkpoints")["step"] == 2
        monkeypatch.setitem(BROKEN, "from", 10**9)
        assert train.train(c, str(tmp_path / "run"))["after"]["step"] == 3
