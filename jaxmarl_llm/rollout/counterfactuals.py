"""Judge joint answers without an agent: its part is replaced, and the answer is judged again.

    C_n,j = R(joint answer j with another part for agent n's)

The other part is one of `KINDS`:

    nothing    an empty text
    sample     the agent's next sample at the same node (after the last, the first)
    reference  the greedy answer to the problem by the agent's initial policy (untrained: adapters off), in
               every turn
    solo       none; all others answer again without the agent: C is the mean reward of these new samples at
               the node, the same for all its joint answers (the solver alone: CCPO, arXiv 2603.21563). With
               an adviser (`protocols.Advice`) whole episodes are played again without it, from the same
               starts and with the same random key (`without_adviser`)

With the first three the partners' texts stay unchanged. If partners had read the agent's part (pipeline,
discussion), this measures how the judge values the part, not what they would have written without it. An
agent whose part no partner read is also replaced in this way with ``solo``.

All these answers are judged in one call after the rollout (``solo``: one call per agent whose part was read).
Equal answers are judged once, and those already judged in the rollout are reused. None of them is trained on.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.protocols.advice import Advice
from jaxmarl_llm.protocols.types import Episode, Prompts, Protocol, first_requests
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.utils.errors import UserError

KINDS = ("nothing", "sample", "reference", "solo")
Rollout = Callable[..., Forest]


@dataclasses.dataclass(frozen=True)
class SecondRollout:
    """Arguments of a second rollout, for the counterfactuals that draw new answers.

    Attributes:
      rollout: ``rollout(protocol, trainables=.., key=.., last_greedy=..)``: `rollout.run` on the same items.
      protocol: the rollout's protocol; with ``solo`` it has ``prompts``.
      trainables: the current parameters of each member of the team.
      key: random key, different from the rollout's.
      references: parameters of each member's reference policy; None: the base, (): the base for all.
      first_key: the rollout's key, for comparison draw by draw; None if not needed.
    """

    rollout: Rollout
    protocol: Protocol
    trainables: Sequence[Any]
    key: jax.Array
    references: Sequence[Any] = ()
    first_key: jax.Array | None = None


def with_counterfactuals(forest: Forest, kind: str, scorer: TaskScorer, again: SecondRollout) -> Forest:
    """The forest with its ``counterfactuals``, float32 (N, J), agents in the order of the joint answers.

    NaN where no reward applies to the replaced answer. With an adviser the result is that of
    `without_adviser`.

    Args:
      forest: of a rollout.
      kind: one of `KINDS`.
      scorer: that of the rollout.
      again: for ``reference`` and ``solo``.

    Raises:
      ValueError: for another kind, for ``sample`` if an agent has one sample at a node, and for ``solo``
        with several turns.
    """
    if kind not in KINDS:
        raise UserError(f"counterfactual={kind!r}; allowed: {', '.join(KINDS)}")
    if isinstance(again.protocol, Advice):
        return without_adviser(forest, again)
    solo, drawn = solo_rewards(forest, scorer, again) if kind == "solo" else ({}, [])
    if kind == "sample":
        parts = next_samples(forest, scorer.agents)
    elif kind == "reference":
        parts, drawn = reference_answers(forest, scorer, again)
    else:
        parts = {agent: [""] * len(forest.joints) for agent in scorer.agents if agent not in solo}
    replaced, answers = replaced_rewards(forest, scorer, parts)
    rewards = solo | replaced
    return dataclasses.replace(
        forest,
        counterfactuals=np.stack([rewards[agent] for agent in scorer.agents]),
        replaced_by=kind,
        extra_answers=answers + sum(len(other.joints) for other in drawn),
        extra_tokens=sum(turn.tokens[1] for other in drawn for turn in other.turns),
    )


def without_adviser(forest: Forest, again: SecondRollout) -> Forest:
    """The forest with ``alone``: its episodes once more, played by the actor alone.

    Turn t of a chain draws with the same random key as turn t of the chain with advice while no episode has
    ended: a row of the sampler gets its key from its position in the batch.
    """
    protocol = again.protocol
    options = dict(trainables=again.trainables, key=again.first_key, key_step=protocol.step_of_turn)
    alone = again.rollout(protocol.without_adviser(), **options)
    tokens = sum(turn.tokens[1] for turn in alone.turns)
    return dataclasses.replace(forest, alone=alone, extra_answers=len(alone.joints), extra_tokens=tokens)


def replaced_rewards(
    forest: Forest, scorer: TaskScorer, parts: Mapping[str, Sequence[str]]
) -> tuple[dict[str, np.ndarray], int]:
    """Rewards (J,) by agent, of joint answers j with the agent's text replaced by parts[agent][j].

    Also returns the number of answers that were judged for them.
    """
    texts_J = [tuple(forest.turns[i].message for i in joint.turns) for joint in forest.joints]
    # If judgements depend on earlier answers, these are part of the key.
    before_J = forest.histories() if scorer.sequential else [()] * len(forest.joints)
    place_J = [(j.item, _key(before)) for j, before in zip(forest.joints, before_J, strict=True)]
    histories = dict(zip(place_J, before_J, strict=True))
    wanted = {}
    for agent, texts in parts.items():
        n = scorer.agents.index(agent)
        answers = [(*whole[:n], text, *whole[n + 1 :]) for whole, text in zip(texts_J, texts, strict=True)]
        wanted[agent] = list(zip(place_J, answers, strict=True))
    known = dict(zip(zip(place_J, texts_J, strict=True), forest.totals().tolist(), strict=True))
    new = list(dict.fromkeys(answer for keys in wanted.values() for answer in keys if answer not in known))
    columns = {agent: [texts[n] for _, texts in new] for n, agent in enumerate(scorer.agents)}
    items, histories_of = [forest.items[place[0]] for place, _ in new], [histories[place] for place, _ in new]
    judgements = scorer.judge_texts(items, columns, histories_of)
    totals = [np.nan if judgement.total is None else judgement.total for judgement in judgements]
    known |= dict(zip(new, totals, strict=True))
    rewards = {agent: np.array([known[a] for a in keys], np.float32) for agent, keys in wanted.items()}
    return rewards, len(new)


def _key(history) -> tuple:
    """The conversation so far in a comparable form."""
    return tuple(tuple(sorted(texts.items())) for texts in history)


def next_samples(forest: Forest, agents: Sequence[str]) -> dict[str, list[str]]:
    """For every agent and joint answer, the text of the next sample of its group, cyclically."""
    groups: dict[tuple, list[int]] = {}
    for joint in forest.joints:
        for n, turn in enumerate(joint.turns):
            ids = groups.setdefault((joint.node, n), [])
            ids += [] if turn in ids else [turn]
    if lonely := [agents[n] for (_, n), ids in groups.items() if len(ids) < 2]:
        raise UserError(f"agent {lonely[0]!r} has one sample at a node; there is none to take its place")

    def following(joint, n: int) -> str:
        ids = groups[joint.node, n]
        return forest.turns[ids[(ids.index(joint.turns[n]) + 1) % len(ids)]].message

    return {agent: [following(joint, n) for joint in forest.joints] for n, agent in enumerate(agents)}


@dataclasses.dataclass(frozen=True)
class FreshAnswers:
    """A protocol in which all agents answer every item ``samples`` times and nothing is judged."""

    prompts: Prompts
    samples: int = 1

    def step(self, state: Episode) -> list:
        """All requests at once."""
        return [] if state.turns else first_requests(state, self.prompts, self.samples)

    def observe(self, state: Episode, turns) -> list:
        """No joint answers."""
        return []


def reference_answers(
    forest: Forest, scorer: TaskScorer, again: SecondRollout
) -> tuple[dict[str, list[str]], list[Forest]]:
    """For each agent and joint answer, the greedy answer of its reference policy to the item.

    Also returns the forest that was drawn for them.
    """
    references = again.references or [None] * len(again.trainables)
    pairs = zip(again.trainables, references, strict=True)
    off = [ref if ref is not None or tree is None else jax.tree.map(_zeros_like, tree) for tree, ref in pairs]
    protocol = FreshAnswers(scorer.task.prompts)
    drawn = again.rollout(protocol, trainables=off, key=again.key, last_greedy=True)
    texts = {(turn.agent, turn.item): turn.message for turn in drawn.turns}
    return {agent: [texts[agent, joint.item] for joint in forest.joints] for agent in scorer.agents}, [drawn]


def _zeros_like(x: jax.Array) -> jax.Array:
    return jnp.zeros_like(x, device=x.sharding)


def solo_rewards(
    forest: Forest, scorer: TaskScorer, again: SecondRollout
) -> tuple[dict[str, np.ndarray], list[Forest]]:
    """Mean reward of rollouts without the agent, (J,) by node, for every agent whose part others read.

    Also returns the forests of these rollouts.
    """
    if any(joint.follows is not None for joint in forest.joints):
        raise UserError("counterfactual='solo': there are several turns, whose nodes nothing else shares")
    node_J, rewards, drawn = forest.nodes()[0], {}, []
    for n, agent in enumerate(scorer.agents):
        if not _heard(forest, agent):
            continue

        def prompts(item, left_out=agent):
            prompts_of = again.protocol.prompts(item)
            return {other: messages for other, messages in prompts_of.items() if other != left_out}

        protocol = dataclasses.replace(again.protocol, prompts=prompts)
        key = jax.random.fold_in(again.key, n)
        forest_without = again.rollout(protocol, trainables=again.trainables, key=key)
        drawn.append(forest_without)
        totals_J, place_J = forest_without.totals(), forest_without.nodes()[0]
        known_J = ~np.isnan(totals_J)
        counts = np.bincount(place_J, known_J, minlength=node_J.max() + 1)
        sums = np.bincount(place_J, np.nan_to_num(totals_J), minlength=node_J.max() + 1)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        rewards[agent] = means[node_J].astype(np.float32)
    return rewards, drawn


def _heard(forest: Forest, agent: str) -> bool:
    """Whether another agent continued a turn after the agent's first turn."""
    first = next(turn.id for turn in forest.turns if turn.agent == agent)
    return any(turn.agent != agent and turn.parent is not None and turn.id > first for turn in forest.turns)
