"""Every command with a run of rounds of programs: it works, or says in a sentence why it does not.

The run is real but for its judge, which counts letters: random models write no programs, so that there would
be no lessons and nothing to learn.
"""

import json
import shutil

import jax
import pytest
import smoke_runs

from configs import lessonl
from experiments import crossplay, evaluate, export, replay, rescore, train
from jaxmarl_llm import transcripts
from jaxmarl_llm.analysis.doctor import examination
from jaxmarl_llm.analysis.planning import from_config, job
from jaxmarl_llm.analysis.report import page
from jaxmarl_llm.analysis.search import results as search_results
from jaxmarl_llm.config import ConfigDict, base_config
from jaxmarl_llm.rollout import journal
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.programs.timed_judge import TimedJudge

FIELDS = {
    "lessons.encoder": "ngrams",
    "sampling.max_new_tokens": 8,
    "eval.every": 0,
    "eval.before": False,
    "eval.samples": 1,
    "save.every": 1,
    "train.group": 3,
    "train.lr": 0.01,
    "train.warmup": 0,
    "log.tensorboard": False,
}


SWEEP = """
from configs import lessonl

def get_config(arg=None):
    config = lessonl.get_config("train,smoke")
    config.update_from_flattened_dict({})
    return config

def sweep(add):
    add()
"""


def letters(self, items, texts):
    """Every text is a right program; the more different letters, the faster."""
    scores = [1 + len(set(filter(str.isalpha, text))) / 10 for text in texts]
    return [Outcome("ok", text, s, s, s, executions=1) for text, s in zip(texts, scores, strict=True)]


def config_of(**changes):
    config = lessonl.get_config("train,smoke")
    config.update_from_flattened_dict(FIELDS | {name.replace("__", "."): v for name, v in changes.items()})
    return config


@pytest.fixture(scope="module", autouse=True)
def judged(tmp_path_factory):
    """Texts count as programs as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TimedJudge, "judge", letters)
        patch.setattr(TimedJudge, "remeasure", letters)
        patch.setattr("jaxmarl_llm.tasks.programs.task.program", lambda text, *rest: text)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run whose bank lasts, so that all has been saved that may be."""
    folder = tmp_path_factory.mktemp("rounds") / "run"
    train.train(config_of(lessons__bank="run"), folder)
    return folder


def rewritten(run, folder, **changes):
    """A copy of the run whose config says something else."""
    shutil.copytree(run, folder, dirs_exist_ok=True)
    config = ConfigDict(json.loads((run / "config.json").read_text()))
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in changes.items()})
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    return folder


def test_transcripts_hold_lessons_with_what_they_taught(run):
    actions = transcripts.read(run, 1)
    # 2 problems x 3 chains x 2 rounds; every author is asked about every program, as the bank lasts.
    assert [action.turn for action in actions] == [0] * 6 + [1] * 6
    lessons = [speech.remark for action in actions for speech in action.agents.values()]
    assert len(lessons) == 24 and all(credit.completion_length for credit in lessons)
    assert all("Program B" in credit.prompt or "Code B" in credit.prompt for credit in lessons)
    advantages = [speech.remark.advantage for a in actions[:6] for speech in a.agents.values()]
    assert any(advantages) and not any(credit.advantage for credit in lessons[12:])  # nobody read the last ones
    # The lessons of a program's prompt are those that somebody said: their texts, on lines of their own.
    texts = {" ".join(credit.completion.split()) for step in (0, 1) for credit in _lessons(run, step)}
    shown = [s.prompt for a in actions[6:] for s in a.agents.values() if "Lessons from earlier" in s.prompt]
    assert shown and all(any(text and text in prompt for text in texts) for prompt in shown)


def _lessons(run, step):
    actions = transcripts.read(run, step)
    return [speech.remark for action in actions for speech in action.agents.values()]


def test_report(run):
    (written, *_) = page.write([run])
    text = written.read_text()
    assert "<h2>Lessons</h2>" in text or ">Lessons<" in text
    assert all(name in text for name in ("lessons kept for later problems", "turn 2", "Code B"))


def test_replay_of_a_bank_that_lasts(run):
    lines = []
    actual = replay.replay(run, 1, tell=lines.append)
    assert actual.same, [part for part in actual.parts if part.first]
    assert actual.start == 1  # the lessons of then are found again
    assert lines[-1] == "programs are timed again: rewards differ as times do, and then anything"
    (remarks,) = [part for part in actual.parts if part.kind == "remarks"]
    assert (remarks.agree, remarks.of) == (24, 24)


def test_replay_of_a_bank_for_each_problem(tmp_path):
    train.train(config_of(train__steps=1), tmp_path / "run")
    actual = replay.replay(tmp_path / "run", 0, tell=lambda line: None)
    assert actual.same
    # No lessons are asked for after the last round.
    assert [r is None for r in _lessons(tmp_path / "run", 0)] == [False] * 12 + [True] * 12


def test_export(run, tmp_path):
    assert export.export(run, "second", tmp_path / "out", "adapter", "latest", "a/base") == 2
    assert (tmp_path / "out" / "adapter_config.json").is_file()


def test_evaluate_searches_with_the_trained_team(run, tmp_path):
    config = run_folder.load_run(run)
    config.task.eval_source = config.task.test_source = "python[:2]"
    evaluate.search_run(config, run, "latest", tmp_path / "found.json")
    (actual,) = search_results.read(tmp_path / "found.json")
    assert actual.method == "lessonl" and len(actual.problems) == 2
    assert actual.bank and all(problem.held_out.status == "ok" for problem in actual.problems)
    # It begins with the lessons of the run: ids below 0.
    kept = json.loads((tmp_path / "found" / "journal" / "0000" / "0000_turns.json").read_text())
    first = [turn.shown for turn in journal.decode(kept["found"])]
    assert first and all(shown and max(shown) < 0 for shown in first)


def test_crossplay(run, tmp_path):
    runs = [rewritten(run, tmp_path / name) for name in "ab"]
    actual = crossplay.play(runs, "latest", tell=lambda line: None)
    assert {mode: len(tables) for mode, tables in actual.tables.items()} == {"sampled": 1, "greedy": 1}
    # Both runs are the same, and so are all teams that can be put together of them.
    assert actual.tables["greedy"][0].gap.mean == 0.0
    other = rewritten(run, tmp_path / "c", lessons__shown=2)
    with pytest.raises(ValueError, match=r"do not go together: lessons.shown"):
        crossplay.play([runs[0], other])


def test_rescore_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match="train.protocol='lessonl': agents learn from what each"):
        rescore.rescore(run, reward="smoke_runs:distinct_letters")
    changes = {"train__protocol": "reflexion", "train__system": "magrpo"}
    changes |= {f"lessons__{name}": value for name, value in base_config().lessons.items()}
    with pytest.raises(ValueError, match="train.protocol='reflexion': agents learn"):
        rescore.rescore(rewritten(run, tmp_path / "reflexion", **changes), reward="")


def test_a_sweep_takes_the_run_as_a_finished_member(run, tmp_path):
    (tmp_path / "rounds.py").write_text(SWEEP.format(FIELDS | {"lessons.bank": "run"}))
    shutil.copytree(run, tmp_path / "sweep" / "as_configured" / "seed0")
    arguments = [f"--config={tmp_path / 'rounds.py'}", f"--workdir={tmp_path / 'sweep'}"]
    done = smoke_runs.run(smoke_runs.command("sweep", *arguments), tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    (setting,) = json.loads((tmp_path / "sweep" / "sweep.json").read_text())["settings"]
    assert [member["state"] for member in setting["members"]] == ["finished"]


def test_doctor():
    results = {result.name: result for result in examination.examine(config_of(), problems=2, tokens=8)}
    assert {name for name, result in results.items() if result.status == "fail"} == set()
    skipped = {name for name, result in results.items() if result.status == "skipped"}
    assert {"reward purity", "reward order"} <= skipped
    assert "12 joint answers" in results["rollout"].sentence


@pytest.mark.parametrize("command", [train.train, lambda config, folder: list(examination.examine(config))])
def test_tests_of_ones_own_are_for_searches(command, tmp_path):
    config = lessonl.get_config("generation,train,smoke")
    config.task.tests = "generated"
    with pytest.raises(ValueError, match="task.tests='generated': agents write tests in a search"):
        command(config, tmp_path / "run")


def test_plan():
    config = config_of(train__turns=3, train__minibatches=2)
    (actual,) = from_config.jobs(config, jax.devices()[:1])
    both = ("first", "second")
    # 2 problems x 3 chains: 3 programs and the 2 lessons in between; in evaluations a greedy one besides.
    assert actual.calls == (job.Call(both, 2, 3), *[job.Call(both, 6, 1)] * 4)
    assert actual.batches == (job.Call(both, 1, 3), *[job.Call(both, 3, 1)] * 4)
    assert [call.samples for call in actual.eval_calls] == [2, 1, 1, 1, 1]
