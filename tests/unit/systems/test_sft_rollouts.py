"""Demonstrations under the prompts of a rollout: which of several an answer imitates."""

import numpy as np
import pytest
import scripted_rounds
from toolboxes import BOX

from jaxmarl_llm.protocols import Pipeline, Simultaneous
from jaxmarl_llm.protocols.with_tools import WithTools
from jaxmarl_llm.systems import sft
from jaxmarl_llm.systems.demonstrations import Encoded

AGENTS = ("a", "b")


def again(answers):
    return [dict.fromkeys(AGENTS, "again") for _ in answers]


PROTOCOLS = {
    "an answer of the second agent after each of the first": lambda prompts: Pipeline(prompts, 2),
    "an answer in the second turn after each of the first": lambda prompts: Simultaneous(
        prompts, 2, 2, again, later_samples=1
    ),
    "answers that may call tools, a request for each": lambda prompts: WithTools(
        Simultaneous(prompts, 2), BOX, 1, AGENTS
    ),
    "one answer": lambda prompts: Simultaneous(prompts, 1),
}


def answered(name, *items):
    """The forest of a scripted rollout, and a system with demonstrations 0 and 1 of each agent for each item."""
    task = scripted_rounds.ScriptedTask(items=scripted_rounds.items(*items))
    rows = [Encoded(agent, np.array([1]), np.array([text, 3]), "", 1.0, name=item)
            for item in items for agent in AGENTS for text in (0, 1)]  # fmt: skip
    forest = scripted_rounds.play(PROTOCOLS[name](task.prompts), task, task.items).forest
    return forest, sft.OnRollouts(rows)


def imitated(credit):
    return [int(turn.completion[0]) for turn in credit.forest.turns]


@pytest.mark.parametrize("name", [*PROTOCOLS][:3])
def test_a_conversation_and_a_joint_answer_imitate_demonstrations_of_one_number(name):
    forest, system = answered(name, "p", "q", "r")
    texts = imitated(system.assign(forest))
    seen = {(turn.agent, turn.turn, turn.item, text) for turn, text in zip(forest.turns, texts, strict=True)}
    stages = {(turn.agent, turn.turn) for turn in forest.turns}
    assert seen == {(*stage, item, text) for stage in stages for item in range(3) for text in (0, 1)}
    assert len(forest.chains()) == 6
    for chain in forest.chains():
        assert len({texts[i] for j in chain for i in forest.joints[j].turns}) == 1


def test_one_answer_to_one_problem_in_an_iteration_comes_to_all_demonstrations():
    (forest, system), texts = answered("one answer", "p"), []
    for _ in range(4):
        credit = system.assign(forest)
        texts.append(imitated(credit))
        system.learn(credit)
    assert texts == [[0, 0], [1, 1], [0, 0], [1, 1]]


def test_a_run_that_is_resumed_imitates_the_same_as_one_that_was_not_stopped():
    (forest, system), (_, resumed) = (answered("one answer", "p") for _ in range(2))
    for step in range(4):
        resumed.models.restore(step)
        credit = system.assign(forest)
        assert imitated(resumed.assign(forest)) == imitated(credit)
        system.learn(credit)
