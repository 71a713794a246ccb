"""For tests: a tiny random team with a real word tokenizer, and a task that judges by counting words."""

import dataclasses
import functools
import types

import jax
import numpy as np
import tiny
from ml_collections import config_dict
from tokenizers import Tokenizer as Words
from tokenizers import models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from jaxmarl_llm import team
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tokenizer import Tokenizer
from jaxmarl_llm.weights import LoadedModel


@functools.cache
def word_tokenizer() -> Tokenizer:
    """Id 0 is '?', 2 is '<eos>', every other id i is the word 'w<i>'."""
    vocab = {"?": 0, "<eos>": 2} | {f"w{i}": i for i in (1, *range(3, tiny.V))}
    words = Words(models.WordLevel(vocab, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", unk_token="?"), (2,))


@functools.cache
def _fresh() -> team.Member:
    model = LoadedModel(tiny.POLICY, tiny.params(), word_tokenizer())
    agents = dict.fromkeys(("aux", "main"), "tiny")
    return team.build({"tiny": model}, agents, jax.random.key(0), rank=2).members[0]


def tiny_team(seed=0) -> team.Team:
    """Agents 'aux' and 'main' with random adapters that differ; fresh buffers, safe to donate."""
    rng = np.random.default_rng(seed)
    noisy = [x + 0.3 * rng.normal(size=x.shape).astype(x.dtype) for x in jax.tree.leaves(_fresh().trainable)]
    trainable = jax.tree.unflatten(jax.tree.structure(_fresh().trainable), noisy)
    trainable = jax.device_put(trainable, jax.devices()[0])  # as restored ones are: one compilation
    return team.Team((dataclasses.replace(_fresh(), trainable=trainable),))


class CountingTask:
    """Item i has ``prompt_words[i]`` words. Parts: 'even' counts aux's even words, 'odd' main's odd ones.

    An answer passes if it has both. ``judged`` keeps (task_id, completions by agent) of everything judged.
    """

    def __init__(self, prompt_words, agents=("aux", "main")):
        self.agents = agents
        self.items = tuple(
            types.SimpleNamespace(task_id=f"p{i}", words=[f"w{3 + (7 * i + j) % 50}" for j in range(n)])
            for i, n in enumerate(prompt_words)
        )
        self.judged = []

    def prompts(self, item):
        return {a: [{"role": "user", "content": " ".join([*item.words, a])}] for a in self.agents}

    def judge(self, items, completions):
        answers = [{a: completions[a][j] for a in self.agents} for j in range(len(items))]
        self.judged += [(item.task_id, answer) for item, answer in zip(items, answers, strict=True)]
        return [self._judge(answer) for answer in answers]

    def normalise(self, scores):
        return {
            "even": 100 * scores["even"] / 6,
            "odd": 100 * scores["odd"] / 6,
            "return": 100 * scores["total"] / 12,
        }

    def _judge(self, answer):
        first, last = (answer[a] for a in (self.agents[0], self.agents[-1]))
        even, odd = (sum(int(w[1:]) % 2 == r for w in t.split()) for r, t in enumerate((first, last)))
        parts = {"even": float(even), "odd": float(odd)}
        return Judgement(parts, float(even + odd), "pass" if even and odd else "fail", (), f"{first}|{last}")


# Of an evaluation of this team.
CONFIG = config_dict.ConfigDict({
    "seed": 3,
    "model": "tiny",
    "team": {"agents": ("aux", "main"), "models": (), "agent": {}, "begin": ""},
    "warm_up": {"steps": 0},
    "eval": {"samples": 2, "vote": "", "until_agreed": False},
    "train": {"turns": 1, "protocol": "simultaneous"},
    "tools": {"functions": (), "servers": (), "of_task": False},
    "task": {"kind": "coding", "test_source": "scripted", "test_split": "test"},
    "executor": {"cpu_seconds": 2.0, "memory_mb": 512},
    "model_options": {"chat": True, "chat_template": {}, "date": ""},
    "sampling": {
        "max_new_tokens": 6, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
        "max_prompt_tokens": 100, "long_prompts": "error",
    },
})  # fmt: skip
