"""Random values, bytes and conversations against the executor's parsers: `wire`, and the tester's `link`.

14,000 cases from seeded generators. What arrives is either data of the closed set of plain types or one of
the documented errors, and a candidate that does not know the answer never passes.
"""

import collections
import json
import random
import signal
import socket

import pytest
from fuzzing import EXCEPTIONS, damaged, frame, mutated, shape, value, weight

from jaxmarl_llm.executor import VERDICTS, frames, wire
from jaxmarl_llm.executor.channel import link
from jaxmarl_llm.executor.judging import agents, tester

SECRET = 918273645546372819  # the right answer; no generator makes it
HANG = 300  # seconds; a guard, not a measurement


# ---- what a conversation is made of, so that the cases below need not know the protocol ----


def job(tests: str) -> dict:
    """What the tester is told about a program whose entry point is f."""
    return {"entry_point": "f", "prelude": "", "tests": tests, "sources": {"main": ""}, "stdio": False}


READY = {"answer": {"ready": {"f": ["call"]}}}


def valid_replies(rng) -> list:
    """One well-formed reply of each kind, and questions in place of one; none of them holds SECRET."""
    name = rng.choice(
        [*EXCEPTIONS, "StopIteration", "SystemExit", "ExceptionGroup", "Own", "print", "\ud800", ""]
    )
    replies = [
        {"ok": wire.encode(value(rng))},
        {"ok": wire.encode(None), "changed": {"0": wire.encode([value(rng)])}},
        {"raise": [name, name, "said so"]},
        {"unsupported": "value of type generator"},
        {"ok": [rng.choice(wire.HANDLES), rng.randrange(3)]},
        {"end": True},
    ]
    operation = rng.choice(["call", "get", "next", "item", "same", "load"])
    asked = {
        "do": operation,
        "of": rng.choice([0, 1, "f", "aux"]),
        "args": [wire.encode(value(rng, depth=1))],
    }
    return [*({"answer": reply} for reply in replies), {"ask": asked}]


def judge(tests: str, fd: int) -> dict:
    """The tester's judgement over a channel: status, passed, total and failures."""
    return tester._judge(job(tests), [fd])


def call_once(fd: int):
    """One call over a loaded channel."""
    channel = agents.Agents({"main": fd}, "f").links["main"]
    return channel.use("f", "call", ([3, 1], lambda x: x, iter([1])), {})


# ---- cases ----


@pytest.fixture(autouse=True)
def hang_guard():
    """An endless case fails instead of hanging the suite."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("hangs"))
    signal.alarm(HANG)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("seed", range(3))
def test_plain_values_return_as_they_were(seed):
    rng = random.Random(seed)
    for _ in range(1000):
        given = value(rng)
        returned = wire.decode(json.loads(json.dumps(wire.encode(given))))
        assert shape(returned) == shape(given)


def test_the_limits_are_the_same_on_both_sides(monkeypatch):
    rng = random.Random(3)
    for _ in range(500):
        given = value(rng, depth=6)
        encoded = wire.encode(given)
        monkeypatch.setattr(wire, "MAX_ITEMS", rng.randrange(1, 40))
        monkeypatch.setattr(wire, "MAX_DEPTH", rng.randrange(6))
        outcomes = []
        for function, data, error in (
            (wire.encode, given, wire.Unsupported),
            (wire.decode, encoded, wire.WireError),
        ):
            try:
                function(data)
                outcomes.append(True)
            except error:
                outcomes.append(False)
        monkeypatch.undo()
        assert outcomes in ([True, True], [False, False])


@pytest.mark.parametrize("seed", range(4))
def test_changed_encodings_give_plain_data_or_a_wire_error(seed):
    rng = random.Random(seed + 10)
    seen = collections.Counter()
    for _ in range(1000):
        data = wire.encode(value(rng))
        for _ in range(rng.randrange(1, 4)):
            data = mutated(data, rng)
        try:
            decoded = wire.decode(data)
        except wire.WireError:
            seen["refused"] += 1
        else:
            seen["decoded"] += 1
            # An empty set, 8 characters, takes 216 bytes.
            assert weight(decoded) <= 64 * len(json.dumps(data)) + 256
    assert min(seen["refused"], seen["decoded"]) > 100, seen


def test_damaged_frames_give_json_an_end_or_a_wire_error():
    rng = random.Random(20)
    seen = collections.Counter()
    for _ in range(3000):
        messages = [wire.encode(value(rng, depth=2)) for _ in range(rng.randrange(3))]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(
                b"".join(map(frame, messages)) + damaged(frame(wire.encode(value(rng, depth=2))), rng)
            )
            theirs.close()
            for message in messages:
                assert frames.read_frame(ours.fileno()) == message
            while True:
                try:
                    frames.read_frame(ours.fileno())
                    seen["read"] += 1
                except (EOFError, wire.WireError) as error:
                    seen[type(error).__name__] += 1
                    break
    assert min(seen["read"], seen["EOFError"], seen["WireError"]) > 100, seen


def with_peer(answers: list[bytes], use):
    """use(fd), where the answers lie ready in the channel and nothing follows them.

    A peer that answers in turn would wait for ever, like its reader, after an answer that is cut short.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(HANG)
        theirs.sendall(b"".join(answers))
        theirs.shutdown(socket.SHUT_WR)
        return use(ours.fileno())


def answer(rng) -> bytes:
    """A reply without SECRET: valid, changed, or damaged on its way."""
    reply = rng.choice(valid_replies(rng))
    for _ in range(rng.randrange(3)):
        reply = mutated(reply, rng)
    return damaged(frame(reply), rng) if rng.random() < 0.2 else frame(reply)


def test_a_call_ends_with_plain_data_or_a_documented_error():
    rng = random.Random(30)
    seen = collections.Counter()
    for _ in range(1500):
        try:
            weight(with_peer([answer(rng)], call_once))
            seen["value"] += 1
        except link.Gone as gone:
            assert gone.status in (*VERDICTS, "gone") and gone.status != "pass"
            seen[gone.status] += 1
        except Exception as error:
            own = type(error) in (link.CandidateError, link.UnsupportedValue)
            assert own or type(error).__name__ in EXCEPTIONS
            assert not isinstance(error, (StopIteration, StopAsyncIteration, wire.WireError))
            seen["own" if own else "builtin"] += 1
    assert all(seen[kind] > 5 for kind in ("value", "protocol", "gone", "own", "builtin")), seen


# Each is true for a candidate that returns SECRET, or leaves it in its list, and for no other.
SUITES = [
    f"def check(candidate):\n    assert candidate(1) == {SECRET}\n    assert candidate([2]) == {SECRET}\n",
    f"def check(candidate):\n    a = [3, 1]\n    candidate(a)\n    assert a == [{SECRET}]\n",
    f"def check(candidate):\n    assert all(map(lambda x: candidate(x) == {SECRET}, range(3)))\n",
    f"def check(candidate):\n    for i in range(3):\n        assert candidate(i) == {SECRET}\n",
    f"""
def check(candidate):
    try:
        found = candidate({{1}}, {{}}, [])
    except Exception:
        found = None
    assert found == {SECRET}, found
""",
    f"def check(candidate):\n    assert f(f(1)) == {SECRET}\n    assert abs(f(1) - {SECRET}) < 1e-6\n",
]


def test_the_right_answers_pass():
    # Shows that the cases below fail for their answers only.
    for tests in SUITES:
        reply = {"ok": SECRET} | ({"changed": {"0": wire.encode([SECRET])}} if "a = [" in tests else {})
        answers = [frame(READY), *[frame({"answer": reply})] * 3]
        assert with_peer(answers, lambda fd, tests=tests: judge(tests, fd))["status"] == "pass", tests


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_candidate_without_the_answer_never_passes(seed):
    rng = random.Random(seed + 40)
    seen = collections.Counter()
    for _ in range(1200):
        tests = rng.choice(SUITES)
        first = frame(READY) if rng.random() < 0.8 else damaged(frame(mutated(READY, rng)), rng)
        answers = [first, *(answer(rng) for _ in range(rng.randrange(5)))]
        outcome = with_peer(answers, lambda fd, tests=tests: judge(tests, fd))
        assert outcome["status"] in {*VERDICTS, "gone"} - {"pass"}, (outcome, tests, answers)
        assert outcome["passed"] == 0 and outcome["failures"], (outcome, tests, answers)
        json.dumps(outcome).encode()  # it must travel to the trainer
        seen[outcome["status"]] += 1
    assert all(seen[status] > 5 for status in ("fail", "error", "protocol", "gone", "unsupported")), seen
