"""Tokens of two tokenizers brought together by bytes: against enumeration of all that a teacher may write."""

import chat_tokenizers
import numpy as np
import pytest

from jaxmarl_llm import losses
from jaxmarl_llm.byte_tokenizer import ByteTokenizer
from jaxmarl_llm.fusion import align, edits, fuse, pieces, targets
from jaxmarl_llm.fusion.align import Own, Seen
from jaxmarl_llm.fusion.cache import Tokens
from jaxmarl_llm.fusion.pieces import Vocabulary
from jaxmarl_llm.fusion.texts import Part, Text
from jaxmarl_llm.weights import word_model

WORDS, BYTES = word_model.tokenizer(["go left now", "gold mine", "go"]), ByteTokenizer()
ALL = WORDS.vocab_size


def word_seen(text: str, seed: int = 0, top: int = ALL) -> Seen:
    """A text as a random word-level teacher has read it, with its ``top`` likeliest tokens at each position."""
    ids = np.array([*WORDS.encode(text), WORDS.eos_ids[0]])
    logits = np.random.default_rng(seed).normal(0, 1.0, (len(ids), ALL))
    return of_logits(ids, np.append(pieces.byte_ends(WORDS, ids[:-1], text), len(text)), logits, top)


def of_logits(ids, ends, logits, top) -> Seen:
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    top_ids = np.argsort(-logprobs, axis=-1)[:, :top]
    own = np.take_along_axis(logprobs, ids[:, None], 1)[:, 0]
    return Seen(ids, np.asarray(ends), own.astype(np.float32), top_ids, np.take_along_axis(logprobs, top_ids, 1))


def byte_seen(text: str, seed: int = 0) -> Seen:
    """The same of a teacher over bytes."""
    ids = np.array([*text.encode(), *BYTES.eos_ids])
    logits = np.random.default_rng(seed).normal(0, 1.0, (len(ids), BYTES.vocab_size))
    return of_logits(ids, [*range(1, len(ids)), len(ids) - 1], logits, BYTES.vocab_size)


def own_of(tokenizer, text: str) -> Own:
    """A text with its end in the tokens of a student."""
    ids = np.array([*tokenizer.encode(text), tokenizer.eos_ids[0]])
    ends = pieces.byte_ends(tokenizer, ids[:-1], text)
    return Own(ids, np.concatenate([[0], ends]).astype(int), np.append(ends, len(text.encode())).astype(int))


def test_where_tokens_end():
    assert pieces.byte_ends(WORDS, WORDS.encode("gold mine"), "gold mine").tolist() == [4, 5, 9]
    text = "gö ∀"  # two and three bytes
    assert pieces.byte_ends(BYTES, BYTES.encode(text), text).tolist() == list(range(1, 8))

    class Halves:
        """Letters in two tokens each, of which only the second one completes it."""

        def decode(self, ids):
            return text[: len(ids) // 2] + "\ufffd" * (len(ids) % 2)

    assert pieces.byte_ends(Halves(), range(8), text).tolist() == [0, 1, 1, 3, 3, 4, 4, 7]


def test_a_tokenizer_over_bytes_is_read_byte_by_byte():
    """A Hugging Face one, whose tokens are letters that stand for bytes; its markup stands for no text."""
    tokenizer, text = chat_tokenizers.chat_tokenizer(), "gö ∀\n"
    ids = tokenizer.encode(text)
    assert pieces.byte_ends(tokenizer, ids, text).tolist() == list(range(1, len(text.encode()) + 1))
    known = Vocabulary(tokenizer)
    assert b"".join(known.of_id[i] for i in ids) == text.encode()
    assert known.of_id[tokenizer.eos_ids[0]] == pieces.END and known.first(pieces.END) == tokenizer.eos_ids[0]
    assert known.first("ö".encode()) == ids[1] and known.first("ö".encode()[1:]) == ids[2]
    assert all(known.of_id[i] is None for i in tokenizer.hf.all_special_ids if i not in tokenizer.eos_ids)
    assert pieces.mark(tokenizer) == pieces.mark(chat_tokenizers.chat_tokenizer()) != pieces.mark(WORDS)


def test_a_student_over_bytes_gets_the_exact_distribution_of_a_word_level_teacher():
    """P(next byte | the words before, the letters of this word so far), from all words that the teacher may write."""
    text = "gold mine"
    seen, own = word_seen(text), own_of(BYTES, text)
    got = align.by_bytes(seen, Vocabulary(WORDS), own, Vocabulary(BYTES), text.encode(), ended=True)
    assert got.misaligned == 0
    of_id, begins = Vocabulary(WORDS).of_id, [0, 4, 5, 9]
    for place in range(len(text) + 1):
        i = max(n for n, begin in enumerate(begins) if begin <= place)
        read = text.encode()[begins[i] : place]
        joint: dict[int, float] = {}
        for k, logprob in zip(seen.top_ids[i], seen.top_logprobs[i], strict=True):
            if of_id[k] is None or not of_id[k].startswith(read) or (read and of_id[k] == read):
                continue
            following = of_id[k][len(read)] if of_id[k] else BYTES.eos_ids[0]
            joint[following] = joint.get(following, 0.0) + float(np.exp(logprob))
        total = sum(joint.values()) if read else 1.0
        want = {byte: p / total for byte, p in joint.items()}
        assert got.by_token[place].keys() == want.keys()
        assert all(got.by_token[place][byte] == pytest.approx(want[byte], rel=1e-6) for byte in want)


def test_a_word_level_student_gets_the_product_of_a_teacher_over_bytes():
    text = "gold mine"
    seen, own = byte_seen(text), own_of(WORDS, text)
    got = align.by_bytes(seen, Vocabulary(BYTES), own, Vocabulary(WORDS), text.encode(), ended=True)
    assert got.misaligned == 0
    for row, k, a, e in zip(got.by_token[:-1], own.ids, own.starts, own.ends, strict=False):
        assert row[int(k)] == pytest.approx(float(np.exp(seen.logprobs[a:e].sum())), rel=1e-5)
    assert got.by_token[0].keys() == {int(own.ids[0])}  # what else "g" begins is left open
    end = got.by_token[-1]
    assert end[WORDS.eos_ids[0]] == pytest.approx(float(np.exp(seen.logprobs[-1])), rel=1e-5)


def test_tokens_that_end_inside_of_others_are_misaligned():
    """A student whose token is "d mi": no token of the teacher's ends where it does."""
    text, seen = "gold mine", word_seen("gold mine")
    own = Own(np.array([0, 1, 2]), np.array([0, 3, 7]), np.array([3, 7, 9]))
    got = align.by_bytes(seen, Vocabulary(WORDS), own, Vocabulary(BYTES), text.encode(), ended=False)
    assert [row is None for row in got.by_token] == [False, True, False] and got.misaligned == pytest.approx(1 / 3)


def test_the_same_tokenizer_changes_nothing():
    text = "go left now"
    seen, own = word_seen(text, top=5), own_of(WORDS, text)
    got = align.by_ids(seen, own, Vocabulary(WORDS))
    for i, row in enumerate(got.by_token):
        want = dict(zip(seen.top_ids[i].tolist(), np.exp(seen.top_logprobs[i]), strict=True))
        want.setdefault(int(own.ids[i]), float(np.exp(seen.logprobs[i])))
        assert row == pytest.approx(want)
    by_bytes = align.by_bytes(seen, Vocabulary(WORDS), own, Vocabulary(WORDS), text.encode(), True)
    markup = {i for i, part in enumerate(Vocabulary(WORDS).of_id) if part is None}
    for one, other in zip(got.by_token, by_bytes.by_token, strict=True):
        assert {k: p for k, p in one.items() if k not in markup} == pytest.approx(other)
    assert align.by_ids(seen, Own(own.ids[1:], own.starts[1:], own.ends[1:]), Vocabulary(WORDS)) is None


def test_edit_distances_keep_equal_tokens_only():
    text = "gold mine"
    seen, own = word_seen(text), own_of(BYTES, text)
    got = edits.by_edits(seen, Vocabulary(WORDS), own, Vocabulary(BYTES), text.encode(), ended=True)
    assert [row is not None for row in got.by_token] == [False] * 4 + [True] + [False] * 4 + [True]
    alike = edits.by_edits(seen, Vocabulary(WORDS), own_of(WORDS, text), Vocabulary(WORDS), text.encode(), True)
    assert alike.misaligned == 0
    # By hand: the table of distances of "ab", "c" to "a", "b", "c" is 1 1 2 / 1 1 0; the cheapest path costs 2.
    assert edits.warped([b"ab", b"c"], [b"a", b"b", b"c"]) == [[0, 1], [2]]
    assert edits.edit_distance(b"kitten", b"sitting") == 3


def test_tokens_of_sentencepiece_keep_their_spaces_with_a_template_too():
    """Read from their names: ▁ is a space, <0xC3> a byte. Its decoder drops a space at the beginning of a text."""
    plain, chat = (Vocabulary(chat_tokenizers.sentence_piece(template=t)) for t in (None, chat_tokenizers.TEMPLATE))
    assert plain.of_id == chat.of_id
    names = chat.tokenizer.hf.convert_ids_to_tokens(list(range(3, chat.tokenizer.vocab_size)))  # behind the markup
    of_names = [bytes([int(n[3:5], 16)]) if n.startswith("<0x") else n.replace("▁", " ").encode() for n in names]
    assert chat.of_id[3:] == of_names and chat.of_id[:3] == [None, None, pieces.END]
    first = [chat.first(part) for part in (b" return", b"ret", "é".encode())]
    assert first == chat.tokenizer.hf.convert_tokens_to_ids(["▁return", "r", "<0xC3>"])


def sentence_piece_seen(tokens, ids: list[int], text: str, seed: int) -> Seen:
    """A text in given tokens of SentencePiece, as a random teacher has read it."""
    ids = np.array([*ids, *tokens.eos_ids])
    logits = np.random.default_rng(seed).normal(0, 1.0, (len(ids), tokens.vocab_size))
    return of_logits(ids, np.append(pieces.byte_ends(tokens, ids[:-1], text), len(text)), logits, 4)


@pytest.mark.parametrize("names", [
    ["▁", "x", "▁return", "▁▁", "x"],  # a token that is only the space in front of the text
    ["▁return", "▁▁", "x", "▁return"],  # one that begins with it
])  # fmt: skip
def test_sentencepiece_with_a_template_teaches_a_student_over_bytes(names):
    """The text's own next byte has at least the probability of the teacher's token, from the first byte on."""
    tokens = chat_tokenizers.sentence_piece(template=chat_tokenizers.TEMPLATE)
    text = "".join(names).replace("▁", " ")[1:]
    seen = sentence_piece_seen(tokens, tokens.hf.convert_tokens_to_ids(names), text, len(names))
    own = own_of(BYTES, text)
    got = align.by_bytes(seen, Vocabulary(tokens), own, Vocabulary(BYTES), text.encode(), ended=True)
    assert got.misaligned == 0
    begins = [len("".join(names[:n])) - 1 for n in range(len(names) + 1)]  # of the text, of all tokens behind the first
    for place, (row, byte) in enumerate(zip(got.by_token, own.ids.tolist(), strict=True)):
        i = max(n for n, begin in enumerate(begins) if begin <= place)
        assert row[byte] >= np.exp(seen.logprobs[i]) * (1 - 1e-5)
    edited = edits.by_edits(seen, Vocabulary(tokens), own, Vocabulary(BYTES), text.encode(), ended=True).by_token
    alone = [begins[n] for n, name in enumerate(names) if name == "x"]  # tokens of one byte on both sides
    assert all(edited[place][ord("x")] >= np.exp(seen.logprobs[begins.index(place)]) * (1 - 1e-5) for place in alone)


def test_how_a_text_may_begin_by_hand():
    """SentencePiece begins with "▁return", "▁" or "▁▁", one over bytes with "r" or a space; behind "▁" all is open."""
    tokens = chat_tokenizers.sentence_piece(template=chat_tokenizers.TEMPLATE)
    word, lead, indent, end = tokens.hf.convert_tokens_to_ids(["▁return", "▁", "▁▁", "</s>"])
    logprobs, top_ids = np.log([[0.5, 0.25, 0.125]] * 2), np.array([[word, lead, indent], [end, word, lead]])
    seen = Seen(np.array([word, end]), np.array([6, 6]), logprobs[:, 0], top_ids, logprobs)
    known, student = Vocabulary(tokens), Vocabulary(BYTES)
    got = align.by_bytes(seen, known, own_of(BYTES, "return"), student, b"return", ended=True).by_token
    assert got[0] == pytest.approx({ord("r"): 0.5, ord(" "): 0.125})
    assert all(row == pytest.approx({ord(byte): 1.0}) for row, byte in zip(got[1:6], "eturn", strict=True))
    assert got[6] == pytest.approx({BYTES.eos_ids[0]: 0.5, ord(" "): 0.375})
    alike = Own(seen.ids, np.array([0, 6]), seen.ends)  # a student with the same tokens
    got = align.by_bytes(seen, known, alike, known, b"return", ended=True).by_token
    assert got[0] == pytest.approx({word: 0.5, indent: 0.125})


def test_nats_of_bytes_add_up():
    nats = align.nats_of_bytes([-3.0, -1.0, -2.0], [4, 4, 6], 6)
    assert nats.tolist() == [0.75] * 4 + [1.5, 1.5]  # the token without bytes is paid by the one that completes it
    assert nats.sum() == 6.0


def test_targets_of_a_text_of_two_roles_by_hand():
    """Each role's words are taught by its own teacher, the tags by nobody."""
    text = "go\nleft"
    tokenizer = word_model.tokenizer(["go\nleft"])
    ids = np.array([*tokenizer.encode(text), tokenizer.eos_ids[0]])
    go, line, left, end = (int(i) for i in ids)
    one = of_logits(np.array([go, end]), [2, 2], np.log(np.full((2, tokenizer.vocab_size), 1.0)), 2)
    row = np.full(tokenizer.vocab_size, 0.1)
    row[left], row[end] = 0.6, 0.3
    two = of_logits(np.array([left, end]), [4, 4], np.log(np.stack([row, row[::-1]])), 3)
    tokens = Tokens(dict(enumerate(Vocabulary(tokenizer).of_id)), pieces.mark(tokenizer))
    parts = (Part("a", 0, 2, ()), Part("b", 3, 7, ()))
    made, shares = targets.of_texts(
        [Text("team", (), text, parts)], [ids], tokenizer, {"a": ([one], tokens), "b": ([two], tokens)}, targets.How()
    )
    (got_ids, got_logprobs), = made
    there = [zip(i.tolist(), np.exp(p), strict=True) for i, p in zip(got_ids, got_logprobs, strict=True)]
    rows = [{k: p for k, p in pairs if p > 0} for pairs in there]
    total = row.sum()
    assert rows[1] == {line: 1.0} and shares == {"a": 0.0, "b": 0.0}
    assert rows[0][go] == pytest.approx(1 / tokenizer.vocab_size) and end not in rows[0]
    assert rows[2][left] == pytest.approx(0.6 / total) and rows[2][end] == pytest.approx(0.3 / total)
    assert got_ids.shape == (4, fuse.TOP)
    # What is open stays open: the divergence of a student that has the teacher's own probabilities there is 0.
    student = np.where(np.isfinite(got_logprobs), got_logprobs, -30.0)
    kl = losses.teacher_divergence(student, got_logprobs, np.ones(4, bool))
    np.testing.assert_allclose(kl, 0, atol=1e-5)
