"""Q of the steps of an answer: a value model that reads a chat and the answer so far, and is fitted once.

It has adapters of its own on a model's frozen base, and a head (`value_model`). The targets are those of
`credit.q_targets`, the loss is the squared error (`losses.value_loss`); Q* (arXiv 2406.14283).
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np

from jaxmarl_llm import adapters
from jaxmarl_llm.checkpoint import LATEST, Checkpointer
from jaxmarl_llm.search.trees import Tree
from jaxmarl_llm.systems.critics import value_model
from jaxmarl_llm.systems.critics.critics import Critics
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.utils.errors import UserError

NAME = "values"
MEASURED = 256  # steps that the fitted model is measured on
Begun = tuple[Sequence[dict[str, str]], str]  # a chat, and the text of the answer to it so far


class StepCritic:
    """The value model of one model of a team.

    Args:
      member: the model whose base, tokenizer and layout are used; it is not changed.
      key: random key of adapters and head.
      optimizer: of the model.
      rank, alpha, targets: of its adapters, see `adapters.init`.
      rows: texts of a micro-batch.

    Raises:
      UserError: for a model behind an endpoint, or one that learns all of its parameters.
    """

    def __init__(
        self,
        member: Member,
        key: jax.Array,
        optimizer,
        *,
        rank: int,
        alpha: float,
        targets: tuple[str, ...] = adapters.TARGETS,
        rows: int = 16,
    ):
        Team((member,)).require_local("a value model of steps")
        if member.stack.mode == "full":
            raise UserError(
                "team.mode='full': a value model of steps has adapters, allowed are adapters and frozen"
            )
        layout = member.stack.layout.for_stack(1)
        stack = dataclasses.replace(
            member.stack,
            agents=(NAME,),
            mode="adapters",
            adapter_scale=alpha / rank,
            sampler=None,
            layout=layout,
        )
        trainable = layout.init(functools.partial(_begin, stack, rank, targets), key, member.base)
        self._tokenizer = member.tokenizer
        self._team = Team((Member(stack, member.base, trainable, member.tokenizer, member.model_name),))
        self._critics = Critics(self._team, optimizer, rows=rows)

    def values(self, texts: Sequence[Begun]) -> list[tuple[float, int]]:
        """Q of each text, and the number of tokens that were read for it."""
        if not texts:
            return []
        tokens = self._tokens(texts)
        values = self._critics.values({NAME: tokens})
        return [(float(values[i]), len(tokens[i])) for i in range(len(texts))]

    def learn(self, texts: Sequence[Begun], targets: Sequence[float]) -> float:
        """Update the model once on some texts; the loss before the update."""
        metrics = self._critics.learn({NAME: self._tokens(texts)}, dict.fromkeys(range(len(texts)), 0.0),
                                      dict(enumerate(map(float, targets))))  # fmt: skip
        return metrics[f"{NAME}/critic_loss"]

    def save(self, folder) -> None:
        """Write the model; returns when it is written."""
        with Checkpointer(folder, 1) as checkpoints:
            checkpoints.save(self._critics.done, self._critics.states, self._team, {})

    def load(self, folder) -> None:
        """Load a model that was saved in a folder."""
        with Checkpointer(folder, 1) as checkpoints:
            self._critics.states, _ = checkpoints.restore(LATEST, self._team, self._critics.states)

    def _tokens(self, texts: Sequence[Begun]) -> dict[int, np.ndarray]:
        encode = self._tokenizer.encode
        return {
            i: np.array([*self._tokenizer.encode_chat(messages), *(encode(text) if text else ())], np.int32)
            for i, (messages, text) in enumerate(texts)
        }


def _begin(stack, rank: int, targets: tuple[str, ...], key: jax.Array, base) -> dict:
    body = adapters.init(key, base, agents=1, rank=rank, targets=targets)
    return value_model.with_head(body, stack.policy.config.d_model, jax.random.fold_in(key, 1))


def fit(
    critic: StepCritic,
    chats: Sequence[Sequence[dict[str, str]]],
    tree: Tree,
    label: Callable[[np.ndarray], np.ndarray],
    *,
    fixed: bool,
    rounds: int,
    updates: int,
    batch: int,
    seed: Sequence[int],
    progress: Callable[[int, float], None] = lambda done, loss: None,
) -> dict[str, float]:
    """Fit a model to the steps of a tree.

    Args:
      critic: the model.
      chats: for each item, the chat that its answers continue.
      tree: the steps.
      label: maps Q of all steps, float32 (S,), to their targets (S,). A target depends only on Q of the
        step's children; NaN: no target.
      fixed: targets do not depend on Q, which is then not computed.
      rounds: number of times that targets are computed.
      updates: updates per round.
      batch: steps per update, drawn without replacement within a pass over all steps.
      seed: of their order.
      progress: called after each round with the number of rounds and the mean loss of the last one.

    Returns:
      ``loss`` of the last round; over at most `MEASURED` steps, ``explained``, the share of the targets'
      variance that the fitted Q explains (0 if all targets are equal), and ``error``, the mean absolute
      error; ``steps``, the number of steps with a target.
    """
    texts = [(chats[item], text) for item, text in zip(tree.item_S.tolist(), tree.texts, strict=True)]
    nothing_S = np.zeros(len(texts), np.float32)
    known, random = np.flatnonzero(~np.isnan(label(nothing_S))), np.random.default_rng(seed)

    def values(places: np.ndarray) -> np.ndarray:
        """Q of the steps at ``places``, 0 for the others, (S,)."""
        values_S = nothing_S.copy()
        values_S[places] = [value for value, _ in critic.values([texts[s] for s in places])]
        return values_S

    def targets(places: np.ndarray) -> np.ndarray:
        """The targets of the steps at ``places``, from the current Q of their children, (S,)."""
        return label(nothing_S if fixed else values(np.flatnonzero(np.isin(tree.parent_S, places))))

    losses: list[float] = []
    for done in range(rounds):
        passes = -(-updates * batch // len(known))
        drawn = np.concatenate([random.permutation(known) for _ in range(passes)])[: updates * batch]
        targets_S, losses = targets(drawn), []
        for first in range(0, len(drawn), batch):
            chosen = drawn[first : first + batch]
            losses.append(critic.learn([texts[s] for s in chosen], targets_S[chosen]))
        progress(done + 1, float(np.mean(losses)))
    some = random.permutation(known)[:MEASURED]
    targets_P = targets(some)[some]
    error_P, spread = targets_P - values(some)[some], float(targets_P.var())
    return {
        "loss": float(np.mean(losses)),
        "explained": float(1.0 - error_P.var() / spread) if spread > 0 else 0.0,
        "error": float(np.abs(error_P).mean()),
        "steps": float(len(known)),
    }
