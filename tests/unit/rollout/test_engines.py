"""rollout/engines: adapters under names of their content, what servers are sent, and what of them is believed."""

import dataclasses
import functools
import json
import threading
import time

import engine_server
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from engine_server import COMPLETIONS, LOAD, UNLOAD, Broken, EngineServer, Raw
from tiny_rollouts import KEY, PARAMS, built, total
from tiny_rollouts import run as rollout_of

from jaxmarl_llm import adapters, rollout, sampling, stop_texts
from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.rollout.engines import LOCAL, agreement, answers, completions
from jaxmarl_llm.rollout.engines.adapter_store import AdapterStore
from jaxmarl_llm.rollout.engines.answers import Completion, Vocabulary, Wanted
from jaxmarl_llm.rollout.engines.calls import Lines, Server, together
from jaxmarl_llm.rollout.engines.completions import CompletionsEngine
from jaxmarl_llm.rollout.engines.publishing import KEPT
from jaxmarl_llm.rollout.engines.types import Published
from jaxmarl_llm.rollout.journal import Journal
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import pad_team
from jaxmarl_llm.sampling.stops import Stops
from jaxmarl_llm.utils import stopping
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import peft

PROMPTS = {"a": [[7, 8, 9], [10, 11]], "b": [[12], [13, 14, 15, 16]]}
SAMPLED = {agent: [False, False] for agent in PROMPTS}


@functools.cache
def member():
    (only,) = built().members
    return only


@functools.cache
def learned(seed: int = 0):
    """Adapters that differ from the base, and with each seed from the others."""
    random = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: jnp.array(0.2 * random.standard_normal(x.shape), jnp.float32), member().trainable
    )


def engine_of(servers, folder, run="r", **options):
    how = dict(timeout=60.0, retries=0) | {k: options.pop(k) for k in ("timeout", "retries") if k in options}
    own = [Server(server if isinstance(server, str) else server.url, **how) for server in servers]
    return CompletionsEngine(own, AdapterStore(folder, run), **(dict(parallel=4, max_gap=1e-3) | options))


def draw(engine, trainable=None, params=PARAMS, samples=2, greedy=SAMPLED, prompts=PROMPTS, key=KEY):
    published = engine.publish(3, member(), learned() if trainable is None else trainable)
    return engine.draw(published, prompts, key, samples, params, greedy=greedy, sizes=(2, 2))


@pytest.fixture
def server():
    with EngineServer(member()) as running:
        yield running


def rows(drawn):
    """(tokens, log-probabilities, finished) of every row of every agent."""
    s = drawn.samples
    return [
        (s.tokens_NRL[n, r, : s.lengths_NR[n, r]].tolist(), s.logprobs_NRL[n, r, : s.lengths_NR[n, r]],
         bool(s.finished_NR[n, r]))
        for n in range(s.tokens_NRL.shape[0]) for r in range(s.tokens_NRL.shape[1])
    ]  # fmt: skip


# The local engine


@pytest.mark.slow
def test_the_local_engine_is_the_sampler(server):
    drawn = draw(LOCAL, params=SamplingParams(4, 0.7, 5))
    prompts_NBP, lengths_NB, shared = pad_team(list(PROMPTS.values()))
    inputs = (member().stack, member().base, learned(), prompts_NBP, lengths_NB, KEY)
    wanted = sampling.generate(*inputs, samples=2, params=SamplingParams(4, 0.7, 5), shared=shared)
    for ours, theirs in zip(jax.tree.leaves(drawn.samples), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert drawn.versions == ("", "") and LOCAL.metrics() == {} and not server.seen


# Publishing


def test_adapters_are_published_as_peft_folders_of_their_content(server, tmp_path):
    engine = engine_of([server], tmp_path)
    published = engine.publish(3, member(), learned())
    assert [path for path, _ in server.seen] == [LOAD, LOAD]
    for n, agent in enumerate(tiny.AGENTS):
        name = published.names[agent]
        assert name == f"jaxmarl-r-{agent}-v3-{published.versions[agent]}" and name in server.adapters
        adapter = peft.load_adapter(tmp_path / name, tiny.POLICY.config)
        assert adapter.alpha / adapter.rank == member().stack.adapter_scale
        ours = jax.tree.map(lambda x, n=n: np.asarray(x)[n], learned())
        jax.tree.map(np.testing.assert_array_equal, adapter.lora, ours)
    assert len(set(published.versions.values())) == 2


def test_success_that_is_told_in_plain_text_is_one_request(server, tmp_path):
    """vLLM answers both routes of adapters with text, and says of a second request that the name is known."""
    engine = engine_of([server], tmp_path, retries=2)
    names = engine.publish(3, member(), learned()).names
    assert set(server.adapters) == set(names.values()) and engine.metrics()["engine/repeated"] == 0
    engine.close()
    assert [path for path, _ in server.seen] == [LOAD, LOAD, UNLOAD, UNLOAD] and not server.adapters
    assert engine.metrics()["engine/repeated"] == 0

    def change(path, body, answer):
        return 201, "Success: it will be loaded."

    with EngineServer(member(), change) as accepting:
        engine_of([accepting], tmp_path, run="s").publish(3, member(), learned())


def test_plain_text_is_no_list_of_models(tmp_path):
    with EngineServer(member(), lambda *given: (200, "base")) as server:
        with pytest.raises(UserError, match="an answer that is no JSON: 'base'"):
            engine_of([server], tmp_path).open()


def test_what_is_published_is_not_published_again(server, tmp_path):
    engine = engine_of([server], tmp_path)
    first = engine.publish(3, member(), learned())
    again = engine.publish(4, member(), learned())
    copies = jax.tree.map(jnp.copy, learned())
    copied = engine.publish(5, member(), copies)
    assert first.names == again.names == copied.names and copied.trainable is copies
    assert len(server.seen) == 2
    half = jax.tree.map(lambda x, y: x.at[1].set(y[1]), learned(), learned(1))
    other = engine.publish(6, member(), half)
    assert other.names["a"] == first.names["a"] and other.names["b"].startswith("jaxmarl-r-b-v6-")
    assert [path for path, _ in server.seen] == [LOAD] * 3


def test_old_versions_are_removed_here_and_there(server, tmp_path):
    engine = engine_of([server], tmp_path)
    every = [engine.publish(step, member(), learned(step)) for step in range(KEPT + 2)]
    kept = {name for published in every[-KEPT:] for name in published.names.values()}
    assert set(server.adapters) == {path.name for path in tmp_path.iterdir()} == kept
    first_kept = every[2]
    engine.publish(9, member(), first_kept.trainable)  # used again, so that the next oldest goes
    engine.publish(10, member(), learned(10))
    assert set(first_kept.names.values()) <= set(server.adapters)
    engine.close()
    assert not server.adapters and not list(tmp_path.iterdir())


def test_leftovers_of_an_earlier_process_go_and_those_of_other_runs_stay(server, tmp_path):
    before, other = engine_of([server], tmp_path), engine_of([server], tmp_path, run="s")
    before.publish(3, member(), learned())
    theirs = set(other.publish(3, member(), learned()).names.values())
    engine = engine_of([server], tmp_path)
    engine.open()
    assert set(server.adapters) == {path.name for path in tmp_path.iterdir()} == theirs


def test_a_name_that_the_server_has_is_loaded_again_from_our_bytes(server, tmp_path):
    engine = engine_of([server], tmp_path)
    names = engine.publish(3, member(), learned()).names
    server.adapters[names["a"]] = None  # others of the right name
    again = engine_of([server], tmp_path)
    again.publish(3, member(), learned())
    assert server.adapters[names["a"]] is not None
    assert [path for path, _ in server.seen[2:]] == [LOAD, UNLOAD, LOAD] * 2


@pytest.mark.parametrize("status, body, message", [
    (404, {"error": "no adapter found"}, "does not load the adapters in .*HTTP 404.*no adapter found.*enable-lora"),
    (400, {"error": "rank 64 is too large"}, "HTTP 400.*rank 64 is too large"),
    (500, {"error": "out of memory"}, "HTTP 500.*out of memory"),
])  # fmt: skip
def test_a_server_that_does_not_load_adapters_is_named(tmp_path, status, body, message):
    def change(path, given, answer):
        return (status, body) if path == LOAD else answer

    with EngineServer(member(), change) as server, pytest.raises(UserError, match=message) as error:
        engine_of([server], tmp_path).publish(3, member(), learned())
    assert server.url in str(error.value)


@pytest.mark.slow
def test_a_folder_that_a_server_sees_late_is_tried_again(tmp_path):
    """As on a file system of several machines."""
    late = [LOAD] * 3

    def change(path, body, answer):
        if path == LOAD and late:
            late.pop()
            server.adapters.pop(body["lora_name"])
            return 404, {"error": "no adapter found"}
        return answer

    with EngineServer(member(), change) as server:
        published = engine_of([server], tmp_path, retries=3).publish(3, member(), learned())
        assert not late and set(server.adapters) == set(published.names.values())


def test_a_server_that_is_none_is_named(tmp_path):
    with EngineServer(member(), lambda *given: (404, {"detail": "Not Found"})) as server:
        with pytest.raises(UserError, match="lists no models .HTTP 404.*without /v1"):
            engine_of([server], tmp_path).open()
    with pytest.raises(UserError, match="no connection.*the same command goes on once it answers"):
        engine_of([server], tmp_path).open()


def test_only_adapters_can_be_published(tmp_path):
    full = dataclasses.replace(member(), stack=dataclasses.replace(member().stack, mode="full"))
    with pytest.raises(UserError, match="team.mode='full': an engine of servers is sent adapters only"):
        engine_of([], tmp_path).publish(0, full, learned())


# Drawing


@pytest.mark.slow
@pytest.mark.parametrize("params", [
    SamplingParams(4, 0.6), SamplingParams(4, 1.3, top_k=4), SamplingParams(4, 0.8, top_p=0.7),
    SamplingParams(4, min_p=0.2), SamplingParams(4, temperature=0.0),
], ids=str)  # fmt: skip
def test_log_probabilities_are_those_of_our_policy(server, tmp_path, params):
    """An oracle without any cache scores what the server drew."""
    engine = engine_of([server], tmp_path)
    drawn = draw(engine, params=params, samples=3)
    s = drawn.samples
    assert s.tokens_NRL.shape == (2, 6, 4)
    for n, agent in enumerate(tiny.AGENTS):
        variables = _own(n)
        for r in range(6):
            length = s.lengths_NR[n, r]
            tokens = s.tokens_NRL[n, r, :length].tolist()
            logits = tiny.completion_logits(variables, PROMPTS[agent][r // 3], tokens)
            oracle = tiny.np_log_probs(logits, params)[range(length), tokens]
            np.testing.assert_allclose(s.logprobs_NRL[n, r, :length], oracle, atol=1e-4)
            assert s.finished_NR[n, r] == (tokens[-1] in tiny.Tokenizer.eos_ids)
            assert s.finished_NR[n, r] or length == 4
    assert engine.metrics()["engine/gap"] < 1e-4
    assert drawn.versions == tuple(engine.publish(0, member(), learned()).versions.values())
    if params.greedy:
        assert len({tuple(row[0]) for row in rows(drawn)[:3]}) == 1
    else:
        assert len({tuple(row[0]) for row in rows(drawn)}) > 6


def _own(n):
    """Agent n's plain variables."""
    one = jax.tree.map(lambda x: x[n], learned())
    return adapters.merge(member().base, one, member().stack.adapter_scale)


@pytest.mark.slow
def test_what_is_sent(server, tmp_path):
    draw(engine_of([server], tmp_path), params=SamplingParams(4, 0.6, 5), greedy={"a": [True, False], "b": [False] * 2})
    sent = [body for path, body in server.seen if path == COMPLETIONS][1:]  # the first is the probe
    assert sorted((body["prompt"], body["n"], body["temperature"]) for body in sent) == [
        ([7, 8, 9], 1, 0.0), ([7, 8, 9], 1, 0.6), ([10, 11], 2, 0.6), ([12], 2, 0.6), ([13, 14, 15, 16], 2, 0.6),
    ]  # fmt: skip
    assert len({body["seed"] for body in sent}) == 5
    one = next(body for body in sent if body["prompt"] == [10, 11])
    fixed = {
        "max_tokens": 4, "top_k": 5, "top_p": 1.0, "min_p": 0.0, "stop_token_ids": [3, 5], "ignore_eos": True,
        "logprobs": 0, "return_token_ids": True, "add_special_tokens": False, "repetition_penalty": 1.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "stream": False,
    }  # fmt: skip
    assert fixed.items() <= one.items() and "logit_bias" not in one
    greedy = next(body for body in sent if body["temperature"] == 0)
    assert (greedy["top_k"], greedy["top_p"], greedy["min_p"]) == (-1, 1.0, 0.0)


def letters(text):
    """A stop text in a vocabulary of ten ids, each the letter of its number."""
    return stop_texts.build(text, [bytes([i]) for i in range(10)])


def test_ids_that_are_no_token_are_never_drawn():
    words = Vocabulary(10, ((7, 9),), Stops((3,), (letters("\x03\x04"),)))
    sent = answers.body(Wanted("x", (1,), 1, PARAMS, 0, words))
    assert sent["logit_bias"] == {"7": -100.0, "8": -100.0} and sent["stop_token_ids"] == [3]
    assert [i for i in range(-1, 11) if words.has(i)] == [0, 1, 2, 3, 4, 5, 6, 9]


@pytest.mark.slow
def test_servers_share_the_prompts_and_change_nothing(server, tmp_path):
    alone = draw(engine_of([server], tmp_path / "one"))
    with EngineServer(member()) as second, EngineServer(member()) as third:
        engine = engine_of([second, third], tmp_path / "two")
        shared = draw(engine)
        asked = [[body["prompt"] for path, body in each.seen if path == COMPLETIONS][1:] for each in (second, third)]
    assert sorted(asked[0]) == [[7, 8, 9], [12]] and sorted(asked[1]) == [[10, 11], [13, 14, 15, 16]]
    for ours, theirs in zip(rows(shared), rows(alone), strict=True):
        assert ours[0] == theirs[0] and ours[2] == theirs[2]
        np.testing.assert_allclose(ours[1], theirs[1], atol=1e-6)
    other = draw(engine_of([server], tmp_path / "one"), key=jax.random.key(8))
    assert [row[0] for row in rows(other)] != [row[0] for row in rows(alone)]


@pytest.mark.slow
def test_agents_with_fewer_prompts(server, tmp_path):
    drawn = draw(engine_of([server], tmp_path), prompts={"a": [[7]], "b": PROMPTS["b"]})
    assert drawn.samples.lengths_NR[0, 2:].tolist() == [0, 0] and (drawn.samples.lengths_NR[1] > 0).all()


@pytest.mark.slow
def test_a_whole_rollout_says_which_version_drew(server, tmp_path):
    task, engine = tiny.Task(total), engine_of([server], tmp_path)
    forest = rollout_of(task, engine=engine, step=2)
    published = engine.publish(0, member(), member().trainable)
    assert {turn.version for turn in forest.turns} == set(published.versions.values())
    assert all("-v2-" in name for name in server.adapters)
    assert {turn.version for turn in rollout_of(task).turns} == {""}
    local = rollout_of(task, params=dataclasses.replace(PARAMS, temperature=0.0))
    ours = rollout_of(task, params=dataclasses.replace(PARAMS, temperature=0.0), engine=engine)
    assert [t.completion.tolist() for t in ours.turns] == [t.completion.tolist() for t in local.turns]
    for one, other in zip(ours.turns, local.turns, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)


def test_a_journal_of_other_adapters_is_refused(server, tmp_path, monkeypatch):
    """Its completions are of the version that drew them: only the same parameters take them up again."""
    task, engine = tiny.Task(total), engine_of([server], tmp_path / "adapters")
    scorer = TaskScorer.of_team(task, built(), "aligned")
    protocol = Simultaneous(task.prompts, samples=2)
    options = dict(params=PARAMS, max_prompt_tokens=16, engine=engine)

    def drawn(trainable):
        journal = Journal(tmp_path / "journal")
        return rollout.run(protocol, built(), [trainable], scorer, [2, 0], KEY, journal=journal, **options)

    class Stop(Exception):
        pass

    def broken(*given):
        raise Stop

    monkeypatch.setattr(TaskScorer, "judge", broken)
    with pytest.raises(Stop):
        drawn(learned())
    requests = len(server.seen)
    with pytest.raises(UserError, match="drawn by version '[0-9a-f]{16}' of its adapters, and '[0-9a-f]{16}' is"):
        drawn(learned(1))
    assert {path for path, _ in server.seen[requests:]} == {LOAD}
    with pytest.raises(Stop):
        drawn(jax.tree.map(jnp.copy, learned()))
    assert {path for path, _ in server.seen[requests:]} == {LOAD}  # nothing was drawn again


# What is refused


def good(prompt=(1, 2), **changes):
    """A choice of three tokens, the last of which ends it."""
    choice = {"index": 0, "finish_reason": "stop", "token_ids": [7, 8, 3], "prompt_token_ids": list(prompt),
              "logprobs": {"token_logprobs": [-1.0, -0.5, 0.0]}}  # fmt: skip
    return choice | changes


def answered(*choices, **changes):
    return {"model": "x", "choices": list(choices) or [good()]} | changes


WORDS = Vocabulary(10, ((9, 10),), Stops((3,), (letters("\x05\x06"),)))
ONE = Wanted("x", (1, 2), 1, SamplingParams(4), 0, WORDS)


def of_logprobs(*values):
    return good(logprobs={"token_logprobs": list(values)})


@pytest.mark.parametrize("answer, message", [
    ([], "no choices"), (None, "no choices"), ("text", "no choices"), ({"choices": 3}, "no choices"),
    (answered(model="y"), "is of 'y', not of the adapters 'x'"), (answered(model=None), "is of None"),
    ({"model": "x", "choices": []}, "0 completions, not the 1"), (answered(good(), good()), "2 completions, not the 1"),
    (answered(3), "no object"), (answered(good(index=1)), "of index .1., not each once"),
    *((answered(good(index=odd)), "of index .*, not each once") for odd in (None, [0], {}, "0", 0.0, False)),
    (answered(good(token_ids=None)), "no token ids"), (answered(good(token_ids=[])), "no token ids"),
    (answered(good(token_ids=[7, 10, 3])), "token id 10, which is none of the vocabulary's 10"),
    (answered(good(token_ids=[7, -1, 3])), "token id -1"), (answered(good(token_ids=[7, "8", 3])), "token id '8'"),
    (answered(good(token_ids=[7, 8.0, 3])), "token id 8.0"), (answered(good(token_ids=[7, True, 3])), "token id True"),
    (answered(good(token_ids=[7, 9, 3])), "token id 9"),  # inside, and no token
    (answered(good(token_ids=[7] * 5)), "5 tokens, the limit is 4"),
    (answered(good(prompt=(1, 2, 2))), "to another prompt"),
    (answered(good(logprobs=None)), "no log-probabilities"), (answered(good(logprobs={})), "no log-probabilities"),
    (answered(of_logprobs(-1.0, -0.5)), "2 log-probabilities for 3 tokens"),
    (answered(of_logprobs(-1.0, -0.5, 0.0, 0.0)), "4 log-probabilities for 3 tokens"),
    *((answered(of_logprobs(-1.0, bad, 0.0)), "the log-probability .*; allowed are numbers up to 0")
      for bad in (None, float("nan"), float("inf"), float("-inf"), 0.5, 1e-4, "-1", True, -9999.0, -(10**400))),
    (answered(good(finish_reason=None)), "finish_reason None; allowed are stop and length"),
    (answered(good(finish_reason="abort")), "finish_reason 'abort'"),
    (answered(good(token_ids=[7, 8, 8])), r"ends \(stop\) after 3 of 4 tokens with none of the ids"),
    (answered(good(token_ids=[7, 8, 8], finish_reason="length")), r"ends \(length\) after 3 of 4 .*context"),
])  # fmt: skip
def test_answers_that_are_not_what_was_wanted(answer, message):
    with pytest.raises(UserError, match=message) as error:
        answers.read(answer, ONE)
    assert len(str(error.value)) < 400


def test_good_answers_are_read():
    (one,) = answers.read(answered(of_logprobs(-1, -0.5, 1e-6)), ONE)
    assert one.tokens_L.tolist() == [7, 8, 3] and one.logprobs_L.tolist() == [-1.0, -0.5, 0.0] and one.finished
    cut = good(token_ids=[7, 8, 8, 7], finish_reason="length", logprobs={"token_logprobs": [-1.0] * 4})
    (one,) = answers.read(answered(cut), ONE)
    assert len(one.tokens_L) == 4 and not one.finished
    full = good(token_ids=[7, 8, 8, 3], finish_reason="length", logprobs={"token_logprobs": [-1.0] * 4})
    assert answers.read(answered(full), ONE)[0].finished  # an end at the limit is an end
    two = ONE._replace(samples=2)
    first, second = answers.read(answered(good(index=1), cut), two)
    assert not first.finished and second.finished  # by index, in whatever order


def test_a_stop_text_of_several_ids_cuts_what_follows():
    running_on = good(token_ids=[5, 5, 6, 8], finish_reason="length", logprobs={"token_logprobs": [-1.0, -2, -3, -4]})
    (one,) = answers.read(answered(running_on), ONE)
    assert one.tokens_L.tolist() == [5, 5, 6] and one.logprobs_L.tolist() == [-1, -2, -3] and one.finished


def edit(what):
    """A server's change of its completions: ``what(choices)`` in place."""

    def change(path, body, answer):
        if path == COMPLETIONS and body["max_tokens"] != 8:  # not the probe
            what(answer[1]["choices"])
        return answer

    return change


def _nan(choices):
    choices[0]["logprobs"]["token_logprobs"][0] = float("nan")


@pytest.mark.parametrize("what, message", [
    (_nan, "the log-probability nan"), (lambda choices: choices.pop(), "1 completions, not the 2"),
    (lambda choices: choices.append(dict(choices[0])), "3 completions, not the 2"),
    (lambda choices: choices[0].update(token_ids=[61] * 4), "token id 61"),
    (lambda choices: choices[0].pop("logprobs"), "no log-probabilities"),
    (lambda choices: choices[1].update(index=0), "not each once"),
])  # fmt: skip
def test_a_server_with_wrong_completions_is_named(tmp_path, what, message):
    with EngineServer(member(), edit(what)) as server, pytest.raises(UserError, match=message) as error:
        draw(engine_of([server], tmp_path))
    text = str(error.value)
    assert text.startswith(f"the server {server.url} of engine.servers: ") and "\n" not in text
    assert text.endswith("nothing of this is learned from")


@pytest.mark.parametrize("data", [b"", b"<html>busy</html>", b'{"choices": [', b"\xff\xfe", b"[" * 100_000])
def test_garbage_is_tried_again_and_then_named(tmp_path, data):
    def change(path, body, answer):
        if path == COMPLETIONS:
            raise Raw(data)
        return answer

    with EngineServer(member(), change) as server:
        engine = engine_of([server], tmp_path, retries=1)
        with pytest.raises(UserError, match=r"an answer that is no JSON.*\(attempts: 2\)"):
            draw(engine)
    assert engine.metrics()["engine/repeated"] == 1


@pytest.mark.slow
def test_a_short_failure_changes_nothing(server, tmp_path):
    failures = [Raw(b"busy", 503), Broken(), Raw(b"{", 200), Raw(b"{}", 429)]
    lock = threading.Lock()

    def change(path, body, answer):
        with lock:
            if path == COMPLETIONS and failures:
                raise failures.pop()
        return answer

    with EngineServer(member(), change) as shaky:
        engine = engine_of([shaky], tmp_path / "shaky", retries=4)
        disturbed = draw(engine)
    assert not failures and engine.metrics()["engine/repeated"] == 4
    for ours, theirs in zip(rows(disturbed), rows(draw(engine_of([server], tmp_path / "good"))), strict=True):
        assert ours[0] == theirs[0]


def test_a_server_that_dies_in_the_middle_of_a_draw_ends_it(tmp_path):
    count = []

    def change(path, body, answer):
        if path == COMPLETIONS:
            count.append(path)
            if len(count) == 3:
                server.die()
            if len(count) >= 3:
                raise Broken
        return answer

    with EngineServer(member(), change) as server:
        with pytest.raises(UserError, match=r"no connection, or a broken one.*\(attempts: 2\)"):
            draw(engine_of([server], tmp_path, retries=1))


def test_adapters_that_the_server_does_not_know_are_no_answer(server, tmp_path):
    engine = engine_of([server], tmp_path)
    published = engine.publish(3, member(), learned())
    server.adapters.clear()  # it was started again
    with pytest.raises(UserError, match="does not know the adapters 'jaxmarl-r-.*publishes them again"):
        engine.draw(published, PROMPTS, KEY, 2, PARAMS, greedy=SAMPLED, sizes=(2, 2))


def test_other_adapters_under_the_right_name_are_noticed(server, tmp_path):
    engine = engine_of([server], tmp_path)
    draw(engine)
    stale, fresh = engine.publish(3, member(), learned()), engine.publish(4, member(), learned(1))
    server.adapters |= {fresh.names[agent]: server.adapters[stale.names[agent]] for agent in tiny.AGENTS}
    with pytest.raises(UserError, match="nats per token away from those of agent 'a' here, and engine.max_gap=0.001"):
        draw(engine, learned(1))
    assert engine.metrics()["engine/gap"] > 0.05
    draw(engine_of([server], tmp_path, run="s"), learned(1))


def test_every_server_is_compared(server, tmp_path):
    with EngineServer(member()) as second:
        engine = engine_of([server, second], tmp_path)
        draw(engine)
        stale, fresh = engine.publish(3, member(), learned()), engine.publish(4, member(), learned(1))
        second.adapters |= {fresh.names[agent]: second.adapters[stale.names[agent]] for agent in tiny.AGENTS}
        with pytest.raises(UserError, match=f"^the server {second.url} of engine.servers: its .* nats per token away"):
            draw(engine, learned(1))


def test_one_stale_server_of_many_is_refused(tmp_path, monkeypatch):
    """Seven servers at 0.02 nats and one at 0.5: their mean, 0.08, would be within the bound of 0.1."""
    engine = engine_of([f"http://s{n}" for n in range(8)], tmp_path, max_gap=0.1)

    def gaps(published, rows, params, number):
        return {(agent, read.server): 0.5 if read.server == "http://s5" and agent == "b" else 0.02
                for agent, own in rows.items() for read in own}  # fmt: skip

    def complete(job, lines):
        return [Completion(np.array([7], np.int32), np.zeros(1, np.float32), True)] * job.wanted.samples

    monkeypatch.setattr(agreement, "gaps", gaps)
    monkeypatch.setattr(completions, "_complete", complete)
    names = dict.fromkeys(tiny.AGENTS, "x")
    prompts, greedy = {agent: [[7, 8]] * 8 for agent in tiny.AGENTS}, {agent: [False] * 8 for agent in tiny.AGENTS}
    given = Published(member(), learned(), names, names), prompts, KEY, 2, PARAMS
    with pytest.raises(UserError, match="^the server http://s5 of engine.servers: .* 0.5 nats .* of agent 'b' here"):
        engine.draw(*given, greedy=greedy, sizes=(8, 8))
    assert engine.metrics()["engine/gap"] == 0.5


def test_log_probabilities_before_temperature_are_noticed(tmp_path):
    with EngineServer(member(), raw=True) as server:
        with pytest.raises(UserError, match="start it with --logprobs-mode processed_logprobs"):
            draw(engine_of([server], tmp_path, max_gap=0.0))


def test_the_gap_is_the_mean_distance_from_an_oracle():
    """By hand: two agents, one completion each, log-probabilities that are off by a known amount."""
    params = SamplingParams(4, 0.7)
    given, wanted = {}, {}
    for n, (agent, off) in enumerate(zip(tiny.AGENTS, (0.25, 0.5), strict=True)):
        tokens = [11, 12, 13]
        logits = tiny.completion_logits(_own(n), PROMPTS[agent][0], tokens)
        oracle = tiny.np_log_probs(logits, params)[range(3), tokens]
        signs = np.array([1, -1, 1], np.float32)
        completion = Completion(np.array(tokens, np.int32), (oracle + off * signs).astype(np.float32), False)
        given[agent], wanted[agent, "s"] = [agreement.Read("s", PROMPTS[agent][0], completion)], off
    published = LOCAL.publish(0, member(), learned())
    actual = agreement.gaps(published, given, params, 1)
    assert actual == pytest.approx(wanted, abs=1e-4)


def test_copies_that_fill_up_do_not_count_in_the_gap():
    """Of agent a two completions, 0.25 and 1 nats away, of b one: the mean of a's tokens, not of three rows."""
    given = off_by([("a", "s", 0.25), ("a", "s", 1.0), ("b", "s", 0.5)])
    actual = agreement.gaps(LOCAL.publish(0, member(), learned()), given, SamplingParams(4, 0.7), 3)
    assert actual == pytest.approx({("a", "s"): 0.625, ("b", "s"): 0.5}, abs=1e-4)


def test_the_gap_is_of_every_server_alone():
    given = off_by([("a", "s", 0.0), ("a", "t", 1.0), ("a", "s", 0.5), ("b", "s", 0.5), ("b", "t", 0.25)])
    actual = agreement.gaps(LOCAL.publish(0, member(), learned()), given, SamplingParams(4, 0.7), 3)
    wanted = {("a", "s"): 0.25, ("a", "t"): 1.0, ("b", "s"): 0.5, ("b", "t"): 0.25}
    assert actual == pytest.approx(wanted, abs=1e-4)


def off_by(cases):
    """By agent, completions whose log-probabilities are off by a known amount: (agent, server, nats) of each."""
    params, given = SamplingParams(4, 0.7), {agent: [] for agent in tiny.AGENTS}
    for agent, server, off in cases:
        tokens = [11, 12, 13]
        logits = tiny.completion_logits(_own(tiny.AGENTS.index(agent)), PROMPTS[agent][0], tokens)
        oracle = tiny.np_log_probs(logits, params)[range(3), tokens]
        completion = Completion(np.array(tokens, np.int32), (oracle - off).astype(np.float32), False)
        given[agent].append(agreement.Read(server, PROMPTS[agent][0], completion))
    return given


@pytest.mark.parametrize("a, b, servers, wanted", [
    (8, 1, 2, {"a": {0, 1}, "b": {0}}),
    (1, 8, 3, {"a": {0}, "b": {1, 2, 0}}),
    (8, 3, 4, {"a": {0, 1, 2, 3}, "b": {0, 1, 2}}),
    (4, 4, 1, {"a": {0}, "b": {0}}),
])  # fmt: skip
def test_of_each_agent_every_server_that_drew_is_compared(tmp_path, monkeypatch, a, b, servers, wanted):
    """The n-th prompt goes to server n modulo their number; each server here tells its number by its token."""
    compared, numbers = {}, set()

    def gaps(published, rows, params, number):
        numbers.add(number)
        compared.update({agent: [int(read.completion.tokens_L[0]) for read in own] for agent, own in rows.items()})
        return {(agent, read.server): 0.0 for agent, own in rows.items() for read in own}

    def complete(job, lines):
        token = int(job.server.url.removeprefix("http://s"))
        return [Completion(np.array([token], np.int32), np.zeros(1, np.float32), True)] * job.wanted.samples

    monkeypatch.setattr(agreement, "gaps", gaps)
    monkeypatch.setattr(completions, "_complete", complete)
    engine = engine_of([f"http://s{n}" for n in range(servers)], tmp_path)
    names = dict.fromkeys(tiny.AGENTS, "x")
    prompts = {"a": [[7, 8]] * a, "b": [[9]] * b}
    greedy = {agent: [False] * len(own) for agent, own in prompts.items()}
    published = Published(member(), learned(), names, names)
    engine.draw(published, prompts, KEY, 2, PARAMS, greedy=greedy, sizes=(8, 8))
    assert {agent: set(own) for agent, own in compared.items()} == wanted
    assert all(len(compared[agent]) >= min(2, len(own)) for agent, own in prompts.items())
    assert numbers == {max(2, servers)}


# Calls


def test_waits_double_up_to_the_longest_whatever_their_number():
    waits = list(Server("http://x", timeout=1.0, retries=2000).waits())
    assert len(waits) == 2000
    for n, wait in enumerate(waits):
        longest = 0.5 * 2**n if n < 6 else 30
        assert 0.75 * longest <= wait <= longest


def test_an_answer_that_drips_in_ends_at_its_deadline():
    class Slow(engine_server.Handler):
        def answer(self, body):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            for _ in range(200):
                try:
                    self.wfile.write(b" ")
                    self.wfile.flush()
                except OSError:
                    return
                time.sleep(0.02)

    with EngineServer(member()) as server:
        server._http.RequestHandlerClass = Slow
        slow = Server(server.url, timeout=0.3, retries=0)
        with pytest.raises(UserError, match="no answer within 0.3 s"):
            together([lambda lines: slow.call(lines, "/v1/models")], 1)


def test_a_request_to_stop_ends_what_is_under_way():
    waiting, over = threading.Event(), threading.Event()

    def change(path, body, answer):
        waiting.set()
        over.wait(30)
        return answer

    with EngineServer(member(), change) as server:
        patient = Server(server.url, timeout=60.0, retries=3)
        threading.Thread(target=lambda: (waiting.wait(30), stopping.request())).start()
        try:
            with pytest.raises(stopping.StopRequested):
                together([lambda lines: patient.call(lines, "/v1/models")], 1)
        finally:
            stopping.withdraw()
            over.set()
    assert patient.repeated == 0


def test_one_failure_ends_the_other_calls():
    over = threading.Event()

    def change(path, body, answer):
        if body and body.get("slow"):
            over.wait(30)
        return answer if path == "/v1/models" else (200, {})

    def fails(lines):
        raise UserError("broken")

    with EngineServer(member(), change) as server:
        patient = Server(server.url, timeout=60.0, retries=3)
        slow = [lambda lines: patient.call(lines, UNLOAD, {"lora_name": "x", "slow": True})] * 2
        with pytest.raises(UserError, match="broken"):
            together([*slow, fails], 3)
        over.set()


def test_a_slow_server_has_no_more_requests_than_allowed_and_keeps_no_other_waiting():
    """Ten requests at each of two servers, two at a time: the fast one has answered all before the slow one one."""
    lock, over = threading.Lock(), threading.Event()
    under_way, most, answered = {"slow": 0, "fast": 0}, {"slow": 0, "fast": 0}, []

    def job(server, lines):
        with lock:
            under_way[server] += 1
            most[server] = max(most[server], under_way[server])
        if server == "slow":
            assert over.wait(30)
        with lock:
            under_way[server] -= 1
            answered.append(server)
            if answered.count("fast") == 10:
                over.set()
        return server

    servers = ["slow", "fast"] * 10
    assert together([functools.partial(job, server) for server in servers], 2, servers) == servers
    assert most["slow"] == 2 and most["fast"] <= 2 and answered == ["fast"] * 10 + ["slow"] * 10


def test_results_come_in_order_and_the_key_is_sent_and_hidden(monkeypatch):
    assert together([lambda lines, i=i: i for i in range(20)], 3) == list(range(20))
    monkeypatch.setenv("ENGINE_KEY", "secret-key-1234")
    with EngineServer(member()) as server:
        Server(server.url, timeout=5.0, retries=0, key_variable="ENGINE_KEY").call(Lines(), "/v1/models")
        assert server.headers[-1]["authorization"] == "Bearer secret-key-1234"

    def echo(path, body, answer):
        raise Raw(json.dumps({"error": "bad key secret-key-1234"}).encode(), 500)

    with EngineServer(member(), echo) as server, pytest.raises(UserError) as error:
        Server(server.url, timeout=5.0, retries=0, key_variable="ENGINE_KEY").call(Lines(), "/v1/models")
    assert "secret" not in str(error.value).replace("[key]", "") and "HTTP 500" in str(error.value)
    monkeypatch.delenv("ENGINE_KEY")
    with EngineServer(member()) as server, pytest.raises(UserError, match="ENGINE_KEY is not set"):
        Server(server.url, timeout=5.0, retries=0, key_variable="ENGINE_KEY").call(Lines(), "/v1/models")
