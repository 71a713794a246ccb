"""Each published system trains as `configs/systems.py:<name>,smoke` says, with the advantages it promises."""

import dataclasses

import jax
import numpy as np
import pytest
import smoke_runs
from method_runs import watched

from configs import systems as system_configs
from experiments import train
from jaxmarl_llm import transcripts, update
from jaxmarl_llm.config import agent_settings, validate
from jaxmarl_llm.factory import systems, teams
from jaxmarl_llm.runs import run_evaluations, training_loop

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("programs_shared")]  # the model for its tokenizer
Q_FORM = {"critic.form": "q"}
# Rollout and update are those of mareinforce, only the advantages differ: checked on the forests of its run.
SAME_ROLLOUTS = ("marloo", "maremax", "dr_mas")
# Of der no agent learns (test_routes_run.py).
VARIANTS = [(name, {}) for name in system_configs.SYSTEMS if name not in (*SAME_ROLLOUTS, "der")]
VARIANTS += [("iac", Q_FORM), ("maac", Q_FORM)]


@dataclasses.dataclass(frozen=True)
class Trained:
    """Two iterations: forests, transcripts and metrics, and the advantages in the batches of each update."""

    forests: list
    actions: list
    rows: list
    advantages: list


@pytest.fixture(scope="module")
def made():
    """Optimizers by their settings: equal ones share the programs that they are part of."""
    return {}


@pytest.fixture
def trained(tmp_path, monkeypatch, made):
    """Train a system as its smoke config is, only without evaluations; every agent must have moved."""
    make = update.make_optimizer
    monkeypatch.setattr(update, "make_optimizer", lambda **s: made.setdefault(tuple(s.items()), make(**s)))
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))
    monkeypatch.setattr(run_evaluations, "before", lambda run: None)
    monkeypatch.setattr(run_evaluations, "validate", lambda run, step: "not evaluated")
    seen = watched(monkeypatch)

    def run(name, fields=()):
        config = system_configs.get_config(f"{name},smoke")
        drawn = {"sampling.temperature": 1.0}  # two samples of a few tokens differ
        config.update_from_flattened_dict(drawn | dict(fields))
        train.train(config, tmp_path)
        after = smoke_runs.saved_state(tmp_path, config).trainable
        before = teams.build_team(config).members[0].trainable
        learners = [agent_settings.trainable(config, agent) for agent in config.team.agents]
        for n in np.flatnonzero(learners):
            pairs = zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True)
            assert any((new[n] != old[n]).any() for new, old in pairs)
        actions = [transcripts.read(tmp_path, step) for step in transcripts.steps(tmp_path)]
        rows = [batch.rows for _, batch in seen.batches]
        learned = [row.advantages_MS[row.lengths_MS > 0] for row in rows]
        return Trained(seen.forests, actions, smoke_runs.rows(tmp_path), learned)

    return run


@pytest.mark.parametrize("name, fields", VARIANTS)
def test_every_system_has_something_to_learn_from(trained, name, fields):
    actual = trained(name, fields)
    for actions in actual.actions:
        assert len({action.total for action in actions}) > 1  # returns differ
    collects = name in ("madpo", "dpo", "malt", "sweet", "marlhf")  # in the first iteration
    agents = system_configs.get_config(f"{name},smoke").team.agents
    learns = [any(f"{agent}/loss" in row for agent in agents) for row in actual.rows]
    stages = {"malt": [False, True, True], "sweet": [False, False, True]}  # of which the second is the critic's
    assert learns == stages.get(name, [not collects, True])
    some = [np.abs(learned).max() > 0 for learned in actual.advantages]
    assert any(some) if name == "mutual" else some and all(some)  # all episodes of a batch of later turns may fail
    last = actual.rows[-1]
    if name == "malt":  # it draws, it imitates, it prefers
        assert last["refiner/dpo_loss"] == pytest.approx(np.log(2), rel=1e-3)  # at the reference itself
        assert actual.rows[1]["generator/sft_loss"] == pytest.approx(actual.rows[1]["generator/loss"], rel=0.01)
    if name == "sweet":
        assert actual.rows[1]["sweet/critic_loss"] == pytest.approx(np.log(2), rel=0.1)  # it begins as its reference
        assert last["actor/dpo_loss"] == pytest.approx(np.log(2), rel=1e-3) and last["actor/nll"] > 0
        assert not any(name.startswith("partner/") and name.endswith("/loss") for row in actual.rows for name in row)
    if name.startswith(("madpo", "dpo", "marlhf")):
        assert last["preference/pairs"] > 0
        assert last.get("madpo/loss", last.get("main/dpo_loss", 0)) > 0 or 0 <= last["reward_model/accuracy"] <= 1
    if name in ("iac", "maac"):
        critics = ("team",) if name == "maac" else ("aux", "main")
        for row in actual.rows:
            assert all(row[f"{critic}/critic_grad_norm"] > 0 for critic in critics)
    if name == "ccpo":
        assert {"aux/marginal", "main/free_rider"} <= set(last)
    for actions in actual.actions:
        as_promised(name, actions)
    if name == "mareinforce":
        for forest, actions in zip(actual.forests, actual.actions, strict=True):
            for other in SAME_ROLLOUTS:
                as_promised(other, with_advantages_of(other, forest, actions))


def with_advantages_of(name, forest, actions):
    """The transcripts of a forest, had a system that differs in its credit alone learned from it."""
    config = system_configs.get_config(f"{name},smoke")
    validate(config)
    advantages = systems.from_forest(config)(forest).advantages
    assert np.abs(advantages).max() > 0

    def records_of(action, joint):
        rows = zip(action.agents.items(), joint.turns, strict=True)
        return {a: dataclasses.replace(record, advantage=float(advantages[t])) for (a, record), t in rows}

    pairs = zip(actions, forest.joints, strict=True)
    return [dataclasses.replace(action, agents=records_of(action, joint)) for action, joint in pairs]


def as_promised(name, actions):
    """The advantages of one iteration, of two samples each, from the totals alone."""
    if name in ("mareinforce", "marloo", "maremax", "dr_mas", "centralised"):
        for agent in actions[0].agents:
            actual = pairs(actions, agent) if name == "centralised" else over_partners(actions, agent)
            total, advantage = np.moveaxis(actual, -1, 0)
            wanted = {
                "mareinforce": total,
                "marloo": total - total[:, ::-1],  # of two, the mean of the others is the other
                "maremax": total - total.max(1, keepdims=True),
            }.get(name, total - total.mean(1, keepdims=True))
            if name == "dr_mas":
                wanted = wanted / (wanted.std() or 1.0)  # where all returns are equal, nobody learns
            np.testing.assert_allclose(advantage, wanted, rtol=1e-4, atol=1e-6)
    elif name == "at_grpo":  # goes on from the best, and each turn is a matter of its own
        assert [a.turn for a in actions] == [0] * 4 + [1] * 4
        best = [i + int(actions[i].total < actions[i + 1].total) for i in (0, 2)]
        assert [a.follows for a in actions[4:]] == [i for i in best for _ in range(2)]
        actual = pairs(actions, "main")
        sign = np.sign(actual[:, 0, 0] - actual[:, 1, 0])
        np.testing.assert_allclose(actual[..., 1], np.stack([sign, -sign], 1), atol=1e-4)
    elif name == "mlpo":  # eight answers of the leader after one answer of each peer, in two nodes
        peers = [tuple(record.completion for record in list(action.agents.values())[:3]) for action in actions]
        assert len(actions) == 16 and [len(set(peers[n : n + 8])) for n in (0, 8)] == [1, 1]
        total, advantage = np.array([(a.total, a.agents["leader"].advantage) for a in actions]).reshape(2, 8, 2).T
        np.testing.assert_allclose(advantage, total - total.mean(0), atol=1e-6)
        assert not any(a.agents[peer].advantage for a in actions for peer in list(a.agents)[:3])
    elif name == "c3":  # compares continuations of one answer
        assert len(actions) == 2 * 4
        mains, helpers = pairs(actions, "main"), pairs(actions, "aux")
        gap = mains[:, 0, 0] - mains[:, 1, 0]
        np.testing.assert_allclose(mains[..., 1], np.stack([gap, -gap], 1), rtol=1e-4, atol=1e-6)
        means = helpers[..., 0].mean(1).reshape(2, 2)  # of the two mains after each helper
        assert (helpers[:, 0, 1] == helpers[:, 1, 1]).all()
        advantages = helpers[:, 0, 1].reshape(2, 2)
        np.testing.assert_allclose(advantages, means - means[:, ::-1], rtol=1e-4, atol=1e-6)


def over_partners(actions, agent):
    """(mean total, advantage) of the two samples of every node whose four combinations were judged."""
    records_with_totals = [(action.agents[agent], action.total) for action in actions]
    rows = np.array([(s.sample, total, s.advantage) for s, total in records_with_totals]).reshape(-1, 4, 3)
    return np.stack([rows[rows[..., 0] == g].reshape(-1, 2, 3).mean(1) for g in (0, 1)], 1)[..., 1:]


def pairs(actions, agent):
    """(total, advantage) of the two samples of every node, [nodes, 2, 2]."""
    actual = [(action.total, action.agents[agent].advantage) for action in actions]
    return np.array(actual).reshape(-1, 2, 2)
