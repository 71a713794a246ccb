"""jaxmarl_llm/config/task_checks.py: settings of a task that nothing would read, and roles of coding."""

import pytest

from configs import coding, commits, reasoning, writing
from jaxmarl_llm.config import base_config, judged_by, validate
from jaxmarl_llm.config.task import MOST_ROLES
from jaxmarl_llm.executor import MAX_AGENTS

REWARD = "my_module.my_reward"


def complaints(fields):
    config = base_config()
    config.update_from_flattened_dict(fields)
    try:
        validate(config)
    except ValueError as error:
        return [line.strip() for line in str(error).split("\n")[1:]]
    return []


@pytest.mark.parametrize("fields, sentence", [
    ({"task.reward": REWARD, "task.held_back": 0.5},
     f"task.held_back=0.5: task.reward={REWARD!r} judges in place of the task's reward, allowed is 0.0"),
    ({"task.reward": REWARD, "task.cooperation": "paper"},
     f"task.cooperation='paper': task.reward={REWARD!r} judges in place of the task's reward, allowed is "
     "'influence'"),
    ({"task.reward": REWARD, "task.kind": "tldr", "task.bands": "arxiv"},
     f"task.bands='arxiv': task.reward={REWARD!r} judges in place of the task's reward, allowed is ''"),
    ({"task.reward": REWARD, "task.kind": "tldr", "task.matching": "corrected"},
     f"task.matching='corrected': task.reward={REWARD!r} judges in place of the task's reward, allowed is "
     "'paper'"),
    ({"task.feedback": "expert_edits"},
     "task.feedback='expert_edits': with train.turns=1 no turn follows, so no expert advises, allowed are "
     "train.turns=2 or more, or another feedback"),
    ({"team.agents": tuple("abcdefghi")},
     f"team.agents={tuple('abcdefghi')!r}: task.kind='coding' allows 1 to 8 names"),
    ({"task.roles": ("left", "main")},
     "task.roles=('left', 'main'): needs task.kind='coding' and task.centralised=True, allowed is ()"),
    ({"task.roles": ("main",), "task.centralised": True, "team.agents": ("team",)},
     "task.roles=('main',): allowed are 2 to 8 different names, letters, digits and _"),
    ({"task.roles": ("a", "a"), "task.centralised": True, "team.agents": ("team",)},
     "task.roles=('a', 'a'): allowed are 2 to 8 different names, letters, digits and _"),
    ({"task.roles": ("a]", "b"), "task.centralised": True, "team.agents": ("team",)},
     "task.roles=('a]', 'b'): allowed are 2 to 8 different names, letters, digits and _"),
    ({"train.comlrl_compat": True, "task.cooperation": "paper"},
     "task.parsing='python': train.comlrl_compat allows paper only"),
    ({"train.comlrl_compat": True, "task.parsing": "paper"},
     "task.cooperation='influence': train.comlrl_compat allows paper only"),
])  # fmt: skip
def test_what_is_refused(fields, sentence):
    assert complaints(fields) == [sentence]


@pytest.mark.parametrize("fields", [
    {"task.reward": REWARD},
    {"task.held_back": 0.5, "task.cooperation": "observed"},
    {"task.feedback": "expert_edits", "expert.model": "m", "train.turns": 2},
    {"team.agents": ("aux1", "aux2", "main")},
    {"task.roles": ("left", "right", "main"), "task.centralised": True, "team.agents": ("team",)},
    {"train.comlrl_compat": True, "task.cooperation": "paper", "task.parsing": "paper"},
    {"train.comlrl_compat": True, "task.reward": REWARD},
    {"train.comlrl_compat": True, "task.kind": "tldr"},
])  # fmt: skip
def test_what_is_allowed(fields):
    assert complaints(fields) == []


@pytest.mark.parametrize("of", [
    lambda: coding.get_config("he_1turn"), lambda: writing.get_config("arxiv"), reasoning.get_config,
    lambda: reasoning.get_config("words,solo"), commits.get_config, lambda: commits.get_config("study"),
])  # fmt: skip
def test_a_config_may_be_judged_by_another_reward(of):
    """As `experiments.rescore` does; what only the config's own reward reads has its default then."""
    config = of()
    actual = judged_by(config, REWARD)
    validate(actual)
    assert actual.task.reward == REWARD and config.task.reward == "" and actual.train == config.train


def test_fields_of_a_reward_that_is_replaced_have_their_defaults():
    config = reasoning.get_config()
    config.eval.chains = config.eval.samples = 3
    actual = judged_by(config, REWARD)
    validate(actual)
    assert (actual.task.total, actual.eval.vote, actual.eval.chains, actual.eval.samples) == ("mean", "", 1, 3)
    actual.task.reward_workers = 2
    actual = judged_by(actual, "")
    validate(actual)
    assert actual.task.reward_workers == 1


def test_a_team_is_as_large_as_the_executor_allows():
    assert MOST_ROLES == MAX_AGENTS


def test_rules_of_the_presets():
    assert coding.get_config().task.cooperation == "influence"
    for name in ("he_1turn", "comlrl_compat"):
        assert coding.get_config(name).task.cooperation == "paper"
