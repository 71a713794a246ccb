"""jaxmarl_llm/analysis/search/search.py: results of the scripted team, also after a stop."""

import json

import pytest
import scripted_timing
from absl import flags
from scripted_searches import AGENTS, BATCHES, PROBLEMS, ROUNDS, STEPS, config_of, run, text_of
from scripted_timing import Stop

from configs import lessonl
from experiments import evaluate
from jaxmarl_llm import rollout
from jaxmarl_llm.analysis.search import results as search_results
from jaxmarl_llm.analysis.search import search
from jaxmarl_llm.executor import available_level
from jaxmarl_llm.rollout import episode
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.tasks.programs import optimisation_items


@pytest.fixture
def executor(monkeypatch):
    return scripted_timing.install(monkeypatch)


@pytest.fixture
def seen(monkeypatch):
    """Forests, and the turn index of every batch of texts that somebody was asked for."""
    actual = {"forests": [], "asked": []}
    talk, speak = rollout.run, episode.sample_turns

    def ran(*args, **options):
        actual["forests"].append(talk(*args, **options))
        return actual["forests"][-1]

    def spoke(member, trainable, asked, *rest):
        actual["asked"].append(asked[0].request.turn)
        return speak(member, trainable, asked, *rest)

    monkeypatch.setattr(rollout, "run", ran)
    monkeypatch.setattr(episode, "sample_turns", spoke)
    return actual


def test_results_are_what_the_rollouts_say(executor, seen, tmp_path):
    run(tmp_path)
    (actual,) = json.loads(text_of(tmp_path))
    items = optimisation_items.load_items(PROBLEMS, "all")
    assert [row["item"] for row in actual["problems"]] == [item.task_id for item in items]
    assert (actual["method"], actual["task"], actual["measure"]) == ("lessonl", "optimisation", "speed-up")
    assert actual["models"] == dict.fromkeys(lessonl.AGENTS, "scripted:mixture")
    lessons, calls = [], 0
    for row, forest in zip(actual["problems"], seen["forests"], strict=True):
        scores = [
            [(outcome.score, agent, outcome.program) for agent, outcome in joint.judgement.outcomes.items()]
            for joint in forest.joints
        ]
        best = max(score for each in scores for score, *_ in each)
        first = next((t, each) for t, some in enumerate(scores) for each in some if each[0] == best)
        assert (row["round"], row["agent"], row["program"]) == (first[0], first[1][1], first[1][2])
        assert row["rounds"] == [
            max(s for each in scores[: t + 1] for s, *_ in each) for t in range(ROUNDS)
        ]
        assert row["executed"] == [sum(bool(p) for each in scores[: t + 1] for *_, p in each)
                                   for t in range(ROUNDS)]  # fmt: skip
        # By what the scripted clock says: a tenth less on held-out inputs, where there was something to gain.
        assert row["held_out"]["score"] == pytest.approx(best if row["unchanged"] else 0.9 * best)
        assert row["held_out"]["status"] == "ok"
        lessons += [turn.text for turn in forest.turns if turn.kind == "remark"]
        calls += len(forest.turns)
    assert not all(row["unchanged"] for row in actual["problems"])
    assert [credit["text"] for credit in actual["bank"]] == lessons and len(lessons) == BATCHES * 2 * AGENTS
    assert actual["ledger"]["calls"] == calls == BATCHES * STEPS * AGENTS
    assert actual["ledger"]["search"]["programs"] == sum(row["executed"][-1] for row in actual["problems"])
    # Nothing was measured twice, neither in the search nor again.
    assert len(set(executor.measured)) == len(executor.measured)


@pytest.mark.slow
@pytest.mark.parametrize("bank", ["problem", "run"])
def test_stopped_anywhere_it_goes_on_within_the_round(executor, seen, monkeypatch, tmp_path, bank):
    """Also its ledger is the same: a program that was measured before the stop counts as known after it."""
    steps = STEPS + (bank == "run")  # lessons about the last programs, for later problems
    run(tmp_path / "whole", lessons__bank=bank)
    assert len(seen["asked"]) == BATCHES * steps
    stops = [("judge", at) for at in range(BATCHES * ROUNDS)] + [("remeasure", 1)]
    for name, at in stops:
        folder = tmp_path / f"{name}{at}"
        seen["asked"].clear()
        scripted_timing.install(monkeypatch)  # what knows nothing, as in a process of its own
        with monkeypatch.context() as patched:
            calls = {each: scripted_timing.stop(patched, each) for each in ("judge", "remeasure")}
            calls[name] = scripted_timing.stop(patched, name, at)
            with pytest.raises(Stop):
                run(folder, lessons__bank=bank)
        assert not (folder / search.RESULTS).exists()
        with monkeypatch.context() as patched:
            again = {each: scripted_timing.stop(patched, each) for each in ("judge", "remeasure")}
            run(folder, lessons__bank=bank)
        assert text_of(folder) == text_of(tmp_path / "whole"), (name, at)
        # Every text was asked for once; what was under way was judged twice, and nothing else.
        assert len(seen["asked"]) == BATCHES * steps
        assert len(calls["judge"]) + len(again["judge"]) == BATCHES * ROUNDS + (name == "judge")
        assert len(calls["remeasure"]) + len(again["remeasure"]) == BATCHES + (name == "remeasure")


def test_finished_nothing_is_done_again(executor, seen, monkeypatch, tmp_path):
    run(tmp_path)
    before, text = len(executor.measured), text_of(tmp_path)
    seen["asked"].clear()
    calls = scripted_timing.stop(monkeypatch, "judge")
    run(tmp_path)
    assert text_of(tmp_path) == text and (calls, seen["asked"]) == ([], [])
    assert len(executor.measured) == before


def test_tokens_are_priced(executor, tmp_path):
    run(tmp_path, train__turns=1, search__prices=(("scripted:mixture", 2.0, 3),))
    ledger = json.loads(text_of(tmp_path))[0]["ledger"]
    cost = (2 * ledger["prompt_tokens"] + 3 * ledger["completion_tokens"]) / 1e6
    assert ledger["cost"]["total"] == pytest.approx(cost) and cost > 0
    assert set(ledger["cost"]["agents"]) == set(lessonl.AGENTS)
    run(tmp_path, train__turns=1, search__prices=())  # other prices are no other search
    assert "cost" not in json.loads(text_of(tmp_path))[0]["ledger"]


@pytest.fixture
def command_line(monkeypatch):
    """`evaluate.main` with flags of its own: the words -> what happens."""

    def call(*words):
        own = flags.FlagValues()
        monkeypatch.setattr(flags, "FLAGS", own)
        for name in ("workdir", "team", "base", "out"):
            flags.DEFINE_string(name, "", "", flag_values=own)
        flags.DEFINE_string("step", "best", "", flag_values=own)
        flags.DEFINE_integer("samples", 0, "", flag_values=own)
        flags.DEFINE_list("k", ["1"], "", flag_values=own)
        own(["evaluate", *words])
        monkeypatch.setattr(run_folder, "load_run", lambda workdir: config_of(train__turns=1))
        flags.DEFINE_string("config", None, "", flag_values=own)
        return evaluate.main(["evaluate"])

    return call


@pytest.mark.parametrize("word", ["--samples=4", "--k=1", "--k=1,3"])
def test_flags_of_evaluations_are_refused(command_line, word):
    name = word.partition("=")[0]
    with pytest.raises(ValueError, match=f"{name} is not allowed in a search, which has one answer for each"):
        command_line("--workdir=runs/x", word)


def test_a_search_says_first_how_it_is_gone_on_with(executor, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    scripted_timing.stop(monkeypatch, "judge", 0)
    with pytest.raises(Stop):
        evaluate.search_run(config_of(), "", "best", "")
    (path,) = (tmp_path / "runs").glob("*/search")
    place = path.relative_to(tmp_path)
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(f"searching in {place}/results; ")
    assert f"the same command with --out={place / search.RESULTS} goes on" in line


def test_another_search_in_the_folder_is_refused(executor, tmp_path):
    run(tmp_path, train__turns=1)
    for changes, named in (
        (dict(seed=1), "seed: saved 0, now 1"),
        (dict(timing__cap=3.0), "timing.cap: saved 10.0, now 3.0"),
        (dict(lessons__select="random"), "lessons.select: saved 'full', now 'random'"),
        (dict(team__models=("byte",) * 3), "team.models: saved .*, now .*byte"),
    ):
        with pytest.raises(ValueError, match=f"{tmp_path}: .*another configuration: .*{named}"):
            search.claim(tmp_path, config_of(**{"train__turns": 1} | changes), 0)
    with pytest.raises(ValueError, match=f"{tmp_path}: .* after 0 iterations, this one after 7"):
        run(tmp_path, step=7, train__turns=1)
    with pytest.raises(ValueError, match="another configuration: seed"):
        run(tmp_path, train__turns=1, seed=1)
    text = text_of(tmp_path)
    run(tmp_path, train__turns=1, executor__workers=7)  # this changes no result
    assert text_of(tmp_path) == text


def test_lessons_of_a_problem_are_offered_to_the_next(executor, seen, tmp_path):
    run(tmp_path / "apart")
    run(tmp_path / "together", lessons__bank="run", lessons__keep=5, lessons__shown=20)
    apart, together = seen["forests"][:BATCHES], seen["forests"][BATCHES:]
    assert all(i >= 0 for forest in apart for turn in forest.turns for i in turn.shown)
    first, second = together
    stages = {(t, kind) for t in range(ROUNDS) for kind in ("answer", "remark")}
    assert {turn.stage for turn in first.turns} == stages  # lessons after the last round, too
    # Of the nine lessons the newest five, from -1 on, stand in the first prompts, then behind own ones.
    lesson_texts = [turn.text for turn in first.turns if turn.kind == "remark"]
    bank = json.loads(text_of(tmp_path / "together"))[0]["bank"]
    assert len(lesson_texts) == 9 and len(bank) == 18
    own = [turn.id for turn in second.turns if turn.stage == (0, "remark")]
    shown = {t: [turn.shown for turn in second.turns if turn.stage == (t, "answer")] for t in (0, 1)}
    (order,) = set(shown[0])
    assert sorted(order) == [-5, -4, -3, -2, -1] and len(shown[0]) == AGENTS
    assert shown[1] == [(*own, *order)] * AGENTS


@pytest.mark.slow
@pytest.mark.skipif(available_level()[0] < 2, reason=available_level()[1])
def test_a_problem_that_is_timed(tmp_path, capsys):
    config = config_of(
        task__test_source="python[:1]", train__turns=2, timing__max_pairs=7, timing__seconds=1.0
    )
    evaluate.search_run(config, "", "best", tmp_path / "search.json")
    (result,) = search_results.read(tmp_path / "search.json")
    (problem,), (item,) = result.problems, optimisation_items.load_items("python[:1]", "all")
    (forest,) = [path for path in (tmp_path / "search" / "journal").iterdir()]
    assert sorted(path.name for path in forest.iterdir()) == [
        "0000_joints.json", "0000_turns.json", "0001_turns.json", "0002_joints.json", "0002_turns.json",
        "held_out.json",
    ]  # fmt: skip
    assert problem.executed == (AGENTS, 2 * AGENTS) and problem.held_out.status == "ok"
    assert problem.best.low <= problem.searched <= problem.best.high
    known = {"unchanged": "ok", "faster": "ok", "slower": "ok", "wrong": "wrong", "broken": "build-error"}
    kinds = {rewrite.source.strip(): known[rewrite.kind] for rewrite in item.rewrites}
    kinds |= {item.source.strip(): "ok"}
    assert kinds[problem.best.program.strip()] == "ok"
    for row in result.bank:
        assert row["status"] == kinds.get(row["program"].strip(), "build-error")
    output = capsys.readouterr().out
    assert "batch 1: 1 of 1 programs right" in output and f"written: {tmp_path / 'search.html'}" in output
