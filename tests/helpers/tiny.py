"""A tiny random policy, its stacks and a stand-in tokenizer, and slow oracles to compare with."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import adapters
from jaxmarl_llm.policy import Policy, PolicyConfig
from jaxmarl_llm.team import Stack
from jaxmarl_llm.update import gradient
from jaxmarl_llm.weights import LoadedModel

V = 61
POLICY = Policy(
    PolicyConfig(
        vocab_size=V, d_model=16, d_ff=32, n_layers=2, n_heads=2, n_kv_heads=1, head_dim=8, max_positions=256
    )
)
NEVER = (V - 1,)  # an ending id that the tests do not wait for
AGENTS = ("a", "b")
SCALE = 2.0
WIDTH = 32  # tokens the oracle reads at once


class Tokenizer:
    """Characters as ids 7..56, ids as decimal numbers: enough for a rollout, and easy to follow by hand."""

    eos_ids = (3, 5)

    def unused_ids(self, vocab_size):
        return ()

    def encode_chat(self, messages):
        return [7 + ord(char) % 50 for message in messages for char in message["content"]]

    def continue_chat(self, messages, answer, prompt, completion):
        return [*prompt, *completion, *self.encode_chat(messages[answer + 1 :])]

    def encode(self, text):
        return [int(word) for word in text.split()]

    def decode(self, ids):
        return " ".join(str(id) for id in ids if id not in self.eos_ids)

    def decode_completions(self, tokens_RL, lengths_R):
        return [" ".join(map(str, row[:n])) for row, n in zip(tokens_RL.tolist(), lengths_R, strict=True)]


@functools.cache
def params(seed: int = 0) -> dict:
    """Random variables, larger than at initialisation so that the distributions are far from uniform."""
    dummy = jnp.zeros((1, 1), jnp.int32)
    shapes = jax.eval_shape(POLICY.init, jax.random.key(0), dummy, dummy)
    random = np.random.default_rng(seed)

    def draw(path, shape):
        centre, spread = (1.0, 0.1) if path[-1].key == "scale" else (0.0, 0.16)
        return jnp.array(centre + spread * random.standard_normal(shape.shape, np.float32))

    return jax.tree.map_with_path(draw, shapes)


def model(seed: int = 0) -> LoadedModel:
    return LoadedModel(POLICY, params(seed), Tokenizer())


def stack(agents=AGENTS, mode="adapters", eos_ids=NEVER, sampler=None) -> Stack:
    scale = SCALE if mode == "adapters" else 1.0
    return Stack(tuple(agents), POLICY, tuple(eos_ids), mode, scale, sampler=sampler)


def lora(agents: int = 2, rank: int = 3, noise: float = 0.2) -> dict:
    """Adapters of agents that differ from the base and from each other; fresh buffers, safe to donate."""
    fresh = functools.partial(adapters.init, params=params(), agents=agents, rank=rank)
    shapes = jax.eval_shape(fresh, jax.random.key(0))
    random = np.random.default_rng(3)
    return jax.tree.map(lambda x: jnp.array(noise * random.standard_normal(x.shape, np.float32)), shapes)


@jax.jit
def _merge(base, adapter):
    return adapters.merge(base, adapter, SCALE)


def own(trainable: dict, n: int) -> dict:
    """Agent n's plain variables: the base with its adapters merged in."""
    return _merge(params(), jax.tree.map(lambda x: np.asarray(x)[n], trainable))


def changed_agents(before, after) -> np.ndarray:
    """Whether any number of each agent differs between two trees with a leading agent axis, bool (N,)."""
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return np.any([(np.asarray(x) != y).reshape(len(x), -1).any(1) for x, y in pairs], axis=0)


@jax.jit
def _forward(variables, tokens_L):
    return POLICY.apply(variables, tokens_L[None], jnp.arange(WIDTH)[None])[0][0]


def logits(variables, ids) -> np.ndarray:
    """Oracle: logits (len(ids), V) of one unpadded sequence, read from its beginning without any cache."""
    assert len(ids) <= WIDTH
    padded = np.zeros(WIDTH, np.int32)  # what follows cannot be seen by what comes before
    padded[: len(ids)] = ids
    return np.asarray(_forward(variables, padded))[: len(ids)]


def completion_logits(variables, prompt, completion) -> np.ndarray:
    """Oracle: logits (L', V) that predict each token of a completion."""
    return logits(variables, [*prompt, *completion])[len(prompt) - 1 : -1]


_gradients = jax.jit(gradient.gradients, static_argnums=(0, 1))


def gradients(stack, config, base, trainable, batch):
    """`gradient.gradients` of a batch."""
    return _gradients(stack, config, base, trainable, config.pack(batch))


def np_log_probs(logits_LV, params) -> np.ndarray:
    """Log of the truncated, tempered distribution in float64, token by token; -inf outside the support."""
    out = np.full(np.shape(logits_LV), -np.inf)
    for row, scores in enumerate(np.asarray(logits_LV, np.float64) / (params.temperature or 1.0)):
        probs = np.exp(scores - scores.max())
        probs /= probs.sum()
        order = np.argsort(-probs)
        keep, mass = set(), 0.0
        for rank, token in enumerate(order):
            inside_k = not params.top_k or rank < params.top_k
            if inside_k and mass < params.top_p and probs[token] >= params.min_p * probs.max():
                keep.add(token)
            mass += probs[token]
        kept = sorted(keep)
        out[row, kept] = np.log(probs[kept] / probs[kept].sum())
    return out


class Task:
    """A scripted task: the reward is a function of the two texts' tokens, the items are numbered strings."""

    agents = AGENTS

    def __init__(self, total, items=("x", "yy", "zzz")):
        self.items, self._total, self.calls = items, total, []

    def prompts(self, item):
        return {agent: [{"role": "user", "content": f"{agent}:{item}"}] for agent in self.agents}

    def judge(self, items, completions):
        self.calls.append((list(items), dict(completions)))
        rows = zip(items, *completions.values(), strict=True)
        return [SimpleNamespace(total=self._total(*row)) for row in rows]
