"""Values that decide a switch: the writers' confidence, a head fitted on roll-outs, or the task's judge."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.decoding.ledger import Ledger
from jaxmarl_llm.decoding.switching import Draft
from jaxmarl_llm.decoding.writers import Writers
from jaxmarl_llm.systems.critics import Critics
from jaxmarl_llm.tasks.judgement import is_sequential
from jaxmarl_llm.tasks.judgement import judge as judge_by
from jaxmarl_llm.utils.errors import UserError


def confidence(writers: Writers):
    """The mean log-probability of a draft's last piece under its own member, in nats per byte of its text.

    Per byte, because different tokenizers split a text into different numbers of tokens.
    """

    def value(drafts: Sequence[Draft]) -> list[float]:
        texts = [writers.text(Draft(draft.row, draft.pieces[-1:])) for draft in drafts]
        sizes = [max(len(text.encode()), 1) for text in texts]
        return [draft.pieces[-1].logprob / size for draft, size in zip(drafts, sizes, strict=True)]

    return value


class Judge:
    """Total rewards of drafts in a task with one agent, NaN where none applies; ``ledger`` counts them."""

    def __init__(self, task: Any, writers: Writers, ledger: Ledger):
        if is_sequential(task) or len(task.agents) != 1:
            raise UserError(
                f"agents {task.agents} of the task: texts on their way are judged where one agent answers once"
            )
        self._task, self._writers, self._ledger = task, writers, ledger

    def __call__(self, drafts: Sequence[Draft]) -> list[float]:
        """Rewards on the task's own scale."""
        if not drafts:
            return []
        (speaker,), texts = self._task.agents, [self._writers.text(draft) for draft in drafts]
        judged = judge_by(self._task, self._writers.items(drafts), {speaker: texts}, ())
        self._ledger.judged += len(drafts)
        return [math.nan if one.total is None else float(one.total) for one in judged]


class Head:
    """A value of each member's drafts from its own critic: the expected reward if that member continues.

    Critic j is fitted to the rewards R of whole answers of member j,

        min E sum_l (R - V_j(x, y_1 .. y_l))^2

    over all their tokens l. It reads the whole draft again for each value.

    Args:
      critics: from `critics.build`, one for each member, ``by_token``.
      writers: the writers of the drafts.
      names: names of the members.
      ledger: each value counts as a forward pass.
    """

    def __init__(self, critics: Critics, writers: Writers, names: Sequence[str], ledger: Ledger):
        self._critics, self._writers, self._names, self._ledger = critics, writers, tuple(names), ledger

    def __call__(self, drafts: Sequence[Draft]) -> list[float]:
        """Estimated rewards on the task's own scale."""
        texts: dict[str, dict[int, np.ndarray]] = {name: {} for name in self._names}
        for i, draft in enumerate(drafts):
            member = draft.pieces[-1].member
            texts[self._names[member]][i] = np.array(self._writers.tokens(draft, member), np.int32)
        if not drafts:
            return []
        for number, name in enumerate(self._names, start=len(drafts)):  # a critic without a text reads any
            texts[name] = texts[name] or {number: np.zeros(1, np.int32)}
        self._ledger.passes += len(drafts)
        values = self._critics.values(texts)
        return [float(np.asarray(values[i])[-1]) for i in range(len(drafts))]


def fit(
    critics: Critics,
    writers: Writers,
    judge: Judge,
    names: Sequence[str],
    *,
    samples: int,
    updates: int,
    batch: int,
    random: np.random.Generator,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, float]:
    """Fit every member's critic to its answers for the rows of ``writers``, ``samples`` for each row.

    Each critic starts at the mean of its rewards, so that it only learns differences between texts.

    Args:
      critics: one for each member, with an optimizer for so many ``updates``.
      batch: answers of each member in an update; each answer is used once before any is repeated.
      random: order of the answers.
      progress: called with the number of finished updates, and of all updates.

    Returns:
      Means over the last quarter of the updates of ``<name>/critic_loss`` and ``<name>/critic_explained``, and
      ``answers``, ``tokens``, those that were drawn for it.
    """
    texts, tokens = _answers(writers, judge, names, samples)
    rewards = {name: [y[-1] for _, y in own if not np.isnan(y[-1])] for name, own in texts.items()}
    if empty := [name for name, own in rewards.items() if not own]:
        raise UserError(
            f"--value=head: the reward applies to no answer of {empty[0]!r} to the training problems"
        )
    _begin_at(critics, {name: float(np.mean(own)) for name, own in rewards.items()})
    rows = []
    order: dict[str, list[int]] = {name: [] for name in names}
    for done in range(1, updates + 1):
        chosen: dict[str, Mapping[int, np.ndarray]] = {}
        targets_of: dict[int, np.ndarray] = {}
        for place, name in enumerate(names):
            while len(order[name]) < batch:
                order[name] += random.permutation(len(texts[name])).tolist()
            own, order[name] = order[name][:batch], order[name][batch:]
            numbers = range(place * batch, (place + 1) * batch)
            chosen[name] = {number: texts[name][i][0] for number, i in zip(numbers, own, strict=True)}
            targets_of |= {number: texts[name][i][1] for number, i in zip(numbers, own, strict=True)}
        rows.append(critics.learn(chosen, critics.values(chosen), targets_of))
        progress(done, updates)
    last = rows[-max(1, len(rows) // 4) :]
    kept = [name for name in last[0] if name.endswith(("critic_loss", "critic_explained"))]
    return {name: float(np.mean([row[name] for row in last])) for name in kept} | {
        "answers": float(sum(map(len, texts.values()))),
        "tokens": float(tokens),
    }


def _answers(
    writers: Writers, judge: Judge, names: Sequence[str], samples: int
) -> tuple[dict[str, list[tuple[np.ndarray, np.ndarray]]], int]:
    """Members' answers as ids and rewards at sampled tokens (NaN in the prompt); total sampled tokens."""
    texts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in names}
    tokens = 0
    for member, name in enumerate(names):
        drafts = [draft for row in writers.from_the_start(member, samples) for draft in row]
        for draft, reward in zip(drafts, judge(drafts), strict=True):
            ids = np.array(writers.tokens(draft, member), np.int32)
            targets = np.full(len(ids), np.nan, np.float32)
            targets[len(ids) - draft.tokens() :] = reward
            texts[name].append((ids, targets))
            tokens += draft.tokens()
    return texts, tokens


def _begin_at(critics: Critics, means: Mapping[str, float]) -> None:
    """Set the bias of every member's critic."""
    for i, member in enumerate(critics.team.members):
        state = critics.states[i]
        head = state.trainable["head"]
        bias_N = jnp.array([means[name] for name in member.stack.agents], head["bias"].dtype)
        critics.states[i] = state.replace(trainable={**state.trainable, "head": {**head, "bias": bias_N}})
