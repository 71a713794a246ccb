"""Answers earn what a verifier estimates instead of their correctness: the scores of MAPoRL (arXiv
2502.18439).

For ``collect`` iterations the untrained team answers and no agent learns. Pairs of a right answer w and a
wrong answer l of one agent to the same question q are kept. There are as many right as wrong ones per
question, so a verifier gains nothing by knowing which questions are hard. Then a model with the score f is
fitted,

    L(f) = - log s(q, w) - log (1 - s(q, l)),        s = sigmoid(f)                             (`label_loss`)

and stays fixed. From then on another system learns from s in place of `Judgement.local`. The verifier reads
only the question and the answer, whatever else the agent has read. Metrics, transcripts and evaluations show
the task's own rewards.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.losses import SumCount
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.preferences.pairs import Pair
from jaxmarl_llm.systems.preferences.reward_model import RewardModel
from jaxmarl_llm.systems.preferences.siblings import labels_of, pairs_by_label
from jaxmarl_llm.systems.types import Credit, Models, System
from jaxmarl_llm.update import TrainState

RIGHT = 0.5  # a local reward above it means a right answer


def label_loss(values_BK, targets, used_B) -> SumCount:
    """Cross-entropy of the labels of right and wrong answers, a mean over both; for `value_model.train_step`.

    Args:
      values_BK: scores f of pairs (right, wrong), K = 2.
      targets: not read.
      used_B: bool; False where a row only fills up the batch.
    """
    losses_B = (jax.nn.softplus(-values_BK[:, 0]) + jax.nn.softplus(values_BK[:, 1])) / 2
    return SumCount(jnp.sum(losses_B * used_B), jnp.sum(used_B).astype(losses_B.dtype))


def local_of(forest: Forest) -> np.ndarray:
    """Each turn's own reward (`Judgement.local`), float32 (turns,); NaN where the task does not give it."""
    local_R = np.full(len(forest.turns), np.nan, np.float32)
    for joint in forest.joints:
        for i in () if np.isnan(joint.total) else joint.turns:
            local_R[i] = joint.judgement.local.get(forest.turns[i].agent, np.nan)
    return local_R


def pairs_of(
    forest: Forest, random: np.random.Generator, *, most: int = 0, selection: str = "gap"
) -> list[Pair]:
    """Pairs of a right and a wrong first answer to a question; options as in `pairs.pairs_of`."""
    local_R = local_of(forest)
    later_R = np.array([turn.parent is not None for turn in forest.turns])
    labels_R = labels_of(np.where(later_R, np.nan, local_R), RIGHT)
    return pairs_by_label(forest, local_R, labels_R, random, most=most, selection=selection)


def question_of(forest: Forest, turn: Turn) -> np.ndarray:
    """Tokens of the prompt that a turn's conversation began with."""
    return forest.first_of(turn).prompt


@dataclasses.dataclass(frozen=True)
class Verified:
    """Another system that gets a verifier's scores as the answers' own rewards; see `types.System`.

    Attributes:
      system: the system that gets the scores.
      verifier: with its pairs; used after ``collect`` iterations.
      models: of both, see `Together`.
      collect: first iterations, which only collect pairs.
    """

    system: System
    verifier: RewardModel
    models: Models
    collect: int

    def assign(self, forest: Forest) -> Credit:
        """The system's credit from the scores; nobody learns while pairs are collected."""
        pool = self.verifier.pool
        if pool.done < self.collect:
            pool.add(forest)
            return magrpo.no_update(forest)
        scores_R, local_R = self.scores(forest), local_of(forest)
        credit = self.system.assign(scored(forest, scores_R))
        metrics = dict(credit.extra_metrics) | agreement(scores_R, local_R)
        return dataclasses.replace(credit, forest=forest, extra_metrics=metrics)

    def scores(self, forest: Forest) -> np.ndarray:
        """The verifier's score of every turn's text, float32 (turns,), 0..1."""
        texts = {
            turn.id: np.concatenate([question_of(forest, turn), turn.completion]) for turn in forest.turns
        }
        values = self.verifier.scores_of(texts)
        return np.asarray(jax.nn.sigmoid(np.array([values[i] for i in range(len(texts))], np.float32)))

    def learn(self, credit: Credit) -> dict[str, float]:
        """Fit the verifier after the last iteration that collects; then let the system's own models learn.

        ValueError if no agent has both a right and a wrong answer to a question.
        """
        pool = self.verifier.pool
        pool.done += 1
        metrics = {"preference/pairs": float(pool.size)}
        if pool.done == self.collect:
            metrics |= self.verifier.fit()
        return metrics | (self.system.learn(credit) if pool.done > self.collect else {})


def scored(forest: Forest, scores_R: np.ndarray) -> Forest:
    """The forest with scores in place of the agents' own rewards."""
    joints = []
    for joint in forest.joints:
        local = {forest.turns[i].agent: float(scores_R[i]) for i in joint.turns}
        joints.append(dataclasses.replace(joint, judgement=dataclasses.replace(joint.judgement, local=local)))
    return dataclasses.replace(forest, joints=tuple(joints))


def agreement(scores_R: np.ndarray, local_R: np.ndarray) -> dict[str, float]:
    """How well scores tell right answers from wrong ones.

    ``maporl/verifier_accuracy``: share of the answers that it classifies correctly;
    ``maporl/verifier_balanced``: the mean of this share over right and over wrong answers, 0.5 by guessing,
    missing where one kind does not occur.
    """
    known_R = ~np.isnan(local_R)
    right_R, taken_R = local_R[known_R] > RIGHT, scores_R[known_R] > RIGHT
    if not len(right_R):
        return {}
    metrics = {"maporl/verifier_accuracy": float((right_R == taken_R).mean())}
    if right_R.any() and not right_R.all():
        metrics["maporl/verifier_balanced"] = float(
            (taken_R[right_R].mean() + (~taken_R[~right_R]).mean()) / 2
        )
    return metrics


class Together:
    """A verifier and the models of the system that learns from its scores, as one `types.Models`.

    State numbers of the other models follow the verifier's; each has its own folder.
    """

    def __init__(self, verifier: RewardModel, others: Models):
        self._parts = {"verifier": verifier, "models": others}

    @property
    def states(self) -> Mapping[int, TrainState]:
        """Parameters and optimizer states of all models."""
        states = [state for part in self._parts.values() for _, state in sorted(part.states.items())]
        return dict(enumerate(states))

    @states.setter
    def states(self, states: Mapping[int, TrainState]) -> None:
        rest = [state for _, state in sorted(states.items())]
        for part in self._parts.values():
            own = dict(zip(sorted(part.states), rest, strict=False))
            part.states, rest = own, rest[len(own) :]

    @contextlib.contextmanager
    def kept_in(self, folder, keep: int) -> Iterator[None]:
        """See `types.Models.kept_in`."""
        with contextlib.ExitStack() as stack:
            for name, part in self._parts.items():
                stack.enter_context(part.kept_in(pathlib.Path(folder) / name, keep))
            yield

    def save(self, step: int) -> None:
        """See `types.Models.save`."""
        for part in self._parts.values():
            part.save(step)

    def restore(self, step: int) -> None:
        """See `types.Models.restore`."""
        for part in self._parts.values():
            part.restore(step)
