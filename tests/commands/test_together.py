"""experiments.together: the agents of trained runs write one answer, beside each alone."""

import json

import pytest
import smoke_runs

from configs import reasoning
from experiments import train
from jaxmarl_llm.config import agent_settings, validate
from jaxmarl_llm.decoding.settings import Settings
from jaxmarl_llm.factory import members, together, training, value_heads
from jaxmarl_llm.runs import run_folder

FIELDS = {
    "train.protocol": "simultaneous", "train.system": "sft", "task.total": "mean", "eval.vote": "", "eval.chains": 1,
    "eval.every": 0, "eval.samples": 1, "train.steps": 2, "train.lr": 0.05, "sft.batch": 2, "log.report": False,
    "sampling.max_new_tokens": 6, "task.eval_source": "sums[:2]",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two agents, each with adapters of its own."""
    folder, config = tmp_path_factory.mktemp("run"), reasoning.get_config("smoke")
    config.update_from_flattened_dict(FIELDS)
    validate(config)
    train.train(config, folder)
    return str(folder)


def evaluate(folders, settings, agents=(), **options):
    configs = [run_folder.load_run(folder) for folder in folders]
    members.check_runs(folders, configs)
    return together.evaluate(configs[0], members.origins(folders, configs, agents), settings, "latest", **options)


@pytest.mark.slow
def test_an_agent_twice_answers_as_it_does_alone(run):
    by_mode, report = evaluate([run, run], Settings("mean_logits"), ["first"])
    assert list(report["members"]) == ["first_1", "first_2"] and report["members"]["first_2"]["agent"] == "first"
    one, both = report["alone"]["first_1"], report["together"]
    for mode in ("sampled", "greedy"):
        assert both[mode]["items"] == one[mode]["items"] and both[mode]["answer_tokens"] == one[mode]["answer_tokens"]
    assert both["ledger"]["forward_passes"] == 2 * both["ledger"]["tokens"] and both["ledger"]["answers"] == 8
    assert report["gains"]["first_2"]["greedy"]["mean"] == 0
    assert [a.agents["first"].completion for a in by_mode["greedy"].actions]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [
    Settings(value="rollouts", candidates=2, rollouts=1, horizon=2, alpha=0.1),
    Settings(value="rollouts", every="line", rollouts=1, goes_on="best"),
    Settings(value="confidence", every="answer"),
    Settings(value="head"),
])
def test_a_switch_from_a_run_is_the_same_again(run, settings):
    fit = value_heads.Fit(problems=2, samples=2, updates=2, batch=2)
    reports = [evaluate([run], settings, fit=fit, alone=False)[1] for _ in range(2)]
    for report in reports:
        report["together"].pop("seconds")
        assert (report["together"]["ledger"]["judged"] > 0) == (settings.value == "rollouts")
        assert report.get("fit", {}).get("answers", 8) == 8
    assert reports[0] == reports[1]


@pytest.mark.slow
def test_heads_are_kept_and_taken_from_their_folder(run, tmp_path):
    fit, folder = value_heads.Fit(problems=2, samples=2, updates=2, batch=2), str(tmp_path / "heads")
    reports = []
    for every in ("token", "answer", "token"):
        _, report = evaluate([run], Settings(value="head", every=every), fit=fit, heads=folder, alone=False)
        report["together"].pop("seconds")
        reports.append(report)
    assert reports[0] == reports[2] and reports[0]["fit"] == reports[1]["fit"]
    (tmp_path / "heads" / "critics").rename(tmp_path / "moved")
    with pytest.raises(ValueError):  # they are read, not fitted again
        evaluate([run], Settings(value="head"), fit=fit, heads=folder, alone=False)
    with pytest.raises(ValueError, match="the heads there were fitted with another fit; give another folder"):
        evaluate([run], Settings(value="head"), fit=fit._replace(lr=1e-3), heads=folder, alone=False)


@pytest.mark.slow
def test_the_command_writes_what_it_shows(run, tmp_path):
    out = tmp_path / "out.json"
    argv = smoke_runs.command("together", f"--workdirs={run}", "--together=switch", f"--out={out}", "--noalone")
    done = smoke_runs.run(argv, tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert "switch, on 4 test problems, fresh draws; per answer" in done.stdout
    report = json.loads(out.read_text())
    assert sum(report["together"]["ledger"]["shares"].values()) == pytest.approx(1)
    assert (tmp_path / "out" / "sampled").is_dir()


def config(**changes):
    made = reasoning.get_config("smoke")
    made.update_from_flattened_dict({name.replace("__", "."): value for name, value in changes.items()})
    return made


@pytest.mark.parametrize("changes, message", [
    ({"task__kind": "coding"}, "in task.kind='coding' they have roles; give a --config with one agent"),
    ({"task__kind": "world"}, "task.kind='world': members write one text together where one answer is all"),
    ({"tools__of_task": True}, "members that write one text call no tools"),
])
def test_problems_that_are_not_for_one_text(changes, message):
    with pytest.raises(ValueError, match=message):
        together.one_speaker(config(**changes))


def test_the_agent_that_answers_keeps_its_own_settings():
    own = config()
    agent_settings.declare(own, ["team.agent.first.temperature", "team.agent.second.top_k"])
    own.team.agent.first.temperature, own.team.agent.first.max_new_tokens, own.team.agent.second.top_k = 0.05, 5, 3
    made = together.one_speaker(own)
    assert tuple(made.team.agents) == ("first",) and list(made.team.agent) == ["first"]
    params = training.sampling_params(made).of("first")
    assert (params.temperature, params.max_new_tokens, params.top_k) == (0.05, 5, own.sampling.top_k)
    validate(made)


def test_runs_and_agents_that_do_not_go_together():
    folders, configs = ["x", "y"], [config(), config(team__rank=4)]
    with pytest.raises(ValueError, match="x and y do not go together: team.rank: first 2, second 4"):
        members.check_runs(folders, configs)
    with pytest.raises(ValueError, match="the base 'random-tiny' is drawn from the seed; seed: first 0, second 1"):
        members.check_runs(folders, [config(), config(seed=1)])
    with pytest.raises(ValueError, match="--agents=third: no run has a model 'third', only first, second"):
        members.origins(folders, configs, ["third"])
    with pytest.raises(ValueError, match="team.mode='frozen' of x: its agents have no parameters of their own"):
        members.origins(["x"], [config(team__mode="frozen")])
    names = [origin.name for origin in members.origins(folders, configs, ["second", "first"])]
    assert names == ["second_1", "second_2", "first_1", "first_2"]


def test_a_single_member_is_refused():
    own = members.Origin("first", "nowhere", "first", "random-tiny")
    with pytest.raises(ValueError, match="members first: to write together takes two or more"):
        together.evaluate(config(), [own], Settings(), "latest")
