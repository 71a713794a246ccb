"""A training whose completions a server draws: it learns from what its own policy would have drawn, and from
nothing else, whatever the server does."""

import threading

import engine_server
import jax
import numpy as np
import pytest
import smoke_runs
from engine_server import COMPLETIONS, LOAD, Broken, EngineServer, Raw

from configs import game as game_config
from experiments import train
from jaxmarl_llm import checkpoint
from jaxmarl_llm.config import agent_settings, validate
from jaxmarl_llm.factory import engines, teams
from jaxmarl_llm.rollout.engines import publishing
from jaxmarl_llm.runs import plan_table
from jaxmarl_llm.utils import distributed
from jaxmarl_llm.utils.errors import UserError

pytestmark = pytest.mark.usefixtures("programs_shared")
STEPS = 3
PROMPTS = 12  # requests of a draw in training: six games, two agents


def config(url, **fields):
    made = game_config.get_config()
    made.update_from_flattened_dict({
        "team.mode": "adapters", "team.rank": 2, "team.alpha": 4.0, "train.steps": STEPS, "train.group": 4,
        "save.every": 1, "eval.samples": 2, "train.lr": 1e-2, "train.importance_cap": 2.0,
        "engine.kind": "completions", "engine.servers": (url,), "engine.retries": 0, "engine.max_gap": 1e-3,
    } | fields)  # fmt: skip
    validate(made)
    return made


def served():
    """The member of the team whose base the server serves, built as another process would."""
    (member,) = teams.build_team(config("http://127.0.0.1:1")).members
    return member


def kept(folder):
    """Metrics and results of a run without what a clock measured, and its parameters."""
    rows = [
        {name: value for name, value in row.items() if not name.startswith("engine/")}
        for row in smoke_runs.rows(folder)
    ]
    summary, state = smoke_runs.summary(folder), smoke_runs.saved_state(folder, config("http://127.0.0.1:1"))
    return rows, summary, jax.tree.leaves(state)


def assert_equal(one, other):
    assert one[0] == other[0] and one[1] == other[1]
    for ours, theirs in zip(one[2], other[2], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, compiled):
    """A run that nothing disturbs: its folder, and the server after it."""
    folder = tmp_path_factory.mktemp("engine") / "whole"
    with smoke_runs.programs_kept(compiled), EngineServer(served()) as server:
        train.train(config(server.url), folder)
    return folder, server


def test_fresh_adapters_have_ratio_one(whole):
    folder, server = whole
    rows = smoke_runs.rows(folder, "engine/")
    assert len(rows) == STEPS
    for row in rows:
        assert row["engine/gap"] < 1e-4 and row["engine/repeated"] == 0
        for agent in ("first", "second"):
            assert row[f"{agent}/ratio0"] == pytest.approx(1, abs=1e-4)
            assert row[f"{agent}/ratio0_max_deviation"] < 1e-4
    learned = [row for row in smoke_runs.rows(folder, "first/grad_norm")]
    assert len(learned) == STEPS and all(row["first/grad_norm"] > 0 for row in learned)


def test_adapters_go_to_the_server_once_after_every_update(whole):
    folder, server = whole
    loaded = [body["lora_name"].split("-")[2:4] for path, body in server.seen if path == LOAD]
    assert sorted(loaded) == [[agent, f"v{step}"] for agent in ("first", "second") for step in range(STEPS + 1)]
    assert not server.adapters and not list((folder / engines.FOLDER).iterdir())  # the run has tidied up


def test_evaluations_go_through_the_server_too(whole):
    _, server = whole
    bodies = [body for path, body in server.seen if path == COMPLETIONS]
    greedy = [body for body in bodies if body["temperature"] == 0]
    assert len(greedy) >= 2 * PROMPTS and all(body["n"] == 1 for body in greedy)
    by_model = {body["model"].rsplit("-", 1)[0] for body in greedy}
    assert {name.rsplit("-", 1)[1] for name in by_model} >= {"v0", f"v{STEPS}"}


def test_greedy_answers_are_those_of_our_own_sampler(whole, tmp_path):
    """The untrained and the trained team, on the test problems."""
    folder, _ = whole
    local = config("http://127.0.0.1:1", **{"engine.kind": "local", "engine.servers": ()})
    with pytest.raises(UserError, match="engine.kind"):
        train.train(local, folder)  # another arithmetic is another run
    local.train.steps = 1
    train.train(local, tmp_path)
    one, other = smoke_runs.summary(folder)["before"], smoke_runs.summary(tmp_path)["before"]
    assert one["return_greedy"] == other["return_greedy"]


class Fault:
    """A change of the completions of one draw: ``what(server, path, body, answer)`` from its fourth request on.

    ``draw``: which draw of training it comes in; requests of evaluations are told by their number of samples.
    """

    def __init__(self, what, draw):
        self._what, self._first, self._count = what, draw * PROMPTS + 3, 0
        self._lock, self.server = threading.Lock(), None

    def __call__(self, path, body, answer):
        if path != COMPLETIONS or body["n"] != 4:
            return answer
        with self._lock:
            self._count += 1
            if self._count <= self._first:
                return answer
        return self._what(self.server, body, answer)


def dies(server, body, answer):
    server.die()
    raise Broken


def no_json(server, body, answer):
    raise Raw(b"<html>gateway</html>")


def _changed(answer, change):
    change(answer[1]["choices"])
    return answer


def not_a_number(server, body, answer):
    return _changed(answer, lambda choices: choices[2]["logprobs"]["token_logprobs"].__setitem__(0, float("nan")))


def fewer(server, body, answer):
    return _changed(answer, lambda choices: choices.pop())


FAULTS = {
    dies: "no connection, or a broken one",
    no_json: "an answer that is no JSON",
    not_a_number: "the log-probability nan",
    fewer: "3 completions, not the 4",
}


@pytest.mark.parametrize("what", FAULTS, ids=lambda what: what.__name__)
def test_nothing_wrong_is_learned_from_and_the_run_goes_on(whole, tmp_path, what):
    fault = Fault(what, draw=1)
    with EngineServer(served(), fault) as server:
        fault.server = server
        with pytest.raises(UserError, match=FAULTS[what]) as error:
            train.train(config(server.url), tmp_path)
        assert "\n" not in str(error.value) and "nothing of this is learned from" in str(error.value)
    assert max(checkpoint.saved_steps(tmp_path / "checkpoints")) == 1
    with EngineServer(served(), port=server.port) as again:
        train.train(config(again.url), tmp_path)
    assert_equal(kept(tmp_path), kept(whole[0]))


def test_a_server_that_comes_back_with_other_adapters_under_the_right_names(whole, tmp_path):
    """It answers in the right form from the adapters of the step before; their log-probabilities give it away."""
    first: dict = {}

    def change(path, body, answer):
        if path == LOAD:
            agent = body["lora_name"].split("-")[2]
            first.setdefault(agent, server.adapters[body["lora_name"]])
            if "-v2-" in body["lora_name"]:
                server.adapters[body["lora_name"]] = first[agent]
        return answer

    with EngineServer(served(), change) as server:
        with pytest.raises(UserError, match="nats per token away from those of agent 'second'"):
            train.train(config(server.url), tmp_path)
    assert max(checkpoint.saved_steps(tmp_path / "checkpoints")) == 2
    with EngineServer(served()) as again:  # at another address
        train.train(config(again.url), tmp_path)
    assert_equal(kept(tmp_path), kept(whole[0]))


def test_no_server_is_a_sentence_before_a_model_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(teams, "build_team", None)
    with pytest.raises(UserError, match="the server http://127.0.0.1:1 of engine.servers: no connection"):
        train.train(config("http://127.0.0.1:1"), tmp_path)


def test_the_plan_says_who_draws():
    made = config("http://gpu1:8000")
    assert plan_table._servers(made) == [("drawn by", "http://gpu1:8000")]
    assert plan_table._servers(game_config.get_config()) == []


def test_several_processes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "is_distributed", lambda: True)
    with pytest.raises(UserError, match="allowed is one process"), engines.opened(config("http://x:1"), tmp_path):
        pass


@pytest.mark.parametrize("fields", [
    {"train.overlap": True, "save.every": 9},
    {"train.counterfactual": "reference", "train.joint_mode": "aligned"},
    {"train.turns": 2, "train.joint_mode": "aligned"},
    {"team.agent.first.temperature": 0.7, "team.agent.second.trainable": False},
], ids=lambda fields: next(iter(fields)))  # fmt: skip
def test_what_goes_with_servers(tmp_path, fields):
    with EngineServer(served()) as server, EngineServer(served()) as second:
        made = config(server.url)
        agent_settings.declare(made, fields)
        made.update_from_flattened_dict(fields | {"engine.servers": (server.url, second.url)})
        validate(made)
        train.train(made, tmp_path)
        assert not server.adapters and not second.adapters
        both = [sum(path == COMPLETIONS for path, _ in each.seen) for each in (server, second)]
    assert min(both) > PROMPTS
    rows = smoke_runs.rows(tmp_path, "engine/")
    assert len(rows) == STEPS and all(row["engine/gap"] < 1e-4 for row in rows)
    if "train.overlap" not in fields:
        assert all(abs(row["first/ratio0"] - 1) < 1e-4 for row in rows)


def test_versions_stay_few(whole):
    _, server = whole
    assert publishing.KEPT == 3
    held = most = 0
    for path, _ in server.seen:
        held += (path == LOAD) - (path == engine_server.UNLOAD)
        most = max(most, held)
    assert most <= 2 * (publishing.KEPT + 1)
