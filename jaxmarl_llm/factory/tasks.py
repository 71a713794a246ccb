"""Build the task of a config: problems or texts, roles, rewards."""

import contextlib
import itertools
import logging
from collections.abc import Iterator, Mapping

from jaxmarl_llm.config import advice, base_config, dialogue, planner, programs, reasoning, router, tools
from jaxmarl_llm.config.options import is_dotted
from jaxmarl_llm.executor import Executor, Limits, TimingPlan, available_level, levels
from jaxmarl_llm.executor.errors import InputError
from jaxmarl_llm.experts.feedback import ExpertEdits
from jaxmarl_llm.memory import Relevance, checked, ngrams
from jaxmarl_llm.protocols.relay import turns_of
from jaxmarl_llm.tasks import custom_task, split_overlap
from jaxmarl_llm.tasks.centralised import CentralisedTask
from jaxmarl_llm.tasks.coding import data_files, row_rules
from jaxmarl_llm.tasks.coding import feedback as code_feedback
from jaxmarl_llm.tasks.coding import roles as code_roles
from jaxmarl_llm.tasks.coding.dialogue import CodingDialogue
from jaxmarl_llm.tasks.coding.items import RowRules
from jaxmarl_llm.tasks.coding.task import CodingTask
from jaxmarl_llm.tasks.commits import load as commits
from jaxmarl_llm.tasks.commits.task import CommitTask
from jaxmarl_llm.tasks.custom_reward import CustomRewardTask
from jaxmarl_llm.tasks.planned import PlannedTask
from jaxmarl_llm.tasks.programs import optimisation_items
from jaxmarl_llm.tasks.programs.generation import GenerationTask
from jaxmarl_llm.tasks.programs.optimisation import OptimisationTask
from jaxmarl_llm.tasks.programs.task import ProgramTask
from jaxmarl_llm.tasks.programs.timed_judge import TimedJudge
from jaxmarl_llm.tasks.reasoning import load as questions
from jaxmarl_llm.tasks.reasoning import shown_scores
from jaxmarl_llm.tasks.reasoning.searched import SearchedQuestions
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.tasks.relay import RelayTask
from jaxmarl_llm.tasks.reward_calls import RewardCalls
from jaxmarl_llm.tasks.routed import RoutedTask
from jaxmarl_llm.tasks.toys import lock, matrix_game
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.tasks.worlds import load as worlds
from jaxmarl_llm.tasks.worlds.task import WorldTask
from jaxmarl_llm.tasks.worlds.types import advisers_of
from jaxmarl_llm.tasks.writing import items as writing_items
from jaxmarl_llm.tasks.writing import reward
from jaxmarl_llm.tasks.writing.task import AGENTS, WritingTask
from jaxmarl_llm.utils.dotted import UserCodeError, UserCodeRefused, resolve
from jaxmarl_llm.utils.errors import UserError


def build_executor(config) -> contextlib.AbstractContextManager:
    """The sandbox for tasks and tools that run code, else a context of None; start it before using JAX.

    ExecutorRefused if the machine isolates programs less than ``executor.min_level``.
    """
    kind = config.task.kind
    runs = (
        custom_task.runs_programs(kind) if is_dotted(kind) else kind in ("coding", "commits", *programs.KINDS)
    )
    if not (runs or tools.in_sandbox(config)):
        return contextlib.nullcontext()
    c = config.executor
    limits = Limits(cpu_seconds=c.cpu_seconds, memory_mb=c.memory_mb)
    with _naming_modules(config):
        executor = Executor(c.workers or None, limits, c.min_level, modules=tuple(c.allow_modules))
    if executor.level < max(levels.NAMES):
        logging.warning(
            "programs run at isolation level %d, %s: %s",
            executor.level, levels.NAMES[executor.level], available_level()[1],
        )  # fmt: skip
    return executor


@contextlib.contextmanager
def _naming_modules(config) -> Iterator[None]:
    """Add the config field to an error about missing packages."""
    try:
        yield
    except InputError as error:
        raise UserError(f"executor.allow_modules={config.executor.allow_modules!r}: {error}") from None


def _row_rules(config, executor: Executor | None) -> RowRules:
    """How to treat rows whose tests check nothing; without an executor the tests are read, not run."""
    return row_rules.of_executor(executor, tuple(config.executor.allow_modules), config.task.bad_rows)


def isolation(executor: Executor | None) -> dict:
    """How programs are isolated, for the records of a run; {} if none are run."""
    return levels.describe(executor.level, executor.limits) if executor else {}


def build_task(config, executor: Executor | None, split: str, expert=None):
    """The task of training (``split="train"``), of validation ("eval") or of the test ("test").

    ValueError, naming the config's fields, for unreadable problems or an invalid reward.
    """
    c = config.task
    agents = tuple(config.team.agents)
    if config.train.protocol == "relay":
        first = turns_of(agents, config.train.turns)[0]
        return RelayTask(build_task(_of_agents(config, first), executor, split, expert), agents)
    if router.of(config):
        costs = tuple(config.router.costs) or (0.0,) * len(agents)
        own = build_task(_of_agents(config, agents[:1]), executor, split, expert)
        decides = config.router.agent if config.router.kind == "prompt" else ""
        return RoutedTask(own, agents, costs, config.router.change, decides, config.router.token_prices)
    if planner.of(config):
        return PlannedTask(build_task(_of_agents(config, agents[:1]), executor, split, expert), agents)
    with _naming(config, split):
        task = _own_task(config, executor, split, expert)
    task = CentralisedTask(task, config.team.agents[0]) if c.centralised else task
    calls = RewardCalls(c.reward, c.reward_workers, c.reward_place) if c.reward else None
    return CustomRewardTask(task, calls) if calls else task


def _of_agents(config, agents):
    """The config with only these agents, answering at the same time."""
    fewer = config.copy_and_resolve_references()
    fewer.team.agents, fewer.train.protocol = tuple(agents), "simultaneous"
    return fewer


PROBLEMS_OF = {"train": "training", "eval": "validation"}  # names of splits in messages


def check_splits(config, of_splits: Mapping[str, Task]) -> None:
    """ValueError, naming the config's fields, if two splits have a problem in common.

    of_splits: tasks from `build_task` by split, in the order train, eval, test.
    """
    for first, second in itertools.combinations(of_splits, 2):
        with _naming(config, second):
            split_overlap.check_disjoint(of_splits[first].items, of_splits[second].items, PROBLEMS_OF[first])


@contextlib.contextmanager
def _naming(config, split: str) -> Iterator[None]:
    """Prefix errors about problems with the fields that name their source."""
    try:
        yield
    except ValueError as error:
        given = split != "train" and config.task[f"{split}_source"]
        source, part = f"{split}_source" if given else "source", f"{split}_split"
        where = f"task.{source}={config.task[source]!r}, task.{part}={config.task[part]!r}"
        kind = UserCodeRefused if isinstance(error, UserCodeError) else UserError
        raise kind(f"{where}: {error}") from error


def _own_task(config, executor: Executor | None, split: str, expert):
    """The task with its own rewards and a role for each agent."""
    c = config.task
    source, part = source_of(config, split)
    if is_dotted(c.kind):
        task = _custom(config, executor, split, expert)
    elif c.kind == "coding":
        task = _coding(config, executor, source, part, expert)
    elif c.kind == "game":
        agents = matrix_game.AGENTS if c.centralised else tuple(config.team.agents)
        task = matrix_game.GameTask(matrix_game.load_items(source, part), agents)
    elif c.kind == "lock":
        task = lock.LockTask(lock.load_items(source, part), tuple(config.team.agents))
    elif c.kind == "reasoning" and not programs.searches(config):
        task = _reasoning(config, source, part)
    elif c.kind == "world":
        task = _world(config, source, part)
    elif c.kind == "commits":
        task = _commits(config, executor, source, part)
    elif programs.searches(config) or c.kind in programs.KINDS:
        task = build_programs(config, executor, split, programs.writers(config))
    else:
        task = _writing(config, source, part)
    return task


def _world(config, source: str, part: str) -> WorldTask:
    """The task of a world. UserError if the protocol needs an adviser, or no agent reads the adviser."""
    agents, protocol = tuple(config.team.agents), config.train.protocol
    task = worlds.load_task(source, part, agents, config.task.remember, config.task.share_views)
    advisers = advisers_of(task.world)
    if advice.of(config) and advisers != agents[:1]:
        raise UserError(f"train.protocol='advice': {source!r} has no adviser {agents[0]!r}, 'ball' has one")
    if advisers and protocol == "simultaneous":
        raise UserError(
            f"team.agents={agents!r}: of {source!r} {advisers[0]!r} is an adviser, whom nobody reads with "
            "train.protocol='simultaneous'; allowed are the actor alone, or train.protocol='advice'"
        )
    return task


def _commits(config, executor: Executor | None, source: str, part: str) -> CommitTask:
    """The task of commits; training commits are its examples, if ``commits.examples`` is not 0."""
    c, own = config.task, config.commits
    rules = _row_rules(config, executor)
    pool = commits.load_items(*source_of(config, "train"), executor, rules) if own.examples else ()
    vectors = own.examples and own.rule in ("cosine", "two_step")
    encode = ngrams if vectors else None
    if vectors and own.encoder != "ngrams":
        encode = checked(resolve(own.encoder, "commits.encoder"), f"commits.encoder {own.encoder!r}")
    return CommitTask(
        commits.load_items(source, part, executor, rules),
        executor,
        tuple(config.team.agents),
        own.reward if not c.reward else "bleu",
        own.copy_share,
        own.max_diff_tokens,
        own.examples,
        pool,
        own.rule,
        Relevance(encode) if encode else None,
    )


def _custom(config, executor: Executor | None, split: str, expert) -> custom_task.CustomTask:
    """The task that ``task.kind`` names, for the team and the turns of the config."""
    task, agents = custom_task.build(config.task.kind, config.task, executor, split), config.team.agents
    if dialogue.of(config):
        return _with_partner(config, task)
    if not config.task.centralised and set(task.agents) != set(agents):
        raise UserError(f"team.agents={tuple(agents)!r}: task.kind={config.task.kind!r} has {task.agents!r}")
    if reasoning.between_turns(config):
        task.check_feedback(config.task.feedback, base_config().task.feedback)
    if expert:
        task.feedback = _edits(config, expert, task.agents)
    if config.train.turns > 1 and not hasattr(task, "feedback"):
        raise UserError(f"train.turns={config.train.turns}: task.kind={config.task.kind!r} has no feedback")
    return task


def _edits(config, expert, agents: tuple[str, ...]) -> ExpertEdits:
    """An expert's feedback on the functions of these agents; helpers come first."""
    return ExpertEdits(expert, agents, config.expert.max_tokens, config.task.parsing)


def _with_partner(config, task: custom_task.CustomTask) -> custom_task.CustomTask:
    """The task, checked to support a dialogue. UserError names the missing method or agent."""
    kind, (actor, partner) = config.task.kind, config.team.agents
    lacking = [name for name in custom_task.DIALOGUE if not hasattr(task, name)]
    if lacking:
        raise UserError(
            f"train.protocol='dialogue': task.kind={kind!r} has no {lacking[0]}, see `DialogueTask` in docs/tasks.md"
        )
    if tuple(task.agents) != (actor,):
        raise UserError(
            f"team.agents={(actor, partner)!r}: task.kind={kind!r} has {task.agents!r}, and a dialogue needs the first"
        )
    return task


def source_of(config, split: str) -> tuple[str, str]:
    """Source and split of the task of ``split``, see `build_task`."""
    c = config.task
    own = "" if split == "train" else c[f"{split}_source"]
    return own or c.source, c[f"{split}_split"]


def _coding(config, executor: Executor, source: str, part: str, expert) -> CodingTask | CodingDialogue:
    c = config.task
    roles = tuple(c.roles or code_roles.TEAM) if c.centralised else tuple(config.team.agents)
    roles = roles[:1] if dialogue.of(config) else roles
    feedback = c.feedback if c.feedback in code_feedback.MODES else "plain"  # unused in a single turn
    if expert:
        feedback = _edits(config, expert, roles)
    task = CodingTask(
        data_files.load_items(source, part, _row_rules(config, executor)),
        executor,
        roles,
        cooperation=c.cooperation,
        compat=config.train.comlrl_compat,
        feedback=feedback,
        revealed_tests=c.revealed_tests,
        held_back=c.held_back,
        prompts=c.prompts,
        parsing=c.parsing,
    )
    return CodingDialogue(task) if dialogue.of(config) else task


def build_programs(
    config, executor: Executor, split: str, agents: tuple[str, ...], judge: TimedJudge | None = None
) -> ProgramTask | SearchedQuestions:
    """A task in which each agent writes a whole program; ``judge`` times programs, None: a new one.

    With task.kind='reasoning' each agent writes a whole answer.
    """
    source, part = source_of(config, split)
    if config.task.kind == "reasoning":
        return SearchedQuestions(questions.load_items(source, part), agents)
    if config.task.kind == "generation":
        items = data_files.load_items(source, part, _row_rules(config, executor))
        return GenerationTask(items, executor, agents, config.task.held_back)
    items = optimisation_items.load_items(source, part)
    return OptimisationTask(items, judge or build_judge(config, executor), agents)


def build_judge(config, executor: Executor) -> TimedJudge:
    """The judge that times programs."""
    c = config.timing
    plan = TimingPlan(
        min_pairs=c.min_pairs,
        max_pairs=c.max_pairs,
        target_width=c.width,
        budget_seconds=c.seconds,
        cap=c.cap,
        min_seconds=c.min_seconds,
    )
    return TimedJudge(executor, plan, seed=config.seed, remember=c.remember)


def _writing(config, source: str, part: str) -> WritingTask:
    c = config.task
    agents = AGENTS[c.kind] if c.centralised else tuple(config.team.agents)
    bands = reward.bands(c.bands or c.kind)
    items = writing_items.load_items(source, part, c.column)
    return WritingTask(items, c.kind, agents, c.matching, bands, c.prompts)


def _reasoning(config, source: str, part: str) -> ReasoningTask:
    c = config.task
    scores = shown_scores.build(c.shown_score, c.score_flip) if reasoning.shows_scores(config) else None
    agents = tuple(config.team.agents)
    scorers = len(agents) // 2 if config.train.protocol == "retrieve" else 0
    agents, partner = (agents[:1], agents[1]) if dialogue.of(config) else (agents, "")
    items = questions.load_items(source, part, tuple(c.grades))
    return ReasoningTask(items, agents, c.total, scores, scorers, partner)
