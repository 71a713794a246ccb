"""Real runs with counterfactual answers: what they are worth by hand, in transcripts and metrics."""

import zlib

import numpy as np
import pytest
import smoke_runs
from method_runs import EASY, SMALL, trained, watched

from configs import systems as system_configs
from experiments import rescore, train
from jaxmarl_llm import transcripts
from jaxmarl_llm.config import workload
from jaxmarl_llm.runs import plan_table, training_loop

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("programs_shared")]  # the model for its tokenizer
AGENTS = ("aux", "main")


@pytest.fixture(autouse=True)
def no_evaluation(monkeypatch):
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))


def code(text):
    """An agent's part of the reward of `method_runs.codes`: 0 of nothing."""
    return zlib.crc32(text.encode()) % 499


def of(actions, agent, name):
    """The agent's number in every joint answer, by problem and sample, [2, 2]."""
    return np.array([getattr(action.agents[agent], name) for action in actions]).reshape(2, 2)


def codes_of(actions, agent):
    return np.array([code(action.agents[agent].completion) for action in actions]).reshape(2, 2)


@pytest.mark.parametrize("kind", ["nothing", "sample", "solo"])
def test_what_each_part_was_worth(tmp_path, monkeypatch, kind):
    protocol = "pipeline" if kind == "solo" else "simultaneous"
    seen = watched(monkeypatch)
    row, actions = trained(seen, tmp_path, {"train.counterfactual": kind, "train.protocol": protocol})
    for agent in AGENTS:
        own = codes_of(actions, agent)
        wanted = {"nothing": own, "sample": own - own[:, ::-1], "solo": own}[kind]
        if kind == "solo" and agent == "aux":
            alone = [code(turn.text) for turn in seen.forests[1].turns]  # main, who has not heard aux
            assert {turn.agent for turn in seen.forests[1].turns} == {"main"}
            wanted = own + codes_of(actions, "main") - np.reshape(alone, (2, 2)).mean(1, keepdims=True)
        np.testing.assert_allclose(of(actions, agent, "marginal"), wanted, atol=1e-3)
        rates = {f"{agent}/free_rider", f"{agent}/dominance"} & set(row)
        if kind == "sample":  # its own other sample says nothing of how much it is needed
            assert not rates and f"{agent}/marginal" not in row
            continue
        assert row[f"{agent}/marginal"] == pytest.approx(wanted.mean(), abs=1e-3)
        assert bool(rates) == (kind == "nothing")  # of solo only means over conversations are known
        if rates:
            assert row[f"{agent}/free_rider"] == pytest.approx((wanted <= 1e-5).mean())
            assert 0 <= row[f"{agent}/dominance"] <= 1


def test_ccpo_learns_from_it_and_is_rescored_without_its_credit(tmp_path, monkeypatch):
    seen = watched(monkeypatch)
    config = system_configs.get_config("ccpo,smoke")
    config.update_from_flattened_dict(SMALL | {"train.steps": 2})
    train.train(config, tmp_path)
    # The rollout, then one greedy completion per agent and problem.
    assert [len(forest.turns) for forest in seen.forests] == [8, 4] * 2
    for step in (0, 1):
        actions = transcripts.read(tmp_path, step)
        references = {(t.agent, t.item): code(t.text) for t in seen.forests[2 * step + 1].turns}
        for agent in AGENTS:
            marginal = of(actions, agent, "marginal")
            instead = np.array([[references[agent, item]] for item in (0, 1)])
            np.testing.assert_allclose(marginal, codes_of(actions, agent) - instead, atol=1e-3)
            wanted = marginal - marginal.mean(1, keepdims=True)
            np.testing.assert_allclose(of(actions, agent, "advantage"), wanted, atol=1e-3)
    assert {action.item == EASY for action in actions} == {False, True}
    rows = [row for row in smoke_runs.rows(tmp_path) if "aux/loss" in row]
    assert all(abs(row["aux/ratio0"] - 1) < 1e-4 for row in rows)
    actual = rescore.rescore(tmp_path)
    assert actual.missing.startswith("train.system='ccpo': what answers earn without a part")
    np.testing.assert_array_equal(actual.before, actual.after)  # judged as before


def test_the_plan_counts_them():
    config = system_configs.get_config("ccpo")
    c = config.train
    c.prompts, c.group = 3, 4
    # 3 problems, 4 joint answers, each without one of 2 agents; 2 greedy answers per problem
    assert workload.counterfactual_answers(config) == 24
    assert workload.completions(config) == 2 * 3 * 4 + 2 * 3
    c.joint_mode, c.counterfactual = "cross", "nothing"
    assert workload.counterfactual_answers(config) == 24  # of 48 joint answers: 4 partners alone
    assert workload.completions(config) == 24
    c.joint_mode, c.protocol, c.counterfactual = "aligned", "pipeline", "solo"
    assert workload.completions(config) == 24 + 3 * 4  # the solver alone
    c.protocol = "discussion"
    assert workload.completions(config) == 48 + 2 * 2 * 3 * 4  # each alone, in both rounds
    assert plan_table._counterfactuals(config) == [
        ("without an agent's part (solo)", "up to 24 more, 48 completions drawn for them")
    ]
    c.counterfactual = ""
    assert workload.counterfactual_answers(config) == 0 and plan_table._counterfactuals(config) == []
