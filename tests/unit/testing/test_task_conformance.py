"""Every task of the package keeps the contract of tasks, and `check_task` notices each way to break it."""

import dataclasses
import random

import pytest
import scripted_programs
import scripted_rounds
import worlds

from jaxmarl_llm.config import FIELDS, base_config
from jaxmarl_llm.factory import tasks as task_factory
from jaxmarl_llm.tasks import CustomRewardTask, Judgement
from jaxmarl_llm.tasks.centralised import CentralisedTask
from jaxmarl_llm.tasks.toys import convention, letters, lock, matrix_game
from jaxmarl_llm.tasks.worlds.task import WorldTask
from jaxmarl_llm.testing import check_task

KINDS = FIELDS["task.kind"].choices
SOURCES = {"tldr": "sample_posts", "arxiv": "sample_abstracts", "game": "games", "optimisation": "python",
           "lock": "locks", "reasoning": "sums", "world": "kitchen",
           "commits": "mutants[:4]"}  # fmt: skip
WHOLE = ("game", "lock", "world")  # too few problems to divide
GOOD = {"lock": lambda item: dict.fromkeys(("aux", "main"), item.key),
        "optimisation": lambda item: dict.fromkeys(("aux", "main"), "def f():\n    return 2")}  # fmt: skip


def best_game(item):
    """The words of the best joint action."""
    best = {"climbing": 0, "penalty": 2}[item.game]
    words = [[w for w in matrix_game.WORDS if item.action(n, w) == best] for n in range(2)]
    return dict(zip(("aux", "main"), (first for (first,) in words), strict=True))


GOOD["game"] = best_game


@pytest.fixture(scope="module")
def executor():
    with task_factory.build_executor(base_config()) as started:
        yield started


def build(kind, executor, **options):
    config = base_config()
    config.task.update({"kind": kind, "source": SOURCES.get(kind, "starter"), **options})
    config.task.train_split = "all" if kind in WHOLE else "train"
    return task_factory.build_task(config, executor, "train")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_task_keeps_the_contract(kind, executor, monkeypatch):
    monkeypatch.setattr(task_factory, "build_judge", lambda *_: scripted_programs.Judge())  # a fixed clock
    check_task(build(kind, executor), references=GOOD.get(kind))


@pytest.mark.parametrize("options", [
    dict(held_back=0.5), dict(prompts="published", cooperation="paper"),
])  # fmt: skip
def test_coding_in_its_forms(options, executor):
    check_task(build("coding", executor, **options), items=1)


def test_tasks_made_of_others(executor):
    coding, game = build("coding", executor), build("game", None)
    check_task(CentralisedTask(coding), items=1)
    check_task(CustomRewardTask(game, letters.distinct), answers=[{"aux": "abc", "main": "left"}])
    check_task(convention.ConventionTask(base_config().task, executor, "train"), items=1)
    check_task(scripted_rounds.ScriptedTask(agents=("a", "b")))  # without a scale, completed


@dataclasses.dataclass(frozen=True)
class Item:
    task_id: str


class Good:
    """As docs/tasks.md has it: an answer earns half a point for its agent's own letter."""

    agents, reward_range, part_names = ("a", "b"), (0.0, 1.0), ("first", "second")
    items = (Item("x"), Item("y"))

    def prompts(self, item):
        return {agent: [{"role": "user", "content": f"{agent}: {item.task_id}"}] for agent in self.agents}

    def judge(self, items, completions):
        rows = zip(items, completions["a"], completions["b"], strict=True)
        return [self.judgement(item, a, b) for item, a, b in rows]

    def judgement(self, item, a, b):
        parts = {"first": 0.5 * (a == item.task_id), "second": 0.5 * (b == item.task_id)}
        return Judgement(parts, sum(parts.values()), local={"a": parts["first"]})

    def normalise(self, scores):
        return {"return" if name == "total" else name: 100.0 * value for name, value in scores.items()}

    def references(self, item):
        return {"a": item.task_id, "b": [item.task_id]}

    def feedback(self, answers):
        return [dict.fromkeys(self.agents, f"{answer.judgement.total}") for answer in answers]


class Counting(Good):
    calls = 0

    def prompts(self, item):
        self.calls += 1
        return {agent: [{"role": "user", "content": f"{self.calls}"}] for agent in self.agents}


class Remembering(Good):
    """What it judges depends on how often it was asked."""

    calls = 0

    def judge(self, items, completions):
        self.calls += 1
        return [dataclasses.replace(j, verdict=str(self.calls)) for j in super().judge(items, completions)]


class ByPlace(Good):
    """An answer earns more at the end of a batch."""

    def judge(self, items, completions):
        return [dataclasses.replace(j, verdict=str(n)) for n, j in enumerate(super().judge(items, completions))]


class ByBatch(Good):
    """Answers are compared with each other."""

    def judge(self, items, completions):
        judgements = super().judge(items, completions)
        return [dataclasses.replace(j, verdict=str(max(k.total for k in judgements))) for j in judgements]


class Greedy(Good):
    def judge(self, items, completions):
        return super().judge(items, {agent: [texts.pop(0) for _ in items] for agent, texts in completions.items()})


class Fragile(Good):
    def judgement(self, item, a, b):
        return super().judgement(item, a.split()[0], b)


class Lenient(Good):
    def judge(self, items, completions):
        if set(completions) != set(self.agents):
            return [Judgement({"first": 0.0, "second": 0.0}, 0.0)]
        return super().judge(items, completions)


class Short(Good):
    def judge(self, items, completions):
        return super().judge(items, completions)[1:]


def with_(**parts):
    """The good task with other attributes and methods."""
    return type("Broken", (Good,), parts)()


def judged(change):
    return with_(judgement=lambda self, *row: change(Good.judgement(self, *row)))


def replaced(**fields):
    return judged(lambda judgement: dataclasses.replace(judgement, **fields))


def messages(*chat):
    return with_(prompts=lambda self, item: dict.fromkeys(self.agents, list(chat)))


ASSISTANT = {"role": "assistant", "content": "x"}
BROKEN = {
    "task: it has what docs/tasks.md names: .* without prompts": type("No", (), dict(items=(), agents=(), judge=0))(),
    "agents: one or more names, all different": with_(agents=("a", "a")),
    "items: one or more, with task_ids that differ": with_(items=(Item("x"), Item("x"))),
    "part_names: all different, none is 'total'": with_(part_names=("first", "total")),
    "reward_range: .lowest, highest.": with_(reward_range=(1.0, 0.0)),
    "prompts of x: all agents, in order": with_(prompts=lambda self, item: {"b": [], "a": []}),
    "prompts of x to a: chat messages are one or more": messages(),
    "prompts of x to a: a role is one of": messages({"role": "me", "content": ""}),
    "prompts of x to a: a content is a text: None": messages({"role": "user", "content": None}),
    "prompts of x to a: the last message is the user's": messages(ASSISTANT),
    "prompts of x: the same whenever they are made": Counting(),
    "references of x: .* of the task's agents": with_(references=lambda self, item: {"c": "text"}),
    "judge: a judgement for each answer: 13 of 14": Short(),
    "judge: no answer makes it raise: IndexError": Fragile(),
    "judge: items and completions stay as they are": Greedy(),
    "judge of x, .* a Judgement: 7": judged(lambda judgement: 7),
    "the parts are .'first', 'second'.: .'first'.": replaced(parts={"first": 0.0}),
    "first is a finite number: nan": replaced(parts={"first": float("nan"), "second": 0.0}),
    "the total is finite, or None: inf": replaced(total=float("inf")),
    r"the total is within reward_range=\(0.0, 1.0\): 1.5": replaced(total=1.5),
    "local rewards are of the task's agents: .'c'": replaced(local={"c": 0.0}),
    "judge: an answer gets the same scores judged twice": Remembering(),
    "judge: an answer gets the same scores in the opposite order": ByPlace(),
    "judge: an answer gets the same scores alone": ByBatch(),
    "judge: ValueError where an agent is missing: .*Judgement": Lenient(),
    "judge: ValueError where an agent is missing: KeyError": Good(),
    "a worthless answer earns no more than the reference, 0.0, .*: 1.0": judged(
        lambda j: dataclasses.replace(j, total=1.0 - j.total)
    ),
    "normalise: finite numbers, the total as 'return'": with_(normalise=lambda self, scores: dict(scores)),
    "normalise: of a mean it is the mean": with_(
        normalise=lambda self, scores: {"return": 100 * scores["total"] ** 2}
    ),
    "normalise: a return grows with the total, and the highest is at most 100": with_(
        normalise=lambda self, scores: {"return": 200 * scores["total"]}
    ),
    "feedback: one for each answer: 0 of 2": with_(feedback=lambda self, answers: []),
    "feedback: a text to each of": with_(feedback=lambda self, answers: [{"a": ""} for _ in answers]),
}  # fmt: skip
MENDED = "an agent is missing: KeyError"  # what the good task lacks when nobody completes it


def complete(task):
    """The task with the refusal of bad batches that `CustomTask` would add."""
    judge = task.judge

    def checked(items, completions):
        if set(completions) != set(task.agents) or any(len(texts) != len(items) for texts in completions.values()):
            raise ValueError("a bad batch")
        return judge(items, completions)

    task.judge = checked
    return task


def test_the_good_task_passes():
    check_task(complete(Good()))


@pytest.mark.parametrize("rule", BROKEN)
def test_broken_tasks_are_noticed(rule):
    task = BROKEN[rule]
    mended = hasattr(task, "normalise") and "is missing" not in rule
    with pytest.raises(AssertionError, match=rule):
        check_task(complete(task) if mended else task)


@dataclasses.dataclass
class Noted:
    task_id: str
    words: list


class Growing(Good):
    """Its judge writes into what items hold."""

    def __init__(self):
        self.items = (Noted("x", []), Noted("y", []))

    def judge(self, items, completions):
        for item, text in zip(items, completions["a"], strict=True):
            item.words.append(text)
        return super().judge(items, completions)


class Telling(Good):
    """What it asks depends on whether something was judged."""

    told = ""

    def prompts(self, item):
        return {agent: [{"role": "user", "content": f"Go.{self.told}"}] for agent in self.agents}

    def judge(self, items, completions):
        self.told = " Again."
        return super().judge(items, completions)


@pytest.mark.parametrize("task, rule", [
    (Growing(), "judge: items and completions stay as they are"),
    (Telling(), "prompts of x: the same after answers were judged"),
])  # fmt: skip
def test_what_a_judge_changes_is_noticed(task, rule):
    with pytest.raises(AssertionError, match=rule):
        check_task(complete(task))


class Misspelt(worlds.Counting):
    """Its last step, which waiting never reaches, raises."""

    def step(self, state, actions):
        made = super().step(state, actions)
        return nowhere if made.done else made  # noqa: F821


class Chance(worlds.Counting):
    """From the second step on rewards are random."""

    def step(self, state, actions):
        return dataclasses.replace(super().step(state, actions), reward=random.random() if state > 1 else 0.0)


@pytest.mark.parametrize("world, rule", [
    (Misspelt(), "world: every legal action can be taken: UserCodeError: .*step raised at .*NameError"),
    (Chance(), "judge: an episode from .* does not make it raise: UserError: .* played twice gave"),
])  # fmt: skip
def test_faults_of_later_steps_of_a_world_are_noticed(world, rule):
    check_task(WorldTask(worlds.Counting()))
    with pytest.raises(AssertionError, match=rule):
        check_task(WorldTask(world))


class Rounds(lock.LockTask):
    """Locks, broken in one way by what is given."""

    def __init__(self, **parts):
        super().__init__(lock.load_items("locks", "all"))
        for name, part in parts.items():
            setattr(self, name, part)

    def rejudged(self, **fields):
        judge = self.judge
        self.judge = lambda *given: [dataclasses.replace(j, **fields) for j in judge(*given)]
        return self


SILENT = [{"role": "user", "content": "Say a word."}]


@pytest.mark.parametrize("rule, task", [
    ("judge: an outcome and a reward of every agent's program", Rounds().rejudged(outcomes={})),
    ("judge: the total is the mean of the programs' rewards, 0.0: 1.0", Rounds().rejudged(total=1.0)),
    ("source: a text: None", Rounds(source=lambda item: None)),
    ("write_with_lessons: the prompt shows 'first mark'", Rounds(write_with_lessons=lambda *given: SILENT)),
    ("explain of lock/left: chat messages are one or more", Rounds(explain=lambda *given: [])),
])  # fmt: skip
def test_broken_tasks_of_rounds_are_noticed(rule, task):
    with pytest.raises(AssertionError, match=rule):
        check_task(task)
