"""Costs, weights and mixtures of teachers by hand; their caches; what is refused."""

import numpy as np
import pytest

from jaxmarl_llm.byte_tokenizer import ByteTokenizer
from jaxmarl_llm.fusion import cache, fuse, pieces, texts
from jaxmarl_llm.fusion.align import Aligned, Seen
from jaxmarl_llm.fusion.texts import Part, Text


def seen_with(nats, bytes_each: int) -> Seen:
    """A text of tokens of equal bytes with these costs, and its end."""
    size = len(nats)
    ends = np.append(np.arange(1, size + 1) * bytes_each, size * bytes_each)
    logprobs = -np.array([*nats, 9.0], np.float32)
    return Seen(np.arange(size + 1), ends, logprobs, np.zeros((size + 1, 2), int), np.zeros((size + 1, 2), np.float16))


def test_per_token_and_per_byte_prefer_another_teacher():
    """Eight bytes: two tokens of 3 nats, or eight of 1 nat. The end of the text, 9 nats here, does not count."""
    teachers = [seen_with([3, 3], 4), seen_with([1] * 8, 1)]
    per = {unit: [fuse.cost(seen, 8, unit) for seen in teachers] for unit in fuse.COSTS}
    assert per == {"token": [3.0, 1.0], "byte": [0.75, 1.0]}
    assert fuse.weights(per["token"], "min_ce").tolist() == [0, 1]
    assert fuse.weights(per["byte"], "min_ce").tolist() == [1, 0]
    np.testing.assert_allclose(fuse.weights(per["byte"], "avg_ce"), np.exp([0.25, 0]) / (np.exp(0.25) + 1))
    assert fuse.weights([800.0, 801.0], "avg_ce")[0] == pytest.approx(1 / (1 + np.exp(-1)))


def test_mixtures_by_hand():
    one, two = Aligned([{1: 0.5, 2: 0.25}, None, None]), Aligned([{2: 0.75}, {3: 1.0}, None])
    rows = fuse.fused([one, two], np.array([0.25, 0.75]))
    assert rows == [{1: 0.125, 2: 0.0625 + 0.5625}, {3: 1.0}, None]
    assert fuse.fused([one, two], np.array([1.0, 0.0])) == [{1: 0.5, 2: 0.25}, None, None]
    ids, logprobs = fuse.as_arrays(np.array([5, 3, 7]), {0: rows[0], 1: rows[1]}, top=2)
    assert ids.tolist() == [[2, 1], [3, 0], [7, 0]]  # at the last place the text itself
    np.testing.assert_allclose(np.exp(logprobs), [[0.625, 0.125], [1, 0], [1, 0]], rtol=1e-6)
    ids, _ = fuse.as_arrays(np.array([9]), {0: {1: 0.5, 2: 0.3, 9: 0.2}}, top=2)
    assert ids.tolist() == [[9, 1]]  # the text's own token is always among them


def test_most_positions_misaligned_is_refused_with_the_share():
    fuse.check_aligned({"a": 0.5}, "bytes")
    message = "distil.align='bytes': at 51% of .* teacher 'a' is misaligned, .* allowed are 50%"
    with pytest.raises(ValueError, match=message):
        fuse.check_aligned({"b": 0.0, "a": 0.51}, "bytes")


def test_texts_that_do_not_come_back_are_refused_with_the_share():
    class Lower(ByteTokenizer):
        def encode(self, text):
            return super().encode(text.lower())

    pieces.check_round_trip(["go", "left"], Lower(), "'a'", "--texts")
    with pytest.raises(ValueError, match=r"--texts: 1 of 4 texts \(25%\) do not come back .* of 'a' .* 'Left'"):
        pieces.check_round_trip(["go", "Left", "now", "on"], Lower(), "'a'", "--texts")


def test_parts_of_an_answer_of_all_roles():
    by_role = {"aux": " pass\n[main]\n", "main": "gö", "last": ""}
    written = "[aux]\npass\n[main]\n[main]\ngö\n[last]\n"
    read = {role: [{"role": "user", "content": role}] for role in by_role}
    teachers = {"aux": ["aux", "x"], "main": ["main"], "last": ["last"]}
    text = Text("team", (), written, texts.of_roles(by_role, written, teachers, read))
    assert [(p.teacher, text.content(p), p.messages[0]["content"]) for p in text.parts] == [
        ("aux", "pass\n[main]", "aux"), ("x", "pass\n[main]", "aux"), ("main", "gö", "main"),
    ]  # fmt: skip


def test_a_file_of_texts_comes_back(tmp_path):
    messages = ({"role": "user", "content": "ü?"},)
    rows = [Text("s", messages, "a\u2028b", (Part("t", 0, 5, messages),), "half"), Text("s", messages, "c", weight=0.5)]
    texts.write(tmp_path / "t.jsonl", rows)
    assert texts.read(tmp_path / "t.jsonl") == rows
    assert texts.teachers(rows) == ["t"] and texts.units(rows, "t") == [(0, rows[0].parts[0])]


class Asked:
    """A teacher that notes what it is asked, and is killed at one call."""

    def __init__(self, killed_at=None):
        self.calls, self._killed_at = [], killed_at

    def __call__(self, units):
        if len(self.calls) == self._killed_at:
            raise KeyboardInterrupt
        self.calls.append(list(units))
        return [Seen(np.array([n, 1]), np.array([2, 2]), np.array([-1.0, -n], np.float32),
                     np.array([[n, 3], [1, 2]]), np.array([[-0.5, -2], [-1, -np.inf]], np.float16))
                for n in units]  # fmt: skip


def tokens(ids):
    return cache.Tokens({i: None if i == 3 else bytes([i]) for i in ids}, "mark")


def test_a_cache_that_was_stopped_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "SHARD", 2)
    about, units = {"teacher": "a", "texts": "x"}, [4, 5, 6, 7, 8]
    cache.fill(tmp_path / "whole", about, units, Asked(), tokens)
    with pytest.raises(KeyboardInterrupt):
        cache.fill(tmp_path / "cut", about, units, Asked(killed_at=1), tokens)
    assert not cache.is_whole(tmp_path / "cut")
    with pytest.raises(ValueError, match="cut: a teacher's cache without its end"):
        cache.read(tmp_path / "cut")
    again = Asked()
    cache.fill(tmp_path / "cut", about, units, again, tokens)
    assert again.calls == [[6, 7], [8]]
    for name in ("00000.npz", "00001.npz", "00002.npz", cache.TOKENS, cache.ABOUT):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    seen, held = cache.read(tmp_path / "cut")
    assert [int(s.ids[0]) for s in seen] == units and held.of_id[3] is None and held.of_id[4] == b"\x04"
    assert seen[0].top_logprobs.dtype == np.float16 and seen[0].logprobs.dtype == np.float32
    with pytest.raises(ValueError, match="holds a teacher's cache of another texts"):
        cache.fill(tmp_path / "cut", about | {"texts": "y"}, units, Asked(), tokens)
