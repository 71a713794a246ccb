"""Methods side by side: budgets by hand, what is run and what is not run again, the table."""

import json
import pathlib
import types

import pytest

from configs import arithmetic, checks, compare
from experiments import compare as command
from jaxmarl_llm import console

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("task, name", [(t, name) for t in compare.MEMBERS for name in compare.MEMBERS[t]])
def test_every_member_is_a_config(task, name):
    config = compare.get_config(f"task={task},member={name}")
    checks.validate(config)
    spent = config.train.steps * arithmetic.tokens(config)
    assert spent <= compare.BUDGET[task]["tokens"] < spent + arithmetic.tokens(config)
    config = compare.get_config(f"task={task},member={name},unit=samples")
    spent = config.train.steps * arithmetic.completions(config)
    assert spent <= compare.BUDGET[task]["samples"] < spent + arithmetic.completions(config)
    config = compare.get_config(f"task={task},member={name},unit=minutes")
    assert (config.train.max_minutes, config.train.decay) == (compare.BUDGET[task]["minutes"], "constant")


def test_completions_of_an_iteration_by_hand():
    def of(task, name):
        return arithmetic.completions(compare.get_config(f"task={task},member={name}"))

    # 4 problems, 8 samples: 2 agents, 1 agent, 2 agents twice
    assert (of("coding", "concat"), of("coding", "single"), of("coding", "discussion")) == (64, 32, 128)
    # 2 agents, 4 samples: 4 nodes, then a node for each of their 4 answers: 2 * 4 * 4 + 2 * 16 * 4
    assert of("coding", "two_turns") == 160
    config = compare.get_config("task=coding,member=two_turns")
    config.train.joint_mode = "cross"  # 16 answers a node
    assert arithmetic.completions(config) == 2 * 4 * 4 + 2 * 64 * 4
    assert arithmetic.joint_answers(config) == 4 * 16 + 64 * 16
    config.train.hand_on = "best"
    assert arithmetic.completions(config) == 2 * (2 * 4 * 4)


@pytest.mark.parametrize(
    "arg, message", [("task=chess", "'chess'"), ("member=x", "'x'"), ("member=grpo,unit=g", "'g'")]
)
def test_unknown_names(arg, message):
    with pytest.raises(ValueError, match=message):
        compare.get_config(arg)


def trained(folder, value, seconds=120.0):
    folder.mkdir(parents=True)
    after = {"step": 3, "return": value, "return_low": 0.0, "return_high": 9.0, "return_greedy": value + 1}
    after |= {"speed/tokens_per_s": 50.0, "speed/seconds_per_answer": 0.6}
    after |= {"structure": 50.0, "return_grade1": 3.0}
    after |= {"length/aux": 10.0, "length/main": 20.0, "truncated/aux": 0.0}
    (folder / "summary.json").write_text(json.dumps({"after": after, "seconds": seconds}))
    rows = [{"step": i, "tokens_per_s": speed, "seconds": 5.0} for i, speed in enumerate((20.0, 10.0))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluated(folder, value):
    folder.mkdir(parents=True)
    scores = {"return": {"mean": value}, "structure": {"mean": None}}
    agents = {"aux": {"completion_length": 7.0}, "main": {"completion_length": 8.0}}
    found = {"sampled": {"scores": scores, "agents": agents}, "greedy": {"scores": {"return": {"mean": 5.0}}}}
    found["speed"] = {"tokens_per_s": 40.0, "seconds_per_answer": 0.375}
    (folder / "evaluation.json").write_text(json.dumps(found))


def test_results_of_both_kinds(tmp_path):
    trained(tmp_path / "a", 60.0)
    assert command.result(tmp_path / "a") == {
        "scores": {"return": 60.0, "structure": 50.0, "return_grade1": 3.0, "greedy": 61.0},
        "answer_tokens": 30.0, "tokens": 150, "tokens_per_s": 15.0, "minutes": 2.0, "steps": 3,
        "answer_tokens_per_s": 50.0, "answer_seconds": 0.6,
    }  # fmt: skip
    evaluated(tmp_path / "b", 30.0)
    found = command.result(tmp_path / "b")
    assert found["scores"] == {"return": 30.0, "structure": None, "greedy": 5.0}
    assert found["answer_tokens"] == 15
    assert command.result(tmp_path / "c") == {}


def test_an_answer_costs_what_was_said_before_it_too(tmp_path):
    """Lengths are of the last answers: of a discussion, or of two turns, half of what was drawn."""
    for write in (trained, evaluated):
        folder = tmp_path / write.__name__
        write(folder, 50.0)
        path = folder / ("summary.json" if write is trained else "evaluation.json")
        found = json.loads(path.read_text())
        if write is trained:
            found["after"]["tokens/answer"] = 70.0
        else:
            found["sampled"]["answer_tokens"] = 70.0
        path.write_text(json.dumps(found))
        assert command.result(folder)["answer_tokens"] == 70.0


def test_only_what_is_missing_is_run_and_the_table_is_of_all(tmp_path, monkeypatch):
    members = {"old": compare.Member({}, trained=True), "new": compare.Member({})}
    monkeypatch.setitem(compare.MEMBERS, "coding", members)
    monkeypatch.setitem(compare.BUDGET["coding"], "tokens", 3 * 64 * 40)  # three iterations of 64 completions
    trained(tmp_path / "old" / "seed0", 50.0, seconds=240.0)
    trained(tmp_path / "elsewhere", 60.0)
    known, asked = command.result(tmp_path / "elsewhere"), []

    def run(argv):
        asked.append(argv[2:])
        folder = tmp_path / ("old" if "train" in argv[2] else "new")
        if "train" in argv[2]:
            (folder / "seed2").rmdir()
            trained(folder / "seed2", 70.0)
        else:
            (folder / "seed0").rmdir()
            evaluated(folder / "seed0", 30.0)
        return types.SimpleNamespace(returncode=0)

    monkeypatch.setattr(command.subprocess, "run", run)
    results = command.compare_all("coding", "tokens", tmp_path, {"old": {"1": known}})
    assert json.loads((tmp_path / "compare.json").read_text()) == results
    assert list(results["old"]) == ["0", "1", "2"] and results["old"]["1"] == known
    config = "--config=configs/compare.py:task=coding,unit=tokens,member="
    assert [argv[:3] for argv in asked] == [
        ["experiments.train", f"{config}old", "--config.seed=2"],
        ["experiments.evaluate", f"{config}new", "--config.seed=0"],
    ]
    headers, rows = command.table(results)
    assert headers[:5] == ["method", "runs", "return", "greedy", "structure"]
    assert headers[5:8] == ["tokens per answer", "tokens/s", "seconds per answer"]
    assert headers[8:] == ["training tokens", "training tokens/s", "training minutes"]
    # of three runs an interval reaches from the lowest to the highest
    assert rows[0][:5] == ["old", "3", "60.0 [50.0, 70.0]", "61.0 [51.0, 71.0]", "50.0 [50.0, 50.0]"]
    assert rows[0][5:] == ["30 [30, 30]", "50", "0.6", "150 [150, 150]", "15", "2"]  # speed of the fastest
    assert rows[1] == ["new", "1", "30.0", "5.0", "", "15", "40", "0.375", "", "", ""]
    page = console.markdown(rows, headers, "coding, at most 10 tokens in training")
    assert page.startswith("coding, at most 10 tokens in training\n\n| method | runs |")
    assert page.endswith("| new | 1 | 30.0 | 5.0 |  | 15 | 40 | 0.375 |  |  |  |\n")


@pytest.mark.parametrize("task, labels", [("coding", ["return", "pass@1"]), ("writing", ["return"])])
def test_the_picture_has_all_seeds_and_tells_trained_from_untrained(task, labels):
    results = json.loads((ROOT / f"docs/compare_{task}_tokens.json").read_text())
    figure = command.draw(task, results)
    assert [axes.get_xlabel().split()[1] for axes in figure.axes] == labels
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "trained", "untrained", "dots: seeds",
    ]  # fmt: skip
    for axes, score in zip(figure.axes, labels, strict=True):
        bars = dict(zip(reversed(results), axes.patches, strict=True))
        for name, by_seed in results.items():
            mean = sum(run["scores"][score] for run in by_seed.values()) / len(by_seed)
            assert bars[name].get_width() == pytest.approx(mean)
        blue = {name for name, bar in bars.items() if bar.get_facecolor()[2] > bar.get_facecolor()[0]}
        assert blue == {name for name, by_seed in results.items() if len(by_seed) == 3}
        dots = [line.get_xdata().tolist() for line in axes.lines]
        runs = [list(by_seed.values()) for by_seed in results.values() if len(by_seed) == 3]
        assert dots == [[run["scores"][score] for run in each] for each in reversed(runs)]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names[-1] == "single (one agent)" and "concat" in names


def test_a_file_with_all_members_is_redrawn_and_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr(command.subprocess, "run", lambda argv: pytest.fail(f"run: {argv}"))
    have = json.loads((ROOT / "docs/compare_coding_tokens.json").read_text())
    assert command.compare_all("coding", "tokens", tmp_path, have) == have


def test_a_run_with_another_budget_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(compare.MEMBERS, "coding", {"old": compare.Member({}, trained=True)})
    trained(tmp_path / "old" / "seed0", 50.0)
    with pytest.raises(ValueError, match="old, seed 0 has 3 iterations, the budget gives it 17"):
        command.compare_all("coding", "tokens", tmp_path, {})


def test_a_member_that_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(command.subprocess, "run", lambda argv: types.SimpleNamespace(returncode=1))
    with pytest.raises(RuntimeError, match="single, seed 0 failed: .*experiments.evaluate"):
        command.compare_all("coding", "tokens", tmp_path, {})
