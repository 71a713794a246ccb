"""Each published system trains the smoke team for two iterations, with the advantages that it promises."""

import jax
import numpy as np
import pytest
import smoke_runs
from method_runs import SMALL, watched

from configs import systems as system_configs
from experiments import closing, setup, train
from jaxmarl_llm import transcripts

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("compiled_fast")]  # the model for its tokenizer


@pytest.fixture(autouse=True)
def no_evaluation(monkeypatch):
    monkeypatch.setattr(closing, "finish", lambda run: run.save(run.done))


def trained(name, folder, monkeypatch, fields=None):
    """Forests, transcripts and metrics of two iterations; every agent has moved."""
    seen = watched(monkeypatch)
    config = system_configs.get_config(f"{name},smoke")
    config.update_from_flattened_dict(SMALL | {"train.steps": 2} | (fields or {}))
    train.train(config, folder)
    assert len(seen.forests) == 2
    after = smoke_runs.saved_state(folder, config).trainable
    before = setup.build_team(config).members[0].trainable
    for n in range(len(config.team.agents)):
        pairs = zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True)
        assert any((new[n] != old[n]).any() for new, old in pairs)
    return seen.forests, [transcripts.read(folder, step) for step in (0, 1)], smoke_runs.rows(folder)


def pairs(actions, agent):
    """(total, advantage) of the two samples of every node, [nodes, 2, 2]."""
    found = [(action.total, action.agents[agent].advantage) for action in actions]
    return np.array(found).reshape(-1, 2, 2)


@pytest.mark.parametrize("name", ["mareinforce", "marloo", "maremax", "dr_mas"])
def test_the_family(tmp_path, monkeypatch, name):
    _, both, rows = trained(name, tmp_path, monkeypatch)
    for actions in both:
        for agent in ("aux", "main"):
            found = pairs(actions, agent)
            total, advantage = found[..., 0], found[..., 1]
            wanted = {
                "mareinforce": total,
                "marloo": total - total[:, ::-1],  # of two, the mean of the others is the other
                "maremax": total - total.max(1, keepdims=True),
                "dr_mas": total - total.mean(1, keepdims=True),
            }[name]
            if name == "dr_mas":
                wanted = wanted / wanted.std()
            np.testing.assert_allclose(advantage, wanted, rtol=1e-4, atol=1e-3)
    assert [row["step"] for row in rows if "aux/loss" in row] == [0, 1]


def test_at_grpo_goes_on_from_the_best_and_ends_at_the_turn(tmp_path, monkeypatch):
    _, both, _ = trained("at_grpo", tmp_path, monkeypatch, {"train.group": 2, "task.feedback": "plain"})
    for actions in both:
        assert [a.turn for a in actions] == [0] * 4 + [1] * 4
        best = [i + int(actions[i].total < actions[i + 1].total) for i in (0, 2)]
        assert [a.follows for a in actions[4:]] == [i for i in best for _ in range(2)]
        found = pairs(actions, "main")
        sign = np.sign(found[:, 0, 0] - found[:, 1, 0])
        np.testing.assert_allclose(found[..., 1], np.stack([sign, -sign], 1), atol=1e-5)


def test_c3_compares_continuations_of_one_answer(tmp_path, monkeypatch):
    forests, both, _ = trained("c3", tmp_path, monkeypatch, {"train.group": 2})
    for forest, actions in zip(forests, both, strict=True):
        assert len(forest.turns) == 2 * (2 + 4) and len(actions) == 2 * 4
        mains, helpers = pairs(actions, "main"), pairs(actions, "aux")
        gap = mains[:, 0, 0] - mains[:, 1, 0]
        np.testing.assert_allclose(mains[..., 1], np.stack([gap, -gap], 1), rtol=1e-4, atol=1e-3)
        means = helpers[..., 0].mean(1).reshape(2, 2)  # of the two mains after each helper
        assert (helpers[:, 0, 1] == helpers[:, 1, 1]).all()
        advantages = helpers[:, 0, 1].reshape(2, 2)
        np.testing.assert_allclose(advantages, means - means[:, ::-1], rtol=1e-4, atol=1e-3)


def test_centralised(tmp_path, monkeypatch):
    _, both, _ = trained("centralised", tmp_path, monkeypatch)
    for actions in both:
        found = pairs(actions, "team")
        wanted = found[..., 0] - found[..., 0].mean(1, keepdims=True)
        np.testing.assert_allclose(found[..., 1], wanted, atol=1e-3)
