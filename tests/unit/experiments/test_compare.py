"""Methods side by side: configs, what is run and what is not run again, results and tables by hand."""

import functools
import json
import pathlib
import types

import pytest
from repository import ROOT

from configs import coding, compare
from experiments import compare as command
from jaxmarl_llm.analysis.report import methods, methods_figure
from jaxmarl_llm.config import validate
from jaxmarl_llm.config.options import field
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.eta import Eta

EVERY = [(task, name) for task in compare.MEMBERS for name in compare.MEMBERS[task]]


@pytest.mark.parametrize("task, name", EVERY)
def test_every_member_is_a_config(task, name):
    config = compare.get_config(f"task={task},member={name}")
    validate(config)
    warm_up = compare.is_warm_up(task, name)
    ends = not warm_up and name not in compare.ENDS_ITSELF
    budgets = compare.BUDGET[task] if compare.MEMBERS[task][name].trained and ends else {}
    assert config.train.budget_tokens == budgets.get("tokens", 0)
    assert config.train.budget_answers == budgets.get("answers", 0)


def test_what_methods_are_set_beside_is_known_better():
    names, usual = compare.MEMBERS["coding"], coding.get_config().eval.samples
    samples = {name: compare.get_config(f"task=coding,member={name}").eval.samples for name in names}
    starts = set(compare.starts("coding").values())
    assert {samples[name] for name in starts} == {4 * usual}
    assert {own for name, own in samples.items() if names[name].trained and name not in starts} == {usual}


def test_methods_differ_in_nothing_but_the_method():
    """Same problems, same learning rate, no schedule; warm-ups of the same length from the same source."""
    for task, members in compare.MEMBERS.items():
        configs = {name: compare.get_config(f"task={task},member={name}") for name in members}
        from_rewards = {n: c for n, c in configs.items() if not compare.is_warm_up(task, n)}
        for path, same in (("train.prompts", from_rewards), ("task.source", configs), ("task.test_split", configs)):
            assert len({field(config, path) for config in same.values()}) == 1
        assert {config.train.decay for config in from_rewards.values()} == {"constant"}
        for begun in (True, False):  # methods that begin alike
            alike = [name for name in from_rewards if members[name].trained]
            alike = [name for name in alike if bool(members[name].begins) == begun]
            assert len({from_rewards[name].train.lr for name in alike}) == (1 if alike else 0)
    warm = [compare.get_config(f"task=coding,member={name}") for name in compare.WARM_UPS["coding"]]
    names = ("train.system", "train.steps", "train.lr", "train.decay", "sft.batch", "sft.source")
    settings = {tuple(field(c, name) for name in names) for c in warm}
    default = coding.get_config("warm_up")
    assert settings == {
        ("sft", default.warm_up.steps, default.warm_up.lr, "linear", default.sft.batch, "reference")
    }
    begun = [member.begins for member in compare.MEMBERS["coding"].values() if member.begins]
    assert len(begun) == len(compare.TRAINED["coding"]) and set(begun) == set(compare.WARM_UPS["coding"])


@pytest.mark.parametrize("arg, message", [("task=chess", "'chess'"), ("member=x", "'x'")])
def test_unknown_names(arg, message):
    with pytest.raises(ValueError, match=message):
        compare.get_config(arg)


def trained(folder, value, marks=True):
    """A finished run of three iterations; at_answers after the first, at_tokens after the second."""
    folder.mkdir(parents=True, exist_ok=True)
    entry = {"step": 3, "return": value, "return_greedy": value + 1, "pass@1": 10.0, "length/aux": 7.0}
    summary = {"after": entry, "seconds": 400.0}
    if marks:
        summary |= {"at_answers": entry | {"step": 1, "return": value - 20}}
        summary |= {"at_tokens": entry | {"step": 2, "return": value - 10}}
        items = [{"item": "a", "return": value - 20}, {"item": "b", "return": value}]
        problems = {"sampled": {"items": items}}
        (folder / "test").mkdir(exist_ok=True)
        (folder / "test" / "at_tokens.json").write_text(json.dumps(problems))
    (folder / "summary.json").write_text(json.dumps(summary))
    rows = [
        {"step": i, "seconds": 60.0, "cpu_seconds": 90.0, "spent/tokens": 100.0 * (i + 1),
         "spent/answers": 32.0 * (i + 1), "spent/optimizer_tokens": 90.0 * (i + 1)}
        for i in range(3)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluated(folder, value):
    folder.mkdir(parents=True, exist_ok=True)
    sampled = {"scores": {"return": {"mean": value}, "structure": {"mean": None}}, "items": [{"item": "a"}]}
    data = {"sampled": sampled, "greedy": {"scores": {"return": {"mean": 5.0}}}}
    (folder / "evaluation.json").write_text(json.dumps(data))


def test_results_have_what_each_mark_had_cost(tmp_path):
    trained(tmp_path / "a", 60.0)
    points = command.result(tmp_path / "a")
    assert list(points) == ["at_tokens", "at_answers", "after"]
    tokens = points["at_tokens"]
    assert tokens["scores"] == {"return": 50.0, "return_greedy": 61.0, "pass@1": 10.0}
    assert tokens["problems"] == {"return": [40.0, 60.0]}
    costs = {name: tokens[name] for name in ("tokens", "answers", "optimizer_tokens", "cpu_minutes", "steps")}
    assert costs == {"tokens": 200.0, "answers": 64.0, "optimizer_tokens": 180.0, "cpu_minutes": 3.0, "steps": 2}
    assert points["at_answers"]["tokens"] == 100.0 and points["after"]["answers"] == 96.0
    evaluated(tmp_path / "b", 30.0)
    (point,) = command.result(tmp_path / "b").values()
    assert point["scores"] == {"return": 30.0, "structure": None, "return_greedy": 5.0}
    assert command.result(tmp_path / "c") == {}
    evaluated(tmp_path / "a", 77.0)  # experiments.evaluate --workdir writes there by default
    assert command.result(tmp_path / "a") == points


def test_an_evaluation_in_the_folder_of_a_training_that_was_stopped_is_no_result(tmp_path, monkeypatch):
    members = {"warm": compare.Method({}, trained=True)}
    monkeypatch.setitem(compare.MEMBERS, "coding", members)
    monkeypatch.setattr(compare, "SEEDS", (0,))
    evaluated(tmp_path / "warm" / "seed0", 77.0)

    def run(argv):
        trained(tmp_path / "warm" / "seed0", 60.0)
        return types.SimpleNamespace(returncode=0)

    monkeypatch.setattr(command.subprocess, "run", run)
    results = command.compare_all("coding", tmp_path, {})
    assert results["warm"]["0"]["after"]["scores"]["return"] == 60.0


def test_a_member_that_another_setting_has_made_is_refused(tmp_path, monkeypatch):
    members = {"warm": compare.Method({}, trained=True)}
    monkeypatch.setitem(compare.MEMBERS, "coding", members)
    monkeypatch.setattr(compare, "SEEDS", (0,))

    def run(argv):
        trained(tmp_path / "warm" / "seed0", 60.0)
        return types.SimpleNamespace(returncode=0)

    monkeypatch.setattr(command.subprocess, "run", run)
    places = [{"warm": [f"--config.expert.base_url=http://127.0.0.1:{port}"]} for port in (1, 2)]
    first, second = (command.compare_all("coding", tmp_path, {}, more=more) for more in places)
    assert first == second  # where the expert was served is no setting
    with pytest.raises(UserError, match="with nothing in place of --config.eval.samples=2"):
        command.compare_all("coding", tmp_path, {}, more={"warm": ["--config.eval.samples=2"]})


def test_a_run_of_a_version_that_did_not_measure_cpu_time(tmp_path):
    trained(tmp_path, 60.0)
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text().replace(' "cpu_seconds": 90.0,', ""))
    points = command.result(tmp_path)
    assert "cpu_minutes" not in points["after"] and points["after"]["answers"] == 96.0
    _, rows = methods.table({"old": {"0": points}}, "at_tokens")
    assert rows[0][-2:] == ["", "2"]


def test_only_what_is_missing_is_run_and_begins_where_it_should(tmp_path, monkeypatch, capsys):
    members = {
        "plain": compare.Method({}),
        "warm": compare.Method({}, trained=True),
        "seen": compare.Method({}, begins="warm"),
        "after": compare.Method({}, trained=True, begins="warm"),
    }
    monkeypatch.setitem(compare.MEMBERS, "coding", members)
    monkeypatch.setattr(compare, "SEEDS", (0, 1))
    trained(tmp_path / "warm" / "seed0", 50.0, marks=False)
    trained(tmp_path / "elsewhere", 60.0)
    have, commands = {"after": {"1": command.result(tmp_path / "elsewhere")}}, []

    def run(argv):
        commands.append(argv[2:])
        if argv[2] == "experiments.evaluate":
            evaluated(pathlib.Path(argv[-1].removeprefix("--out=")).parent, 30.0)
        else:
            name, seed = argv[-1].split("/")[-2:]
            trained(tmp_path / name / seed, 70.0, marks=name == "after")
        return types.SimpleNamespace(returncode=0)

    monkeypatch.setattr(command.subprocess, "run", run)
    times = iter([0.0, 60.0, 180.0, 420.0, 720.0, 780.0, 780.0])  # the first takes 60 s, the others 120, 240, 300, 60
    monkeypatch.setattr("jaxmarl_llm.runs.results.Eta", functools.partial(Eta, clock=lambda: next(times)))
    more = {"after": ["--config.eval.samples=2"]}
    results = command.compare_all("coding", tmp_path, have, more=more)
    lines = [line.split(": -m")[0] for line in capsys.readouterr().out.split("\n") if line]
    assert lines == ["5 left, ETA ?", "4 left, ETA 4:00", "3 left, ETA 6:00", "2 left, ETA 6:00", "1 left, ETA 3:40"]
    saved = json.loads((tmp_path / "compare.json").read_text())
    assert saved == results and list(results) == ["plain", "warm", "seen", "after"]
    config = "--config=configs/compare.py:task=coding,member="
    assert commands == [
        ["experiments.evaluate", f"{config}plain", "--config.seed=0",
         f"--out={tmp_path}/plain/seed0/evaluation.json"],
        ["experiments.evaluate", f"{config}seen", "--config.seed=0",
         f"--workdir={tmp_path}/warm/seed0", "--step=latest", f"--out={tmp_path}/seen/seed0/evaluation.json"],
        ["experiments.train", f"{config}after", "--config.seed=0", "--config.eval.samples=2",
         f"--config.team.begin={tmp_path}/warm/seed0", f"--workdir={tmp_path}/after/seed0"],
        ["experiments.train", f"{config}warm", "--config.seed=1",
         f"--workdir={tmp_path}/warm/seed1"],
        ["experiments.evaluate", f"{config}seen", "--config.seed=1",
         f"--workdir={tmp_path}/warm/seed1", "--step=latest", f"--out={tmp_path}/seen/seed1/evaluation.json"],
    ]  # fmt: skip
    monkeypatch.setattr(command.subprocess, "run", lambda argv: pytest.fail(f"run again: {argv}"))
    assert command.compare_all("coding", tmp_path, have, more=more) == results


def test_machines_share_the_seeds(tmp_path, monkeypatch):
    members = {"plain": compare.Method({}), "after": compare.Method({}, trained=True)}
    monkeypatch.setitem(compare.MEMBERS, "coding", members)
    monkeypatch.setattr(compare, "SEEDS", (0, 1))
    began = []

    def run(argv):
        folder = pathlib.Path(argv[-1].partition("=")[2])
        folder = folder.parent if "experiments.evaluate" in argv else folder
        began.append(folder.relative_to(tmp_path).as_posix())
        if "experiments.evaluate" in argv:
            evaluated(folder, 30.0)
        else:
            trained(folder, 60.0 + 10 * int(folder.name[-1]))
        return types.SimpleNamespace(returncode=0)

    monkeypatch.setattr(command.subprocess, "run", run)
    for machine, seeds in (("a", [0]), ("b", command.seeds_of(["1"]))):
        (tmp_path / machine).mkdir()
        command.compare_all("coding", tmp_path / machine, {}, seeds=seeds)
    assert began == ["a/plain/seed0", "a/after/seed0", "b/after/seed1"]
    have = command.finished([str(tmp_path / machine / "compare.json") for machine in "ab"])
    together = command.compare_all("coding", tmp_path, have)
    assert len(began) == 3 and list(together["after"]) == ["0", "1"]
    assert together["after"]["1"]["after"]["scores"]["return"] == 70.0
    one = command.finished([str(tmp_path / "a" / "compare.json")])
    (tmp_path / "c").mkdir()
    finished_ones = command.compare_all("coding", tmp_path / "c", one, run=False)
    assert len(began) == 3 and list(finished_ones["after"]) == ["0"]
    with pytest.raises(UserError, match="^none of coding is finished in .*/c or in what --have names, and --norun"):
        command.compare_all("coding", tmp_path / "c", {}, run=False)
    with pytest.raises(UserError, match=r"^--seeds=1,7: '7' is none of 0, 1$"):
        command.seeds_of(["1", "7"])


def test_some_members_are_run_with_what_they_begin_from(tmp_path, monkeypatch):
    members = {
        "plain": compare.Method({}),
        "warm": compare.Method({}, trained=True),
        "later": compare.Method({}, trained=True, begins="warm"),
        "other": compare.Method({}, trained=True, begins="warm"),
        "after": compare.Method({}, trained=True, begins="later"),
    }
    monkeypatch.setitem(compare.MEMBERS, "coding", members)
    monkeypatch.setattr(compare, "SEEDS", (0,))
    began = []

    def run(argv):
        folder = pathlib.Path(argv[-1].partition("=")[2])
        began.append(folder.relative_to(tmp_path).as_posix())
        trained(folder, 60.0)
        return types.SimpleNamespace(returncode=0)

    monkeypatch.setattr(command.subprocess, "run", run)
    trained(tmp_path / "other" / "seed0", 50.0)  # is in the tables, as it is finished
    results = command.compare_all("coding", tmp_path, {}, members=command.members_of("coding", ["after"]))
    assert began == ["warm/seed0", "later/seed0", "after/seed0"]
    assert list(results) == ["warm", "later", "other", "after"]
    assert command.members_of("coding", []) == []
    with pytest.raises(UserError, match=r"^--members=after,x: 'x' is no member of coding: plain, warm, later, other, "):
        command.members_of("coding", ["after", "x"])


def test_a_start_that_only_another_machine_has_is_run_where_a_member_needs_its_folder(tmp_path, monkeypatch):
    members = {
        "warm": compare.Method({}, trained=True),
        "later": compare.Method({}, trained=True, begins="warm"),
        "after": compare.Method({}, trained=True, begins="later"),
    }
    monkeypatch.setitem(compare.MEMBERS, "coding", members)
    monkeypatch.setattr(compare, "SEEDS", (0, 1))
    began = []

    def run(argv):
        folder = pathlib.Path(argv[-1].partition("=")[2])
        began.append(folder.relative_to(tmp_path).as_posix())
        trained(folder, 70.0)
        return types.SimpleNamespace(returncode=0)

    monkeypatch.setattr(command.subprocess, "run", run)
    trained(tmp_path / "elsewhere", 60.0)
    point = command.result(tmp_path / "elsewhere")
    have = {name: {"0": point, "1": point} for name in ("warm", "later", "after")}
    del have["after"]["1"]
    results = command.compare_all("coding", tmp_path, have)
    assert began == ["warm/seed1", "later/seed1", "after/seed1"]
    returns = {name: [by[seed]["after"]["scores"]["return"] for seed in "01"] for name, by in results.items()}
    assert returns == dict.fromkeys(members, [60.0, 70.0])  # those of the run that others began from
    assert command.compare_all("coding", tmp_path, have) == results and len(began) == 3


def point(value, problems=()):
    return {"scores": {"return": value, "pass@1": value}, "problems": {"return": list(problems)}}


def test_gains_are_those_over_the_start_of_the_same_seed():
    starts = {str(seed): {methods.UNTRAINED: point(10.0 + 20 * seed)} for seed in range(3)}
    ends = {str(seed): {"after": point(20.0 + 20 * seed)} for seed in range(3)}

    def gains():
        return methods.gains({"warm": starts, "own": ends}, {"own": "warm"}, "at_tokens")[1]

    assert gains() == [["own", "warm", "3", "+10.0 (+10.0, +10.0)", "+10.0 (+10.0, +10.0)"]]
    del starts["0"]  # the others are of other agents
    assert gains() == [["own", "warm", "2", "+10.0 (+10.0, +10.0)", "+10.0 (+10.0, +10.0)"]]
    del starts["2"]  # a single run may be of a start that is the same with every seed: seeds 0, 1, 2 above 30
    assert gains()[0][2:4] == ["3", "+10.0 (-39.7, +59.7)"]


def test_problems_without_a_reward_are_left_out_of_gains():
    results = {"own": {"0": {"after": point(5.0, [6.0, None])}}, "warm": {"0": {"after": point(1.0, [2.0, 1.0])}}}
    assert methods.gains(results, {"own": "warm"}, "after")[1] == [["own", "warm", "1", "+4.0", "+4.0"]]
    ends, start = point(5.0, [6.0, None, 6.0]), point(1.0, [2.0, 1.0, 1.0])
    results = {"own": {"0": {"after": ends}}, "warm": {"0": {"after": start}}}
    assert methods.gains(results, {"own": "warm"}, "after")[1][0][3] == "+4.0 [+4.0, +5.0]"


def test_of_equal_results_the_first_file_counts(tmp_path):
    ends = {name: {"after": point(value)} for name, value in (("a", 1.0), ("b", 2.0))}
    for name, end in ends.items():
        (tmp_path / name).write_text(json.dumps({"results": {"m": {"0": end, name: end}}}))
    together = command.finished([str(tmp_path / "a"), str(tmp_path / "b")], "results")
    assert together == json.loads(json.dumps({"m": {"0": ends["a"]} | ends}))


@pytest.mark.parametrize("content, message", [
    ({"seconds": 3.2, "before": {"return": 3}}, "'seconds' holds 3.2, expected its runs by seed"),
    ({"m": [1]}, r"'m' holds \[1\], expected"),
    ({"m": {"0": 5}}, "seed '0' of 'm' holds 5, expected its points by mark, such as 'after'"),
    ({"m": {"0": {"after": 5}}}, "'after' of seed '0' of 'm' has no numbers under 'scores'"),
    ({"m": {"0": {"after": {"scores": {}, "problems": {}}}}}, "has no numbers under 'scores'"),
    ({"m": {"0": {"after": {"scores": {"return": "x"}, "problems": {}}}}}, "has no numbers under 'scores'"),
    ({"m": {"0": {"after": {"scores": {"return": 1.0}}}}}, "has no lists of numbers under 'problems'"),
    ({"m": {"0": {"after": {"scores": {"return": 1.0}, "problems": {"return": [[]]}}}}}, "under 'problems'"),
    ({"m": {"0": {"after": {"scores": {"return": 1.0}, "problems": {}, "tokens": "x"}}}}, "a cost that is no"),
])  # fmt: skip
def test_files_that_hold_no_results(tmp_path, content, message):
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"x.json: is no file of results, .*{message}"):
        command.finished([str(tmp_path / "x.json")])
    with pytest.raises(UserError, match="x.json: is no file of results, it has no 'results'"):
        command.finished([str(tmp_path / "x.json")], "results")


def test_the_files_of_the_documentation_are_results():
    for name in ("comparison_runs.json", "sums_runs.json"):
        assert command.finished([str(ROOT / "docs" / name)])
    for key in ("results", "without_advice"):
        assert command.finished([str(ROOT / "docs" / "short_turns_runs.json")], key)


def test_columns_of_statements():
    """Those that begin as the names of other results do have theirs; grades and further turns have none."""
    names = ("return", "return_low", "return_high", "return_greedy", "return_turns", "return_turn3", "return_grade1",
             "return_low_level", "return_graded", "pass@1_low_level")
    results = {"m": {"0": {"after": {"scores": dict.fromkeys(names, 1.0), "problems": {}}}}}
    headers, _ = methods.table(results, "after")
    shown = ["return", "return_greedy", "pass@1_low_level", "return_graded", "return_low_level"]
    assert headers[2:7] == shown and headers[7] == "tokens drawn"


def test_the_tables_by_hand(tmp_path):
    for seed, value in enumerate((60.0, 70.0)):
        trained(tmp_path / "new" / f"seed{seed}", value)
    trained(tmp_path / "warm", 40.0, marks=False)
    evaluated(tmp_path / "plain", 30.0)
    results = {
        "plain": {"0": command.result(tmp_path / "plain")},
        "warm": {"0": command.result(tmp_path / "warm")},
        "new": {str(seed): command.result(tmp_path / "new" / f"seed{seed}") for seed in (0, 1)},
    }
    headers, rows = methods.table(results, "at_tokens")
    assert headers == [
        "method", "runs", "return", "pass@1", "structure", "return_greedy", "tokens drawn", "answers judged",
        "optimizer tokens", "CPU minutes", "iterations",
    ]  # fmt: skip
    assert rows[0] == ["plain", "1", "30.0", "", "", "5.0", "", "", "", "", ""]
    assert rows[1][:4] == ["warm", "1", "40.0", "10.0"] and rows[1][-1] == "3"
    # 50 and 60: 55 ± 12.706 x 5 over the seeds; problems (40, 60) and (50, 70) on average 45 and 65
    assert rows[2][2] == "55.0 (-8.5, 118.5) [45.0, 65.0]"
    assert rows[2][6:] == ["200", "64", "180", "3", "2"]
    _, rows = methods.table(results, "at_answers")
    assert rows[2][2] == "45.0 (-18.5, 108.5)" and rows[2][6] == "100"


def test_gains_are_paired_by_seed_and_by_problem(tmp_path):
    for seed, value in enumerate((60.0, 70.0)):
        trained(tmp_path / "new" / f"seed{seed}", value)
        trained(tmp_path / "warm" / f"seed{seed}", value - 15, marks=False)
    evaluated(tmp_path / "plain", 30.0)
    plain = command.result(tmp_path / "plain")
    plain[methods.UNTRAINED]["problems"] = {"return": [35.0, 25.0]}
    results = {"plain": {"0": plain}} | {
        name: {str(seed): command.result(tmp_path / name / f"seed{seed}") for seed in (0, 1)}
        for name in ("warm", "new")
    }
    starts = {"warm": "plain", "new": "warm", "missing": "warm"}
    headers, (warm, new) = methods.gains(results, starts, "at_tokens")
    assert headers == ["method", "began from", "runs", "return", "pass@1"]
    # 45 and 55 above 30, which is that of both seeds: 20 ± 12.706 x 5
    assert warm == ["warm", "plain", "2", "+20.0 (-43.5, +83.5)", ""]
    # 50 above 45 and 60 above 55; of the start no problems are known
    assert new[:4] == ["new", "warm", "2", "+5.0 (+5.0, +5.0)"]
    # problems (40, 60) and (50, 70) less (35, 25): on average 10 and 40
    _, (own,) = methods.gains(results, {"new": "plain"}, "at_tokens")
    assert own[3] == "+25.0 (-38.5, +88.5) [+10.0, +40.0]"
    _, rows = methods.gains(
        {"new": {"1": results["new"]["1"]}, "warm": {"0": results["warm"]["0"]}}, starts, "x"
    )
    assert rows == []  # not the same seed
    assert methods.with_intervals([-0.01], sign="+") == "+0.0" and methods.with_intervals([-0.01]) == "0.0"


def test_methods_are_set_beside_what_they_began_from():
    starts = compare.starts("coding")
    assert starts["grpo"] == "untrained_single" and starts["pipeline"] == "untrained_pipeline"
    assert starts["magrpo_partners"] == "untrained_team" and starts["centralised"] == "untrained_centralised"
    assert starts["grpo_after_warm_up"] == "warm_single" and starts["warm_team"] == "untrained_team"
    turns = compare.starts("turns")  # of one turn beside one turn, though it has learned in two
    assert (turns["one_turn"], turns["two_turns_best"]) == ("warm_one_turn", "warm_both_turns")
    assert turns["warm_both_turns"] == "warm_two_turns" and turns["warm_team"] == "untrained_one_turn"
    assert compare.starts("guidance")["expert_1"] == "warm_expert_1"
    for task, members in compare.MEMBERS.items():
        made = compare.starts(task)
        assert {name for name, member in members.items() if member.begins and member.trained} <= made.keys()
        assert not any(
            members[start].trained and not compare.is_warm_up(task, start) for start in made.values()
        )


def test_the_picture_has_all_seeds_and_shows_who_was_trained(tmp_path):
    for seed, value in enumerate((60.0, 70.0)):
        trained(tmp_path / f"seed{seed}", value)
    evaluated(tmp_path / "plain", 30.0)
    results = {
        "plain": {"0": command.result(tmp_path / "plain")},
        "new": {str(seed): command.result(tmp_path / f"seed{seed}") for seed in (0, 1)},
    }
    figure = methods_figure.draw(results)
    returns, passes = figure.axes
    assert [bar.get_width() for bar in returns.patches] == [55.0, 30.0]
    assert [line.get_xdata().tolist() for line in returns.lines] == [[50.0, 60.0]]
    assert len(passes.patches) == 1  # nothing was tested in the evaluation
    assert [label.get_text() for label in returns.get_yticklabels()] == ["new", "plain"]


@pytest.mark.parametrize("code", [1, 0])
def test_a_member_that_fails_or_is_stopped_is_named(tmp_path, monkeypatch, code):
    """One that was stopped saves, ends well, and leaves no result: nothing may begin from it."""
    monkeypatch.setattr(command.subprocess, "run", lambda argv: types.SimpleNamespace(returncode=code))
    stopped = "failed or was stopped; .*experiments.evaluate .*member=untrained_team --config.seed=0"
    with pytest.raises(UserError, match=stopped):
        command.compare_all("coding", tmp_path, {})
