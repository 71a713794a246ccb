"""Agents that are no models of ours: what they say, what that costs, and that only others learn."""

import dataclasses
import functools

import expert_server
import jax
import numpy as np
import pytest
import smoke_runs
import tiny
from scripted_team import CountingTask, word_tokenizer

from configs import game as game_config
from experiments import crossplay, export, train
from jaxmarl_llm import checkpoint, records, rollout, team, transcripts
from jaxmarl_llm.analysis.doctor import examination
from jaxmarl_llm.analysis.planning import from_config
from jaxmarl_llm.byte_tokenizer import END, ByteTokenizer
from jaxmarl_llm.config import validate
from jaxmarl_llm.experts import Reply, Request
from jaxmarl_llm.experts.cached import Cached
from jaxmarl_llm.experts.scripted import Scripted
from jaxmarl_llm.factory import built_models, evaluations, experts, teams
from jaxmarl_llm.forest import metrics
from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.runs import training_loop
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems import critics
from jaxmarl_llm.systems.critics import shared_heads
from jaxmarl_llm.systems.preferences import turn_scores
from jaxmarl_llm.tasks.toys import matrix_game
from jaxmarl_llm.weights import word_model

LONG = "w\u0665 w7 " * 9  # an Arabic five, which int() reads: 7 x 9 bytes, where three tokens are asked for


def mixed(expert):
    """'aux' is tiny and learns, 'main' is asked of the expert."""
    models = {"tiny": dataclasses.replace(tiny.model(), tokenizer=word_tokenizer())}
    names = {"aux": "tiny", "main": "expert:wise"}
    return team.build(models, names, jax.random.key(0), rank=2, experts={"expert:wise": expert})


def run(expert, task, key=0, params=SamplingParams(3), **options):  # noqa: B008 - frozen
    members = mixed(expert)
    trainables = [member.trainable for member in members.members]
    protocol, scorer = Simultaneous(task.prompts, 2), TaskScorer.of_team(task, members, "cross")
    options = dict(params=params, max_prompt_tokens=9) | options
    return rollout.run(protocol, members, trainables, scorer, [0, 1], jax.random.key(key), **options)


def test_bytes_carry_texts():
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("aü") == [97, 0xC3, 0xBC] and tokenizer.decode([97, 0xC3, 0xBC, END]) == "aü"
    assert tokenizer.decode([0xC3]) == "\ufffd" and tokenizer.encode("\ud800") == [63]
    tokens = np.array([[97, 98, END, 0], [97, END, 0, 0]])
    assert tokenizer.decode_completions(tokens, np.array([3, 0])) == ["ab", ""]
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": "y\n"}]
    assert tokenizer.show(tokenizer.encode_chat(messages)) == "[system]\nx\n\n[user]\ny\n"
    with pytest.raises(ValueError, match="at least one message"):
        tokenizer.encode_chat([])


def test_a_rollout_with_an_expert_in_the_team():
    expert = Scripted(lambda request, draw: f"{LONG}w{draw + 6}")
    task = CountingTask((20, 2))  # a prompt of 21 words is too long for a model of ours only
    with pytest.raises(ValueError, match="prompt of agent 'aux' for item p0 has 21 tokens"):
        run(expert, task)
    task = CountingTask((4, 2))
    forest = run(expert, task)
    expert_turns = [turn for turn in forest.turns if turn.agent == "main"]
    assert [(turn.item, turn.sample, turn.text) for turn in expert_turns] == [
        (i, g, f"{LONG}w{g + 6}") for i in (0, 1) for g in (0, 1)
    ]
    for turn in expert_turns:
        assert turn.completion.tolist() == [*turn.text.encode(), END] and turn.finished
        assert not turn.logprobs.any() and turn.logprobs.shape == turn.completion.shape
    # The prompt has 16 bytes: 6 tokens of three bytes, and 8 of a message; 65 bytes are 22 tokens.
    assert expert_turns[0].cost == expert_turns[0].tokens == (14, 22)
    assert [len(completions["main"]) for _, completions in task.judged] == [len(LONG) + 2] * 8
    own = [turn for turn in forest.turns if turn.agent == "aux"]
    assert all(turn.cost is None and turn.tokens == (len(turn.prompt), len(turn.completion)) for turn in own)
    assert metrics.tokens(forest) == 4 * 22 + sum(len(turn.completion) for turn in own)
    tokenizers = {agent: mixed(None)[agent].tokenizer for agent in ("aux", "main")}
    record = records.joint_actions(0, forest, task, tokenizers)[0].agents["main"]
    assert record.prompt.startswith("[user]\nw") and record.prompt.endswith(" main")
    assert (record.prompt_length, record.completion_length) == (14, 22)


def test_the_random_key_decides_what_is_drawn(tmp_path):
    class Source:
        identity = {"kind": "none", "base_url": "", "model": "wise"}
        asked = []

        def refusal(self, request):
            return None

        def answer(self, requests, arrived):
            for index, request in enumerate(requests):
                self.asked.append(request)
                arrived(index, Reply(f"w{len(self.asked)}", 1, 1))

    source = Source()
    expert = Cached(source, str(tmp_path))
    ask = functools.partial(run, expert, params=SamplingParams(3, 0.5))

    def texts(forest):
        return [turn.text for turn in forest.turns if turn.agent == "main"]

    first, other = ask(CountingTask((1, 2))), ask(CountingTask((1, 2)), key=1)
    assert texts(first) == ["w1", "w2", "w3", "w4"] and texts(other) == ["w5", "w6", "w7", "w8"]
    assert texts(ask(CountingTask((1, 2)))) == texts(first) and len(source.asked) == 8
    asked = source.asked[0]
    assert (asked.max_tokens, asked.temperature, asked.item) == (3, 0.5, "p0")
    # The last sample greedily: at temperature 0 it is the same whatever the key.
    greedy = [ask(CountingTask((1, 2)), key=key, last_greedy=True) for key in (2, 3)]
    assert [request.temperature for request in source.asked[8:]] == [0.5, 0, 0.5, 0, 0.5, 0.5]
    assert texts(greedy[0])[1::2] == texts(greedy[1])[1::2]


def test_streams_tell_requests_apart_unless_greedy():
    def keys(*requests):
        return Cached(Scripted)._keys(requests)

    Scripted.identity = {}
    try:
        message = ({"role": "user", "content": "x"},)
        one, other = (Request(message, "i", temperature=1.0, stream=s) for s in ("", "b"))
        assert len(set(keys(one, one, other, other))) == 4
        assert len(set(keys(*(dataclasses.replace(r, temperature=0.0) for r in (one, other))))) == 1
    finally:
        del Scripted.identity


def test_an_expert_that_the_team_lacks_is_missed_when_it_is_to_speak():
    with pytest.raises(ValueError, match="'main' speaks through 'expert:wise', which this team was built"):
        run(None, CountingTask((1, 2)))


def config(server=None, **fields):
    made = game_config.get_config()
    made.team.models = ("game-tiny", "expert:wise")
    fields = {name.replace("__", "."): value for name, value in fields.items()}
    small = {"train.group": 2, "train.steps": 1, "save.every": 1, "log.transcripts_every": 1}
    small |= {"eval.before": False, "eval.samples": 1, "expert.retries": 0}
    made.update_from_flattened_dict(small | fields)
    if server:
        made.update_from_flattened_dict({"expert.base_url": f"{server.url}/v1", "expert.key_variable": ""})
    return made


def word(asked):
    return expert_server.Say(matrix_game.WORDS[len(asked["messages"][0]["content"]) % 3] if asked else None)


@pytest.mark.usefixtures("programs_shared")
def test_only_the_local_agent_learns_beside_an_endpoint(tmp_path, monkeypatch):
    real = training_loop.finish
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))
    with expert_server.Server(rule=word) as server:
        train.train(config(server), tmp_path)
        asked = [body for path, _, body in server.seen if path.endswith("completions")]
        assert len(asked) == 6 * 2 and {body["model"] for body in asked} == {"wise"}
        assert {(body["max_tokens"], body["temperature"]) for body in asked} == {(2, 1.0)}
        (row,) = smoke_runs.rows(tmp_path)
        assert row["expert:wise/requests"] == 12 and row["expert:wise/output_tokens"] == 12 * 7
        assert row["second/completion_length"] == 7 and row["first/ratio0"] == pytest.approx(1, abs=1e-4)
        assert "second/ratio0" not in row and row["train/valid"] > 0
        read = transcripts.read(tmp_path, 0)
        assert {action.agents["second"].completion for action in read} <= set(matrix_game.WORDS)
        saved = tmp_path / "checkpoints" / "1"
        assert {path.name for path in saved.iterdir() if "_" in path.name and path.is_dir()} == {
            "agent_first",
            "optimizer_first",
        }
        before = jax.tree.leaves(teams.build_team(config(server)).members[0].trainable)
        own, _ = checkpoint.restore_team(saved.parent, "latest", teams.build_team(config(server)))
        after = jax.tree.leaves(own.members[0].trainable)
        assert any((np.asarray(a) != np.asarray(b)).any() for a, b in zip(before, after, strict=True))

        monkeypatch.setattr(training_loop, "finish", real)
        train.train(config(server, train__steps=2), tmp_path)  # goes on, counts on, and draws anew
        rows = smoke_runs.rows(tmp_path, "expert:wise/")
        assert rows[-1]["expert:wise/requests"] == 24
        results, about = evaluations.evaluate_run(config(server), tmp_path, "latest", 1)
        assert about["models"] == {"first": "game-tiny", "second": "expert:wise"}
        checked = {result.name: result.status for result in examination.examine(config(server))}
        assert "fail" not in checked.values() and checked["log-prob parity"] == "ok"
    with pytest.raises(ValueError, match="--agent='second': it speaks through 'expert:wise' and has no"):
        export.export(tmp_path, "second", tmp_path / "out", which="latest")
    export.export(tmp_path, "first", tmp_path / "out", which="latest")  # with nobody behind the address


@pytest.mark.usefixtures("programs_shared")
def test_two_models_of_different_kinds_learn_together(tmp_path, monkeypatch):
    def wide(*arguments):
        with monkeypatch.context() as patched:
            patched.setattr(word_model, "WIDTH", 2 * word_model.WIDTH)
            return built_models.game_model(*arguments)

    monkeypatch.setitem(built_models.BUILDERS, "game-wide", wide)
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))
    made = config(team__models=("game-tiny", "game-wide"), train__group=4)
    assert len(teams.build_team(made).members) == 2
    train.train(made, tmp_path)
    (row,) = smoke_runs.rows(tmp_path)
    for agent in ("first", "second"):
        assert row[f"{agent}/ratio0"] == pytest.approx(1, abs=1e-4)
        assert row[f"{agent}/update_norm"] > 0
    names = {path.name for path in (tmp_path / "checkpoints" / "1").iterdir()}
    assert {"agent_first", "agent_second"} <= names


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"team__models": ("game-tiny", "expert:")}, "the model 'expert:' of agent 'second': allowed is exp"),
        ({"team__models": ("scripted:x", "game-tiny")}, "agent 'first': the scripts are scripted:mixture of"),
        ({"expert__kind": "local"}, "agent 'second': expert.kind='local' has no endpoint"),
        ({"train__system": "iac"}, "train.system='iac': it reads what agents think, and .* agent 'second'"),
        ({"train__counterfactual": "reference"}, "train.counterfactual='reference': .* no untrained form"),
    ],
)
def test_bad_configs_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        validate(config(**fields))


def test_what_needs_weights_names_the_agent(tmp_path):
    members, say = mixed(None), "agent 'main' speaks through 'expert:wise'"
    with pytest.raises(ValueError, match=f"a critic needs a model of ours; {say}"):
        critics.build(members, jax.random.key(0), joint=False, rank=2)
    with pytest.raises(ValueError, match=f"bodies needs a model of ours; {say}"):
        shared_heads.build(members, jax.random.key(0))
    with pytest.raises(ValueError, match=f"scoring what was said needs a model of ours; {say}"):
        turn_scores.of_forest(None, members, [], None)
    nobody = {"team__models": ("expert:wise", "expert:other")}
    with pytest.raises(ValueError, match="no agent is a model of ours, so there is nothing to plan"):
        from_config.jobs(config(**nobody), jax.devices())
    made = config(team__models=("random-tiny", "expert:wise"))
    assert [job.stack.agents for job in from_config.jobs(made, jax.devices()[:1])] == [("first",)]
    runs = [config(), config()]
    with pytest.raises(ValueError, match="agent 'second' is no model of ours and the same in all runs"):
        crossplay.check(["a", "b"], runs)
    with expert_server.Server(rule=word) as server:
        with pytest.raises(ValueError, match="train.system='magrpo' needs a model of ours; agent 'first'"):
            train.train(config(server, **nobody), tmp_path)
        with pytest.raises(ValueError, match="the doctor needs a model of ours; agent 'first'"):
            list(examination.examine(config(server, **nobody)))


def test_a_script_needs_problems_that_it_knows():
    made = config(team__models=("game-tiny", "scripted:mixture"))
    with pytest.raises(ValueError, match="optimisation problems; got GameItem"):
        experts.build(made, matrix_game.load_items("games", "all"))
