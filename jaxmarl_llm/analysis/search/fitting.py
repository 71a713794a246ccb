"""Fit Q to the steps of a team's own answers, for a Q* search: what experiments.values does.

The first agent samples several complete answers to each training problem. The answers and their rewards are
kept as forests in ``journal/`` of the folder; together they form a tree of steps (`search.trees`). With
``qstar.labels=completions`` the second agent then completes answers from randomly chosen steps of the tree.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxmarl_llm.analysis.search import search
from jaxmarl_llm.analysis.search.search import Searchers
from jaxmarl_llm.credit import on_host, q_targets
from jaxmarl_llm.factory import randomness, step_search
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.protocols.completions import Completions
from jaxmarl_llm.protocols.repeated import Repeated
from jaxmarl_llm.rollout.journal import Journal
from jaxmarl_llm.search.trees import Answer, Tree, tree_of
from jaxmarl_llm.systems.critics import step_critic
from jaxmarl_llm.utils import formats
from jaxmarl_llm.utils.errors import UserError

Tell = Callable[[str], None]
# Fields of the fit: if their values change, the model is fitted again, to the existing answers.
FITTED_BY = tuple(f"qstar.{name}" for name in ("rounds", "updates", "batch", "lr", "discount"))
EXPLAINED = 0.05  # `fit` reports a model that explains a smaller share of its labels' variance


def fit(config, folder, by: Searchers, task, tell: Tell = print) -> dict[str, float]:
    """Draw answers to all problems of a task, fit Q to their steps, and save the model in a folder.

    Args:
      config: a config with train.protocol='qstar'.
      folder: folder of the model; answers sampled there by an earlier process are reused, also if `FITTED_BY`
        changed.
      by: the team.
      task: task of the training problems, with the agents that write.
      tell: called with lines about the progress.

    Returns:
      The metrics of `step_critic.fit`, ``answers``, their mean ``reward``, and the sampled ``tokens``.

    Raises:
      UserError: if all answers have the same reward, so that there is nothing to fit.
    """
    folder = pathlib.Path(folder)
    search.claim(folder, config, by.step, FITTED_BY)
    forests = rollouts(config, folder, by, task)
    answers = [answer for first, forest in forests for answer in answers_of(forest, first)]
    rewards = np.array([answer.reward for answer in answers])
    drawn = sum(turn.tokens[1] for _, forest in forests for turn in forest.turns)
    tell(f"{len(answers)} answers to {len(task.items)} problems, mean reward {np.nanmean(rewards):.3f}")
    if not np.nanstd(rewards) > 0:
        raise UserError(
            f"qstar.rollouts={config.qstar.rollouts}: all {len(answers)} answers earned {np.nanmean(rewards):g}, so "
            "there is nothing to fit; allowed is a number with which some earn more than others"
        )
    writer, own = config.team.agents[0], config.qstar
    tree = tree_of(answers, step_search.of_programs(config))
    critic = step_search.build_critic(config, by.team)
    chats = [task.prompts(item)[writer] for item in task.items]
    metrics = step_critic.fit(
        critic, chats, tree, labels(config, tree), fixed=own.labels != "fitted",
        rounds=own.rounds, updates=own.updates, batch=own.batch,
        seed=(config.seed, randomness.STREAMS.index("critics")),
        progress=lambda done, loss: tell(f"round {done} of {own.rounds}: loss {loss:.4f}"),
    )  # fmt: skip
    if metrics["explained"] < EXPLAINED:
        tell(
            f"qstar.updates={own.updates}: the model explains {metrics['explained']:.3f} of the variance of what it "
            "was fitted to, so its order of texts may be no better than one at random; the same command with other "
            "settings of the fit fits it anew to the same answers"
        )
    critic.save(folder / step_search.MODEL)
    metrics |= {"answers": float(len(answers)), "reward": float(np.nanmean(rewards)), "tokens": float(drawn)}
    formats.write(folder / step_search.ABOUT, step_search.about(config, by.team) | {"metrics": metrics})
    return metrics


def labels(config, tree: Tree) -> Callable[[np.ndarray], np.ndarray]:
    """The function from the current Q of all steps to their targets, by ``qstar.labels``."""
    own, depth, number = config.qstar, tree.depth(), len(tree.texts)
    columns, discount = (tree.reward_S, tree.parent_S), {"discount": own.discount}
    if own.labels == "fitted":
        return lambda values_S: np.asarray(
            on_host(q_targets.fitted, values_S, *columns, **discount, length=number)
        )
    if own.labels == "best_rollout":
        given_S = q_targets.best_rollout(*columns, depth=depth, **discount)
    else:
        own_S = np.array([author == config.team.agents[1] for author in tree.author])
        given_S = q_targets.completions(*columns, own_S, depth=depth, **discount)
    return lambda values_S: np.asarray(given_S)


def rollouts(config, folder: pathlib.Path, by: Searchers, task) -> list[tuple[int, Forest]]:
    """Forests of answers to all problems, each with the index of its first problem."""
    writer, size, forests = config.team.agents[0], config.search.problems, []
    plain = config.copy_and_resolve_references()
    plain.train.protocol = "repeated"  # complete answers, not line by line
    for n, first in enumerate(range(0, len(task.items), size)):
        ids = range(first, min(first + size, len(task.items)))
        protocol: Any = Repeated(Alone(task, writer), config.qstar.rollouts, 1)
        if config.qstar.labels == "completions":
            seed, strings = (config.seed, n), step_search.of_programs(config)
            protocol = Completions(protocol, config.team.agents[1], config.qstar.rollouts, seed, strings)
        key = jax.random.fold_in(randomness.stream(config, "values"), n)
        journal = Journal(folder / "journal" / f"{n:04d}")
        forests.append((first, search.rollout(plain, protocol, by, task, ids, key, journal)))
    return forests


@dataclasses.dataclass(frozen=True)
class Alone:
    """The prompts of a task for only one of its agents."""

    task: Any
    agent: str

    def prompts(self, item) -> dict:
        """The agent's prompt."""
        return {self.agent: self.task.prompts(item)[self.agent]}


def answers_of(forest: Forest, first: int = 0) -> Sequence[Answer]:
    """The judged answers of a forest, items counted from ``first``; the reward is that of the author."""
    return [
        Answer(first + joint.item, turn.message, float(joint.judgement.local[turn.agent]), turn.agent)
        for joint in forest.joints
        for turn in (forest.turns[i] for i in joint.turns)
    ]
