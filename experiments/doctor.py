"""Check whether a config is ready for a long training: one line per check, ok or what to change.

`python -m experiments.doctor --config=configs/coding.py` lets the team answer a few problems, and checks the
programs, reward, tokenizers, exports and machine that a training would use. It exits with 1 if a check fails,
else with 0. See docs/doctor.md.
"""

import contextlib
import functools
import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from absl import flags

from jaxmarl_llm import update
from jaxmarl_llm.analysis.doctor import Result, choices, data, exports, machine, rewards, texts, updates
from jaxmarl_llm.analysis.doctor.result import failed
from jaxmarl_llm.analysis.doctor.rewards import ErrorKeepingTask
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import validate
from jaxmarl_llm.config.programs import check_training
from jaxmarl_llm.config.systems import FROM_PAIRS
from jaxmarl_llm.executor.levels import ExecutorRefused, available_level
from jaxmarl_llm.factory import experts, protocols, randomness, rollouts, systems, tasks, teams, training
from jaxmarl_llm.factory import user_code as named
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.protocols import item_name
from jaxmarl_llm.rollout import counterfactuals
from jaxmarl_llm.rollout.counterfactuals import Redraw
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.runs import plan_table
from jaxmarl_llm.tasks.split_overlap import Neighbour
from jaxmarl_llm.team import Team

from . import export

READ = 64  # tokens that an exported agent reads
SPLITS = ("train", "eval", "test")


def examine(config, problems: int = 2, tokens: int = 64) -> Iterator[Result]:
    """The checks of a config, one after the other, each as soon as it is known.

    Args:
      config: as for a training.
      problems: most problems that the team answers.
      tokens: most tokens of a completion.

    Raises:
      ValueError: for what a training would refuse before it starts: bad fields, data or models.
    """
    validate(config)
    check_training(config)
    small = shrunk(config, problems, tokens)
    with contextlib.ExitStack() as stack:
        executor, level = _executor(small, stack)
        named.check(small)
        yield level
        expert = experts.build_expert(small)
        splits = [tasks.build_task(small, executor, split, expert) for split in SPLITS]
        task = splits[0]
        yield from data.checks({s: each.items for s, each in zip(SPLITS, splits, strict=True)})[0]
        speakers = experts.build(small, [item for each in splits for item in each.items])
        team = teams.build_team(small, speakers=speakers)
        local_team = team.local("the doctor")
        yield from _of_prompts(config, local_team, splits)
        caught, start = ErrorKeepingTask(task), time.perf_counter()
        try:
            forest = draw(small, team, caught)
        except Exception as error:
            yield failed("rollout", error)
            return
        yield _rollout(config, small, forest, time.perf_counter() - start)
        yield from _of_update(small, local_team, forest)
        yield from _of_reward(small, caught, forest, stack, expert)
        yield texts.round_trip(forest, _tokenizers(team), task.prompts(task.items[0]), _handed_on(config))
        yield memory(config, team)  # before the export, which takes memory that a training does not
        yield _export(local_team, forest)


def examine_data(config) -> tuple[list[Result], dict[str, list[Neighbour]]]:
    """The checks of the problems alone, and the nearest training problems of the other splits' problems."""
    validate(config)
    return data.checks({split: tasks.build_task(config, None, split).items for split in SPLITS})


def shrunk(config, problems: int, tokens: int):
    """The config with fewer problems per iteration and shorter completions; all else stays."""
    small = config.copy_and_resolve_references()
    c = small.train
    c.prompts = min(c.prompts, problems)
    c.minibatches = 1
    c.prompts_per_microbatch = math.gcd(c.prompts_per_microbatch, c.prompts)
    small.sampling.max_new_tokens = min(small.sampling.max_new_tokens, tokens)
    for settings in small.team.agent.values():
        if settings.get("max_new_tokens") is not None:
            settings.max_new_tokens = min(settings.max_new_tokens, tokens)
    return small


def draw(config, team: Team, task: Any) -> Forest:
    """The answers of the first iteration, judged as in a training; prompts that are too long are cut."""
    scorer = TaskScorer.of_team(task, team, config.train.joint_mode, config.train.partner_samples)
    protocol, trainables = protocols.build(config, task, team), _trainables(team)
    rollout = functools.partial(
        rollouts.run,
        team=team,
        scorer=scorer,
        item_ids=randomness.batch_ids(config, task.items, 0),
        params=training.sampling_params(config),
        max_prompt_tokens=config.sampling.max_prompt_tokens,
        long_prompts="truncate",
    )
    key, other = (
        jax.random.fold_in(randomness.stream(config, name), 0) for name in ("rollout", "counterfactual")
    )
    forest = rollout(protocol, trainables=trainables, key=key)
    if not config.train.counterfactual:
        return forest
    again = Redraw(rollout, protocol, trainables, other)
    return counterfactuals.with_counterfactuals(forest, config.train.counterfactual, scorer, again)


class _Refuses:
    """Takes the place of an executor that did not start: every run raises its error."""

    def __init__(self, error: ExecutorRefused):
        self._error = error

    def run(self, programs):
        raise self._error


def _executor(config, stack: contextlib.ExitStack) -> tuple[Any, Result]:
    try:
        executor = stack.enter_context(tasks.build_executor(config))
    except ExecutorRefused as error:
        return _Refuses(error), machine.executor_level(None, refusal=error)
    if executor is None:
        return None, machine.executor_level(None)
    return executor, machine.executor_level(executor.level, available_level()[1])


def _of_prompts(config, team: Team, of_tasks: Sequence[Any]) -> Iterator[Result]:
    tokenizers, task = _tokenizers(team), of_tasks[0]
    item = task.items[0]
    first = {agent: messages for agent, messages in task.prompts(item).items() if agent in tokenizers}
    yield texts.chat_template(tokenizers, first, config.model_options.chat, tuple(config.sampling.stop))
    for agent, messages in first.items():
        yield texts.rendered(agent, tokenizers[agent], messages, item_name(item))
    try:
        lengths = {agent: [] for agent in team.agents}
        for item in (item for task in of_tasks for item in task.items):
            for agent, messages in task.prompts(item).items():
                if agent not in lengths:
                    continue
                lengths[agent].append(len(tokenizers[agent].encode_chat(messages)))
    except Exception as error:
        yield failed(texts.prompt_lengths.title, error)
    else:
        c = config.sampling
        yield texts.prompt_lengths(lengths, c.max_prompt_tokens, c.long_prompts)


def _rollout(config, small, forest: Forest, seconds: float) -> Result:
    ended = sum(turn.finished for turn in forest.turns)
    limit, wanted = small.sampling.max_new_tokens, config.sampling.max_new_tokens
    cut = "" if limit == wanted else f" ({wanted} in training)"
    text = (
        f"{small.train.prompts} problems, {len(forest.turns)} completions of up to {limit} tokens{cut}, "
        f"{ended} ended by themselves, {len(forest.joints)} joint answers, {seconds:.0f} s with compilation"
    )
    if ended or cut:
        return Result("rollout", "ok", text)
    return Result(
        "rollout", "warn", f"{text}: all are cut off; raise sampling.max_new_tokens or set sampling.stop"
    )


def _of_update(config, team: Team, forest: Forest) -> Iterator[Result]:
    loss, trainables = training.loss_config(config), _trainables(team)
    yield choices.distribution(team, trainables, forest, training.sampling_params(config), loss.sampling)
    try:
        examined = updates.of_forest(team, trainables, loss, forest)
    except Exception as error:
        yield from (failed(check.title, error) for check in (updates.parity, updates.trained_tokens))
        return
    yield updates.parity(examined, choices.precision(team))
    yield updates.trained_tokens(examined, _meant(config.train))


def _meant(c) -> str:
    """Why the loss may train other tokens than were drawn; empty if it must not."""
    if c.comlrl_compat:
        return "train.comlrl_compat trains so, set it to False for a result"
    return f"train.loss={c.loss!r} trains so with all advantages 1; is it meant to?" if c.loss else ""


def _of_reward(
    config, task: ErrorKeepingTask, forest: Forest, stack: contextlib.ExitStack, expert
) -> Iterator[Result]:
    if task.error is not None:
        refused = isinstance(task.error, ExecutorRefused)
        title = rewards.scale.title
        yield Result(title, "skipped", "no programs ran") if refused else failed(title, task.error)
        others = (rewards.zero_signal, rewards.pairs, rewards.purity, rewards.order)
        yield from (Result(check.title, "skipped", "there are no rewards") for check in others)
        return
    yield rewards.scale(forest, task)
    yield from _of_signal(config, forest)
    if config.task.kind == "optimisation":
        for check in (rewards.purity, rewards.order):
            yield Result(check.title, "skipped", "rewards are measured times, never twice the same")
        return
    # A new executor: that of the rollout would return the reports in its cache.
    fresh, _ = _executor(config, stack)
    judge = tasks.build_task(config, fresh, "train", expert).judge
    answers = forest.joint_texts()
    yield rewards.purity(forest, answers, judge)
    yield rewards.order(forest, answers, judge)


def _of_signal(config, forest: Forest) -> Iterator[Result]:
    """Check whether there is something to learn from the rewards."""
    system, credit_of = f"train.system={config.train.system!r}", systems.from_forest(config)
    prefers = config.train.system in FROM_PAIRS
    if credit_of is None:
        what = "pairs of answers" if prefers else "what its critics did not expect"
        yield Result(rewards.zero_signal.title, "skipped", f"{system} learns from {what}, not from groups")
    else:
        credit = credit_of(forest)
        yield rewards.zero_signal(credit.metrics(), len(set(credit.groups.tolist())))
    if prefers:
        yield rewards.pairs(forest, config.preference.pairs)
    else:
        yield Result(rewards.pairs.title, "skipped", f"{system} learns from no pairs")


def _export(team: Team, forest: Forest) -> Result:
    learning = [member for member in team.members if member.trainable is not None]
    member = (learning or team.members)[0]
    agent = member.stack.agents[-1]
    turn = next(turn for turn in forest.turns if turn.agent == agent)
    tokens_L = np.concatenate([turn.prompt, turn.completion])[-READ:]
    return exports.round_trip(member, member.trainable, agent, tokens_L, export.write)


def memory(config, team: Team) -> Result:
    """The check of the memory that a training will hold, the system's own models included."""
    start = functools.partial(update.init_state, optimizer=training.build_optimizer(config))
    learning = {i: m.trainable for i, m in enumerate(team.members) if m.trainable is not None}
    parts = plan_table.memory(config, team, {i: jax.eval_shape(start, tree) for i, tree in learning.items()})
    models, optimizer = plan_table.beside(systems.own_states(config, team, _trainables(team)))
    if models:
        parts |= {"critics": models, "optimizer of critics": optimizer}
    parts["gradients"] = max(parts["learned"], models)  # one after the other
    return machine.memory(parts, machine.used_mb(), machine.available_mb())


def _handed_on(config) -> bool:
    """Whether completions become part of later prompts."""
    return config.train.turns > 1 or config.train.protocol != "simultaneous"


def _tokenizers(team: Team) -> dict[str, Any]:
    return {agent: team[agent].tokenizer for agent in team.agents}


def _trainables(team: Team) -> list:
    return [member.trainable for member in team.members]


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    entry.define_config()
    flags.DEFINE_integer("problems", 2, "Most problems that the team answers.", lower_bound=1)
    flags.DEFINE_integer("tokens", 64, "Most tokens of a completion.", lower_bound=2)
    flags.DEFINE_enum("only", "", ["", "data"], "data: look at the problems alone and list their neighbours.")
    flags.DEFINE_bool("json", False, "Print one JSON list instead of lines.")


def main(argv) -> int:
    """Print the checks; 1 if one of them fails."""
    entry.refuse_arguments(argv)
    args, start, results = flags.FLAGS, time.perf_counter(), []
    neighbours = {}
    if args.only == "data":
        checked, neighbours = examine_data(args.config)
    else:
        checked = examine(args.config, args.problems, args.tokens)
    for result in checked:
        results.append(result)
        if not args.json:
            first, *more = result.sentence.split("\n")
            print(f"{result.status:<8}{result.name:<25}{first}", flush=True)
            print("".join(f"        | {line}\n" for line in more), end="", flush=True)
    counts = Counter(result.status for result in results)
    if args.json:
        print(json.dumps([result._asdict() for result in results], indent=2))
    else:
        counted = ", ".join(f"{number} {status}" for status, number in counts.items())
        print(f"{counted}; {time.perf_counter() - start:.0f} s", *data.table(neighbours), sep="\n")
    return int(counts["fail"] > 0)


if __name__ == "__main__":
    define_flags()
    entry.run(main)
