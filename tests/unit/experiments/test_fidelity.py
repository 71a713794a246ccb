"""experiments/fidelity.py and audit/fidelity.py: advantages against rewards beside partners drawn anew."""

import json

import numpy as np
import pytest
from text_rewards import apart, noise

from configs import game
from experiments import fidelity
from jaxmarl_llm import credit
from jaxmarl_llm.analysis.audit import fidelity as audit
from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.tasks.judgement import Judgement

NOTHING = np.zeros(1, np.int32)
NAN = np.nan


class Scorer:
    """Judges texts with a function of them, and counts."""

    agents = ("a", "b")

    def __init__(self, reward):
        self.reward, self.asked = reward, 0

    def judge_texts(self, items, completions):
        self.asked += len(items)
        return [Judgement({}, total) for total in self.reward(completions)]


def turns(items, samples, text_of):
    """``samples`` turns of a and b for each item, with texts ``text_of(agent, item, sample)``."""
    places = [(item, agent) for item in range(items) for agent in "ab"]
    spoken = NOTHING, NOTHING, NOTHING * 0.0
    return [
        Turn(samples * n + g, n, agent, item, 0, g, *spoken, text_of(agent, item, g), True)
        for n, (item, agent) in enumerate(places)
        for g in range(samples)
    ]


def forest(items, samples, text_of, reward, cross=False):
    """All of them judged, aligned or all pairs."""
    made, joints = turns(items, samples, text_of), []
    pairs = [(g, h) for g in range(samples) for h in range(samples) if cross or g == h]
    for item in range(items):
        first = 2 * samples * item
        for g, h in pairs:
            ids = (first + g, first + samples + h)
            total = reward({turn.agent: [turn.text] for turn in (made[i] for i in ids)})[0]
            joints.append(Joint(item, ids, Judgement({}, total), node=item))
    return Forest((None,) * items, tuple(made), tuple(joints))


def test_rewards_beside_fresh_partners_by_hand():
    worth = {"x": 1.0, "y": 4.0, "u": 10.0, "v": 20.0, "w": 40.0}

    def product(completions):
        return [worth[p] * worth[q] for p, q in zip(*completions.values(), strict=True)]

    made = forest(1, 2, lambda agent, item, g: {"a": "xy", "b": "uv"}[agent][g], product)
    fresh = turns(1, 3, lambda agent, item, k: {"a": "xyx", "b": "wuw"}[agent][k])
    scorer = Scorer(product)
    rewards_RK, judged = audit.partner_rewards(made, fresh, scorer)
    # x and y beside w, u, w; u and v beside x, y, x
    assert rewards_RK.tolist() == [[40, 10, 40], [160, 40, 160], [10, 40, 10], [20, 80, 20]]
    # xw, xu, yw, yu; xu again, and yu again; xv, yv
    assert judged == scorer.asked == 6
    # Aligned, x earned 10 beside u, y 80 beside v; a's y is worth more, and so is b's v.
    (a, b, both) = audit.by_agent(made, *assign(made), rewards_RK)
    assert (a.agent, b.agent, both.agent) == ("a", "b", "all")
    assert [row.fidelity for row in (a, b, both)] == [1, 1, 1] and both.repeats == 1
    assert [row.groups for row in (a, b, both)] == [1, 1, 2]
    assert [row.variance for row in (a, b, both)] == [35.0**2] * 3  # advantages -35, 35
    flipped = audit.by_agent(made, np.array([35.0, -35, -35, 35]), assign(made)[1], rewards_RK)
    assert [row.fidelity for row in flipped] == [-1, 1, 0]


def assign(made):
    actual = magrpo.assign(made)
    return actual.advantages, actual.groups


def test_what_has_no_order_or_no_reward_says_nothing():
    rewards_RK = np.array([[1.0, 1.0], [1.0, 1.0], [NAN, NAN], [2.0, NAN]], np.float32)
    made = forest(1, 2, lambda *place: "", noise)
    a, b, both = audit.by_agent(made, np.array([1.0, -1, 1, -1]), np.array([0, 0, 1, 1]), rewards_RK)
    assert all(np.isnan(row.fidelity) and np.isnan(row.repeats) for row in (a, b, both))
    assert (a.groups, both.groups, both.variance) == (0, 0, 1.0)


def test_rank_correlations_of_groups_of_any_size_are_those_of_credit():
    random = np.random.default_rng(0)
    groups_R = random.integers(-1, 6, 40)
    x_R, y_R = random.integers(0, 5, (2, 40)).astype(np.float32)
    y_R[::7] = NAN
    known_R = np.where(np.isnan(y_R), -1, groups_R)
    wanted = credit.rank_correlation(x_R, np.nan_to_num(y_R), known_R, num_groups=6)
    np.testing.assert_allclose(audit.rank_correlations(x_R, y_R, groups_R, 6), wanted, rtol=1e-5)


@pytest.mark.parametrize("cross", [False, True])
def test_noise_has_no_fidelity_and_parts_of_ones_own_have_all(cross):
    """200 items, 4 samples, 8 fresh partners: the mean of 400 correlations of 4 is within 0.1 by chance."""
    actual = {}
    for reward in (noise, apart):
        made = forest(200, 4, lambda *place: f"recorded {place}", reward, cross)
        fresh = turns(200, 8, lambda *place: f"fresh {place}")
        rewards_RK, _ = audit.partner_rewards(made, fresh, Scorer(reward))
        actual[reward] = audit.by_agent(made, *assign(made), rewards_RK)[-1]
    assert abs(actual[noise].fidelity) < 0.1 and abs(actual[noise].repeats) < 0.1
    assert actual[apart].repeats > 0.999 and actual[apart].groups == 400
    # All pairs: the partners' mean is the same for all samples of a group, and ranks stay. Aligned, the
    # partner's part is half of what one sees.
    assert actual[apart].fidelity > 0.999 if cross else 0.4 < actual[apart].fidelity < 0.9


@pytest.mark.parametrize("fields, text", [
    ({"train.protocol": "pipeline"}, "train.protocol='pipeline', train.turns=1: what follows a completion"),
    ({"train.turns": 2}, "train.turns=2: what follows a completion would have to be said again too"),
    ({"team.agents": ("first",)}, "there is no partner to draw again"),
    ({"train.system": "madpo"}, "train.system='madpo': learns from pairs"),
    ({"train.redraw": 2}, "train.redraw=2: its problems come of several draws"),
    ({"tools.functions": ("my.tool",)}, "tools: fresh partners would answer without calls"),
    ({"train.overlap": True}, "train.overlap=True: partners of the iteration were drawn from older"),
])  # fmt: skip
def test_what_cannot_be_measured(fields, text):
    config = game.get_config()
    config.update_from_flattened_dict(fields)
    assert text in fidelity.refusals(config)[0]
    assert fidelity.refusals(game.get_config()) == []


def test_too_few_partners_and_no_run(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        fidelity.measure(tmp_path)
    smoke = game.get_config()
    (tmp_path / "config.json").write_text(json.dumps(smoke.to_dict()))
    with pytest.raises(ValueError, match="--partners=1: allowed are 2 and more"):
        fidelity.measure(tmp_path, partners=1)
    smoke.train.update(system="iac", steps=3)
    smoke.critic.warmup = 2
    (tmp_path / "config.json").write_text(json.dumps(smoke.to_dict()))
    with pytest.raises(ValueError, match="nobody learned in it"):
        fidelity.measure(tmp_path, 1)


def test_a_table_without_anything_to_rank_says_so(capsys):
    rows = [audit.Fidelity("first", NAN, NAN, 0, 0.0), audit.Fidelity("second", 0.5, NAN, 3, 0.1)]
    fidelity.show(fidelity.Measured(1, 12, rows))
    shown = capsys.readouterr().out
    assert "nan" not in shown and shown.split().count("none") == 3
    assert "none: there is nothing to rank, in every group the values of one side are all equal" in shown
    fidelity.show(fidelity.Measured(1, 12, [audit.Fidelity("first", 0.5, 0.25, 3, 0.1)]))
    assert "none" not in capsys.readouterr().out
