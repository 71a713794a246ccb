"""MALT: roles in a chain learn from a tree of answers, by imitation, then by preferences (arXiv 2412.01928).

A generator answers, a verifier comments, a refiner gives the final answer; each continues every path so far n
times (`protocols.Tree`). The value of a leaf is its reward, that of an inner turn the mean of its children,

    V(y) = mean { V(c) : c continues y },        label(y) = 1[V(y) > threshold]

In the first ``collect`` iterations the untrained team draws trees. For the next ``sft_steps`` iterations
every agent imitates its turns of label 1 (mean cross-entropy of their tokens, as in `systems.sft`). Then all
agents except the first learn from siblings of different labels by `systems.dpo`, with the parameters after
the imitation as reference. The first agent, the generator, only imitates, as in the paper.

Both losses are policy gradients of the same form. For R turns of an agent with T tokens in total, the
advantage R / T turns the mean over turns of their summed log-probabilities into the mean log-probability of a
token.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import demonstrations, dpo, magrpo
from jaxmarl_llm.systems.demonstrations import Encoded
from jaxmarl_llm.systems.preferences.labelled import Labelled
from jaxmarl_llm.systems.sft import DemonstrationCredit, DemonstrationOrder
from jaxmarl_llm.systems.types import Credit


@dataclasses.dataclass(frozen=True)
class Malt:
    """The labelled turns of a run, ``models``, and the credit from them; see `types.System`.

    Attributes:
      models: turns of label 1, and pairs of siblings of the agents that learn preferences.
      scores: as in `dpo.Dpo`; never called for a reference.
      order: makes the order in which some demonstrations are imitated.
      batch: pairs of each agent in an update; for demonstrations twice as many.
      collect: first iterations, which only collect; no rollouts are made after them.
      sft_steps: iterations of imitation after them.
      beta: see `losses.dpo`.
      nll: see `dpo.prefer`.
    """

    models: Labelled
    scores: dpo.Scores
    order: Callable[[list[Encoded]], DemonstrationOrder]
    batch: int
    collect: int
    sft_steps: int
    beta: float = 0.1
    nll: float = 0.0

    def assign(self, forest: Forest | None) -> Credit:
        """Add the forest's labelled turns, and return the credit of the stage that the run is in.

        ValueError if there is nothing to imitate or to prefer after the iterations that collect.
        """
        values = {} if forest is None else self.models.add(forest) | changes(forest)
        if self.models.done < self.collect:
            return dataclasses.replace(magrpo.no_update(forest), extra_metrics=values)
        self.models.require()
        update = self.models.done - self.collect
        return self._imitate(update) if update < self.sft_steps else self._prefer()

    def learn(self, credit: Credit) -> dict[str, float]:
        """Return the metrics of the stage and of what is kept; there is no model to update."""
        self.models.done += 1
        kept = {"preference/pairs": self.models.pool.size, "malt/positives": len(self.models.positives())}
        return {name: float(number) for name, number in kept.items()} | (credit.for_models or {})

    def _imitate(self, update: int) -> Credit:
        order = self.order(self.models.positives())
        order.done = update
        made = demonstrations.forest_of(order.next(), order.prompts)
        scores = self.scores(made, False)
        advantages_R, metrics = imitation(made, scores)
        returns_R = np.full(len(made.turns), np.nan, np.float32)
        groups_R = np.arange(len(made.turns), dtype=np.int32)
        return DemonstrationCredit(made.with_logprobs(scores), advantages_R, returns_R, groups_R, metrics)

    def _prefer(self) -> Credit:
        models = self.models
        if not models.reference.known:  # the first update: the parameters are those after the imitation
            models.reference.set(lambda made: self.scores(made, False), self.batch)
        inputs = models.pool, models.preferring, self.batch, self.scores, models.reference.of
        return dpo.prefer_drawn(*inputs, beta=self.beta, nll=self.nll)


def changes(forest: Forest) -> dict[str, float]:
    """How the last agent of the chains changes the first one's answer, where the task judges each separately.

    ``<last>/mended``: among the chains that began wrong, the share that ends right; ``<last>/broken``: among
    those that began right, the share that ends wrong. Right is a local reward of at least 0.5.
    """
    ends: dict[bool, list[bool]] = {}
    name = ""
    for joint in forest.joints:
        first, name = (forest.turns[joint.turns[n]].agent for n in (0, -1))
        local = joint.judgement.local or {}
        if first in local and name in local:
            ends.setdefault(local[first] >= 0.5, []).append(local[name] >= 0.5)
    metrics = {f"{name}/mended": float(np.mean(ends[False]))} if False in ends else {}
    return metrics | ({f"{name}/broken": 1 - float(np.mean(ends[True]))} if True in ends else {})


def imitation(made: Forest, scores) -> tuple[np.ndarray, dict[str, float]]:
    """Advantages (turns,) that make the update cross-entropy, and its value in nats per token,
    ``<agent>/sft_loss``.

    Args:
      made: the turns to imitate, of every agent.
      scores: log-probabilities (L',) of every turn's tokens under the policies as they are.
    """
    advantages_R, metrics = np.zeros(len(made.turns), np.float32), {}
    for agent in dict.fromkeys(turn.agent for turn in made.turns):
        ids = [turn.id for turn in made.turns if turn.agent == agent]
        tokens = sum(len(made.turns[i].completion) for i in ids)
        advantages_R[ids] = len(ids) / tokens
        metrics[f"{agent}/sft_loss"] = -float(sum(scores[i].sum() for i in ids)) / tokens
    return advantages_R, metrics
