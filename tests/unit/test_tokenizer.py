"""Tokenizers: ids against a plain BPE written here, the chat template, ending ids, decoding by length."""

import json

import gguf
import letter_team
import numpy as np
import pytest
import regex
from tiny_models import tiny_model

from jaxmarl_llm import tokenizer, weights
from jaxmarl_llm.weights import gguf_file, gguf_tokenizer, model_files

# GPT-2's split; SmolLM cuts digits off one by one before it.
GPT2_SPLIT = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
TEXTS = [
    "def aux(n):\n    return [x ** 2 for x in range(n) if x % 10 == 3]\n",
    "There're 1234 apples,  12.5 kg; it's  fine.\t\n\n  Ünïcode — 你好 🙂",
    "",
    " leading and trailing ",
]


@pytest.fixture(scope="module")
def default():
    return tokenizer.load(model_files.find(model_files.DEFAULT))


def byte_letters():
    """GPT-2's table: printable bytes stand for themselves, others for letters from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def plain_bpe(text, vocab, ranks):
    """Ids of a text: digits apart, GPT-2's split, then the best-ranked neighbours merged."""
    letters, ids = byte_letters(), []
    for piece in regex.findall(r"\p{N}|\P{N}+", text):
        for word in GPT2_SPLIT.findall(piece):
            parts = [letters[b] for b in word.encode()]
            while len(parts) > 1:
                best = min(range(len(parts) - 1), key=lambda i: ranks.get((parts[i], parts[i + 1]), 1e9))
                if (parts[best], parts[best + 1]) not in ranks:
                    break
                parts[best : best + 2] = [parts[best] + parts[best + 1]]
            ids += [vocab[p] for p in parts]
    return ids


@pytest.mark.slow
@pytest.mark.model
def test_ids_equal_a_plain_bpe_over_the_files_merges(default):
    file = gguf_file.open_gguf(model_files.bundled())
    vocab = {token: i for i, token in enumerate(file.field("tokenizer.ggml.tokens"))}
    ranks = {tuple(m.split(" ")): i for i, m in enumerate(file.field("tokenizer.ggml.merges"))}
    fresh = gguf_tokenizer.build(file)  # the cached folder may be older than the code
    for text in TEXTS:
        ids = plain_bpe(text, vocab, ranks)
        assert fresh.encode(text, add_special_tokens=False) == default.encode(text) == ids
        assert default.decode(default.encode(text)) == text


@pytest.mark.model
def test_control_tokens_in_a_text_are_letters(default):
    file = gguf_file.open_gguf(model_files.bundled())
    vocab = {token: i for i, token in enumerate(file.field("tokenizer.ggml.tokens"))}
    ranks = {tuple(m.split(" ")): i for i, m in enumerate(file.field("tokenizer.ggml.merges"))}
    for control in ("<|im_start|>", "<|im_end|>", "<|endoftext|>"):
        text = f"a{control}b"
        assert default.encode(text) == plain_bpe(text, vocab, ranks) and default.decode(default.encode(text)) == text


@pytest.mark.model
def test_chat_template_and_ending_ids(default):
    ids = default.encode_chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    shown = default.hf.decode(ids)
    assert shown == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert all(isinstance(i, int) for i in ids) and ids[0] == 1
    # 2 is <|im_end|>, which ends a turn; 0 is <|endoftext|>, which ends a document.
    assert default.eos_ids == (2, 0) and default.pad_id == 2
    assert default.vocab_size == 49152


@pytest.mark.model
def test_a_blank_line_as_a_stop_text(default):
    """A blank line is two tokens after a word, and part of one before an indented line."""
    (stop,) = default.stop_texts(("\n\n",))
    newline = default.encode("a\nb")[1]
    assert default.encode("a\n\nb")[1:3] == [newline, newline] and stop.end_of([newline, newline, newline]) == 2
    singles = set(stop.alone)
    for i in range(default.vocab_size):
        piece = default.hf.decode([i], clean_up_tokenization_spaces=False)
        assert (i in singles) == ("\n\n" in piece)


STOPS = [
    ("\nprint(", '    return x + 1\n\nprint("done")\n'), ("\n#", "    return x\n\n## Tests"),
    ("Question:", "It is 4. Question: what"), ("Question:", "4\n\nQuestion: what"),
    ("\ndef ", "  return 1\n\ndef f():"), ("}\n", "int f() {\n  return 1;\n}\n\nint g"),
    ("END", "12END more"), ("END", "the end. ENDING"), (" ", "a b"),
    ("</answer>", "<answer>f(x)</answer> more"), ("aab", "aaaab"), ("语", "汉语。"), ("y", "xyz"),
]  # fmt: skip


def held_after(own, ids, text):
    """Tokens after which the decoded text holds the stop text for the first time."""
    return next((n for n in range(1, len(ids) + 1) if text in own.decode(ids[:n])), None)


@pytest.mark.model
@pytest.mark.parametrize("text, answer", STOPS)
def test_an_answer_ends_with_the_token_that_completes_a_stop_text(default, text, answer):
    (stop,) = default.stop_texts((text,))
    ids = default.encode(answer)
    assert stop.end_of(ids) == held_after(default, ids, text) != None  # noqa: E711
    letters = [i for letter in answer for i in default.encode(letter)]  # as many tokens as there can be
    assert stop.end_of(letters) == held_after(default, letters, text)
    assert stop.end_of(default.encode("nothing")) is None


@pytest.mark.model
def test_stop_texts_in_answers_that_are_drawn_at_random(default):
    """Tokens with a part of the text in them, in any order: against the decoded text."""
    rng = np.random.default_rng(0)
    for text in ("\n\n", "\nif", "): ", "abab"):
        (stop,) = default.stop_texts((text,))
        near = [i for i in range(default.vocab_size) if set(default.decode([i])) <= set(text) | {"x"} and i > 16]
        rows = rng.choice(near, (300, 12)).tolist()
        ends = [held_after(default, row, text) for row in rows]
        assert [stop.end_of(row) for row in rows] == ends and 10 < sum(end is not None for end in ends)


def test_a_stop_text_that_no_tokens_make():
    own = letter_team.letters()
    assert own.stop_texts(("xe",))[0].end_of(own.encode("a") + own.hf.convert_tokens_to_ids(["xy", "e", "x", "e"])) == 5
    with pytest.raises(ValueError, match="stop text '4!': the tokenizer has no tokens that make this text"):
        own.stop_texts(("4!",))


@pytest.mark.model
def test_the_beginning_of_another_message_can_be_a_stop(default):
    (stop,) = default.stop_texts(("<|im_start|>",))
    assert stop.alone == (default.hf.convert_tokens_to_ids("<|im_start|>"),)
    assert stop.end_of(default.encode("a <|im_start|> b")) == len(default.encode("a <|im_start|>"))  # its letters


@pytest.mark.model
def test_completions_are_cut_by_length_not_by_padding(default):
    ids = default.encode("print(1)")
    end, pad = default.eos_ids[0], default.pad_id
    rows = [[*ids, end, pad, pad], [*ids, *ids[:3]], [pad] * (len(ids) + 3)]
    tokens = np.array(rows)
    assert default.decode_completions(tokens, np.array([len(ids) + 1, 2, 0])) == ["print(1)", "print(", ""]
    with pytest.raises(ValueError, match="within 0"):
        default.decode_completions(tokens, np.array([len(ids) + 4, 2, 0]))
    with pytest.raises(ValueError, match="do not belong together"):
        default.decode_completions(tokens, np.array([1, 2]))


@pytest.mark.model
def test_save_and_load_keep_everything(default, tmp_path):
    default.save(tmp_path)
    again = tokenizer.load(tmp_path)
    chat = [{"role": "user", "content": TEXTS[1]}]
    assert again.encode_chat(chat) == default.encode_chat(chat)
    assert again.eos_ids == default.eos_ids
    assert json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"] == [2, 0]


@pytest.mark.model
def test_auto_tokenizer_reads_the_converted_folder_alike(default):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(model_files.find(model_files.DEFAULT))
    for text in TEXTS:
        assert theirs(text)["input_ids"] == default.encode(text)


@pytest.mark.model
def test_a_tokenizer_larger_than_the_policy_is_refused(default):
    default.check_vocab(49152)
    with pytest.raises(ValueError, match="49152 tokens, the policy only 100"):
        default.check_vocab(100)


TEMPLATE = (
    "{% for m in messages %}<user>{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<bot>{% endif %}"
)


def write_vocab_gguf(
    path, kind, pre, tokens, types, scores=None, merges=None, template=None, space_prefix=None, **ids
):
    """A GGUF file with a vocabulary and no tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if pre:
        writer.add_tokenizer_pre(pre)
    if scores:
        writer.add_token_scores(scores)
    if merges:
        writer.add_token_merges(merges)
    if template:
        writer.add_chat_template(template)
    if space_prefix is not None:
        writer.add_add_space_prefix(space_prefix)
    for name, value in ids.items():
        getattr(writer, f"add_{name}_token_id")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return gguf_file.GgufFile(path, gguf.GGUFReader(path), "llama", {})


def letters_vocab():
    """Bytes, the merges of 'a b' and 'ab c', and control tokens behind them."""
    letters = list(byte_letters().values())
    tokens = [*letters, "ab", "abc", "<user>", "<bot>", "<end>", "<|endoftext|>", "<tool>"]
    return tokens, [1] * 258 + [3] * 4 + [4]


def test_byte_level_gguf(tmp_path):
    tokens, types = letters_vocab()
    file = write_vocab_gguf(
        tmp_path / "v.gguf",
        "gpt2",
        "qwen2",
        tokens,
        types,
        merges=["a b", "ab c"],
        template=TEMPLATE,
        eos=259,
        bos=258,
    )
    built = gguf_tokenizer.build(file)
    a = tokens.index("a")
    assert built.encode("abcab<tool>a", add_special_tokens=False) == [257, 256, 262, a]
    assert gguf_tokenizer.eos_ids(file) == [259, 261]  # the one it names, and <|endoftext|>
    folder = tmp_path / "t"
    folder.mkdir()
    tokenizer.Tokenizer(built, (261,)).save(folder)
    loaded = tokenizer.load(folder)
    # Stated in generation_config.json, then the tokenizer's own, then the template's.
    assert loaded.eos_ids == (261, 259, 260)
    assert loaded.encode_chat([{"role": "user", "content": "abc"}]) == [258, 257, 260, 259]
    assert loaded.decode([257, 260, a]) == "abca"


def test_a_template_out_of_a_gguf_file_does_not_think(tmp_path):
    """Its prompt ends with <tool> where thinking is off, as it is by default."""
    (tokens, types), thinks = letters_vocab(), "{% if enable_thinking is false %}<tool>{% endif %}"
    file = write_vocab_gguf(
        tmp_path / "v.gguf", "gpt2", "qwen2", tokens, types, merges=["a b", "ab c"],
        template=TEMPLATE + thinks, eos=260,
    )  # fmt: skip
    (tmp_path / "t").mkdir()
    tokenizer.Tokenizer(gguf_tokenizer.build(file), (260,)).save(tmp_path / "t")
    loaded, chat = tokenizer.load(tmp_path / "t"), [{"role": "user", "content": "abc"}]
    assert loaded.encode_chat(chat) == [258, 257, 260, 259, 262]
    assert loaded.with_chat(arguments={"enable_thinking": True}).encode_chat(chat) == [258, 257, 260, 259]


def test_chat_without_a_template_is_joined_text(tmp_path):
    tokens, types = letters_vocab()
    file = write_vocab_gguf(
        tmp_path / "v.gguf", "gpt2", "gpt-2", tokens, types, merges=["a b", "ab c"], eos=260
    )
    plain = tokenizer.Tokenizer(gguf_tokenizer.build(file), (260,))
    chat = [{"role": "system", "content": "abc"}, {"role": "user", "content": "ab"}]
    newline = tokens.index(byte_letters()[10])
    assert plain.encode_chat(chat) == [257, newline, newline, 256]
    answered = [*chat, {"role": "assistant", "content": "abc"}, chat[1]]
    assert plain.encode_chat(answered)[-6:] == [257, newline, newline, 256, newline, newline]
    with pytest.raises(ValueError, match="at least one message"):
        plain.encode_chat([])


def test_sentence_piece_gguf(tmp_path):
    """'hello' is ▁ h e l l o; the best score first: l o (-1), then e l (-2), then ▁ h (-3)."""
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{b:02X}>" for b in range(256)),
        "▁",
        "h",
        "e",
        "l",
        "o",
        "lo",
        "el",
        "▁h",
    ]
    types = [2, 3, 3] + [6] * 256 + [1] * 8
    scores = [0.0] * 259 + [-9.0] * 5 + [-1.0, -2.0, -3.0]
    file = write_vocab_gguf(tmp_path / "v.gguf", "llama", None, tokens, types, scores, eos=2, bos=1, unk=0)
    built = gguf_tokenizer.build(file)
    index = {t: i for i, t in enumerate(tokens)}
    assert built.encode("hello", add_special_tokens=False) == [index[t] for t in ("▁h", "el", "lo")]
    assert built.encode("h")[0] == 1, "Llama 2 puts <s> in front"
    euro = [index[f"<0x{b:02X}>"] for b in "€".encode()]
    assert built.encode("€", add_special_tokens=False) == [index["▁"], *euro]
    assert built.decode(built.encode("hello €"), skip_special_tokens=True) == "hello €"
    own = tokenizer.Tokenizer(built, (2,))
    (stop,) = own.stop_texts((" €",))
    assert stop.end_of(own.encode("hello €lo")) == 7 and stop.end_of(own.encode("hello€lo")) is None
    assert own.decode(own.encode("hello</s>lo")) == "hello</s>lo" and 2 not in own.encode("hello</s>lo")


# Built like Gemma 3's: there is no turn of the system, whose text begins the first turn of the user.
TURNS = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}
{%- set before, turns = messages[0]['content'] + '\n\n', messages[1:] %}{% else %}
{%- set before, turns = '', messages %}{% endif %}
{%- for turn in turns %}{% if (turn['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must alternate') }}{% endif %}
{{- '<start_of_turn>' + ('model' if turn['role'] == 'assistant' else turn['role']) + '\n' }}
{{- (before if loop.first else '') + turn['content'] | trim + '<end_of_turn>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""


def gemma_vocab():
    """Tokens, types and scores as llama.cpp's converter writes Gemma's: user-defined spaces and line breaks."""
    control = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    own = ["\n", "\n\n", "  ", "   "]
    letters = ["▁", *dict.fromkeys("usermodelabc")]
    merged = ["us", "er", "user", "mo", "de", "mode", "model", "ab", "abc", "▁a", "▁ab"]
    tokens = control + own + [f"<0x{b:02X}>" for b in range(256)] + letters + merged
    types = [3, 3, 3, 2, 3, 3] + [4] * len(own) + [6] * 256 + [1] * (len(letters) + len(merged))
    ranks = [-float(i) for i in range(len(merged))]
    return tokens, types, [0.0] * (len(tokens) - len(letters) - len(merged)) + [-99.0] * len(letters) + ranks


def test_gemmas_sentence_piece_gguf(tmp_path):
    tokens, types, scores = gemma_vocab()
    file = write_vocab_gguf(
        tmp_path / "v.gguf", "llama", "default", tokens, types, scores, template=TURNS, space_prefix=False,
        eos=1, bos=2, unk=3, pad=0,
    )  # fmt: skip
    built, index = gguf_tokenizer.build(file), {token: i for i, token in enumerate(tokens)}
    assert gguf_tokenizer.eos_ids(file) == [1, 5]

    def pieces(text):
        return built.convert_ids_to_tokens(built.encode(text, add_special_tokens=False))

    # No space is put in front; spaces and line breaks are taken whole, whatever stands behind them.
    assert pieces("abc abc ab") == ["abc", "▁", "abc", "▁ab"]
    assert pieces(" a  b\n\nc") == ["▁a", "  ", "b", "\n\n", "c"]
    assert built.encode("abc") == [index["<bos>"], index["abc"]]
    for text in ("abc abc", "  abc", " abc ", "a\n\n b   c é"):
        assert built.decode(built.encode(text), skip_special_tokens=True) == text
    (tmp_path / "t").mkdir()
    tokenizer.Tokenizer(built, (1, 5)).save(tmp_path / "t")
    loaded = tokenizer.load(tmp_path / "t")
    assert loaded.eos_ids == (1, 5) and loaded.pad_id == 0
    chat = [{"role": "system", "content": "abc"}, {"role": "user", "content": "ab"}]
    begin, end = "<start_of_turn>", "<end_of_turn>"
    wanted = ["<bos>", begin, "user", "\n", "abc", "\n\n", "ab", end, "\n", begin, "model", "\n"]
    assert loaded.encode_chat(chat) == [index[token] for token in wanted]
    answered = [*chat, {"role": "assistant", "content": "abc"}, {"role": "user", "content": "c"}]
    assert loaded.show(loaded.encode_chat(answered)).endswith(
        f"{begin}model\nabc{end}\n{begin}user\nc{end}\n{begin}model\n"
    )


@pytest.mark.parametrize("kind, pre, named", [("bert", None, "'bert'"), ("gpt2", "mystery", "'mystery'")])
def test_unknown_gguf_tokenizers_are_named(tmp_path, kind, pre, named):
    tokens, types = letters_vocab()
    file = write_vocab_gguf(tmp_path / "v.gguf", kind, pre, tokens, types, merges=["a b"], eos=260)
    with pytest.raises(ValueError, match=named):
        gguf_tokenizer.build(file)


@pytest.mark.parametrize("field, value, message", [
    ("eos_token_id", 4711, "tokenizer.ggml.eos_token_id is 4711; allowed: 0 to 262, the ids of its tokens"),
    ("eot_token_id", -1, "tokenizer.ggml.eot_token_id is -1; allowed: 0 to 262"),
    ("bos_token_id", "<user>", "tokenizer.ggml.bos_token_id is '<user>'; allowed: 0 to 262"),
    ("padding_token_id", 263, "tokenizer.ggml.padding_token_id is 263; allowed: 0 to 262"),
    ("token_type", [1, 1], "tokenizer.ggml.token_type has not one value for each of 263 tokens"),
    ("merges", ["a b", "ab"], "tokenizer.ggml.merges has 'ab', which is no two tokens"),
    ("merges", ["a x"], "tokenizer.ggml.merges has 'a x', which is no two tokens"),
])  # fmt: skip
def test_gguf_vocabularies_that_contradict_themselves(tmp_path, monkeypatch, field, value, message):
    tokens, types = letters_vocab()
    file = write_vocab_gguf(tmp_path / "v.gguf", "gpt2", "gpt-2", tokens, types, merges=["a b"], eos=260)
    real = file.field
    monkeypatch.setattr(
        file, "field", lambda key, default=None: value if key == f"tokenizer.ggml.{field}" else real(key, default)
    )
    with pytest.raises(ValueError, match=rf"v\.gguf: {message}"):
        gguf_tokenizer.build(file)
        gguf_tokenizer.eos_ids(file)


def test_damaged_and_absent_tokenizers(tmp_path):
    assert tokenizer.load(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model"')
    with pytest.raises(ValueError, match="cannot be read"):
        tokenizer.load(tmp_path)


@pytest.mark.parametrize("content, complaint", [
    ("{", r"generation_config\.json: not JSON"),
    ("[2]", r"generation_config\.json: holds a JSON list, expected a dict"),
    ('{"eos_token_id": "</s>"}', r"generation_config\.json: eos_token_id is '</s>', expected an id"),
    ('{"eos_token_id": [2, "x"]}', r"generation_config\.json: eos_token_id is \[2, 'x'\]"),
])  # fmt: skip
def test_a_damaged_generation_config_is_named(tmp_path, content, complaint):
    tokens, types = letters_vocab()
    file = write_vocab_gguf(tmp_path / "v.gguf", "gpt2", "gpt-2", tokens, types, merges=["a b"], eos=260)
    tokenizer.Tokenizer(gguf_tokenizer.build(file), (260,)).save(tmp_path)
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(ValueError, match=complaint):
        tokenizer.load(tmp_path)


@pytest.mark.model
def test_loading_refuses_a_tokenizer_of_another_model(default, tmp_path):
    weights.save(tiny_model(), tmp_path / "m")
    default.save(tmp_path / "m")
    with pytest.raises(ValueError, match="49152 tokens, the policy only 97"):
        weights.load(tmp_path / "m")
