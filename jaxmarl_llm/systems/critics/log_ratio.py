"""A critic of turns that is a language model: it compares a text's likelihood with that of its initial state.

    s(c, o, a) = (beta / L) sum_l [log phi(a_l | c, o, a_<l) - log ref(a_l | c, o, a_<l)]

for a text a of L tokens after a prompt o. Before the prompt, the critic may read a text c that the agents may
not read. phi are its own adapters on the agent's frozen base model, or a copy of the agent if the agent
learns all parameters; ref is phi at the start. The mean over tokens, instead of their sum, keeps long texts
from counting more (SWEET-RL, arXiv 2503.15478, after the implicit reward of DPO, arXiv 2305.18290).

It learns from pairs of sequences of turns, one of which ended better, by Bradley and Terry's loss on the sums
of their scores (`losses.bradley_terry_sums`). This divides a sequence's outcome among its turns.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_llm import adapters, losses, update
from jaxmarl_llm.policy.prefill import prefill
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import bucket, pad_prompts
from jaxmarl_llm.systems.critics.saved import SavedStates
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.update.agent_loss import completion_scores
from jaxmarl_llm.update.optimizer import TrainState, descend
from jaxmarl_llm.update.packing import Rows

CRITIC = "critic"
Text = tuple[np.ndarray, np.ndarray]  # token ids of a prompt and of what was written there


@struct.dataclass
class Turns:
    """T turns of each of B sequences: left-padded prompts (B, T, P), and completions (B, T, L) with lengths.

    Missing turns of shorter sequences, and padding sequences, have completions of length 0.
    """

    prompts_BTP: jax.Array
    prompt_lengths_BT: jax.Array
    tokens_BTL: jax.Array
    lengths_BT: jax.Array


class Sizes(NamedTuple):
    """Sizes of `Turns` that fit all sequences of a run: turns, tokens of a prompt and of a completion."""

    turns: int
    prompt: int
    completion: int


def sizes_of(sequences: Sequence[Sequence[Text]]) -> Sizes:
    """Sizes that fit these sequences."""
    texts = [text for sequence in sequences for text in sequence]
    longest = [max((len(text[part]) for text in texts), default=1) for part in (0, 1)]
    return Sizes(max(map(len, sequences), default=1), bucket(longest[0]), max(longest[1], 1))


def pad_turns(sequences: Sequence[Sequence[Text]], sizes: Sizes, number: int) -> Turns:
    """Sequences of turns as arrays of ``number`` sequences; missing ones are empty."""
    prompts, tokens = [], np.zeros((number, sizes.turns, sizes.completion), np.int32)
    lengths = np.zeros((number, sizes.turns), np.int32)
    for b, sequence in enumerate([*sequences, *[()] * (number - len(sequences))]):
        for t, (_, completion) in enumerate(sequence):
            tokens[b, t, : len(completion)], lengths[b, t] = completion, len(completion)
        prompts += [list(prompt) for prompt, _ in sequence] + [[0]] * (sizes.turns - len(sequence))
    padded, prompt_lengths = pad_prompts(prompts, sizes.prompt)
    shape = number, sizes.turns
    return Turns(padded.reshape(*shape, -1), prompt_lengths.reshape(shape), tokens, lengths)


def build(
    team: Team, agent: str, key: jax.Array, *, rank: int, targets: tuple[str, ...] = adapters.TARGETS
) -> Team:
    """The critic for an agent, as a team with one member, `CRITIC`. The agent's parameters are not changed.

    Args:
      team: the agents with their parameters.
      agent: the agent whose base model, or copy, the critic begins with.
      key: random key of its adapters.
      rank, targets: of adapters, see `adapters.init`.

    Raises:
      ValueError: for an agent that is not a local model.
    """
    member = team[agent]
    Team((member,)).require_local("a critic")
    layout = member.stack.layout.for_stack(1)
    place = member.stack.agents.index(agent)

    def begin(key, base, trainable):
        if member.stack.mode == "adapters":
            return adapters.init(key, base, agents=1, rank=rank, targets=targets)
        return jax.tree.map(lambda x: jnp.array(x[place : place + 1]), trainable)

    trainable = layout.init(begin, key, member.base, member.trainable)
    stack = dataclasses.replace(member.stack, agents=(CRITIC,), sampler=None, layout=layout)
    return Team((Member(stack, member.base, trainable, member.tokenizer, member.model_name),))


def logprobs(stack, base, params, turns: Turns) -> jax.Array:
    """Log-probabilities in nats (B, T, L) of the completions' tokens; entries beyond a length are
    meaningless.
    """
    shape = turns.tokens_BTL.shape

    def one(variables):
        prompts_MP = turns.prompts_BTP.reshape(-1, turns.prompts_BTP.shape[-1])
        read = prefill(stack.policy, variables, prompts_MP, turns.prompt_lengths_BT.reshape(-1))
        tokens_ML, lengths_M = turns.tokens_BTL.reshape(-1, shape[-1]), turns.lengths_BT.reshape(-1)
        offsets_ML = jnp.broadcast_to(jnp.arange(shape[-1]), tokens_ML.shape)
        rows = Rows.empty(*tokens_ML.shape, 1, shape[-1]).replace(
            tokens_MW=tokens_ML,
            offsets_MW=jnp.where(offsets_ML < lengths_M[:, None], offsets_ML, -1),
            prompt_M=jnp.arange(len(tokens_ML)),
            lengths_MS=lengths_M[:, None],
        )
        learns = stack.mode == "full"
        inputs = stack.policy, variables, read, rows, SamplingParams(shape[-1])
        return completion_scores(*inputs, head_learns=learns)[0].reshape(shape)

    variables, axes = stack.bind(base, params)
    return jax.vmap(one, in_axes=(axes,), axis_size=1)(variables)[0]


def scores(stack, base, params, initial, turns: Turns, beta: float) -> jax.Array:
    """Score of every turn, float32 (B, T), 0 if empty; no gradient flows to ``initial``, the reference."""
    own_BTL, ref_BTL = (logprobs(stack, base, each, turns) for each in (params, initial))
    mask_BTL = losses.length_mask(turns.lengths_BT, own_BTL.shape[-1])
    return beta * losses.masked_mean(own_BTL - jax.lax.stop_gradient(ref_BTL), mask_BTL)


_scores = jax.jit(scores, static_argnames=("stack", "beta"))


def pair_loss(scores_BT, lengths_BT) -> tuple[losses.SumCount, jax.Array]:
    """`losses.bradley_terry_sums` of pairs of sequences, and how many pairs are ranked correctly.

    The winner of a pair comes first: scores of winner, loser, winner, .. and the lengths of their texts.
    """
    sides = [(scores_BT[k::2], lengths_BT[k::2] > 0) for k in (0, 1)]
    (winner_PT, winner_mask_PT), (loser_PT, loser_mask_PT) = sides
    loss = losses.bradley_terry_sums(winner_PT, loser_PT, winner_mask_PT, loser_mask_PT)
    winner_P, loser_P = (losses.masked_sum(*side) for side in sides)
    whole_P = winner_mask_PT.any(-1) & loser_mask_PT.any(-1)
    return loss, jnp.sum((winner_P > loser_P) & whole_P)


@functools.partial(jax.jit, static_argnames=("stack", "optimizer", "beta", "rows"), donate_argnames="state")
def train_step(
    stack, optimizer, base, state: TrainState, initial, turns: Turns, *, beta: float, rows: int
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Update the critic once on the mean loss of some pairs.

    Args:
      stack, optimizer: static.
      base: frozen variables of the stack.
      state: donated.
      initial: the critic's first parameters.
      turns: of an even number of sequences, see `pair_loss`.
      beta: static.
      rows: pairs of a micro-batch; must divide the number of pairs. Sums are accumulated, so it does not
        change the result.

    Returns:
      The new state, and ``loss``, ``accuracy`` and ``grad_norm``, scalars. If any of these is not finite, the
      state is the old one.
    """

    def of_part(params, part):
        loss, right = pair_loss(scores(stack, base, params, initial, part, beta), part.lengths_BT)
        return loss.sum, (loss, right)

    def add(carry, part):
        grads, total = carry
        more, sums = jax.grad(of_part, has_aux=True)(state.trainable, part)
        return (jax.tree.map(jnp.add, grads, more), jax.tree.map(jnp.add, total, sums)), None

    parts = jax.tree.map(lambda x: jnp.asarray(x).reshape(-1, 2 * rows, *x.shape[1:]), turns)
    begin = jax.tree.map(jnp.zeros_like, state.trainable), (losses.SumCount.zeros(), jnp.int32(0))
    (grads, (loss, right)), _ = jax.lax.scan(add, begin, parts)
    divisor = jnp.maximum(loss.count, 1.0)
    new, metrics, _ = descend(optimizer, state, jax.tree.map(lambda g: g / divisor, grads), loss.mean()[None])
    return new, {name: x_N[0] for name, x_N in metrics.items()} | {"accuracy": right / divisor}


class LogRatio(SavedStates):
    """A critic that is fitted and saved; ``states`` has its parameters and optimizer state, at key 0.

    Args:
      team: from `build`; the states own its parameters, which an update donates.
      optimizer: of the critic.
      beta: scale of the scores.
      rows: pairs of a micro-batch.
    """

    def __init__(self, team: Team, optimizer, *, beta: float, rows: int):
        (self._member,) = team.members
        self.team, self._optimizer, self._beta, self._rows = team, optimizer, beta, rows
        trainable = self._member.trainable
        self._initial = jax.tree.map(jnp.array, trainable)
        self.states = {0: update.init_state(trainable, optimizer, self._member.stack.layout)}
        self._member.trainable = jax.eval_shape(lambda tree: tree, trainable)

    def learn(self, pairs: Sequence[tuple[Sequence[Text], Sequence[Text]]], sizes: Sizes) -> dict[str, Any]:
        """One update on pairs of sequences, winner first; metrics of `train_step`, still on the device."""
        number = -(-len(pairs) // self._rows) * self._rows
        turns = pad_turns([sequence for pair in pairs for sequence in pair], sizes, 2 * number)
        fixed = self._member.stack, self._optimizer, self._member.base
        options = dict(beta=self._beta, rows=self._rows)
        self.states[0], metrics = train_step(*fixed, self.states[0], self._initial, turns, **options)
        return metrics

    def scores(self, texts: Sequence[Text], sizes: Sizes) -> np.ndarray:
        """The score of every text, float32 (texts,)."""
        number, values = 2 * self._rows, []
        width = number * sizes.turns
        for first in range(0, len(texts), width):
            some = texts[first : first + width]
            rows = [some[k : k + sizes.turns] for k in range(0, len(some), sizes.turns)]
            turns = pad_turns(rows, sizes, number)
            inputs = self._member.stack, self._member.base, self.states[0].trainable, self._initial, turns
            values.append(np.asarray(_scores(*inputs, beta=self._beta)).ravel()[: len(some)])
        return np.concatenate([np.zeros(0, np.float32), *values])
