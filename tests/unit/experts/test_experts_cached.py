"""experts/cached.py and the factory: what is asked once, what is found again, and what is refused."""

import json
import subprocess
import sys

import pytest
from repository import ROOT

from jaxmarl_llm import experts
from jaxmarl_llm.experts import Cached, ExpertError, Reply, Request, Spent


def question(text: str, item: str = "i", **options) -> Request:
    return Request(({"role": "user", "content": text},), item=item, **options)


class Source:
    """Answers in reverse order and counts: the n-th answer to "a" is "a n"."""

    def __init__(self, model="m", fail_at=None):
        self.identity = {"kind": "fake", "base_url": "", "model": model}
        self.asked, self.checked, self._fail_at = [], 0, fail_at

    @property
    def spent(self):
        return Spent(requests=len(self.asked))

    def refusal(self, request):
        return "too rude" if request.messages[0]["content"] == "rude" else None

    def check(self):
        self.checked += 1

    def answer(self, requests, arrived):
        for index, request in reversed(list(enumerate(requests))):
            text = request.messages[0]["content"]
            if text == self._fail_at:
                raise ExpertError(f"item {request.item!r}: no")
            self.asked.append(text)
            arrived(index, Reply(f"{text} {self.asked.count(text)}", 1, 2, finished=False))


def texts(replies):
    return [reply.text for reply in replies]


def test_answers_come_in_order_and_a_second_time_from_disk(tmp_path):
    first, second = Cached(Source(), tmp_path), Cached(Source(), tmp_path)
    replies = first.ask([question("a"), question("b", max_tokens=3)])
    assert replies == [Reply("a 1", 1, 2, False, False), Reply("b 1", 1, 2, False, False)]
    again = second.ask([question("b", max_tokens=3), question("c"), question("a", item="other name")])
    assert [(reply.text, reply.cached) for reply in again] == [("b 1", True), ("c 1", False), ("a 1", True)]
    assert (first.spent.cached, second.spent) == (0, Spent(requests=1, cached=2))
    assert not list(tmp_path.glob("*.tmp")) and len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    "other",
    [
        question("b"),
        question("a", max_tokens=7),
        question("a", temperature=1.0),
        question("a", temperature=0.5),
        Request(({"role": "system", "content": "a"},), "i", temperature=0),
        question("a"),
    ],
)
def test_any_difference_is_another_request(other, tmp_path):
    expert = Cached(Source(), tmp_path)
    expert.ask([question("a", temperature=0)])
    assert not expert.ask([other])[0].cached
    assert not Cached(Source("another model"), tmp_path).ask([question("a", temperature=0)])[0].cached


def test_the_same_question_is_asked_once_at_temperature_zero_and_every_time_otherwise(tmp_path):
    source = Source()
    for folder in ("", tmp_path):
        greedy = Cached(source, folder).ask([question("a", temperature=0)] * 3)
        assert len(set(texts(greedy))) == 1 and [reply.cached for reply in greedy] == [False, True, True]
    drawn = Cached(source, tmp_path).ask([question("x"), question("y"), question("x"), question("x")])
    assert sorted(texts(drawn)) == ["x 1", "x 2", "x 3", "y 1"] and drawn[1].text == "y 1"
    replay = Cached(Source(), tmp_path, offline=True)
    assert texts(replay.ask([question("x"), question("x"), question("y"), question("x")])) == [
        drawn[0].text,
        drawn[2].text,
        "y 1",
        drawn[3].text,
    ]


def test_offline_needs_no_source_and_a_miss_names_the_item(tmp_path):
    Cached(Source(), tmp_path).ask([question("a")])
    source = Source()
    replay = Cached(source, tmp_path, offline=True)
    replay.check([question("a")])
    assert texts(replay.ask([question("a")])) == ["a 1"]
    with pytest.raises(ExpertError, match=r"expert 'm' \(fake\), item 'p/7': offline, .*missing answers: 2"):
        replay.ask([question("a"), question("b", item="p/7"), question("c")])
    assert not source.asked and not source.checked
    with pytest.raises(ValueError, match="offline, but the cache folder .*/nowhere does not exist"):
        Cached(Source(), tmp_path / "nowhere", offline=True).check()
    with pytest.raises(ValueError, match="expert.offline=True needs expert.cache"):
        Cached(Source(), "", offline=True)


def test_what_arrived_before_a_failure_is_kept(tmp_path):
    with pytest.raises(ExpertError, match="item 'i': no"):
        Cached(Source(fail_at="b"), tmp_path).ask(
            [question("a"), question("b"), question("c"), question("d")]
        )
    source = Source()
    assert texts(Cached(source, tmp_path).ask(list(map(question, "abcd")))) == ["a 1", "b 1", "c 1", "d 1"]
    assert source.asked == ["b", "a"]  # the others had arrived


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"reply": {"text": 3}}', "[" * 100_000, "\udcff"])
def test_a_damaged_file_is_asked_for_again_or_missed(damage, tmp_path, caplog):
    Cached(Source(), tmp_path).ask([question("a")])
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage.encode("utf-8", "surrogateescape"))
    with pytest.raises(ExpertError, match="item 'i': offline"):
        Cached(Source(), tmp_path, offline=True).ask([question("a")])
    assert str(path) in caplog.text and "counts as absent" in caplog.text
    assert not Cached(Source(), tmp_path).ask([question("a")])[0].cached
    assert Cached(Source(), tmp_path).ask([question("a")])[0].cached


def test_files_say_what_was_asked_and_answered(tmp_path):
    Cached(Source(), tmp_path).ask([question("é", item="p/1", temperature=1, max_tokens=9)])
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text()) == {
        "item": "p/1",
        "request": {
            "kind": "fake",
            "base_url": "",
            "model": "m",
            "max_tokens": 9,
            "temperature": 1.0,
            "messages": [{"role": "user", "content": "é"}],
        },
        "reply": {"text": "é 1", "input_tokens": 1, "output_tokens": 2, "finished": False},
    }


def test_a_folder_that_cannot_be_written_to_is_an_error_with_the_item(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ExpertError, match="item 'i': its answer cannot be kept in .*/file/cache: Not a directory"
    ):
        Cached(Source(), tmp_path / "file" / "cache").ask([question("a")])


def test_a_refused_request_is_a_value_error_before_anything_is_asked():
    source = Source()
    for call in (Cached(source).ask, Cached(source).check):
        with pytest.raises(ValueError, match=r"expert 'm' \(fake\), item 'r': too rude"):
            call([question("a"), question("rude", item="r")])
    assert not source.asked and not source.checked
    assert Cached(source).ask([]) == []


@pytest.mark.parametrize(
    "fields, complaint",
    [
        (dict(messages=()), "item 'i': messages is empty"),
        (dict(messages=({"role": "tool", "content": ""},)), "needs 'content' and a 'role' of"),
        (dict(messages=({"role": "user"},)), "needs 'content' and a 'role' of"),
        (dict(messages=({"role": "user", "content": None},)), "content None is not text"),
        (dict(max_tokens=0), "max_tokens=0; allowed: at least 1"),
        (dict(temperature=-1.0), "temperature=-1.0; allowed: at least 0"),
        (dict(temperature=float("nan")), "temperature=nan; allowed"),
    ],
)
def test_bad_requests(fields, complaint):
    good = {"messages": ({"role": "user", "content": "a"},), "item": "i"}
    with pytest.raises(ValueError, match=complaint):
        Request(**good | fields)


@pytest.mark.parametrize(
    "fields, complaint",
    [
        (dict(kind="oracle"), "expert.kind='oracle'; allowed: openai, anthropic, local"),
        (dict(model=""), "expert.model is empty"),
        (dict(timeout_seconds=0), "expert.timeout_seconds=0; allowed: a number from"),
        (dict(timeout_seconds=float("inf")), "expert.timeout_seconds=inf"),
        (dict(retries=-1), "expert.retries=-1; allowed: a number from 0"),
        (dict(parallel=0), "expert.parallel=0; allowed: a number from 1"),
        (dict(requests_per_minute=-1), "expert.requests_per_minute=-1"),
        (dict(token_budget=-5), "expert.token_budget=-5"),
        (dict(base_url="host/v1"), "expert: base_url='host/v1' is no address"),
        (dict(base_url="ftp://host"), "base_url='ftp://host' is no address"),
        (dict(base_url="http://[::1/v1"), "expert: base_url is no address"),
        (dict(offline=True), "expert.offline=True needs expert.cache"),
        (
            dict(kind="local", base_url="http://host"),
            "expert.base_url='http://host': a local model has no such thing",
        ),
        (dict(kind="local", token_budget=5), "expert.token_budget=5: a local model has no such thing"),
    ],
)
def test_bad_values_are_refused_by_the_factory(fields, complaint):
    with pytest.raises(ValueError, match=complaint):
        experts.build(**{"kind": "openai", "model": "m"} | fields)


def test_nothing_but_a_local_model_brings_in_jax_or_an_sdk():
    code = (
        "import sys\nfrom jaxmarl_llm import experts\nfrom jaxmarl_llm.tasks.coding import expert_edits\n"
        "for kind in experts.APIS: experts.build(kind, 'm')\n"
        "assert not {'jax', 'flax', 'openai', 'anthropic'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
