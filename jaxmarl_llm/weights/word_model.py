"""A model of a few words: a tokenizer made from the texts of a task, and a tiny policy over its words.

The policy's weights are random, except that its head encodes the form of an answer: which word may follow
which. So it answers in the right form from the start, as an instruction-tuned model does, but does not know
which answer is right.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Words

from jaxmarl_llm.policy import Policy, PolicyConfig
from jaxmarl_llm.tokenizer import Tokenizer
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import random_weights
from jaxmarl_llm.weights.loading import LoadedModel

START, END = "<|assistant|>", "<|end|>"
WIDTH, LAYERS, POSITIONS = 32, 2, 512
HABIT = 6.0  # logit of words that may follow; all others have about 0
_SPECIAL = (END, START, "<|user|>", "<|system|>", "<|unknown|>")
# A line that is a tag in brackets with its line breaks; a number; a word; any other character.
_PIECE = re.compile(r"\n?\[[^\]\n]*\]\n|-?\d+|\w+|[\s\S]")
_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}" + END + "{% endfor %}"
    "{% if add_generation_prompt %}" + START + "{% endif %}"
)


def tokenizer(texts: Iterable[str], whole: Sequence[str] = ()) -> Tokenizer:
    """A tokenizer whose tokens are the words, numbers and signs of the texts, and each text of ``whole``.

    Other words are unknown.

    Texts made of these tokens are restored exactly from their ids. ``END`` ends a completion.
    """
    pieces = list(dict.fromkeys([*(piece for text in texts for piece in _PIECE.findall(text)), *whole]))
    vocabulary = {piece: i for i, piece in enumerate((*_SPECIAL, *pieces))}
    words = Words(models.WordLevel(vocabulary, unk_token=_SPECIAL[-1]))
    # The longest known word: two words without a space between them are two tokens.
    pattern = "|".join(map(re.escape, sorted(pieces, key=len, reverse=True)))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(pattern + r"|[\s\S]"), "isolated")
    words.decoder = decoders.Fuse()
    words.add_special_tokens(list(_SPECIAL))
    from transformers import PreTrainedTokenizerFast

    hf = PreTrainedTokenizerFast(
        tokenizer_object=words,
        eos_token=END,
        unk_token=_SPECIAL[-1],
        chat_template=_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    return Tokenizer(hf, (vocabulary[END],))


def build(
    texts: Iterable[str],
    habits: Mapping[str, Sequence[str]],
    seed: Sequence[int],
    *,
    whole: Sequence[str] = (),
    compute_dtype=jnp.float32,
    remat: str = "dots",
    on_host: bool = False,
) -> LoadedModel:
    """A tokenizer of the texts, and a policy of two layers over it.

    Args:
      texts: hold every word that the model is to read or write.
      habits: word -> words that may follow it in an answer; an answer begins after ``START``, and ``END``
        ends it. The words that may follow have a logit of about `HABIT`, all others of about 0.
      seed: of the random weights.
      whole: texts that are one word each, as they are.
      compute_dtype, remat, on_host: as in `weights.load`.

    Raises:
      ValueError: for a word of ``habits`` that the texts do not hold.
    """
    words = tokenizer(texts, whole)
    id_of = words.hf.get_vocab()
    if lacking := {w for pair in habits.items() for w in (pair[0], *pair[1])} - id_of.keys():
        raise UserError(f"habits name {sorted(lacking)}, which no text holds")
    config = PolicyConfig(
        words.vocab_size, d_model=WIDTH, d_ff=2 * WIDTH, n_layers=LAYERS, n_heads=2, n_kv_heads=2,
        head_dim=WIDTH // 2, max_positions=POSITIONS, tie_embeddings=False,
    )  # fmt: skip
    policy = Policy(config, jnp.dtype(compute_dtype), remat)
    params = random_weights.draw(policy, seed, _spread)
    table_VD, head_DV = params["params"]["embed"]["embedding"], params["params"]["head"]["kernel"]
    for before, after in habits.items():
        direction_D = table_VD[id_of[before]] / np.sum(table_VD[id_of[before]] ** 2)
        for word in after:
            head_DV[:, id_of[word]] += HABIT * direction_D
    return LoadedModel(policy, params if on_host else jax.tree.map(jnp.asarray, params), words)


def _spread(name: str, shape: tuple[int, ...]) -> float:
    """A parameter's spread: 1 for the embedding; layers add little, so that the head sees the word."""
    if name.endswith("/embedding"):
        return 1.0
    small = name.endswith(("/o/kernel", "/down/kernel", "/head/kernel"))
    return (0.3 if small else 1.0) * shape[-2] ** -0.5
