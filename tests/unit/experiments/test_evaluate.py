"""experiments/evaluate.py: it evaluates the checkpoint asked for, and what it writes can be read."""

import contextlib
import dataclasses
import io
import json
import math
import re
import types

import jax
import numpy as np
import pytest
from absl import app, flags
from scripted_team import CONFIG, CountingTask, tiny_team

from experiments import evaluate
from jaxmarl_llm import checkpoint, evaluation, transcripts, update
from jaxmarl_llm.evaluation import results, scores
from jaxmarl_llm.executor import Limits
from jaxmarl_llm.factory import evaluations, randomness, tasks, teams
from jaxmarl_llm.sampling import choice

EXECUTOR = types.SimpleNamespace(level=2, limits=Limits())


@pytest.fixture(autouse=True)
def scripted(monkeypatch):
    """The factories build a tiny team and a scripted task; everything else is what it is."""
    monkeypatch.setattr(tasks, "build_executor", lambda config: contextlib.nullcontext(EXECUTOR))
    monkeypatch.setattr(tasks, "build_task", lambda config, executor, *rest: CountingTask((3, 5, 4)))
    monkeypatch.setattr(teams, "build_team", lambda config, **_: tiny_team())


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run with the parameters of seed 1 at step 4, the latest, and of seed 2 as the best, at step 2."""
    folder = tmp_path_factory.mktemp("run")
    optimizer = update.make_optimizer(lr=1e-3, steps=1)
    with checkpoint.Checkpointer(folder / "checkpoints") as saver:
        for save, step, seed in ((saver.save, 4, 1), (saver.save_best, 2, 2)):
            team = tiny_team(seed)
            save(step, {0: update.init_state(team.members[0].trainable, optimizer)}, team, {})
    return folder


def expected(seed, mode, change=lambda x: x):
    """What `evaluation.evaluate` says of the team with that seed, its parameters changed."""
    team, task = tiny_team(seed), CountingTask((3, 5, 4))
    params = choice.SamplingParams(6)
    key = randomness.stream(CONFIG, "report")
    learned = [jax.tree.map(change, team.members[0].trainable)]
    actual = evaluation.evaluate(
        team, learned, task, range(3), key, params=params, samples=2, max_prompt_tokens=100
    )
    return getattr(actual, mode)


def completions(actual):
    return [[speech.completion for speech in action.agents.values()] for action in actual.actions]


@pytest.mark.parametrize("which, step, seed", [("best", 2, 2), ("latest", 4, 1), (4, 4, 1)])
def test_the_checkpoint_asked_for_is_evaluated(workdir, which, step, seed):
    results, report = evaluations.evaluate_run(CONFIG, workdir, which, ks=(1, 2))
    assert report["step"] == step and report["workdir"] == str(workdir)
    assert (report["executor"]["level"], report["executor"]["cpu_seconds"]) == (2, 2.0)
    for mode in ("sampled", "greedy"):
        wanted = expected(seed, mode)
        assert completions(results[mode]) == completions(wanted)
        assert completions(wanted) != completions(expected(0, mode))
        summary = wanted.summary()
        score = report[mode]["scores"]["return"]
        assert (score["mean"], score["low"], score["high"]) == (
            summary["return"], summary["return_low"], summary["return_high"],
        )  # fmt: skip
    wanted = 100 * expected(seed, "sampled").pass_rates(2).mean()
    assert report["sampled"]["scores"]["pass@2"]["mean"] == pytest.approx(wanted)
    assert "pass@2" not in report["greedy"]["scores"]  # there is one greedy answer


def test_agents_of_the_run_answer_under_other_names(workdir):
    """Exchanged names: the same as exchanged parameters."""
    results, report = evaluations.evaluate_run(
        CONFIG, workdir, "latest", agent_map=("aux=main", "main=aux")
    )
    assert report["agent_map"] == {"aux": "main", "main": "aux"}
    for mode in ("sampled", "greedy"):
        exchanged = completions(expected(1, mode, lambda x: x[::-1]))
        assert completions(results[mode]) == exchanged != completions(expected(1, mode))
    both_main, _ = evaluations.evaluate_run(CONFIG, workdir, "latest", agent_map=["aux=main"])
    wanted = expected(1, "sampled", lambda x: x[np.array([1, 1])])
    assert completions(both_main["sampled"]) == completions(wanted)


@pytest.mark.parametrize("pairs, sentence", [
    (["aux"], "--agent_map=('aux',): allowed are pairs such as 'aux1=aux'"),
    (["helper=aux"], "--agent_map=('helper=aux',): before '=' allowed is each of ('aux', 'main') once"),
    (["aux=main", "aux=aux"], "before '=' allowed is each of ('aux', 'main') once"),
    (["aux=helper"], "has no agent 'helper', only ['aux', 'main']"),
])  # fmt: skip
def test_names_that_no_agent_has_are_refused(workdir, pairs, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        evaluations.evaluate_run(CONFIG, workdir, "latest", agent_map=pairs)


def test_without_a_run_there_are_no_agents_to_take():
    with pytest.raises(ValueError, match="--agent_map=.*: without a run there are no agents to take"):
        evaluations.evaluate_run(CONFIG, agent_map=["aux=main"])


def test_the_untrained_team_shown_and_written(tmp_path):
    by_mode, report = evaluations.evaluate_run(CONFIG)
    assert completions(by_mode["greedy"]) == completions(expected(0, "greedy"))
    answers = sum(len(by_mode[mode].actions) for mode in ("sampled", "greedy"))
    actions = by_mode["sampled"].actions + by_mode["greedy"].actions
    drawn = sum(speech.completion_length for action in actions for speech in action.agents.values())
    speed = report["speed"]
    assert speed["tokens_per_s"] * speed["seconds_per_answer"] == pytest.approx(drawn / answers)
    stream = io.StringIO()
    evaluate.show(report, stream)
    lines = stream.getvalue().splitlines()
    score = report["greedy"]["scores"]["return"]
    (row,) = (line for line in lines if line.startswith("return"))
    assert row.split()[-4:] == [f"{score['mean']:.1f}", f"{score['low']:.1f}", "to", f"{score['high']:.1f}"]
    assert lines[0] == "the untrained team, on 3 test problems, fresh draws"
    assert {"even", "odd", "return", "pass@1", "aux", "main"} <= {line.split()[0] for line in lines if line}
    results.write(tmp_path / "evaluation.json", by_mode, report)
    assert json.loads((tmp_path / "evaluation.json").read_text()) == {"format": 1, **report}
    assert transcripts.read(tmp_path / "evaluation" / "sampled", 0) == by_mode["sampled"].actions


@pytest.mark.slow
def test_the_split_asked_for_is_evaluated_and_named(workdir, monkeypatch):
    words = {"train": (3, 5, 4), "eval": (6, 7), "test": (8,)}
    monkeypatch.setattr(tasks, "build_task", lambda config, executor, split, *_: CountingTask(words[split]))
    problems = {}
    for split in ("test", "validation", "train"):
        _, report = evaluations.evaluate_run(CONFIG, workdir, split=split)
        problems[split] = evaluate.problems_line(report)
        assert evaluate.state_line(report) == f"{workdir} after 2 iterations, the best on validation"
    assert problems == {
        "test": "1 test problems, fresh draws", "validation": "2 validation problems, fresh draws",
        "train": "3 training problems, fresh draws",
    }  # fmt: skip
    _, default = evaluations.evaluate_run(CONFIG)
    assert (default["split"], default["problems"]) == ("test", 1)
    asked = []
    monkeypatch.setattr(tasks, "build_task", lambda config, *rest: asked.append(config.task.test_split))
    evaluations.build_split(CONFIG, None, "all")
    assert asked == ["all"] and CONFIG.task.test_split == "test"  # of a copy
    with pytest.raises(ValueError, match="--split='held_out': allowed are test, validation, train, all"):
        evaluations.evaluate_run(CONFIG, split="held_out")


def test_what_cannot_be_evaluated_is_refused_before_a_model_is_loaded(workdir, monkeypatch):
    monkeypatch.setattr(teams, "build_team", lambda config, **_: pytest.fail("a model was loaded"))
    with pytest.raises(ValueError, match=r"k within 1\.\.2.*k=3"):
        evaluations.evaluate_run(CONFIG, ks=(1, 3))
    voting = CONFIG.copy_and_resolve_references()
    voting.eval.vote, voting.eval.chains = "majority", 2
    with pytest.raises(ValueError, match=r"--samples=1: allowed is eval.chains=2 or more with eval.vote='majority'"):
        evaluations.evaluate_run(voting, samples=1)
    with pytest.raises(ValueError, match=r"no checkpoint 7 in .*steps \[4\] and 'best'"):
        evaluations.evaluate_run(CONFIG, workdir, 7)
    missing = r"no checkpoint 'best' in .*runs/nowhere/checkpoints; .*\(the folder does not exist\)"
    with pytest.raises(ValueError, match=missing):
        evaluations.evaluate_run(CONFIG, "runs/nowhere")


def test_scores_that_never_applied_are_null_and_shown_empty():
    action = expected(0, "greedy").actions[0]
    nothing = dataclasses.replace(action, parts={}, total=None, verdict="not-applicable")
    actual = scores.Evaluation(((nothing,),), ("aux", "main"), lambda scores: {"return": scores["total"]})
    assert math.isnan(actual.scores()["return"][0])
    entry = results.describe(actual, ks=(1,))
    assert entry["scores"] == {"return": {"mean": None, "low": None, "high": None}}
    stream = io.StringIO()
    about = {"workdir": None, "problems": 1, "split": "test"}
    evaluate.show(about | {"sampled": entry, "greedy": entry}, stream)
    assert "return" in stream.getvalue().splitlines()


def test_an_agent_that_is_asked_in_one_mode_alone_has_an_empty_cell_in_the_other():
    both = expected(0, "greedy").actions[0]
    main_alone = dataclasses.replace(both, agents={"main": both.agents["main"]})
    for sampled, greedy in ((both, main_alone), (main_alone, both)):
        entries = [
            results.describe(scores.Evaluation(((one,),), tuple(one.agents), lambda s: {"return": s["total"]}), ks=(1,))
            for one in (sampled, greedy)
        ]
        stream = io.StringIO()
        about = {"workdir": None, "problems": 1, "split": "test"}
        evaluate.show(about | dict(zip(results.MODES, entries, strict=True)), stream)
        lines = stream.getvalue().splitlines()
        cells = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(("aux", "main"))}
        assert [len(cells[agent]) for agent in ("aux", "main")] == [2, 4]


def test_a_single_problem_of_its_grade_has_no_interval():
    action = expected(0, "greedy").actions[0]
    rows = tuple((dataclasses.replace(action, parts={}, total=total),) for total in (0.25, 0.5, 1.0))
    actual = scores.Evaluation(rows, ("aux", "main"), lambda s: {"return": 100 * s["total"]}, (1, 2, 2))
    entry, stream = results.describe(actual, ks=(1,)), io.StringIO()
    evaluate.show({"workdir": None, "problems": 3, "split": "test", "sampled": entry, "greedy": entry}, stream)
    lines = {line.split()[0]: line.split()[1:] for line in stream.getvalue().splitlines() if line.split()}
    assert lines["return_grade1"] == ["25.0", "25.0"]
    assert lines["return_grade2"] == ["75.0", "50.0", "to", "100.0"] * 2


@pytest.mark.parametrize("text, wanted", [("best", "best"), ("latest", "latest"), ("12", 12)])
def test_steps(text, wanted):
    assert evaluate.parse_step(text) == wanted


def test_bad_options():
    with pytest.raises(ValueError, match="--step='last': allowed are best, latest"):
        evaluate.parse_step("last")
    assert evaluate.parse_ks(["1", "10"]) == (1, 10)
    with pytest.raises(ValueError, match="--k='1,x'"):
        evaluate.parse_ks(["1", "x"])


def test_command_line_without_a_team_is_refused(monkeypatch):
    own = flags.FlagValues()
    monkeypatch.setattr(flags, "FLAGS", own)
    for name in ("workdir", "team", "base"):
        flags.DEFINE_string(name, "", "", flag_values=own)
    flags.DEFINE_string("config", None, "", flag_values=own)
    own(["evaluate"])
    with pytest.raises(app.UsageError, match="--workdir=.*--config="):
        evaluate.main(["evaluate"])
