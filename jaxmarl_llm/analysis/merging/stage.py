"""A team with which members and candidates of a merge answer problems in turn, with the same programs.

Choices use scores on validation problems, with a separate stream of random numbers; the test uses the stream
of `experiments.evaluate`. All adapters are padded with zeros to the largest rank, so that one compiled
program serves all.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import evaluation
from jaxmarl_llm.analysis.merging.methods import Member
from jaxmarl_llm.config.task import EVALUATED
from jaxmarl_llm.evaluation import Evaluations, results, scores
from jaxmarl_llm.factory import evaluations, experts, randomness, tasks, teams, tools
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import agent_axis, compile_times, console, quantised
from jaxmarl_llm.utils.statistics.bootstrap import interval
from jaxmarl_llm.weights import merging

STREAMS = {"validation": "merge", "test": "report"}  # split -> random stream of its answers


@dataclasses.dataclass
class Stage:
    """The resources used while a merge is scored.

    Attributes:
      config: config of the result.
      team: the team as built, with the base; ``place`` is the index of the member with the local models.
      problems: by split, the task and the items that are answered.
      toolbox: tools that agents may call.
      samples: sampled answers per problem, besides a greedy one.
      spent: by split, numbers of evaluations, answers and completion tokens so far, with greedy answers.
    """

    config: object
    team: Team
    place: int
    problems: dict
    toolbox: object
    samples: int
    spent: dict = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def opened(config, scored: bool, samples: int) -> Iterator[Stage]:
    """The team of a config and the problems of both splits; no problems if ``scored`` is False."""
    with contextlib.ExitStack() as stack:
        problems, toolbox, items = {}, None, []
        if scored:
            executor = stack.enter_context(tasks.build_executor(config))
            expert = experts.build_expert(config, "")
            for split in STREAMS:
                task = tasks.build_task(config, executor, EVALUATED[split], expert)
                number = config.eval.problems if split == "validation" else 0
                problems[split] = task, scores.spread(len(task.items), number)
                items += task.items
            toolbox = stack.enter_context(tools.opened(config, executor, problems["test"][0]))
        team = teams.build_team(config, speakers=experts.build(config, items, "") if scored else None)
        place = next(i for i, member in enumerate(team.members) if not member.remote)
        teams.check_prompts(config, team, *(task for task, _ in problems.values()), toolbox=toolbox)
        yield Stage(config, team, place, problems, toolbox, samples or config.eval.samples)


def with_vectors(stage: Stage, frame, vectors: Member) -> Team:
    """The team with local agents of base plus task vectors; ``frame`` is its member without the vectors."""
    trainable = jax.tree.map(jnp.copy, frame.trainable)
    adapted, trees = frame.stack.mode == "adapters", {}
    for index, agent in enumerate(frame.stack.agents):
        vector = vectors[agent]
        if id(vector) not in trees:
            trees[id(vector)] = _lora(frame, vector) if adapted else _whole(frame, vector)
        one = jax.tree.map(lambda x, like: np.asarray(x, like.dtype), trees[id(vector)], trainable)
        trainable = agent_axis.put(trainable, one, index)
    members = list(stage.team.members)
    members[stage.place] = dataclasses.replace(frame, trainable=trainable)
    return Team(tuple(members))


def _lora(frame, vector: merging.LowRank) -> dict:
    rank = next(
        x.shape[-1] for path, x in jax.tree_util.tree_leaves_with_path(frame.trainable) if path[-1].key == "a"
    )
    return merging.as_lora(merging.with_rank(vector, rank)[0], frame.stack.adapter_scale)


def _whole(frame, vector: merging.TaskVector) -> dict:
    return merging.added(jax.tree.map(np.asarray, quantised.in_full(frame.base)), vector)


def evaluate(stage: Stage, team: Team, split: str) -> Evaluations:
    """Sampled and greedy answers of a team to the problems of a split; `Stage.spent` counts them."""
    (task, items), config = stage.problems[split], stage.config
    every = [task for task, _ in stage.problems.values()]
    held = [(member.base, member.trainable) for member in team.members]
    rows = evaluations.rows_per_batch(config, team, held, stage.samples)
    most = max(len(items) for _, items in stage.problems.values())
    compiles = compile_times.of_process()
    with console.ProgressDisplay(len(items), label=f"{split} problems", compiles=compiles) as display:
        answers = evaluations.evaluate(
            config, team, [member.trainable for member in team.members], task, items, stage.samples,
            randomness.stream(config, STREAMS[split]), toolbox=stage.toolbox,
            sizes=teams.prompt_sizes(config, team, every, stage.toolbox),
            items_per_batch=evaluation.batch_size(most, stage.samples, rows),
            **evaluations.shown_in(display),
        )  # fmt: skip
    drawn = [tokens for mode in results.MODES for row in getattr(answers, mode).tokens_BG for tokens in row]
    before = stage.spent.get(split, {"evaluations": 0, "answers": 0, "tokens": 0})
    more = {"evaluations": 1, "answers": len(drawn), "tokens": sum(drawn)}
    stage.spent[split] = {name: before[name] + more[name] for name in more}
    return answers


def validation_score(stage: Stage, team: Team) -> float:
    """Mean sampled return on the validation problems, 0..100."""
    return float(interval(evaluate(stage, team, "validation").sampled.scores()["return"]).mean)


def report(stage: Stage, team: Team) -> dict:
    """Both evaluations on the test as JSON data, see `results.describe`."""
    answers = evaluate(stage, team, "test")
    return {mode: results.describe(getattr(answers, mode), (1,)) for mode in results.MODES}
