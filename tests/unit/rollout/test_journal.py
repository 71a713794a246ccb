"""A rollout that was broken off and run again from its journal equals one in a go, and asks nothing twice."""

import dataclasses
import logging

import jax
import numpy as np
import pytest
from rounds_of_lessons import KEY, ROUNDS, STEPS, Programs, Rounds, Stop, assert_equal, run
from scripted_team import tiny_team

from jaxmarl_llm import rollout
from jaxmarl_llm.rollout import episode, journal, requests
from jaxmarl_llm.rollout.journal import Journal, decode, encode
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tasks.outcomes import Outcome, ProgramJudgement

MESSAGE = {"role": "user", "content": "w3"}


@pytest.fixture
def spoken(monkeypatch):
    """Turn indices of what was sampled."""
    seen = []

    def speak(member, trainable, asked, *rest):
        seen.append(asked[0].request.turn)
        return requests.sample_turns(member, trainable, asked, *rest)

    monkeypatch.setattr(episode, "sample_turns", speak)
    return seen


def test_broken_off_and_run_again(tmp_path, spoken):
    whole = run(Programs((1, 2)))
    assert spoken == [0, 1, 2, 3] and len(whole.joints) == 2 * 2 * ROUNDS
    # two items x two agents x two samples in each step; lessons are those of odd turns
    assert [turn.shown for turn in whole.turns[::8]] == [(), (), (14, 15), (14, 15)]
    for stop in range(STEPS):
        task, folder = Programs((1, 2)), tmp_path / str(stop)
        with pytest.raises(Stop):
            run(task, folder, stop=stop)
        files = {path.name for path in folder.glob("*")}
        assert files == {f"{n:04d}_turns.json" for n in range(stop)} | {
            f"{n:04d}_joints.json" for n in range(0, stop, 2)
        }
        spoken.clear()
        again = Programs((1, 2))
        assert_equal(run(again, folder), whole)
        assert spoken == list(range(stop, STEPS))
        assert len(task.judged) + len(again.judged) == len(whole.joints)
        spoken.clear()
        assert_equal(run(again, folder), whole)  # and all of it from there
        assert not spoken


def test_a_journal_tells_whether_it_had_all(tmp_path):
    journal = Journal(tmp_path)
    for added in (True, False):
        journal.begin("rollout")
        assert journal.once("a", "asked", lambda: 1) == 1 and journal.added is added


def test_answers_are_kept_before_they_are_judged(tmp_path, spoken):
    class Broken(Programs):
        def judge(self, items, completions):
            raise Stop

    with pytest.raises(Stop):
        run(Broken((1, 2)), tmp_path)
    run(Programs((1, 2)), tmp_path)
    assert spoken == [0, 1, 2, 3]  # the first step once


@pytest.mark.parametrize("text", ["", "{}", None, '{"rollout": 1}'])
def test_a_damaged_file_counts_as_absent(tmp_path, spoken, caplog, text):
    whole = run(Programs((1, 2)), tmp_path)
    path = tmp_path / "0001_turns.json"
    path.write_text(path.read_text()[:-9] if text is None else text)
    spoken.clear()
    with caplog.at_level(logging.WARNING):
        assert_equal(run(Programs((1, 2)), tmp_path), whole)
    assert spoken == [1] and f"{path} cannot be read and is done again" in caplog.text
    spoken.clear()
    run(Programs((1, 2)), tmp_path)
    assert not spoken  # it was mended


def test_what_follows_a_lost_file_is_done_again_where_that_turned_out_differently(tmp_path, caplog, spoken):
    run(Programs((1, 2)), tmp_path)
    (tmp_path / "0000_turns.json").unlink()

    class Other(Journal):
        def once(self, name, asked, bring):
            actual = super().once(name, asked, bring)
            if name == "0000_turns":
                return [dataclasses.replace(turn, text=turn.text + " w4") for turn in actual]
            return actual

    spoken.clear()
    task, team = Programs((1, 2)), tiny_team()
    options = dict(params=SamplingParams(3), max_prompt_tokens=64, journal=Other(tmp_path))
    scorer = TaskScorer.of_team(task, team, "aligned")
    with caplog.at_level(logging.WARNING):
        rollout.run(Rounds(task), team, [team.members[0].trainable], scorer, [1, 0], KEY, **options)
    assert "0000_joints.json follows what turned out differently now" in caplog.text
    assert spoken == [0]  # the lessons of this protocol do not read the answers, so they are as they were


def test_another_rollout_is_refused(tmp_path):
    run(Programs((1, 2)), tmp_path)
    with pytest.raises(ValueError, match=r"0000_turns.json is of another rollout .*another folder"):
        run(Programs((1, 2)), tmp_path, key=jax.random.key(4))
    with pytest.raises(ValueError, match=r"0000_turns.json is of another rollout"):
        run(Programs((1, 2)), tmp_path, temperature=0.5)
    with pytest.raises(ValueError, match=r"0000_turns.json answers other requests"):
        run(Programs((1, 3)), tmp_path)


def test_values_come_back_equal():
    judgement = ProgramJudgement(
        {"a": 0.1},
        None,
        "fail",
        ("x",),
        interactions=(("a", 1),),
        local={"a": float("inf")},
        outcomes={"a": Outcome("wrong", "def f():\n\treturn 'ü'", log="\x00", low=1 / 3)},
    )
    for value in (judgement, Judgement({}, 1.0), (1, [2.5, None], {"a": (True,)}, {3: "x"}), [], ()):
        again = decode(encode(value))
        assert again == value and type(again) is type(value)
    # 0.1 is another number in float32; its digits survive
    array = decode(encode(np.array([0.1, -np.inf], np.float32)))
    assert array.dtype == np.float32 and array.tolist() == np.array([0.1, -np.inf], np.float32).tolist()
    with pytest.raises(TypeError, match="cannot keep a builtins.set: allowed are"):
        encode({1})
    with pytest.raises(ValueError, match="nothing that a journal keeps"):
        decode({"of": "os:system", "fields": {}})


def test_without_a_folder_nothing_is_kept(tmp_path):
    empty = journal.Journal(None)
    empty.begin("x")
    assert [empty.once("a", 1, lambda: 2), empty.once("a", 1, lambda: 3)] == [2, 3]


def test_a_rollout_that_begins_like_another_takes_that_over(tmp_path, spoken):
    first, task = run(Programs((1, 2)), tmp_path / "first"), Programs((1, 2))
    spoken.clear()
    like = [tmp_path / "missing", tmp_path / "first"]
    assert_equal(run(task, tmp_path / "second", like=like), first)
    assert not spoken and not task.judged
    names = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("first", "second")]
    assert names[0] == names[1]
    # Another key: nothing is alike, and nothing is refused either.
    other = run(task, tmp_path / "third", key=jax.random.key(4), like=like)
    assert spoken == [0, 1, 2, 3] and other.turns[0].completion.tolist() != first.turns[0].completion.tolist()
