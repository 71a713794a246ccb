"""experts/remote.py and its two APIs against a real server on loopback that speaks them and fails."""

import asyncio
import contextlib
import importlib.util
import logging
import pickle
import re
import sys
import threading
import time
import traceback

import pytest
from expert_server import Say, Server

from jaxmarl_llm import experts
from jaxmarl_llm.experts import ExpertError, Request, Spent
from jaxmarl_llm.experts.limits import Account, RateLimit

pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, experts.APIS)), reason="pip install 'jaxmarl_llm[experts]'"
)

KEY = "sk-test-Zq81-do-not-show"
KINDS = {"openai": ("/v1", "OPENAI_API_KEY"), "anthropic": ("", "ANTHROPIC_API_KEY")}
both = pytest.mark.parametrize("kind", KINDS)


def question(text: str, **options) -> Request:
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": text})
    return Request(messages, item=f"item-{text}", **({"max_tokens": 50} | options))


class Sleep:
    """Waits in no time, and remembers for how long it should have."""

    def __init__(self):
        self.waits = []

    async def __call__(self, seconds):
        if seconds:
            self.waits.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for _, variable in KINDS.values():
        monkeypatch.setenv(variable, KEY)


def build(kind, url, folder="", **options):
    options = {"timeout_seconds": 10.0, "retries": 3, "sleep": Sleep()} | options
    source = experts.APIS[kind]("wise", base_url=url + KINDS[kind][0], **options)
    return experts.Cached(source, str(folder))


def fails(expert, *requests) -> ExpertError:
    with pytest.raises(ExpertError) as caught:
        expert.ask(requests or [question("hello")])
    return caught.value


@both
def test_a_good_answer_and_what_was_sent_for_it(kind):
    with Server() as server:
        expert = experts.build(kind, "wise", base_url=server.url + KINDS[kind][0])
        expert.check()
        (reply,) = expert.ask([question("hello")])
    assert reply == experts.Reply("HELLO", 11, 7, finished=True, cached=False)
    assert expert.spent == Spent(requests=1, input_tokens=11, output_tokens=7)
    (listed, *_), (path, headers, asked) = server.seen
    user = {"role": "user", "content": "hello"}
    if kind == "openai":
        assert (listed, path) == ("/v1/models", "/v1/chat/completions")
        system = {"role": "system", "content": "Be brief."}
        assert asked == {"model": "wise", "max_tokens": 50, "messages": [system, user]}
    else:
        assert (listed, path) == ("/v1/models?limit=1000", "/v1/messages")
        assert asked == {"model": "wise", "max_tokens": 50, "system": "Be brief.", "messages": [user]}
    assert headers["authorization"] == f"Bearer {KEY}"


def test_temperature_goes_to_apis_that_take_one_and_is_refused_for_the_other():
    with Server() as server:
        build("openai", server.url).ask([question("hello", temperature=0.5)])
        assert server.seen[0][2]["temperature"] == 0.5
        with pytest.raises(
            ValueError, match="item 'item-hello': temperature=0.5: Anthropic's API takes none"
        ):
            build("anthropic", server.url).ask([question("hello", temperature=0.5)])
        with pytest.raises(ValueError, match="item 'item-hello': temperature=0.5"):
            build("anthropic", server.url).check([question("hello", temperature=0.5)])
        only = Request(({"role": "system", "content": "x"},), item="i")
        with pytest.raises(ValueError, match="messages hold system messages only"):
            build("anthropic", server.url).ask([only])
        assert len(server.seen) == 1


@both
def test_order_is_kept_while_many_are_under_way(kind):
    """Four at a time reach the server, which answers the first of them last."""
    seen = []
    together = threading.Barrier(4, action=lambda: seen.append(len(server.seen)), timeout=30)

    def rule(asked):
        together.wait()
        return Say(wait=0.2 - 0.02 * int(asked["messages"][-1]["content"]))

    texts = [str(i) for i in range(8)]
    with Server(rule=rule) as server:
        replies = build(kind, server.url, parallel=4).ask([question(text) for text in texts])
    assert [reply.text for reply in replies] == texts
    assert seen == [4, 8]


@both
def test_too_many_requests_then_success_after_the_stated_wait(kind):
    sleep = Sleep()
    body = '{"error": {"message": "slow down", "type": "rate_limit_error"}}'
    script = [Say(status=429, headers=(("Retry-After", "7"),), body=body), Say(status=529, body="busy")]
    with Server(*script) as server:
        (reply,) = build(kind, server.url, sleep=sleep).ask([question("hello")])
    assert reply.text == "HELLO" and len(server.seen) == 3
    assert sleep.waits[0] == 7
    assert 0.75 <= sleep.waits[1] <= 1  # the second back-off: 0.5 * 2 s, less up to a quarter


@both
def test_a_stated_wait_of_zero_does_not_use_up_the_retries_at_once(kind):
    sleep = Sleep()
    with Server(rule=lambda asked: Say(status=429, headers=(("Retry-After", "0"),), body="{}")) as server:
        fails(build(kind, server.url, sleep=sleep))
    assert len(server.seen) == 4
    assert all(0.75 * most <= slept <= most for slept, most in zip(sleep.waits, (0.5, 1, 2), strict=True))


@both
def test_a_wait_of_an_hour_is_an_error_at_once(kind):
    with Server(Say(status=429, headers=(("Retry-After", "3600"),), body="{}")) as server:
        error = fails(build(kind, server.url))
    assert "item 'item-hello': asked to wait 3600 s; HTTP 429" in str(error) and len(server.seen) == 1


@both
def test_errors_of_the_server_until_the_retries_are_used_up(kind):
    sleep, body = Sleep(), '{"error": {"message": "out of order"}}'
    with Server(rule=lambda asked: Say(status=500, body=body)) as server:
        url, expert = server.url, build(kind, server.url, sleep=sleep)
        error = fails(expert)
    name = f"expert 'wise' ({kind} at {url}{KINDS[kind][0]})"
    assert str(error) == f"{name}, item 'item-hello': HTTP 500: out of order (attempts: 4)"
    assert len(server.seen) == 4 and len(sleep.waits) == 3
    assert expert.spent == Spent(requests=4)


@both
@pytest.mark.parametrize(
    "status, message", [(400, "no such field"), (401, "bad key"), (404, "no such model")]
)
def test_what_no_repetition_cures_is_not_repeated(kind, status, message):
    with Server(Say(status=status, body=f'{{"error": {{"message": "{message}"}}}}')) as server:
        error = fails(build(kind, server.url))
    assert f"'item-hello': HTTP {status}: {message}" in str(error) and len(server.seen) == 1


@both
@pytest.mark.parametrize("say", [Say(wait=60), Say(drip=True)], ids=["silent", "drips"])
def test_slow_answers_time_out_even_if_bytes_keep_coming(kind, say):
    began = time.monotonic()
    with Server(say, say) as server:
        expert = build(kind, server.url, timeout_seconds=0.3, retries=1)
        error = fails(expert)
    assert "'item-hello': no answer within 0.3 s (attempts: 2)" in str(error)
    assert len(server.seen) == 2 and time.monotonic() - began < 30
    # The prompt's 9 and 5 bytes are 3 and 2 tokens, and each message has 8 more: 21. Both attempts may have
    # been paid in full.
    assert expert.spent == Spent(requests=2, input_tokens=2 * 21, output_tokens=2 * 50)


GARBAGE = {
    "not JSON": (Say(body='{"choices": ['), "malformed answer"),
    "a web page": (
        Say(body="<html>Welcome</html>", headers=(("Content-Type", "text/html"),)),
        "malformed|an answer",
    ),
    "cut off": (Say(cut=20), "no connection, or a broken one"),
    "empty object": (Say(body="{}"), "an answer without"),
    "no choices": (Say(body='{"choices": [], "content": []}'), "an answer without"),
    "a list": (Say(body="[]"), "an answer without"),
    "null": (Say(body="null"), "an answer without"),
    "wrong types": (Say(body='{"choices": {"a": 1}, "content": {"a": 1}}'), "an answer without"),
    "numbers": (Say(body='{"choices": [3], "content": [3]}'), "an answer without text"),
    "blank text": (Say(text=" \n", stop="length"), "an answer without text"),
    "too deep": (Say(body="[" * 100_000), "malformed answer|recursion"),
}


@both
@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_asked_again_and_then_an_error(kind, name):
    say, reason = GARBAGE[name]
    with Server(say) as server:
        assert build(kind, server.url).ask([question("hello")])[0].text == "HELLO"
        assert len(server.seen) == 2
    with Server(say, say) as server:
        with pytest.raises(ExpertError, match=f"item 'item-hello': .*({reason}).*attempts: 2"):
            build(kind, server.url, retries=1).ask([question("hello")])


@both
def test_nobody_there(kind):
    with Server() as server:
        url = server.url
    expert = build(kind, url, retries=1)
    assert "item 'item-hello': no connection" in str(fails(expert))
    assert expert.spent == Spent(requests=2)  # nothing was sent, so nothing is owed
    with pytest.raises(ExpertError, match=r"expert 'wise' \(.*\): no connection"):
        expert.check()


@both
def test_after_a_failure_what_is_under_way_is_kept_and_nothing_new_is_begun(kind, tmp_path):
    def rule(asked):
        text = asked["messages"][-1]["content"]
        return Say(status=400, body="{}") if text == "1" else Say(wait=0.3 if text == "0" else 0)

    texts = ["0", "1", "2", "3"]
    with Server(rule=rule) as server:
        error = fails(build(kind, server.url, tmp_path, parallel=2), *map(question, texts))
        assert "item 'item-1': HTTP 400" in str(error)
        assert sorted(asked["messages"][-1]["content"] for *_, asked in server.seen) == ["0", "1"]
        server.rule = None  # the fault is repaired, and the run goes on
        replies = build(kind, server.url, tmp_path).ask([question(text) for text in texts])
        assert [(reply.text, reply.cached) for reply in replies] == list(
            zip(texts, [True, *[False] * 3], strict=True)
        )
        assert len(server.seen) == 5


@both
def test_missing_usage_is_estimated_and_a_cut_answer_says_so(kind):
    with Server(Say(text="x" * 31, usage=None, stop="length")) as server:
        (reply,) = build(kind, server.url).ask([question("hello")])
    assert (reply.input_tokens, reply.output_tokens, reply.finished) == (21, 11, False)  # 31 bytes, 3 a token


@both
def test_half_surrogates_in_an_answer_become_text_that_can_be_encoded(kind):
    with Server(Say(text="a\ud800b")) as server:
        assert build(kind, server.url).ask([question("hello")])[0].text == "a?b"


@both
def test_the_budget_stops_the_request_that_could_exceed_it(kind):
    """One may need 21 + 50 tokens and costs 11 + 7 = 18: after three, 54 of 124 are spent and 70 are left."""
    with Server() as server:
        expert = build(kind, server.url, account=Account(124, Spent()), parallel=4)
        error = fails(expert, *(question(str(i) * 5) for i in range(6)))
    left = "it may need 71 tokens, and 70 of the token budget of 124 are left"
    assert re.search(rf"item 'item-(\d)\1{{4}}': {left}$", str(error))
    assert len(server.seen) == 3 and expert.spent.tokens == 54


@both
def test_the_rate_limit_spaces_all_attempts(kind):
    """The clock stands still, so that the third start of two a minute is 60 s away, the fifth 120 s."""
    sleep, rate = Sleep(), RateLimit(2, clock=lambda: 100.0)
    with Server(Say(body="{}"), Say(), Say(), Say()) as server:  # the first is garbage and asked again
        build(kind, server.url, rate=rate, sleep=sleep, parallel=1).ask([question(str(i)) for i in range(4)])
    backoff, *waits = sleep.waits
    assert backoff <= 0.5 and waits == [60, 60, 120] and len(server.seen) == 5


@both
def test_the_key_is_asked_for_by_name_and_only_where_one_is_wanted(kind, monkeypatch):
    variable = KINDS[kind][1]
    with Server() as server:
        expert = build(kind, server.url)
        for value in (None, "", " \n"):
            monkeypatch.delenv(variable, raising=False)
            if value is not None:
                monkeypatch.setenv(variable, value)
            for call in (expert.check, lambda: expert.ask([question("hello")])):
                with pytest.raises(ValueError, match=f"environment variable {variable} is not set"):
                    call()
        for value in ("sk-schlüssel", 'sk-"quoted"', "sk-two\nlines"):
            monkeypatch.setenv(variable, value)
            with pytest.raises(ValueError, match=f"{variable} holds characters that no key has") as caught:
                expert.check()
            assert value not in str(caught.value)
        assert not server.seen
        build(kind, server.url, key_variable="").check()
        monkeypatch.setenv("OTHER_KEY", f"{KEY}\n")
        build(kind, server.url, key_variable="OTHER_KEY").check()
    assert [headers["authorization"] for _, headers, _ in server.seen] == ["Bearer none", f"Bearer {KEY}"]


@both
def test_a_key_in_the_place_of_its_variable_is_refused_without_showing_it(kind):
    for key in (KEY, "gsk_a1B2c3D4"):
        with pytest.raises(ValueError, match="key_variable is not the name of an environment var") as caught:
            build(kind, "http://127.0.0.1:9", key_variable=key).check()
        assert key not in str(caught.value)


def everything(error: BaseException) -> str:
    """All that can be read off an exception and those behind it."""
    texts, pending = [], [error]
    while pending:
        one = pending.pop()
        texts += [str(one), repr(one), repr(vars(one)), *traceback.format_exception(one)]
        pending += [other for other in (one.__cause__, one.__context__) if other is not None]
    return "\n".join(texts)


@both
def test_the_key_is_in_nothing_that_is_produced(kind, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    echo = f'{{"error": {{"message": "wrong key {KEY}", "type": "{KEY}"}}}}'
    page = Say(body=f"<html>{KEY}</html>", headers=(("Content-Type", "text/html"),))
    bad = [Say(status=401, body=echo), Say(status=400, body=f"key {KEY}"), Say(status=500, body=echo), page]
    bad += [Say(cut=5), Say(wait=60), Say(body=f'{{"choices": "{KEY}"}}'), Say(body=f'{{"{KEY}": ')]
    produced = []
    with Server() as server:
        expert = build(kind, server.url, tmp_path, timeout_seconds=0.5, retries=0)
        for say in bad:
            server.script = [say]
            produced.append(everything(fails(expert)))
        server.script = [Say(text=f"your key is {KEY}")]
        (reply,) = expert.ask([question("hello")])
        server.models = [KEY]
        expert.check()
        server.script = [Say(status=403, body=echo)]
        with pytest.raises(ExpertError, match="HTTP 403") as caught:
            expert.check()
        produced += [everything(caught.value), repr(expert), repr(reply)]
        produced.append(repr(pickle.dumps([vars(vars(expert)["_source"])["identity"], reply, expert.spent])))
    produced += [path.read_text() for path in tmp_path.iterdir()]
    assert reply.text == "your key is [key]"
    assert "trying again" not in caplog.text and "not among the models listed: [key]" in caplog.text
    assert all(KEY in headers["authorization"] for _, headers, _ in server.seen)
    assert KEY not in "\n".join([*produced, caplog.text])


@both
def test_no_error_brings_the_sdks_exception_along(kind):
    with Server(Say(status=400, body="{}")) as server:
        error = fails(build(kind, server.url))
    assert error.__cause__ is None and error.__context__ is None


@both
def test_the_key_does_not_follow_a_redirect_to_another_server(kind):
    with Server() as other:
        moved = Say(status=307, headers=(("Location", f"{other.url}/v1/elsewhere"),))
        with Server(moved) as server, contextlib.suppress(ExpertError):
            build(kind, server.url, retries=0).ask([question("hello")])
    assert other.seen and KEY not in repr(other.seen)


@both
def test_check_accepts_an_endpoint_without_a_list_and_warns_of_an_unknown_model(kind, caplog):
    with Server(
        Say(status=404, body="{}"),
        Say(status=405, body="{}"),
        Say(body="[]"),
        Say(body="{}"),
        Say(status=500),
    ) as server:
        build(kind, server.url).check()
        build(kind, server.url).check()
        assert not caplog.records
        with pytest.raises(ExpertError, match="malformed answer"):
            build(kind, server.url, retries=0).check()
        with pytest.raises(ExpertError, match="no list of models where"):
            build(kind, server.url, retries=0).check()
        build(kind, server.url).check()  # once out of order, then well
        server.models = ["a", "b"]
        build(kind, server.url).check()
    assert "expert 'wise'" in caplog.text and "not among the models listed: a, b" in caplog.text


def test_a_missing_package_is_said_before_training(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)  # makes `import openai` raise ImportError
    with pytest.raises(ValueError, match=r"pip install 'jaxmarl_llm\[experts\]'"):
        build("openai", "http://127.0.0.1:9").check()


def test_it_works_where_an_event_loop_is_running():
    async def notebook():
        return build("openai", server.url).ask([question("hello")])

    with Server() as server:
        assert asyncio.run(notebook())[0].text == "HELLO"


@pytest.mark.parametrize(
    "url", ["http://me:secret@host/v1", "https://host/v1?key=secret", "http://secret@host"]
)
def test_an_address_with_a_secret_is_refused_without_showing_it(url):
    with pytest.raises(ValueError, match="base_url holds a user name, a password, a query") as caught:
        experts.build("openai", "m", base_url=url)
    assert "secret" not in str(caught.value)


def test_openai_itself_gets_the_newer_name_of_the_limit(monkeypatch):
    with Server() as server:
        monkeypatch.setattr(experts.APIS["openai"], "usual_url", server.url + "/v1")
        experts.build("openai", "wise").ask([question("hello")])
    assert server.seen[0][2]["max_completion_tokens"] == 50 and "max_tokens" not in server.seen[0][2]
