"""A router learns by PPO: decisions of known worth, episodes apart, and what is saved."""

import jax
import numpy as np
import optax
import pytest
from flax import serialization

from jaxmarl_llm import credit
from jaxmarl_llm.checkpoint import DamagedError
from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.memory import ngrams
from jaxmarl_llm.protocols.routed import Place
from jaxmarl_llm.systems.der import Decisions, Der
from jaxmarl_llm.systems.router import Ppo, Router
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.utils.errors import UserError

AGENTS = ("a", "b")


def router(turns=2, seed=0, lr=0.01, **ppo):
    return Router(AGENTS, turns, ngrams, jax.random.key(seed), 16, optax.adam(lr), Ppo(**ppo))


def test_at_first_all_agents_are_equally_likely_and_nobody_stops_before_an_answer():
    made = router()
    logprobs_XA, values_X = made.values([Place("left?"), Place("left?", "yes", "a", 1)])
    np.testing.assert_allclose(np.exp(logprobs_XA), [[0.5, 0.5, 0.0], [1 / 3] * 3], atol=1e-6)
    assert values_X.tolist() == [0.0, 0.0]
    random = np.random.default_rng(0)
    drawn = made([Place("left?")] * 200 + [Place("left?", "yes", "a", 1)] * 300, random)
    assert {*drawn[:200]} == {"a", "b"} and {*drawn[200:]} == {"a", "b", None}
    shares = [drawn[200:].count(agent) / 300 for agent in ("a", "b", None)]
    assert all(abs(share - 1 / 3) < 0.1 for share in shares)
    assert made([Place("left?")] * 3) == made([Place("left?")]) * 3  # without chance always the likeliest


def test_a_bandit_of_two_questions_finds_its_optimum():
    """left? is for a, right? for b: the other one earns 0."""
    made, random = router(turns=1, entropy=0.0), np.random.default_rng(1)
    best = {"left?": "a", "right?": "b"}
    for _ in range(60):
        places = [Place(question) for question in best for _ in range(8)]
        chosen = made(places, random)
        right = [float(best[place.question] == agent) for place, agent in zip(places, chosen, strict=True)]
        rewards = np.array(right, np.float32)[:, None]
        made_decisions = Decisions(places, chosen, rewards, np.ones(len(places), np.int32))
        Der(made, str, 1).learn(Credit(None, None, None, None, made_decisions))
    assert made([Place(question) for question in best]) == list(best.values())
    logprobs_XA, values_X = made.values([Place(question) for question in best])
    assert np.exp(logprobs_XA).max(1).min() > 0.9
    np.testing.assert_allclose(values_X, 1.0, atol=0.25)


def test_returns_never_cross_episodes(monkeypatch):
    """Advantages of a batch are those of each route alone, by hand with gamma = lambda = .5 and V = 0."""
    made = router(turns=3)
    seen = {}
    monkeypatch.setattr(made, "learn", lambda places, actions, advantages, targets, behaviour: seen.update(
        targets=targets, actions=actions, behaviour=behaviour) or {})  # fmt: skip
    places = [Place("p?"), Place("p?", "1", "a", 1), Place("q?"), Place("q?", "2", "b", 1), Place("q?", "2", "a", 2)]
    rewards = np.array([[-0.1, 1.0, 0.0], [0.5, 0.25, 4.0]], np.float32)
    decisions = Decisions(places, ["a", None, "b", "a", None], rewards, np.array([2, 3], np.int32))
    Der(made, str, 3, discount=0.5, lam=0.5).learn(Credit(None, None, None, None, decisions))
    # A_t = r_t + .25 A_(t+1), V = 0.
    wanted = [-0.1 + 0.25, 1.0, 0.5 + 0.25 * (0.25 + 0.25 * 4.0), 0.25 + 0.25 * 4.0, 4.0]
    np.testing.assert_allclose(seen["targets"], wanted, rtol=1e-5)
    assert seen["actions"].tolist() == [0, 2, 1, 0, 2]
    np.testing.assert_allclose(np.exp(seen["behaviour"]), [0.5, 1 / 3, 0.5, 1 / 3, 1 / 3], rtol=1e-5)
    alone = credit.gae(rewards[1:], np.zeros((1, 3)), np.array([3]), gamma=0.5, lam=0.5)
    np.testing.assert_allclose(seen["targets"][2:], alone[0], rtol=1e-5)


def test_an_iteration_without_any_reward_leaves_the_router_as_it_is():
    """The optimizer too: its moments would move the network."""
    made, places = router(), [Place("left?"), Place("left?", "yes", "a", 1)]
    made.learn(places, np.array([0, 2]), *np.array([[1, 1], [1, 1], [-1, -1]], np.float32))
    before = jax.device_get(made.states[0])
    turn = Turn(0, 0, "a", 0, 0, 0, np.zeros(1), np.zeros(1), np.zeros(1), "yes", True)
    forest = Forest(("left?",), (turn,), (Joint(0, (0,), Judgement({}, None)),))
    system = Der(made, str, 2)
    assert system.learn(system.assign(forest)) == {}
    for left, right in zip(jax.tree.leaves(before), jax.tree.leaves(made.states[0]), strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_gradient_of_ppo_by_finite_differences():
    """One pass from the behaviour policy: the step of plain gradient descent is that of A log pi and of (V - y)^2."""
    made = Router(AGENTS, 1, ngrams, jax.random.key(3), 4, optax.sgd(1.0), Ppo(epochs=1, entropy=0.0, value=0.5))
    places, actions = [Place("left?"), Place("right now?")], np.array([0, 1])
    advantages, targets = np.array([0.7, -0.3], np.float32), np.array([0.2, 0.9], np.float32)
    behaviour = np.take_along_axis(made.values(places)[0], actions[:, None], 1)[:, 0]
    before = jax.device_get(made.states[0].trainable)
    made.learn(places, actions, advantages, targets, behaviour)
    after = jax.device_get(made.states[0].trainable)

    def loss(c):
        moved = made.states[0].replace(trainable=before | {"c": c})
        made.states = {0: moved}
        logprobs_XA, values_X = made.values(places)
        chosen = np.take_along_axis(logprobs_XA, actions[:, None], 1)[:, 0]
        ratio = np.exp(chosen - behaviour)
        return float(-(ratio * advantages).mean() + 0.5 * ((values_X - targets) ** 2).mean())

    step = 1e-2
    for a in range(2):
        shift = np.eye(3, dtype=np.float32)[a] * step
        slope = (loss(before["c"] + shift) - loss(before["c"] - shift)) / (2 * step)
        assert before["c"][a] - after["c"][a] == pytest.approx(slope, abs=2e-3)


def test_what_was_saved_is_restored(tmp_path):
    made, places = router(seed=1), [Place("left?"), Place("left?", "yes", "a", 1)]
    columns = np.array([1, 2]), np.ones(2, np.float32), np.ones(2, np.float32), np.full(2, -1.0, np.float32)
    with made.kept_in(tmp_path, 2):
        for step in (1, 2, 3):
            made.learn(places, *columns)
            made.save(step)
        made.save_best(3)
        values = made.values(places)
        again = made.learn(places, *columns)
        names = sorted(path.name for path in (tmp_path / "router").glob("*.msgpack"))
        assert names == ["000002.msgpack", "000003.msgpack"]
        made.restore(3)
        for left, right in zip(values, made.values(places), strict=True):
            np.testing.assert_array_equal(left, right)
        assert made.learn(places, *columns) == again  # the optimizer too
    fresh = router(seed=5)
    fresh.load(tmp_path, 3)
    np.testing.assert_array_equal(values[0], fresh.values(places)[0])
    with pytest.raises(ValueError, match="000007.msgpack is missing: the router of the run after 7 iterations"):
        fresh.load(tmp_path, 7)


def trained(tmp_path, **options):
    """A router that has learned to ask ``a`` first, saved after 1 iteration, and where it is."""
    made, places = router(seed=1, lr=0.1, **options), [Place("left?")]
    for _ in range(5):
        made.learn(places, np.array([0]), np.ones(1, np.float32), np.ones(1, np.float32), np.full(1, -1, np.float32))
    with made.kept_in(tmp_path, 2):
        made.save(1)
    return made, tmp_path / "router" / "000001.msgpack"


def test_agents_in_another_order_are_chosen_by_name(tmp_path):
    made, _ = trained(tmp_path)
    other = Router(AGENTS[::-1], 2, ngrams, jax.random.key(7), 16, optax.adam(0.01))
    other.load(tmp_path, 1)
    places = [Place("left?"), Place("left?", "yes", "a", 1), Place("left?", "yes", "b", 1)]
    assert other(places) == made(places) and other(places)[0] == "a"
    assert other.actions(["a", "b", None]).tolist() == made.actions(["a", "b", None]).tolist()


def test_a_network_of_something_else_is_refused(tmp_path):
    _, path = trained(tmp_path)
    others = {
        "agents \\('a', 'b'\\), and team.agents=\\('a', 'c'\\)": (("a", "c"), 2, 16),
        "agents \\('a', 'b'\\), and team.agents=\\('a', 'b', 'c'\\)": (("a", "b", "c"), 2, 16),
        "at most 2 answers, and train.turns=3": (AGENTS, 3, 16),
        "other shapes than that of this config; allowed are .* router.hidden": (AGENTS, 2, 8),
    }
    for message, (agents, turns, hidden) in others.items():
        other = Router(agents, turns, ngrams, jax.random.key(0), hidden, optax.adam(0.01))
        with pytest.raises(UserError, match=message) as refused:
            other.load(tmp_path, 1)
        assert str(path) in str(refused.value)


@pytest.mark.parametrize("content", [lambda whole: whole[:100], lambda whole: b"", lambda whole: b"\x01"])
def test_a_damaged_file_is_named(tmp_path, content):
    _, path = trained(tmp_path)
    path.write_bytes(content(path.read_bytes()))
    with pytest.raises(DamagedError, match="000001.msgpack cannot be read"):
        router().load(tmp_path, 1)


def test_files_of_earlier_versions_are_read(tmp_path):
    """They hold the state alone."""
    made, path = trained(tmp_path)
    path.write_bytes(serialization.to_bytes(jax.device_get(made.states[0])))
    fresh, places = router(seed=5), [Place("left?"), Place("left?", "yes", "b", 1)]
    fresh.load(tmp_path, 1)
    np.testing.assert_array_equal(fresh.values(places)[0], made.values(places)[0])
    wider = router(turns=3)
    with pytest.raises(UserError, match="other shapes"):
        wider.load(tmp_path, 1)
