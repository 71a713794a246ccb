"""experiments/sweep.py: what is run and what is not, what is refused, and a sweep from the command line."""

import json
import pathlib
import re
import subprocess
import sys

import pytest
import report_runs
import smoke_runs

from configs import coding
from experiments import sweep
from jaxmarl_llm.cli.launch import FAILED, STOPPED, Outcome
from jaxmarl_llm.config import sweeps

# A team of random models and one iteration; on top of configs/coding.py:smoke.
SMALL = smoke_runs.LEARNING | {
    "task.source": "starter[7:9]", "task.eval_source": "starter[5:7]", "task.test_source": "starter[5:7]",
    "train.steps": 1, "train.warmup": 0,
    "train.minibatches": 1, "train.kl_coef": 0.0, "eval.every": 0, "eval.before": False, "eval.samples": 1,
    "log.tensorboard": False,
}  # fmt: skip
FILE = f"""
from configs import coding

def get_config(arg=None):
    config = coding.get_config("smoke")
    config.update_from_flattened_dict({SMALL!r})
    return config

def sweep(add):
    for baseline in ("mean", "max"):  # of credit, which is in no compiled program
        for seed in (0, 1):
            add({{"train.baseline": baseline, "seed": seed}})
"""


def collected(*added):
    def adding(add):
        for fields in added:
            add(fields)

    config = coding.get_config("smoke")
    config.update_from_flattened_dict(SMALL)
    return sweeps.collect(adding, config.lock())


FOUR = [{"train.baseline": baseline, "seed": seed} for baseline in ("mean", "max") for seed in (0, 1)]


def finish(workdir: pathlib.Path, member: sweeps.SweepRun, value: float) -> pathlib.Path:
    """The folder that a member's run would leave, with a return of ``value``."""
    folder = report_runs.write_run(workdir / member.folder, member.config.to_dict(), spoken={})
    after = {"step": member.config.train.steps, "return": value, "return_greedy": value}
    (folder / "summary.json").write_text(json.dumps({"after": after, "seconds": 60.0, "seed": member.seed}))
    return folder


def test_finished_members_are_not_run_again(tmp_path):
    actual = collected(*FOUR)
    finish(tmp_path, actual[0], 50.0)
    begun = finish(tmp_path, actual[3], 50.0)
    (begun / "summary.json").unlink()
    wanted = sweep.jobs(tmp_path, actual, "configs/coding.py:smoke", {"log.tensorboard": False})
    assert [job.name for job in wanted] == [member.name for member in actual[1:]]
    assert wanted[0].command == [
        sys.executable, "-m", "experiments.train", "--config=configs/coding.py:smoke",
        "--config.log.tensorboard=False", "--config.train.baseline=mean", "--config.seed=1",
        f"--workdir={tmp_path}/train.baseline=mean/seed1",
    ]  # fmt: skip
    assert not wanted[0].finished()
    finish(tmp_path, actual[1], 50.0)
    assert wanted[0].finished()


def test_a_run_that_is_to_be_longer_is_not_finished(tmp_path):
    (member,) = collected({"train.decay": "constant"})
    finish(tmp_path, member, 50.0)
    (longer,) = collected({"train.decay": "constant"})
    longer.config.train.steps = 5
    sweep.check_workdir(tmp_path, [longer])  # which `experiments.train` allows too
    assert [job.name for job in sweep.jobs(tmp_path, [longer], "x.py", {})] == [longer.name]


def test_a_sweep_may_gain_members_but_not_lose_or_change_them(tmp_path):
    actual = collected(*FOUR)
    for member in actual[:2]:
        finish(tmp_path, member, 50.0)
    sweep.check_workdir(tmp_path, actual)
    with pytest.raises(ValueError, match=r"^\S*/train.baseline=mean/seed1: no member of this sweep, which "):
        sweep.check_workdir(tmp_path, [actual[0], *actual[2:]])
    other = collected(*({**fields, "train.group": 3} for fields in FOUR))
    with pytest.raises(ValueError, match="seed0, .*seed1: no member of this sweep"):
        sweep.check_workdir(tmp_path, other)
    actual[1].config.train.group = 3
    with pytest.raises(ValueError, match="^train.baseline=mean, seed 1: .*train.group: saved 2, now 3. Take"):
        sweep.check_workdir(tmp_path, actual)


def test_a_warm_up_that_members_share_is_no_strange_run(tmp_path, monkeypatch):
    """Named by another path than --workdir is; a run beside it is still refused."""
    warm_up = {"task.reward": "", "warm_up.steps": 2, "warm_up.folder": str(tmp_path / "warm" / "seed{seed}")}
    actual = collected(*({**fields, **warm_up} for fields in FOUR))
    for seed in (0, 1):
        (tmp_path / "warm" / f"seed{seed}").mkdir(parents=True)
        (tmp_path / "warm" / f"seed{seed}" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    sweep.check_workdir(pathlib.Path(), actual)
    (tmp_path / "warm" / "seed1").rename(tmp_path / "warm" / "seed2")
    with pytest.raises(ValueError, match="^warm/seed2: no member of this sweep"):
        sweep.check_workdir(pathlib.Path(), actual)


def test_states_of_members(tmp_path):
    actual = collected(*FOUR)
    finish(tmp_path, actual[0], 50.0)
    failed, stopped = (tmp_path / member.folder for member in actual[1:3])
    outcomes = {failed: Outcome(FAILED, "error: x"), stopped: Outcome(STOPPED)}
    read = sweep.results(tmp_path, actual, outcomes)
    assert [each.state for each in read] == ["finished", "failed", "stopped", "not begun"]
    assert read[0].score("return") == 50 and read[1].reason == "error: x"
    sweep.show(tmp_path, read, "x.py", {})
    # Later, when nothing is run: a failure is remembered until its member is tried again.
    finish(tmp_path, actual[3], 50.0)
    (tmp_path / actual[3].folder / "summary.json").unlink()
    states = [each.state for each in sweep.results(tmp_path, actual, {})]
    assert states == ["finished", "failed", "not begun", "not finished"]
    assert sweep.results(tmp_path, actual, {failed: Outcome(STOPPED)})[1].state == "stopped"
    finish(tmp_path, actual[1], 60.0)
    assert sweep.results(tmp_path, actual, {})[1].state == "finished"


def test_a_run_of_a_file_that_was_edited_meanwhile_does_not_count(tmp_path):
    actual = collected(*FOUR)
    finish(tmp_path, actual[0], 50.0)
    actual[0].config.train.group = 3
    first = sweep.results(tmp_path, actual, {})[0]
    assert first.state == "failed" and "train.group: saved 2, now 3" in first.reason
    assert first.score("return") is None


def test_where_members_run():
    assert sweep.places(1, []) == [{}] and sweep.places(3, []) == [{}] * 3
    assert sweep.places(1, ["0", "3"]) == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "3"}]
    with pytest.raises(ValueError, match="--parallel=2 and --devices=0,1: give one of the two"):
        sweep.places(2, ["0", "1"])
    with pytest.raises(ValueError, match="--devices=0,0: every device may be named once"):
        sweep.places(1, ["0", "0"])


def test_the_process_of_the_sweep_takes_no_device():
    """Whose memory a member could not have then."""
    code = "import experiments.sweep, jax; print(jax._src.xla_bridge.backends_are_initialized())"
    done = subprocess.run([sys.executable, "-c", code], cwd=smoke_runs.ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.model
def test_a_sweep_with_a_member_that_fails_goes_on(tmp_path, compiled, monkeypatch):
    """Two settings, two seeds; those of seed 0 are there already, one of seed 1 fails at first."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # programs that are made quickly
    (tmp_path / "own.py").write_text(FILE)
    workdir, actual = tmp_path / "sweep", collected(*FOUR)
    for member, value in zip(actual[::2], (30.0, 50.0), strict=True):
        finish(workdir, member, value)
    broken = workdir / actual[1].folder
    (broken / "checkpoints" / "1").mkdir(parents=True)  # and nothing in it
    command = smoke_runs.command("sweep", f"--config={tmp_path}/own.py", f"--workdir={workdir}")

    first = smoke_runs.run([*command, "--config.log.transcripts_every=0"], compiled)
    assert first.returncode == 1, first.stdout + first.stderr
    lines = first.stdout.splitlines()
    assert lines[0] == "4 members, 2 of them finished"
    assert lines[1] == f"[1/2] train.baseline=mean, seed 1: log in {broken}/log.txt"
    message = f"error: {broken} has no other checkpoint to go on from: the checkpoint {broken}/checkpoints/1 cannot be"
    assert lines[2].startswith(f"train.baseline=mean, seed 1: failed: {message}")
    assert lines[2].endswith(f"({broken}/log.txt)")
    assert re.fullmatch(r"members 1/2  [\d.]+ s each  ETA [\d:]+", lines[3])
    assert lines[5] == "train.baseline=max, seed 1: finished" and lines[6].startswith("members 2/2  ")
    assert first.stderr == "1 of 4 members are not finished; the same command goes on\n"
    settings = json.loads((workdir / "sweep.json").read_text())["settings"]
    states = [[member["state"] for member in setting["members"]] for setting in settings]
    assert states == [["finished", "failed"], ["finished", "finished"]]
    assert settings[1]["against_baseline"]["return"]["seeds"] == [0]

    (broken / "checkpoints" / "1").rmdir()
    kept = smoke_runs.files(workdir / actual[3].folder)
    second = smoke_runs.run([*command, "--config.log.transcripts_every=0"], compiled)
    assert second.returncode == 0, second.stdout + second.stderr
    assert second.stdout.splitlines()[:3] == [
        "4 members, 3 of them finished", f"[1/1] train.baseline=mean, seed 1: log in {broken}/log.txt",
        "train.baseline=mean, seed 1: finished",
    ]  # fmt: skip
    assert smoke_runs.files(workdir / actual[3].folder) == kept
    results = json.loads((workdir / "sweep.json").read_text())
    assert results["fixed"] == {"log.transcripts_every": 0}
    against = results["settings"][1]["against_baseline"]["return"]
    # Seeds of 50 and of what was trained, less those of 30 and of what was trained.
    trained = [json.loads((workdir / actual[i].folder / "summary.json").read_text())["after"] for i in (1, 3)]
    assert against["seeds"] == [0, 1]
    wanted = (20 + trained[1]["return"] - trained[0]["return"]) / 2
    assert against["over_seeds"]["mean"] == pytest.approx(wanted)
    assert "| train.baseline=mean (baseline) | 2 |" in (workdir / "sweep.md").read_text()
    assert "<img" in (workdir / "sweep.html").read_text()
    for i, after in zip((1, 3), trained, strict=True):
        # The mean of what each problem earned is what the summary says.
        held_out = json.loads((workdir / actual[i].folder / "held_out.json").read_text())
        assert held_out["step"] == 1 and len(held_out["items"]) == 2
        for name in ("return", "return_greedy"):
            assert sum(held_out[name]) / 2 == pytest.approx(after[name])

    other = smoke_runs.run([*command, "--table_only", "--config.sampling.max_new_tokens=9"], compiled)
    assert other.returncode == 1 and other.stdout == ""
    assert "sampling.max_new_tokens: saved 8, now 9" in other.stderr
