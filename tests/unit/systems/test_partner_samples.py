"""train.partner_samples: further samples of partners, judged and not learned from, by hand and exactly."""

import dataclasses
import itertools
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import tiny

from configs import game
from jaxmarl_llm import rollout
from jaxmarl_llm.config import validate, workload
from jaxmarl_llm.forest import Forest, Joint, Turn, joint_samples, metrics
from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.update import LossConfig, collate

PAYOFF = np.array([[3.0, -1.0], [0.0, 2.0]])  # of the actions of a and b
CHOICES = np.array([[0.3, 0.7], [0.6, 0.4]])  # probability of each action, of a and of b


def turn(i, agent, item, g, extra):
    ids, nothing = np.arange(1), np.zeros(1, np.float32)
    return Turn(i, i, agent, item, 0, g, ids, ids, nothing, "", True, extra=extra)


def forest(mode, tables, group, extra, agents="ab"):
    """Items of one node each; tables[item][g, ..] is the reward of the agents' samples g, ..."""
    turns, joints = [], []
    for item, rewards in enumerate(tables):
        first = {}
        for agent in agents:
            first[agent] = len(turns)
            turns += [turn(len(turns) + g, agent, item, g, g >= group) for g in range(group + extra)]
        for combination in joint_samples(mode, len(agents), group, extra):
            ids = tuple(first[agent] + g for agent, g in zip(agents, combination, strict=True))
            judged = SimpleNamespace(total=float(rewards[combination]))
            joints.append(Joint(item, ids, judged, node=item))
    return Forest(tuple(map(str, range(len(tables)))), tuple(turns), tuple(joints))


def test_which_joint_answers_are_judged():
    assert joint_samples("cross", 2, 2, 0) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert sorted(joint_samples("cross", 2, 2, 1)) == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1),
    ]  # fmt: skip
    assert joint_samples("aligned", 2, 2, 1) == [(0, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1)]
    assert joint_samples("aligned", 3, 1, 2)[1:] == [
        (0, 1, 1), (0, 2, 2), (1, 0, 1), (2, 0, 2), (1, 1, 0), (2, 2, 0),
    ]  # fmt: skip
    c = game.get_config()
    for mode, agents, group, extra in itertools.product(("aligned", "cross"), (2, 3), (2, 3), (0, 1, 2)):
        result = joint_samples(mode, agents, group, extra)
        assert len(result) == len(set(result))
        c.team.agents, c.train.joint_mode = tuple("xyz"[:agents]), mode
        c.train.group, c.train.partner_samples = group, extra
        assert workload.answers_per_node(c) == len(result)
    c.train.group, c.train.partner_samples, c.team.agents = 8, 4, ("x", "y")
    assert workload.answers_per_node(c) == 8 * 8 + 2 * 8 * 4
    assert workload.completions(c) == c.train.prompts * 2 * (8 + 4)


def test_returns_by_hand():
    """Two samples of each agent to learn from and one more; rows are a's samples, columns b's."""
    table = np.array([[1.0, 4.0, 7.0], [2.0, 0.0, 1.0], [6.0, 2.0, np.nan]])  # the last is never judged
    cross = forest("cross", [table], 2, 1)
    assert magrpo.returns(cross).tolist()[:2] == [4.0, 1.0]  # (1 + 4 + 7) / 3, (2 + 0 + 1) / 3
    assert magrpo.returns(cross).tolist()[3:5] == [3.0, 2.0]  # (1 + 2 + 6) / 3, (4 + 0 + 2) / 3
    aligned = forest("aligned", [table], 2, 1)
    assert magrpo.returns(aligned).tolist()[:2] == [4.0, 0.5]  # (1 + 7) / 2, (0 + 1) / 2
    assert magrpo.returns(aligned).tolist()[3:5] == [3.5, 1.0]  # (1 + 6) / 2, (0 + 2) / 2
    for made in (cross, aligned):
        credit = magrpo.assign(made)
        assert np.isnan(credit.returns[[2, 5]]).all() and credit.groups.tolist() == [0, 0, -1, 1, 1, -1]
        assert credit.advantages[[2, 5]].tolist() == [0.0, 0.0]
        assert credit.advantages[:2].sum() == credit.advantages[3:5].sum() == 0
        # What is logged is of the samples that are learned, as without further ones.
        learned = Credit(made.without_extra(), credit.advantages, credit.returns, credit.groups)
        assert credit.metrics() == learned.metrics() and credit.metrics()["a/return_variance"] > 0
    assert {tuple(joint.turns) for joint in cross.without_extra().joints} == {(0, 3), (0, 4), (1, 3), (1, 4)}
    assert metrics.reward_tables(cross.without_extra())[1].tolist() == [[[1, 4], [2, 0]]]


def test_cross_returns_are_normalised_by_the_agents_own_group():
    """Each agent's G returns, less their mean, over their own standard deviation."""
    tables = np.random.default_rng(0).normal(size=(3, 5, 5))
    made = forest("cross", tables, 3, 2)
    result = magrpo.advantages(made, CreditConfig(normalise=True, normalise_by="group"))
    for item, table in enumerate(tables):
        for n, own in enumerate((table[:3].mean(1), table[:, :3].mean(0))):
            first = 10 * item + 5 * n
            expected = (own - own.mean()) / own.std()
            np.testing.assert_allclose(result[first : first + 3], expected, rtol=1e-4, atol=1e-5)
            assert result[first + 3 : first + 5].tolist() == [0, 0]


def moments(mode, group, extra):
    """Mean and variance of the gradient with respect to the logits of a and b, (2, 2) each, exactly.

    Every possible outcome of the draws of both agents is an item of one forest, weighed by its probability.
    """
    size = group + extra
    outcomes = list(itertools.product(range(2), repeat=2 * size))
    actions = np.array(outcomes).reshape(-1, 2, size)  # outcome, agent, sample
    tables = [PAYOFF[np.ix_(a, b)] for a, b in actions]
    chance = np.prod([CHOICES[n][actions[:, n]].prod(1) for n in range(2)], axis=0)
    advantages = magrpo.advantages(forest(mode, tables, group, extra)).reshape(-1, 2, size)
    assert (advantages[:, :, group:] == 0).all()
    scores = np.eye(2)[actions] - CHOICES[None, :, None]  # gradient of log pi(action), by logit
    gradients = (advantages[..., None] * scores).sum(2) / group
    mean = (chance[:, None, None] * gradients).sum(0)
    return mean, (chance[:, None, None] * (gradients - mean) ** 2).sum(0)


def true_gradient():
    """Of the expected payoff, with respect to each agent's logits."""
    a, b = CHOICES
    values = PAYOFF @ b, PAYOFF.T @ a
    return np.stack([p * (q - p @ q) for p, q in zip(CHOICES, values, strict=True)])


@pytest.mark.parametrize("mode", ["aligned", "cross"])
def test_the_gradient_is_the_true_one_and_varies_less_with_more_partners(mode):
    result = [moments(mode, 2, extra) for extra in range(3)]
    for mean, _ in result:
        np.testing.assert_allclose(mean, true_gradient() / 2, atol=1e-6)  # (G - 1) / G of it
    variances = np.array([variance.sum(-1) for _, variance in result])  # by K and agent
    assert (np.diff(variances, axis=0) < -1e-3).all()


def test_a_rollout_draws_them_and_the_update_leaves_them_out():
    task = tiny.Task(lambda item, a, b: float(len(a) > len(b)))
    team = Team((Member(tiny.stack(), tiny.params(), tiny.lora(), tiny.Tokenizer(), "m"),))
    scorer = TaskScorer(task, dict.fromkeys("ab", tiny.Tokenizer()), "cross", extra=1)
    inputs = team, [tiny.lora()], scorer, [0, 1], jax.random.key(2)
    protocol = Simultaneous(task.prompts, 2, extra=1)
    result = rollout.run(protocol, *inputs, params=SamplingParams(4), max_prompt_tokens=20)
    assert [t.extra for t in result.turns] == [False, False, True] * 4
    assert len(result.joints) == 2 * (9 - 1) and len(result.without_extra().joints) == 2 * 4
    assert all(any(not result.turns[i].extra for i in joint.turns) for joint in result.joints)
    (batch,) = collate.collate(result, np.arange(12.0), tiny.stack(), 4)
    assert batch.tokens_NRL.shape == (2, 2 * 2, 4) and 2.0 not in batch.advantages_NR
    first = [t for t in result.turns if t.agent == "a" and not t.extra]
    for row, own in enumerate(first):
        assert batch.tokens_NRL[0, row, : len(own.completion)].tolist() == own.completion.tolist()
    assert LossConfig(SamplingParams(4)).pack(batch).lengths_NR.shape == (2, 4)
    assert metrics.tokens(result) == sum(len(t.completion) for t in result.turns)  # what was drawn
    drawn = np.concatenate([t.logprobs for t in first])
    logged = metrics.length_metrics(result)
    assert logged["a/sampled_entropy"] == pytest.approx(-drawn.mean(), rel=1e-6)
    assert logged["a/completion_length"] == np.mean([len(t.completion) for t in first])


def test_the_logged_entropy_is_that_of_the_sampling_distribution():
    """Drawn often enough from known probabilities, -log p is their entropy on average."""
    probabilities, random = np.array([0.7, 0.2, 0.1]), np.random.default_rng(1)
    tokens = random.choice(3, size=(400, 10), p=probabilities)
    base = turn(0, "a", 0, 0, False)
    logs = np.log(probabilities)
    turns = [dataclasses.replace(base, completion=row, logprobs=logs[row]) for row in tokens]
    remote = dataclasses.replace(base, agent="b", cost=(1, 1))
    result = metrics.length_metrics(Forest(("x",), (*turns, remote), ()))
    entropy = -(probabilities * np.log(probabilities)).sum()
    assert result["a/sampled_entropy"] == pytest.approx(entropy, abs=0.03)
    assert "b/sampled_entropy" not in result


@pytest.mark.parametrize("fields, message", [
    ({"train.partner_samples": -1}, r"train\.partner_samples=-1: allowed is 0 to any larger number"),
    ({"train.turns": 2}, r"partner_samples=2: needs one turn of train\.protocol='simultaneous', they"),
    ({"train.protocol": "pipeline"}, r"partner_samples=2: needs one turn .* train\.turns=1 and 'pipeline'"),
    ({"train.system": "maac"}, r"partner_samples=2: train\.system='maac' does not average over partners"),
    ({"train.counterfactual": "nothing"}, r"partner_samples=2: does not go with train\.counterfactual"),
])  # fmt: skip
def test_what_they_do_not_go_with(fields, message):
    c = game.get_config()
    c.train.partner_samples = 2
    validate(c)
    c.update_from_flattened_dict(fields)
    with pytest.raises(ValueError, match=message):
        validate(c)


def test_they_are_for_one_turn_and_need_a_partner():
    with pytest.raises(ValueError, match="extra=1: with turns=2 their answers would be handed on"):
        Simultaneous(lambda item: {}, 2, 2, lambda answers: [], extra=1)
    c = game.get_config()
    c.team.agents, c.train.partner_samples = ("first",), 1
    with pytest.raises(ValueError, match=r"partner_samples=1: team\.agents=\('first',\) has no partners"):
        validate(c)
