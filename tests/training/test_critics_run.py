"""Teams that learn from critics train for real: what is learned, and that a run goes on where it ended."""

import math

import jax
import numpy as np
import pytest
import smoke_runs
from method_runs import SMALL, TWO_TURNS, watched

from configs import coding
from experiments import train
from jaxmarl_llm.factory import systems, teams
from jaxmarl_llm.runs import training_loop
from jaxmarl_llm.runs.learner import Learner
from jaxmarl_llm.systems import critics

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("programs_shared")]  # the model for its tokenizer


@pytest.fixture(autouse=True)
def no_evaluation(monkeypatch):
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))


@pytest.fixture
def lessons(monkeypatch):
    """What critics were taught: (texts, values before, targets), call by call."""
    actual, real = [], critics.Critics.learn

    def learn(self, texts, old, targets):
        actual.append((texts, old, targets))
        return real(self, texts, old, targets)

    monkeypatch.setattr(critics.Critics, "learn", learn)
    return actual


def make_config(fields):
    config = coding.get_config("smoke")
    config.update_from_flattened_dict(SMALL | {"critic.lr": 0.01} | fields)
    return config


def critic_leaves(folder, config):
    team = teams.build_team(config)
    made = systems.build(config, team, list).models
    with made.kept_in(folder / "system", 2) as checkpoints:
        made.restore(checkpoints.latest())
    return [np.asarray(leaf) for leaf in jax.tree.leaves(made.states)]


def test_two_turns_of_a_single_sample_with_a_critic_each(tmp_path, monkeypatch, lessons, capsys):
    seen = watched(monkeypatch)
    config = make_config(TWO_TURNS | {"train.system": "iac", "train.group": 1, "train.discount": 0.5})
    train.train(config, tmp_path)
    assert "memory: critics + optimizer" in capsys.readouterr().out
    (forest,), ((texts, values, targets),) = seen.forests, lessons
    assert {agent: len(read) for agent, read in texts.items()} == {"aux": 4, "main": 4}  # 2 problems, 2 turns
    expected_targets = {}  # reward, and half of what the critic says of the agent's next prompt
    for j, (joint, reward) in enumerate(zip(forest.joints, forest.totals(), strict=True)):
        for turn in (forest.turns[i] for i in joint.turns):
            next_turns = [t for t in forest.turns if (t.agent, t.follows) == (turn.agent, j)]
            assert len(next_turns) == (joint.turn == 0)
            expected_targets[turn.request] = reward + 0.5 * sum(values[t.request] for t in next_turns)
            np.testing.assert_array_equal(texts[turn.agent][turn.request], turn.prompt)
    assert targets == pytest.approx(expected_targets, rel=1e-5)
    all_rows = [batch.rows for _, batch in seen.batches]
    learned = [float(a) for rows in all_rows for a in rows.advantages_MS[rows.lengths_MS > 0]]
    # The gradient of the return: what the second turn earns counts half.
    expected = [0.5**turn.turn * (expected_targets[turn.request] - values[turn.request]) for turn in forest.turns]
    np.testing.assert_allclose(sorted(learned), sorted(expected), rtol=1e-4, atol=1e-3)
    row = smoke_runs.rows(tmp_path)[0]
    assert {"aux/critic_loss", "main/critic_explained", "main/critic_grad_norm"} <= set(row)


def test_a_run_with_one_critic_of_all_goes_on_as_if_it_had_not_ended(tmp_path, lessons):
    fields = {"train.system": "maac", "train.normalise": True, "train.normalise_by": "agent"}
    longer = make_config(fields | {"train.steps": 2})
    train.train(make_config(fields), tmp_path / "parts")
    train.train(longer, tmp_path / "parts")
    train.train(longer, tmp_path / "once")
    assert smoke_runs.rows(tmp_path / "parts") == smoke_runs.rows(tmp_path / "once")
    parts, once = (critic_leaves(tmp_path / name, longer) for name in ("parts", "once"))
    for left, right in zip(parts, once, strict=True):
        np.testing.assert_array_equal(left, right)
    for texts, _, targets in lessons:
        assert set(texts) == {"team"} and set(targets) == {0, 1}  # a node for each problem
    assert lessons[0][1] != lessons[1][1]


def test_only_the_critics_learn_at_first(tmp_path):
    """One iteration of three: it goes on where it ended, in the second as in the third all learn."""
    fields = {"train.system": "iac", "critic.warmup": 1, "critic.updates": 2, "train.steps": 3}
    config = make_config(fields)
    begun = [np.asarray(leaf) for leaf in jax.tree.leaves(teams.build_team(config).members[0].trainable)]
    train.train(make_config(fields | {"train.steps": 2}), tmp_path / "parts")
    train.train(config, tmp_path / "parts")
    train.train(config, tmp_path / "once")
    rows = smoke_runs.rows(tmp_path / "once")
    assert rows == smoke_runs.rows(tmp_path / "parts")
    assert ["aux/loss" in row for row in rows] == [False, True, True]
    assert rows[0]["aux/advantage_spread"] == 0 < rows[1]["aux/advantage_spread"]
    assert all(row["aux/critic_grad_norm"] > 0 for row in rows)
    assert int(smoke_runs.saved_state(tmp_path / "once", config).step) == 2

    real, states = Learner.update, []

    def watched_update(self, credit):
        actual = real(self, credit)
        states.append([np.asarray(leaf) for leaf in jax.tree.leaves(self.trainables()[0])])
        return actual

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "update", watched_update)
        train.train(config, tmp_path / "watched")
    same = [all((x == y).all() for x, y in zip(begun, now, strict=True)) for now in states]
    assert same == [True, False, False]


def test_heads_on_the_agents_own_bodies_go_on_too(tmp_path, monkeypatch):
    """In the Q form. An agent's step has the value loss in it, and what is not finite changes nothing."""
    fields = {"train.system": "iac", "critic.form": "q", "critic.shared": True}
    longer = make_config(fields | {"train.steps": 2})
    train.train(make_config(fields), tmp_path / "parts")
    train.train(longer, tmp_path / "parts")
    train.train(longer, tmp_path / "once")
    rows = smoke_runs.rows(tmp_path / "parts")
    assert rows == smoke_runs.rows(tmp_path / "once")
    parts, once = (critic_leaves(tmp_path / name, longer) for name in ("parts", "once"))
    for left, right in zip(parts, once, strict=True):
        np.testing.assert_array_equal(left, right)
    assert rows[0]["aux/critic_loss"] > 0 and rows[0]["aux/grad_norm"] > 0

    alone = make_config(fields | {"critic.coef": 0.0})
    train.train(alone, tmp_path / "alone")
    theirs = smoke_runs.rows(tmp_path / "alone")[0]
    assert theirs["aux/critic_loss"] == rows[0]["aux/critic_loss"]
    assert theirs["aux/grad_norm"] != rows[0]["aux/grad_norm"]

    real, done = Learner.update, []

    def broken(self, credit):  # in the third iteration, the first that this process does
        done.append(real(self, credit))
        return done[-1] | {"aux/loss": math.nan} if len(done) == 1 else done[-1]

    monkeypatch.setattr(Learner, "update", broken)
    with pytest.raises(FloatingPointError, match="aux/loss not finite"):
        train.train(make_config(fields | {"train.steps": 3}), tmp_path / "parts")
    for left, right in zip(critic_leaves(tmp_path / "parts", longer), once, strict=True):
        np.testing.assert_array_equal(left, right)
