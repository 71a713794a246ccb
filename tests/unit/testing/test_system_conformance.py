"""Every system keeps the contract of systems; `check_system` notices each way to break it."""

import contextlib
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import scripted_rounds
import tiny
import tiny_learners

from jaxmarl_llm.config import base_config
from jaxmarl_llm.config.systems import GROUP, PAIRS, SYSTEMS
from jaxmarl_llm.factory import protocols, systems
from jaxmarl_llm.protocols import Tree
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.demonstrations import Encoded
from jaxmarl_llm.systems.sft import OnRollouts
from jaxmarl_llm.systems.types import Credit, FromForest
from jaxmarl_llm.team import Team
from jaxmarl_llm.testing import check_system, small_forest
from jaxmarl_llm.testing.update import check_update
from jaxmarl_llm.update import collate

ONE = {"centralised": ("team",)}  # agents, where they are not tiny.AGENTS
FOREST = small_forest(tiny.AGENTS)


def build(name, agents, team):
    config = base_config()
    config.train.system, config.team.agents, config.seed = name, agents, 1
    config.team.rank, config.team.targets = 1, tiny_learners.TARGETS
    # Two pairs, or demonstrations of two prompts, are an update of the shapes that the others have.
    config.preference.update(collect=1, batch=2, model_updates=2)
    config.sft.batch = 4
    rows = [Encoded(turn.agent, turn.prompt, turn.completion, "", 1.0) for turn in FOREST.turns]
    task = None
    if name == "der":
        config.train.protocol, asked = "routed", [{"role": "user", "content": "What?"}]
        task = SimpleNamespace(prompts=lambda item: dict.fromkeys(agents, asked))
    return systems.build(config, team, lambda: [member.trainable for member in team.members], rows, task)


def lessons():
    """The forest of two rounds with lessons that chains were dealt differently."""
    config = base_config()
    config.train.update(protocol="lessonl", system="lessonl", group=3, turns=2)
    config.lessons.update(encoder="ngrams", select="dealt")
    task = scripted_rounds.ScriptedTask(scores={"a0": 2.0, "b4": 3.0, "a9": 0.5})
    return scripted_rounds.play(protocols.build(config, task, None), task).forest


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_keeps_the_contract(name):
    agents = ONE.get(name, tiny.AGENTS)
    team, forest = tiny_learners.team(agents), FOREST if agents == tiny.AGENTS else small_forest(agents)
    whole = dict(team=team)
    if name == "lessonl":
        forest, whole = lessons(), {}
    elif name == "mutual":  # rewards of other episodes count too
        forest = dataclasses.replace(FOREST, alone=FOREST)
    elif name == "centralised":
        whole = {}  # its update is that of any other team
    elif name == "sft":
        forest = None
    relative = SYSTEMS[name].learns_from in (GROUP, PAIRS) and name not in ("mareinforce", "malt", "mutual")
    check_system(build(name, agents, team), forest, group_relative=relative, **whole)


def test_demonstrations_on_a_rollout():
    rows = [Encoded(turn.agent, turn.prompt, turn.completion, "", 1.0, name=FOREST.items[turn.item].task_id)
            for turn in FOREST.turns]  # fmt: skip
    check_system(OnRollouts(rows), FOREST, team=tiny_learners.team())


def test_a_tree():
    task = scripted_rounds.ScriptedTask(scores={"a0": 2.0, "b1": 3.0, "b6": 5.0})
    forest = scripted_rounds.play(Tree(task.prompts, (2, 1)), task, texts=lambda one, n: f"{one.agent}{n}").forest
    check_system(build("c3", tiny.AGENTS, tiny_learners.team()), forest, group_relative=True)


GOOD = FromForest(magrpo.assign)


def of_credit(change, forest=FOREST, **options):
    """A system whose credit is MAGRPO's, changed; with a forest and options of the check."""
    return FromForest(lambda made: change(magrpo.assign(made))), forest, options


def replaced(**fields):
    return of_credit(lambda credit: dataclasses.replace(credit, **fields))


def spoiling(forest):
    credit = magrpo.assign(forest)
    forest.turns[0].completion[:] += 1
    return credit


def paid_without_reward(forest):
    credit = magrpo.assign(forest)
    return dataclasses.replace(credit, advantages=np.where(np.isnan(credit.returns), 1.0, credit.advantages))


def counted():
    """Advantages that grow from call to call."""
    calls = iter(range(100))
    return of_credit(lambda credit: dataclasses.replace(credit, advantages=credit.advantages + next(calls)))


WITH_EXTRA = dataclasses.replace(
    FOREST, turns=(*FOREST.turns[:-1], dataclasses.replace(FOREST.turns[-1], extra=True))
)
ONES = np.ones(len(FOREST.turns), np.float32)
FRESH = small_forest(tiny.AGENTS)  # the one that is spoiled
TEAM = tiny_learners.team()
LEAVES = {"layers": np.zeros((2, 1))}


class Numbers(Credit):
    def metrics(self):
        return {"loss": "low"}


BROKEN = {
    "assign: it does not raise: KeyError": (FromForest(lambda forest: {}["x"]), FOREST, {}),
    "assign: a Credit: 3": (FromForest(lambda forest: 3), FOREST, {}),
    "assign: the same whenever it is asked": counted(),
    "assign: the forest stays as it is": (FromForest(spoiling), FRESH, {}),
    r"credit: advantages has a number for every turn: \(1,\)": replaced(advantages=ONES[:1]),
    "credit: groups are integer numbers: .*float32": replaced(groups=ONES),
    "credit: advantages are finite": replaced(advantages=ONES * np.nan),
    "credit: samples that nobody learns from have advantage 0": of_credit(
        lambda credit: dataclasses.replace(credit, advantages=ONES), WITH_EXTRA
    ),
    "credit: advantages are 0 where nobody is to learn": replaced(learn=False),
    "credit: metrics are numbers by name": of_credit(lambda credit: Numbers(**vars(credit))),
    "credit: advantage 0 where no reward applies": (FromForest(paid_without_reward), FOREST, {}),
    "credit: equal rewards in a group give advantage 0: 1.0": (
        FromForest(lambda forest: magrpo.assign(forest, magrpo.CreditConfig(baseline="none"))),
        FOREST, dict(group_relative=True),
    ),
    "credit: gradients are of a member of the team that learns: 1": of_credit(
        lambda credit: dataclasses.replace(credit, gradients={1: LEAVES}), team=TEAM
    ),
    "credit: gradients have the form of the parameters": of_credit(
        lambda credit: dataclasses.replace(credit, gradients={0: LEAVES}), team=TEAM
    ),
    "learn: metrics are numbers by name: None": (
        type("Silent", (FromForest,), dict(learn=lambda self, credit: None))(magrpo.assign), FOREST, {},
    ),
    "learn: metrics are finite": (
        type("Lost", (FromForest,), dict(learn=lambda self, credit: {"loss": np.nan}))(magrpo.assign), FOREST, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_broken_systems_are_noticed(rule):
    system, forest, options = BROKEN[rule]
    with pytest.raises(AssertionError, match=rule):
        check_system(system, forest, **options)


class Counter:
    """Models that count what they learned from; ``forgets`` what is not restored."""

    def __init__(self, forgets=""):
        self.states, self.done, self.saved, self.forgets = {0: np.zeros(1)}, 0, None, forgets

    @contextlib.contextmanager
    def kept_in(self, folder, keep):
        yield

    def save(self, step):
        if self.forgets == "save":
            raise OSError("no room")
        self.saved = self.states[0].copy(), self.done

    def restore(self, step):
        states, done = self.saved
        self.states = self.states if self.forgets == "states" else {0: states}
        self.done = self.done if self.forgets == "number" else done


@dataclasses.dataclass
class Learning:
    """Advantages that grow with what was learned."""

    models: Counter

    def assign(self, forest):
        credit = magrpo.assign(forest)
        return dataclasses.replace(credit, advantages=credit.advantages * (1 + self.models.done))

    def learn(self, credit):
        self.models.done += 1
        self.models.states[0] = self.models.states[0] + 1
        return {}


@pytest.mark.parametrize("forgets, rule", [
    ("save", "models: they can be saved: OSError: no room"),
    ("states", "models: restored as they were saved: 2.0 in place of 1.0"),
    ("number", "models: restored, they give the same credit"),
])  # fmt: skip
def test_models_that_forget_are_noticed(forgets, rule):
    with pytest.raises(AssertionError, match=rule):
        check_system(Learning(Counter(forgets)), FOREST)
    check_system(Learning(Counter()), FOREST)


def stale():
    """A system without a state to save, whose credit depends on what it learned."""
    system = Learning(Counter())
    return type("Stale", (), dict(models=None, assign=system.assign, learn=system.learn))()


def test_a_state_that_is_not_saved_is_noticed():
    with pytest.raises(AssertionError, match="assign: without models it depends on the forest alone"):
        check_system(stale(), FOREST)


def prompt_token(batch):
    """The prompts one token shorter: another context."""
    return batch.replace(prompt_lengths_NB=batch.prompt_lengths_NB - 1)


def padding(batch):
    """A token of padding more in every completion that has room."""
    room = batch.lengths_NR < batch.tokens_NRL.shape[2]
    return batch.replace(lengths_NR=batch.lengths_NR + room)


def leaking(batch):
    """Each agent's advantages are those of all."""
    return batch.replace(advantages_NR=batch.advantages_NR + batch.advantages_NR[::-1])


def infinite(batch):
    return batch.replace(advantages_NR=batch.advantages_NR * np.float32(np.inf))


@pytest.mark.parametrize("change, rule", [
    (prompt_token, "update: the gradient of a is that of its completions"),
    (padding, "update: the gradient of a is that of its completions"),
    (leaking, "update: the gradient of a is that of its completions"),
    (infinite, "update: loss and gradient are finite"),
])  # fmt: skip
def test_broken_updates_are_noticed(monkeypatch, change, rule):
    real = collate.collate
    monkeypatch.setattr(collate, "collate", lambda *given: tuple(map(change, real(*given))))
    with pytest.raises(AssertionError, match=rule):
        check_update(magrpo.assign(FOREST), TEAM)


def test_leaks_that_the_equation_does_not_show(monkeypatch):
    real, calls = collate.collate, []

    def later(change, call):
        """Batches that are changed from the ``call``-th on."""
        calls.clear()

        def collated(*given):
            calls.append(given)
            return tuple(map(change, real(*given))) if len(calls) >= call else real(*given)

        monkeypatch.setattr(collate, "collate", collated)

    later(padding, 2)
    with pytest.raises(AssertionError, match="update: padding has no part in the gradient"):
        check_update(magrpo.assign(FOREST), TEAM)
    later(leaking, 3)
    with pytest.raises(AssertionError, match="update: a has no advantages and gets no gradient"):
        check_update(magrpo.assign(FOREST), TEAM)
    later(lambda batch: batch.replace(advantages_NR=2 * batch.advantages_NR), 3)
    with pytest.raises(AssertionError, match="update: others do not depend on the advantages of a"):
        check_update(magrpo.assign(FOREST), TEAM)


def test_agents_that_do_not_learn_are_left_out():
    (member,) = TEAM.members
    frozen = Team((dataclasses.replace(member, trainable=None),))
    check_system(GOOD, FOREST, team=frozen)
