"""This package's side of the benchmarks: the programs of training, timed on one problem."""

import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import config_dict

from jaxmarl_llm import sampling, update
from jaxmarl_llm.config import base_config, validate
from jaxmarl_llm.factory import teams, training
from jaxmarl_llm.sampling.padding import pad_team
from jaxmarl_llm.tokenizer import Tokenizer
from jaxmarl_llm.update import gradient, packing
from jaxmarl_llm.utils.errors import UserError

TEXT = (
    "You are the {agent} of two programmers who write one Python module together. The other one cannot see "
    "what you write before you are done. Write one short function, say in its first line what it takes and "
    "what it returns, and do not repeat what your colleague is asked for. "
)

gradients = jax.jit(gradient.gradients, static_argnums=(0, 1))


def make_config(
    *,
    model: str,
    mode: str,
    group: int,
    prompt_tokens: int,
    new_tokens: int,
    sampling_dtype: str,
    dtype: str = "float32",
    problems: int = 1,
    agents: tuple[str, ...] = ("aux", "main"),
) -> config_dict.ConfigDict:
    """The default training settings, but for one or more problems. ValueError names what is not allowed.

    ``dtype`` is that of the computation, and also of full copies and their optimizers, as on the peers' side.
    If the sampler's number format differs from the policy's, importance weights correct for it.
    """
    if mode not in ("full", "adapters"):
        raise UserError(f"mode={mode!r} must be full or adapters: frozen agents have nothing to update")
    config = base_config()
    config.model, config.team.mode, config.team.agents = model, mode, agents
    config.train.group, config.train.prompts = group, problems
    config.sampling.max_prompt_tokens, config.sampling.max_new_tokens = prompt_tokens, new_tokens
    config.sampling.dtype, config.policy.dtype = sampling_dtype, dtype
    if mode == "full":
        config.train.param_dtype = config.train.moment_dtype = dtype
    config.policy.precision = "tensorfloat32"  # on a GPU, as the peers' products are
    if sampling_dtype != config.policy.dtype:
        config.train.importance_cap = 2.0
    validate(config, "the benchmark")
    return config


def prompt_texts(tokenizer: Tokenizer, agents: tuple[str, ...], tokens: int) -> list[str]:
    """A text of exactly so many tokens for each agent, as `transformers` reads them by default."""
    texts = []
    for agent in agents:
        words = (TEXT.format(agent=agent) * (1 + tokens // 10)).split()
        length = next(
            n for n in range(len(words), 0, -1) if len(read(tokenizer, " ".join(words[:n]))) <= tokens
        )
        text = " ".join(words[:length])
        text += " and" * (tokens - len(read(tokenizer, text)))
        if len(read(tokenizer, text)) != tokens:
            raise UserError(f"no text of {tokens} tokens was found for agent {agent!r}")
        texts.append(text)
    return texts


def read(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of a text."""
    return tokenizer.hf(text).input_ids


def advantages(group: int) -> list[float]:
    """Advantages of a group's completions: all different, with mean 0."""
    return np.linspace(-1, 1, group).tolist()


class Ours:
    """One stack of agents that share a model; answers as a `peers.Peer` does.

    Attributes:
      stack, base, state: the agents, their frozen parameters, and what they learn (an update donates it).
      texts, prompts: each agent's first problem, as text and as tokens; further ones are random tokens.
    """

    def __init__(self, config):
        self.config, (member,) = config, teams.build_team(config).members
        # No token ends a completion: every side draws equally many tokens.
        self.stack = dataclasses.replace(member.stack, eos_ids=(), stops=())
        self.base, self.loss = member.base, training.loss_config(config)
        self._optimizer = training.build_optimizer(config)
        self.state = update.init_state(member.trainable, self._optimizer)
        length = config.sampling.max_prompt_tokens
        self.texts = prompt_texts(member.tokenizer, self.stack.agents, length)
        self.prompts = [read(member.tokenizer, text) for text in self.texts]
        others = np.random.default_rng(0).integers(
            member.tokenizer.vocab_size, size=(len(self.prompts), config.train.prompts - 1, length)
        )
        every = [[one, *rest.tolist()] for one, rest in zip(self.prompts, others, strict=True)]
        self._prompts_NBP, self._lengths_NB, _ = pad_team(every)  # random ones have no common beginning
        self._draws = 0

    @property
    def policy_config(self):
        """Sizes of the model."""
        return self.stack.policy.config

    def ask(self, unit: str, new_tokens: int) -> dict[str, float]:
        """Do one unit of work, ``iteration``, ``generate`` or ``gradients``; returns seconds by phase."""
        return getattr(self, f"_{unit}")(new_tokens)

    def _iteration(self, new_tokens: int) -> dict[str, float]:
        samples, generating = timed(functools.partial(self.sample, new_tokens))
        _, updating = timed(functools.partial(self.update, samples))
        return {"generate": generating, "update": updating}

    def _generate(self, new_tokens: int) -> dict[str, float]:
        return {"generate": timed(functools.partial(self.sample, new_tokens))[1]}

    def sample(self, new_tokens: int) -> sampling.Samples:
        """Completions of all agents."""
        self._draws += 1
        return sampling.generate(
            self.stack,
            self.base,
            self.state.trainable,
            self._prompts_NBP,
            self._lengths_NB,
            jax.random.key(self._draws),
            samples=self.config.train.group,
            params=dataclasses.replace(self.loss.sampling, max_new_tokens=new_tokens),
        )

    def _pack(self, samples: sampling.Samples) -> packing.Packed:
        shape_NR = samples.lengths_NR.shape
        advantages_NR = np.broadcast_to(np.float32(advantages(shape_NR[1])), shape_NR)
        prompts = self._prompts_NBP, self._lengths_NB
        drawn = samples.tokens_NRL, samples.lengths_NR, samples.logprobs_NRL
        return self.loss.pack(packing.Batch(*prompts, *drawn, advantages_NR))

    def update(self, samples: sampling.Samples):
        """One optimizer step of every agent on completions; its new state and the metrics of `train_step`."""
        fixed = self.stack, self.loss, self._optimizer, self.base
        self.state, metrics = update.train_step(*fixed, self.state, (self._pack(samples),))
        return self.state, metrics

    def _gradients(self, new_tokens: int) -> dict[str, float]:
        """Seconds of the gradients of random completions."""
        shape = len(self.prompts), self.config.train.group, new_tokens
        tokens_NRL = np.random.default_rng(0).integers(
            self.policy_config.vocab_size, size=shape, dtype=np.int32
        )
        samples = sampling.Samples.empty(*shape).replace(
            tokens_NRL=tokens_NRL, lengths_NR=jnp.full(shape[:2], new_tokens, jnp.int32)
        )
        packed = jax.device_put(self._pack(samples))
        fixed = self.stack, self.loss, self.base, self.state.trainable
        return {"gradients": timed(lambda: gradients(*fixed, packed))[1]}


def timed(run):
    """The result of ``run``, after the device has computed it, and the seconds taken."""
    start = time.perf_counter()
    result = jax.block_until_ready(run())
    return result, time.perf_counter() - start
