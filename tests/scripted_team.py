"""For tests: a tiny random team with a real word tokenizer, and a task that judges by counting words."""

import types

import jax
import jax.numpy as jnp
from tokenizers import Tokenizer as Words
from tokenizers import models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from jaxmarl_llm import team
from jaxmarl_llm.policy import Policy, PolicyConfig
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tokenizer import Tokenizer

VOCAB = 61
CONFIG = PolicyConfig(
    vocab_size=VOCAB, d_model=16, d_ff=16, n_layers=1, n_heads=2, n_kv_heads=1, head_dim=8, max_positions=128
)


def word_tokenizer() -> Tokenizer:
    """Id 0 is '?', 2 is '<eos>', every other id i is the word 'w<i>'."""
    vocab = {"?": 0, "<eos>": 2} | {f"w{i}": i for i in (1, *range(3, VOCAB))}
    words = Words(models.WordLevel(vocab, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", unk_token="?"), (2,))


def tiny_team(agents=("aux", "main"), seed=0) -> team.Team:
    """Random policies with visibly different adapters."""
    policy = Policy(CONFIG)
    dummy = jnp.zeros((1, 2), jnp.int32)
    params = jax.tree.map(lambda x: x * 4, policy.init(jax.random.key(1), dummy, dummy))
    loaded = types.SimpleNamespace(policy=policy, params=params, tokenizer=word_tokenizer())
    built = team.build({"tiny": loaded}, dict.fromkeys(agents, "tiny"), jax.random.key(seed), rank=2)
    return shifted(built, seed)


def shifted(built: team.Team, seed: int) -> team.Team:
    """The same team with noise on what it learned."""
    for member in built.members:
        leaves, tree = jax.tree.flatten(member.trainable)
        keys = jax.random.split(jax.random.key(seed), len(leaves))
        noise = [0.3 * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
        member.trainable = jax.tree.map(jnp.add, member.trainable, jax.tree.unflatten(tree, noise))
    return built


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
