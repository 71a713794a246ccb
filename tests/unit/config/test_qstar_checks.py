"""Configs of Q*: what a search over lines does not allow, one sentence each."""

import pytest

from configs import ablation, qstar
from jaxmarl_llm.config import validate
from jaxmarl_llm.config.programs import check_training, searches


def config_of(arg=None, **changes):
    config = qstar.get_config(arg)
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in changes.items()})
    return config


@pytest.mark.parametrize("arg, changes, message", [
    (None, dict(qstar__expansions=15),
     "qstar.expansions=15: an answer of qstar.depth=16 lines takes as many, allowed is 16"),
    (None, dict(qstar__weight=-0.5), "qstar.weight=-0.5: allowed is 0 to any larger number"),
    (None, dict(qstar__value="fitted"), "qstar.model='': qstar.value='fitted' needs the folder of experiments.values"),
    (None, dict(qstar__model="runs/values"),
     "qstar.model='runs/values': only qstar.value='fitted' reads it, allowed is ''"),
    (None, dict(qstar__value="agent"),
     r"team.agents=\('writer',\): train.protocol='qstar' allows two, who writes and who"),
    (None, dict(qstar__labels="completions"), r"team.agents=\('writer',\): train.protocol='qstar' allows two"),
    ("valuer", dict(team__agents=("a", "b", "c")), r"team.agents=\('a', 'b', 'c'\): train.protocol='qstar' allows"),
    (None, dict(sampling__temperature=0.0), "qstar.samples=3: at sampling.temperature=0.0 all are equal, allowed is 1"),
    ("reasoning", dict(qstar__process="tokens"), "qstar.process='tokens': task.kind='reasoning' has no programs"),
    (None, dict(task__kind="optimisation", task__source="python", task__held_back=0.0),
     "task.kind='optimisation': train.protocol='qstar' allows generation or reasoning"),
    (None, dict(team__models=("expert:x",)),
     "the model 'expert:x' of agent 'writer': train.protocol='qstar' goes on from"),
    ("valuer", dict(team__models=("m", "expert:x"), qstar__value="none"), "the model 'expert:x' of agent 'valuer': "),
    (None, dict(team__mode="full", qstar__value="fitted", qstar__model="x"),
     "team.mode='full': values of steps are fitted with"),
    ("reasoning", dict(train__protocol="mixture", qstar__expansions=48),
     "train.protocol='mixture': task.kind='reasoning' allows"),
])  # fmt: skip
def test_what_is_refused(arg, changes, message):
    with pytest.raises(ValueError, match=message):
        validate(config_of(arg, **changes))


@pytest.mark.parametrize(
    "arg", [None, "reasoning", "valuer", "toy", "smoke", "reasoning,valuer,smoke", "model=runs/values"]
)
def test_every_member_of_the_comparison_can_be_used(arg):
    config = config_of(arg)
    validate(config)
    assert searches(config)
    members = ablation.members(config)
    assert list(members) == ["best of N", "random order", "depth first", "qstar"]
    for name, member in members.items():
        own = ablation.config_of(config, member)
        validate(own, name)
        assert searches(own) and own.search.by_budget and ablation.agents_of(config, member) == ("writer",)
        same = {section: own[section].to_dict() for section in ("task", "team", "sampling", "executor")}
        assert same == {section: config[section].to_dict() for section in same}
    assert ablation.config_of(config, members["best of N"]).train.turns == config.qstar.answers
    # Controls go by nothing that was learned: the order of the search is all that they have.
    for name in ("random order", "depth first"):
        own = ablation.config_of(config, members[name]).qstar
        assert (own.model, own.process) == ("", "none")
        assert {f: own[f] for f in ("samples", "expansions", "depth", "answers")} == {
            f: config.qstar[f] for f in ("samples", "expansions", "depth", "answers")
        }  # fmt: skip


def test_an_agent_that_values_may_be_behind_an_endpoint():
    validate(config_of("valuer", team__models=("m", "expert:x")))


@pytest.mark.parametrize("changes", [{}, {"train__protocol": "repeated", "task__kind": "reasoning"}])
def test_a_search_is_not_trained(changes):
    with pytest.raises(ValueError, match="cannot be trained: .*experiments.values fits"):
        check_training(config_of(team__mode="adapters", **changes))
