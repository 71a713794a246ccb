"""One field at several values: commands, what is kept, and differences paired by problem."""

import json
import sys
import types

import command_flags
import pytest

from experiments import vary
from jaxmarl_llm.transcripts import AgentRecord, JointAction, TranscriptWriter
from jaxmarl_llm.utils.errors import UserError


def evaluated(folder, bleu_by_item):
    """What `experiments.evaluate` leaves: an answer for each number, the parts of each on the scale of the reward."""
    record = AgentRecord("p", "c", 1, 1, "stop", 0)
    actions = [
        JointAction(0, item, {"writer": record}, {"bleu": value}, value, "judged")
        for item, values in bleu_by_item.items()
        for value in values
    ]
    path = folder / vary.RESULT
    TranscriptWriter(path.with_suffix("") / "sampled").write(0, actions)
    path.write_text("{}")
    return path


def test_differences_are_paired_by_problem(tmp_path):
    first = evaluated(tmp_path / "0", {"a": [0.1, 0.3], "b": [0.6], "c": [0.0]})
    second = evaluated(tmp_path / "1", {"b": [0.8], "a": [0.4], "c": [0.2]})
    by_value = {"0": vary.scores(first), "1": vary.scores(second)}
    assert by_value["0"]["bleu"] == pytest.approx({"a": 20.0, "b": 60.0, "c": 0.0})
    rows = [row for row in vary.compared(by_value) if row["score"] == "bleu"]
    assert [row["value"] for row in rows] == ["0", "1"] and "difference_mean" not in rows[0]
    # 20 more on every problem: the means' intervals are wide, and that of the difference has no width
    assert rows[0]["mean"] == pytest.approx(80 / 3) and rows[0]["high"] - rows[0]["low"] > 30
    names = ("difference_mean", "difference_low", "difference_high")
    assert [rows[1][name] for name in names] == pytest.approx([20, 20, 20])
    lines, headers = vary.table(rows, "commits.examples")
    assert (
        lines[1][:3] == ("bleu", "sampled", "1")
        and lines[1][4] == "+20.0 [+20.0, +20.0]"
        and lines[0][4] == ""
    )
    assert headers[2] == "commits.examples"


def test_of_several_turns_the_last_answer_counts(tmp_path):
    record = AgentRecord("p", "c", 1, 1, "stop", 0)

    def answer(item, value, **more):
        return JointAction(0, item, {"writer": record}, {"bleu": value}, value, "judged", **more)

    actions = [answer("a", 0.0), answer("b", 0.2), answer("a", 0.8, turn=1, follows=0)]  # b ended after its first
    TranscriptWriter(tmp_path / "evaluation" / "sampled").write(0, actions)
    assert vary.scores(tmp_path / vary.RESULT)["bleu"] == pytest.approx({"a": 80.0, "b": 20.0})


def test_values_that_change_nothing_are_noticed():
    same = {"0": {"bleu": {"a": 1.0, "b": 2.0}}, "1": {"bleu": {"b": 2.0, "a": 1.0}}}
    other = {"0": {"bleu": {"a": 1.0, "b": 2.0}}, "1": {"bleu": {"a": 1.0, "b": 3.0}}}
    assert vary.unchanged({"sampled": same, "greedy": same})
    assert not vary.unchanged({"sampled": same, "greedy": other})


def test_a_value_with_commas_stands_in_double_quotes(monkeypatch):
    own = command_flags.defined_apart(monkeypatch)
    monkeypatch.setattr(vary.entry, "define_config", lambda: None)
    vary.define_flags()
    own(["vary", "--workdir=x", "--field=team.agents", """--values="('a','b')","('c',)\""""])
    assert own.values == ["('a','b')", "('c',)"]


def test_every_value_has_a_folder_of_its_own(tmp_path):
    values = ("a/b", "a_b", "a%2Fb", "0.5")
    assert len({vary.path_of(tmp_path, value) for value in values}) == len(values)
    assert {vary.path_of(tmp_path, value).parent.parent for value in values} == {tmp_path}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of how ml_collections loads a file
@pytest.mark.parametrize("field, value, message", [
    ("train.protocol", "team", "the config with train.protocol=team cannot be used:\n  train.protocol='team': allowed"),
    ("seed", "a", "--values=0,a: seed=a cannot be used: invalid literal for int"),
    ("task.reward", "gone.away", "task.reward=gone.away: task.reward 'gone.away': cannot import 'gone'"),
])  # fmt: skip
def test_every_value_is_checked_before_the_first_is_evaluated(field, value, message):
    first = {"train.protocol": "pipeline", "seed": "0", "task.reward": ""}[field]
    shared = ["--config.train.joint_mode=aligned"]
    vary.check_values("configs/reasoning.py:smoke", [*shared, "--config.task.total=mean"], "seed", ["0", "1"])
    with pytest.raises(UserError) as caught:
        vary.check_values("configs/coding.py:smoke", shared, field, [first, value])
    assert message in str(caught.value)


def test_what_is_evaluated_is_not_evaluated_again(tmp_path):
    done, open_ = evaluated(tmp_path / "0", {"a": [1.0]}), tmp_path / "1" / vary.RESULT
    made = {
        path: vary.command(
            "configs/commits.py:study", ["--config.seed=3"], "commits.examples", path.parent.name, path, 3
        )
        for path in (done, open_)
    }
    assert made[open_][1:] == [
        "-m", "experiments.evaluate", "--config=configs/commits.py:study", "--config.seed=3",
        "--config.commits.examples=1", f"--out={open_}", "--samples=3",
    ]  # fmt: skip
    called = []

    def call(argv):
        called.append(argv)
        evaluated(open_.parent, {"a": [0.0]})
        return types.SimpleNamespace(returncode=0)

    vary.run(made, call)
    vary.run(made, call)
    assert called == [made[open_]]
    with pytest.raises(UserError, match="this command failed or was stopped; the same command continues"):
        vary.run(
            {tmp_path / "2" / vary.RESULT: [sys.executable]}, lambda argv: types.SimpleNamespace(returncode=1)
        )


@pytest.mark.slow
def test_the_command_compares_two_values(tmp_path):
    import subprocess

    argv = [
        sys.executable, "-m", "experiments.vary", "--config=configs/commits.py:study,rebuilder,smoke",
        "--field=commits.examples", "--values=0,1", "--samples=1", f"--workdir={tmp_path}",
    ]  # fmt: skip
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 0
    rows = json.loads((tmp_path / "vary.json").read_text())
    assert {row["score"] for row in rows} == {
        "bleu", "rouge_l", "meteor", "copied", "round_trip", "restored", "total",
    }  # fmt: skip
    assert {(row["problems"], row["mode"]) for row in rows} == {(4, "sampled"), (4, "greedy")}
    wrong = subprocess.run(
        [*argv[:4], "--field=commits.example", *argv[5:]], capture_output=True, text=True, check=False
    )
    assert wrong.returncode and "commits.examples" in wrong.stderr
