"""Trainings with train.redraw on games: problems whose reward is constant give way to others."""

import logging
import zlib

import jax
import method_runs
import numpy as np
import pytest
import smoke_runs
from game_runs import config_of

from configs import lock as lock_config
from experiments import train
from jaxmarl_llm import transcripts
from jaxmarl_llm.config import base_config, validate
from jaxmarl_llm.factory import randomness
from jaxmarl_llm.runs import training_loop
from jaxmarl_llm.tasks.toys import matrix_game
from jaxmarl_llm.tasks.toys.lock import LockTask

pytestmark = pytest.mark.usefixtures("programs_shared")
GAMES = [item.task_id for item in matrix_game.load_items("games", "all")]
STEPS, PROMPTS, GROUP = 4, 2, 4


class Kill(BaseException):
    """In place of the end of the process: nothing is saved any more."""


def constant_on_penalty(completions, task_id, **columns):
    """1 for every answer to a game of penalty; to one of climbing, a number that hardly two answers share."""
    rows = zip(task_id, *completions.values(), strict=True)
    return [
        1.0 if row[0].startswith("penalty") else zlib.crc32("|".join(row).encode()) % 499 / 499 for row in rows
    ]


def constant(completions, **columns):
    return [1.0] * len(next(iter(completions.values())))


def killed_at(completions, task_id, **columns):
    """`constant_on_penalty`, but for a kill while the answers of a draw are judged."""
    if len(task_id) == PROMPTS * GROUP:
        killed_at.draws_done += 1
        if killed_at.draws_done == killed_at.kill:
            raise Kill
    return constant_on_penalty(completions, task_id, **columns)


killed_at.draws_done, killed_at.kill = 0, None


def config(**fields):
    own = {
        "train.steps": STEPS, "train.prompts": PROMPTS, "train.prompts_per_microbatch": PROMPTS, "train.redraw": 2,
        "train.group": GROUP, "task.reward": f"{__name__}:constant_on_penalty", "log.transcripts_every": 1,
        "eval.before": False, "sampling.max_new_tokens": 6, "save.every": 2,
    }  # fmt: skip
    return config_of(**own | {name.replace("__", "."): value for name, value in fields.items()})


@pytest.fixture(autouse=True)
def no_evaluation(monkeypatch):
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))


def by_hand(c, step):
    """Task ids of each draw of an iteration, and those that are learned from, from the order of the problems."""
    items = matrix_game.load_items("games", "all")
    draws = [randomness.batch_ids(c, items, step)]
    taught = [i for i in draws[0] if GAMES[i].startswith("climbing")]
    while len(taught) < PROMPTS and len(draws) <= c.train.redraw:
        draws.append(randomness.draw_ids(c, items, step, len(draws)))
        taught += [i for i in draws[-1] if GAMES[i].startswith("climbing")]
    kept = taught[:PROMPTS]
    kept += [i for i in draws[0] if i not in kept][: PROMPTS - len(kept)]
    return [[GAMES[i] for i in ids] for ids in draws], [GAMES[i] for i in kept]


def task_ids(folder, step):
    return {action.item for action in transcripts.read(folder, step)}


@pytest.mark.parametrize("most", [1, 2])
def test_problems_without_a_signal_give_way_to_others(tmp_path, monkeypatch, most):
    seen, c = method_runs.watched(monkeypatch), config(train__redraw=most, train__lr=0.0)
    train.train(c, tmp_path)
    rows, forests = smoke_runs.rows(tmp_path), iter(seen.forests)
    answers = tokens = 0
    for step, row in enumerate(rows):
        draws, kept = by_hand(c, step)
        drawn = [next(forests) for _ in draws]
        assert [[item.task_id for item in forest.items] for forest in drawn] == draws
        assert task_ids(tmp_path, step) == {*kept}
        assert row["redraw/draws"] == len(draws) - 1
        assert row["redraw/without_signal"] == sum(name.startswith("penalty") for name in kept)
        assert row["redraw/replaced"] == PROMPTS - sum(name in draws[0] for name in kept)
        assert row["first/zero_signal"] == row["redraw/without_signal"] / PROMPTS
        of_problems = [
            np.mean([joint.total for joint in forest.joints if joint.item == place])
            for forest in drawn for place in range(PROMPTS)
        ]  # fmt: skip
        assert row["redraw/return"] == pytest.approx(np.mean(of_problems))
        answers += len(draws) * PROMPTS * GROUP
        tokens += sum(len(turn.completion) for forest in drawn for turn in forest.turns)
        assert (row["spent/answers"], row["spent/tokens"]) == (answers, tokens)
    assert next(forests, None) is None and len(rows) == STEPS
    assert {row["redraw/draws"] for row in rows} >= {0, 1} and sum(row["redraw/replaced"] for row in rows)
    assert len({tuple(turn.text for turn in forest.turns) for forest in seen.forests}) == len(seen.forests)


def state(folder):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(smoke_runs.saved_state(folder, config()))]


def assert_same_run(folder, other):
    assert smoke_runs.rows(folder) == smoke_runs.rows(other)
    for step in range(STEPS):
        assert transcripts.read(folder, step) == transcripts.read(other, step)
    for one, two in zip(state(folder), state(other), strict=True):
        np.testing.assert_array_equal(one, two)


def draws_before(c, step):
    return sum(len(by_hand(c, s)[0]) for s in range(step))


@pytest.mark.parametrize("fields", [{}, {"train__overlap": True, "train__importance_cap": 2.0}])
def test_killed_in_a_further_draw_and_resumed_it_equals_the_whole_run(tmp_path, fields):
    c = config(task__reward=f"{__name__}:killed_at", **fields)
    killed_at.draws_done, killed_at.kill = 0, None
    train.train(c, tmp_path / "whole")
    assert killed_at.draws_done == draws_before(c, STEPS)
    step = next(s for s in range(STEPS - 1, 0, -1) if len(by_hand(c, s)[0]) > 1)
    killed_at.draws_done, killed_at.kill = 0, draws_before(c, step) + 2  # its second draw
    with pytest.raises(Kill):
        train.train(c, tmp_path / "killed")
    assert len(smoke_runs.rows(tmp_path / "killed")) <= step
    killed_at.kill = None
    train.train(c, tmp_path / "killed")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_rounds_of_programs_keep_a_journal_of_each_draw(tmp_path, monkeypatch):
    """Killed while a further draw is judged, they go on with its answers, and with those of the first draw."""
    c = lock_config.get_config()
    c.update_from_flattened_dict({
        "train.prompts": 1, "train.prompts_per_microbatch": 1, "train.group": 2, "train.steps": 4, "train.redraw": 2,
        "lessons.control": 0, "eval.before": False, "eval.samples": 2, "log.transcripts_every": 1,
    })  # fmt: skip
    judge, calls = LockTask.judge, []

    def counted(self, items, completions):
        calls.append(len(items))
        if len(calls) == counted.kill:
            raise Kill
        return judge(self, items, completions)

    counted.kill = None
    monkeypatch.setattr(LockTask, "judge", counted)
    train.train(c, tmp_path / "whole")
    draws = [1 + int(row["redraw/draws"]) for row in smoke_runs.rows(tmp_path / "whole")]
    assert len(draws) == 4 and max(draws) > 1 and len(calls) == 2 * sum(draws)  # rounds
    step = int(np.argmax(draws))
    calls.clear()
    counted.kill = 2 * sum(draws[:step]) + 4  # the second round of its second draw
    with pytest.raises(Kill):
        train.train(c, tmp_path / "killed")
    written = [path.name for path in sorted((tmp_path / f"killed/journal/{step:06d}/redraw1").iterdir())]
    assert [name for name in written if name.endswith("_joints.json")] == ["0000_joints.json"]
    calls.clear()
    counted.kill = None
    train.train(c, tmp_path / "killed")
    assert smoke_runs.rows(tmp_path / "killed") == smoke_runs.rows(tmp_path / "whole")
    assert len(calls) == 2 * sum(draws[step:]) - 3
    assert not list((tmp_path / "killed/journal").iterdir())


def test_a_budget_counts_what_was_drawn_again(tmp_path):
    c = config(task__reward=f"{__name__}:constant", train__redraw=1, train__budget_answers=3 * PROMPTS * GROUP)
    train.train(c, tmp_path)
    spent = [row["spent/answers"] for row in smoke_runs.rows(tmp_path) if "spent/answers" in row]
    assert spent == [16, 32]  # the second iteration reaches 24


def test_without_any_signal_training_goes_on_and_says_so(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        train.train(config(task__reward=f"{__name__}:constant", train__steps=2), tmp_path)
    assert caplog.text.count("none of the 6 problems drawn has a signal") == 2
    for row in smoke_runs.rows(tmp_path):
        assert (row["redraw/draws"], row["redraw/replaced"], row["redraw/without_signal"]) == (2, 0, 2)
        assert (row["first/grad_norm"], row["redraw/return"], row["train/return"]) == (0, 1, 1)


def test_without_it_there_are_no_such_metrics(tmp_path):
    train.train(config(train__redraw=0, train__steps=1), tmp_path)
    (row,) = smoke_runs.rows(tmp_path)
    assert not [name for name in row if name.startswith("redraw/")]


@pytest.mark.parametrize("fields, message", [
    ({"train.system": "iac"}, "train.redraw=2: train.system='iac' learns from what its critics did not expect"),
    ({"train.system": "madpo_iter"}, "train.redraw=2: train.system='madpo_iter' keeps pairs of the answers"),
    ({"train.system": "marlhf"}, "train.redraw=2: train.system='marlhf' keeps pairs of the answers"),
    ({"train.system": "sft"},
     "train.redraw=2: train.system='sft' learns from demonstrations, whatever an answer earns, allowed is 0"),
    ({"task.kind": "lock", "task.source": "locks", "train.protocol": "lessonl", "train.system": "lessonl",
      "lessons.bank": "run"}, "train.redraw=2: lessons.bank='run' keeps the lessons of each iteration"),
    ({"train.redraw": -1}, "train.redraw=-1: allowed is 0 to any larger number"),
    ({"train.redraw": True}, "train.redraw=True"),
    ({"train.redraw": 1.5}, "train.redraw=1.5"),
])  # fmt: skip
def test_where_it_is_refused(fields, message):
    c = base_config()
    with c.ignore_type():
        c.update_from_flattened_dict({"train.redraw": 2} | fields)
    with pytest.raises(ValueError) as refused:
        validate(c)
    assert message in str(refused.value)


@pytest.mark.parametrize("fields", [
    {"train.system": "mareinforce"}, {"train.system": "mine.assign"}, {"train.system": "dr_mas"},
    {"train.overlap": True, "train.importance_cap": 2.0},
    {"train.joint_mode": "cross", "train.turns": 2},
])  # fmt: skip
def test_where_it_is_allowed(fields):
    c = base_config()
    c.update_from_flattened_dict({"train.redraw": 2} | fields)
    validate(c)
