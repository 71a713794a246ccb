"""Tasks and protocols that a config names: the examples of docs/tasks.md, and what is refused."""

import math
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import smoke_runs
import tiny
from method_runs import SMALL
from repository import ROOT
from tiny_rollouts import built

from configs import coding
from experiments import train
from jaxmarl_llm import transcripts
from jaxmarl_llm.analysis.planning import from_config
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import protocols, tasks, user_code
from jaxmarl_llm.protocols import Answer, Episode, Pipeline
from jaxmarl_llm.protocols.types import first_requests
from jaxmarl_llm.rollout.bridge import Bridge
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.runs import plan_table
from jaxmarl_llm.tasks import Judgement, custom_task
from jaxmarl_llm.utils import dotted

TASK, IN_A_JIT, PROTOCOL, _ = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs/tasks.md").read_text(), re.DOTALL
)
TEAM = {"team.agents": ("left", "right"), "task.reward": ""}


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Both examples as modules, under names that nothing else has."""
    for name, source in (("docs_letters", TASK), ("docs_backwards", PROTOCOL)):
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)


def config(**fields):
    made = coding.get_config("smoke")
    fields = {name.replace("__", "."): value for name, value in fields.items()}
    made.update_from_flattened_dict(SMALL | TEAM | {"task.kind": "docs_letters.Letters"} | fields)
    return made


def test_rewards_inside_a_jit_of_ones_own():
    """The page's lines, with a reward of ten for each letter of the item, and the first agent's token."""
    task = tiny.Task(lambda item, a, b: 10.0 * len(item) + float(a))
    tokens = {name: np.array([[[7], [8]], [[9], [7]]], np.int32) for name in tiny.AGENTS}
    names = {
        "jax": jax, "Bridge": Bridge, "scorer": TaskScorer.of_team(task, built(), "aligned"),
        "tokens": tokens, "lengths": {name: np.ones((2, 2), np.int32) for name in tiny.AGENTS},
        "items_B": np.array([1, 0]),  # yy, x
    }  # fmt: skip
    exec(IN_A_JIT, names)
    np.testing.assert_array_equal(names["rewards_BJ"], [[27, 28], [19, 17]])
    assert [judgement.total for judgement in names["judgements"]] == [27, 28, 19, 17]


def test_the_example_by_hand(modules):
    task = tasks.build_task(config(), None, "train")
    assert [item.task_id for item in task.items] == list("eist") and task.agents == ("left", "right")
    actual = task.judge(task.items[:2], {"left": ["tree", "tree"], "right": ["tree", "tree"]})
    # e: used by left, not avoided by right; i: not used, avoided
    assert actual == [Judgement({"used": 1, "avoided": 0}, 1), Judgement({"used": 0, "avoided": 1}, 1)]
    assert task.normalise(actual[0].scores) == {"used": 1, "avoided": 0, "return": 50}
    assert [item.task_id for item in tasks.build_task(config(), None, "eval").items] == ["a", "n"]
    with tasks.build_executor(config()) as executor:
        assert executor is None


@pytest.mark.model
@pytest.mark.usefixtures("programs_shared")
@pytest.mark.parametrize("protocol", ["simultaneous", "docs_backwards.Backwards"])
def test_a_run_trains_with_it(tmp_path, modules, protocol):
    wanted = config(train__protocol=protocol)
    wanted.eval.before = True
    train.train(wanted, tmp_path / "run")
    actions = transcripts.read(tmp_path / "run", 0)
    assert {action.item for action in actions} <= set("eist") and len(actions) == 4
    for action in actions:
        left, right = (action.agents[name].completion for name in ("left", "right"))
        assert action.parts == {"used": action.item in left, "avoided": action.item not in right}
        lengths = [action.agents[name].prompt_length for name in ("left", "right")]
        assert abs(lengths[0] - lengths[1]) < 5 or protocol != "simultaneous"
        assert lengths[0] > lengths[1] + 8 or protocol == "simultaneous"  # the last one speaks first
    rows = smoke_runs.rows(tmp_path / "run")
    assert any("left/loss" in row for row in rows) and any("eval/return" in row for row in rows)


def test_a_protocol_gets_the_config_and_the_samples(modules):
    wanted = config(train__protocol="docs_backwards.Backwards")
    validate(wanted)
    task = tasks.build_task(wanted, None, "train")
    training, evaluation = (protocols.build(wanted, task, None, samples) for samples in (None, 7))
    assert isinstance(training, Pipeline) and training.samples == wanted.train.group
    assert evaluation.samples == 7 and list(training.prompts(task.items[0])) == ["right", "left"]
    rows = plan_table._answers(wanted, 2)
    assert rows == [("who speaks when", "docs_backwards.Backwards, for 2 problems")]
    with pytest.raises(ValueError, match="train.protocol='docs_backwards.Backwards': what a protocol of"):
        from_config.jobs(wanted, jax.devices())


def test_names_that_lead_nowhere_are_told_before_anything_is_loaded(modules, tmp_path, monkeypatch):
    monkeypatch.setattr("jaxmarl_llm.factory.teams.build_team", lambda *args, **options: pytest.fail("a model"))
    for fields, message in (
        ({"task__kind": "nowhere_at_all.Task"}, "task.kind 'nowhere_at_all.Task': cannot import"),
        ({"task__kind": "docs_letters.Words"}, "task.kind 'docs_letters.Words': module .* has no 'Words'"),
        ({"train__protocol": "docs_backwards.Off"}, "train.protocol 'docs_backwards.Off': .* has no 'Off'"),
        ({"team__agents": ("aux", "main")}, r"team.agents=\('aux', 'main'\): task.kind=.* has \('left', "),
        ({"train__turns": 2}, "train.turns=2: task.kind='docs_letters.Letters' has no feedback"),
    ):
        with pytest.raises(ValueError, match=message):
            train.train(config(**fields), tmp_path / "run")
    for fields, message in (
        ({"task__kind": "letters"}, "task.kind='letters': allowed are coding, "),
        ({"train__protocol": "backwards"}, "train.protocol='backwards': allowed are simultaneous, "),
        ({"train__turns": 2, "task__feedback": "heard"}, "task.feedback='heard': .* has its own feedback"),
    ):
        with pytest.raises(ValueError, match=message):
            validate(config(**fields))
    assert user_code.given(config(train__protocol="a.b")) == {
        "task.kind": "docs_letters.Letters", "train.protocol": "a.b",
    }  # fmt: skip


class Good:
    items, agents = (), ("left",)
    judgements = [Judgement({}, 1.0)]

    def __init__(self, *given):
        class Item:
            task_id = "x"

        self.items = [Item()]

    def prompts(self, item):
        return {"left": []}

    def judge(self, items, completions):
        return self.judgements


def changed(**parts):
    return type("Bad", (Good,), parts)


@pytest.mark.parametrize("made, message", [
    (lambda *given: object(), "gave a object without items, agents, prompts, judge"),
    (lambda *given: 1 / 0, "raised when called with config.task, the executor and 'train' .*ZeroDiv"),
    (changed(agents=()), r"agents is \(\)"),
    (changed(agents="left"), "agents is 'left'; expected a list"),
    (changed(agents=None), "gave a Bad without agents"),
    (changed(part_names="used"), "part_names is 'used'; expected a list"),
    (changed(feedbacks="plain"), "feedbacks is 'plain'; expected a list"),
    (changed(__init__=lambda self, *given: setattr(self, "items", {"x": 1})), "items is {'x': 1}; expected a list"),
    (changed(__init__=lambda self, *given: None), "items is empty"),
    (changed(__init__=lambda self, *given: setattr(self, "items", [3])), "'int' object has no .*task_id"),
    (changed(prompts=lambda self, item: {"right": []}), r"prompts of x are for \['right'\], its agents"),
    (changed(prompts=lambda self, item: {"left": "Use it."}), "the prompt of x to 'left' is 'Use it.'; expected a"),
    (changed(prompts=lambda self, item: {"left": ["Use it."]}), "the prompt of x to 'left' is .*; expected a list of"),
    (changed(prompts=lambda self, item: {"left": [{"role": "user"}]}), "the prompt of x to 'left' is .*; expected"),
    (changed(reward_range=(2, 1)), "reward_range=.*; allowed: two finite numbers"),
])  # fmt: skip
def test_what_a_task_must_be(monkeypatch, made, message):
    monkeypatch.setattr(custom_task, "resolve", lambda name: made)
    with pytest.raises(ValueError, match=message):
        custom_task.build("mine.Task", None, None, "train")


@pytest.mark.parametrize("method", ["prompts", "references", "privileged", "briefing", "ends", "feedback"])
def test_methods_that_raise_are_named_with_the_item(method):
    own = changed(**{"prompts": Good.prompts} | {method: lambda self, given: 1 / (given is None)})
    with pytest.raises(dotted.UserCodeError, match=rf"^mine: {method} raised on x \(ZeroDivisionError: "):
        task = custom_task.CustomTask(own(), "mine")
        answer = Answer(task.items[0], {"left": "a"}, Judgement({}, 1.0))
        getattr(task, method)({"ends": answer, "feedback": [answer]}.get(method, task.items[0]))


def late(given):
    """A generator, which raises once it is read."""
    yield {"left": "again"}
    raise KeyError("index")


def test_properties_and_generators_that_raise_are_named():
    lazy = changed(items=property(lambda self: 1 / 0), __init__=lambda self, *given: None)
    with pytest.raises(dotted.UserCodeError, match=r"^mine: items raised \(ZeroDivisionError: "):
        custom_task.CustomTask(lazy(), "mine")
    task = custom_task.CustomTask(changed(feedback=lambda self, answers: late(answers))(), "mine")
    with pytest.raises(dotted.UserCodeError, match=r"^mine: feedback raised on x \(KeyError: 'index'\)"):
        task.feedback([Answer(task.items[0], {"left": "a"}, Judgement({}, 1.0))])


@pytest.mark.parametrize("method", ["privileged", "briefing"])
def test_what_becomes_part_of_a_prompt_is_a_text(method):
    for given, right in (("the key", True), (None, False), (["the key"], False)):
        task = custom_task.CustomTask(changed(**{method: lambda self, item: given})(), "mine")  # noqa: B023
        if right:
            assert getattr(task, method)(task.items[0]) == given
            continue
        with pytest.raises(ValueError, match=f"^mine: {method} gave {re.escape(repr(given))} for x; expected a text"):
            getattr(task, method)(task.items[0])


def test_a_task_may_use_one_message_for_all_items():
    """What a request holds of the first item stays as it is when the second one is asked about."""
    items, message = [SimpleNamespace(task_id="x"), SimpleNamespace(task_id="y")], {"role": "user", "content": ""}

    def prompts(self, item):
        message["content"] = item.task_id
        return {"left": [message]}

    own = changed(__init__=lambda self, *given: setattr(self, "items", items), prompts=prompts)
    asked = first_requests(Episode(items), custom_task.CustomTask(own(), "mine").prompts, samples=1)
    assert [request.messages[0]["content"] for request in asked] == ["x", "y"]


def test_two_items_of_one_name(monkeypatch):
    item = Good().items[0]
    twice = changed(__init__=lambda self, *given: setattr(self, "items", [item, item]))
    monkeypatch.setattr(custom_task, "resolve", lambda name: twice)
    with pytest.raises(ValueError, match="task.kind 'mine.Task': two items have the task_id 'x'"):
        custom_task.build("mine.Task", None, None, "train")


def test_a_statement_that_is_the_name_of_another_result():
    for word, right in (("low", False), ("grade2", False), ("low_level", True)):
        item = SimpleNamespace(task_id="x", statement=word)
        own = changed(__init__=lambda self, *given: setattr(self, "items", [item]))  # noqa: B023
        if right:
            custom_task.CustomTask(own(), "mine")
            continue
        with pytest.raises(ValueError, match=f"^mine: the statement of x is '{word}': return_{word} is an"):
            custom_task.CustomTask(own(), "mine")


def test_a_task_says_which_feedback_it_gives():
    own = custom_task.CustomTask(Good(), "task.kind 'mine.Task'")
    own.check_feedback("level_feedback", "level_feedback")
    with pytest.raises(ValueError, match="task.feedback='plain': task.kind 'mine.Task' has its own feedback"):
        own.check_feedback("plain", "level_feedback")
    task = custom_task.CustomTask(changed(feedbacks=("plain", "expert_edits"))(), "task.kind 'mine.Task'")
    task.check_feedback("plain", "level_feedback")
    with pytest.raises(ValueError, match="'level_feedback': task.kind 'mine.Task' allows plain, expert_edits"):
        task.check_feedback("level_feedback", "level_feedback")
    with pytest.raises(ValueError, match="'expert_edits': items of task.kind 'mine.Task' have no prompt"):
        task.check_feedback("expert_edits", "level_feedback")


@pytest.mark.parametrize("judgements, error, message", [
    ([], ValueError, "judge gave 0 judgements of 1 answers"),
    ([1.0], ValueError, "judge gave a float on x; expected a Judgement"),
    ([Judgement({"return": 1.0}, 1.0)], ValueError, "judge: a part cannot be named 'return'"),
    (None, ValueError, "judge gave a NoneType on x; expected a list of Judgements"),
    ({"x": Judgement({}, 1.0)}, ValueError, "judge gave a dict on x; expected a list of Judgements"),
    ([Judgement({}, 1.0, failures="bad")], ValueError, "failures of the judgement of x is 'bad'; expected a list of"),
    ([Judgement({}, 1.0, failures=(3,))], ValueError, r"failures of the judgement of x is \(3,\); expected a list of"),
    ([Judgement({}, 1.0, verdict=None)], ValueError, "verdict of the judgement of x is None; expected a text"),
    ([Judgement({}, math.nan)], ValueError, "the total of x is nan, expected a finite number"),
    ([Judgement({}, -math.inf)], ValueError, "the total of x is -inf, expected a finite number"),
    ([Judgement({}, "2")], ValueError, "the total of x is '2', expected a finite number"),
    ([Judgement({}, 1.0, local={"left": math.nan})], ValueError, "the reward of 'left' for x is nan, expected a fin"),
    ([Judgement(1.0, {"used": 1.0})], ValueError, "parts of the judgement of x is 1.0; expected a dict of numbers by"),
    ([Judgement({"used": None}, 1.0)], ValueError, "the part 'used' for x is None, expected a finite number"),
    ([Judgement({"<>": math.inf}, 1.0)], ValueError, "the part '<>' for x is inf, expected a finite number"),
    ([Judgement({3: 1.0}, 1.0)], ValueError, "parts of the judgement of x is .3: 1.0.; expected a dict of num"),
    ([Judgement({}, {"used": 1.0})], ValueError, "the total of x is .'used': 1.0., expected a finite number"),
    ([Judgement({}, 1.0, local=[2.0])], ValueError, r"local of the judgement of x is \[2.0\]; expected a dict of num"),
    ([Judgement({}, 1.0, local={"up": 2.0})], ValueError, r"there is a reward of 'up' for x; its agents are \('left',"),
    ([Judgement({}, 50)], ValueError, r"the total of x is 50.0, outside of reward_range=\(-1, 2\)"),
    ([Judgement({}, -1.01)], ValueError, r"the total of x is -1.01, outside of reward_range=\(-1, 2\)"),
])  # fmt: skip
def test_what_a_judge_must_give(judgements, error, message):
    task = custom_task.CustomTask(changed(judgements=judgements, reward_range=(-1, 2))(), "task.kind 'mine.Task'")
    with pytest.raises(error, match=f"task.kind 'mine.Task': {message}"):
        task.judge(task.items, {"left": ["a"]})


def test_totals_are_numbers_of_python_or_none():
    totals = []
    for given in (Judgement({}, None), Judgement({"p": 1}, np.float32(0.5), local={"left": np.int32(2)})):
        task = custom_task.CustomTask(changed(judgements=[given])(), "mine")
        totals += [(made.total, made.local) for made in task.judge(task.items, {"left": ["a"]})]
    assert totals == [(None, {}), (0.5, {"left": 2.0})] and type(totals[1][0]) is float


def test_an_executor_is_started_for_who_wants_one(monkeypatch):
    monkeypatch.setattr(custom_task, "resolve", lambda name: changed(runs_programs=True))
    with tasks.build_executor(config(task__kind="mine.Task", executor__workers=1)) as executor:
        assert executor is not None
