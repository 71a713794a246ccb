"""jaxmarl_llm/factory/rollouts.py: room for programs before every step of a rollout."""

import functools

import jax
import pytest
import tiny
import tiny_rollouts
from rounds_of_lessons import assert_equal

from jaxmarl_llm.factory import rollouts
from jaxmarl_llm.protocols import Discussion
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.utils import host_memory


@pytest.mark.slow
def test_there_is_room_for_programs_before_every_step(monkeypatch):
    """Without it a long run crashes; the answers are the same where everything is compiled anew each time."""
    task, team, forgotten = tiny.Task(tiny_rollouts.total), tiny_rollouts.built(), []
    scorer = TaskScorer.of_team(task, team, "aligned")
    trainables = [member.trainable for member in team.members]
    arguments = team, trainables, scorer, tiny_rollouts.ITEM_IDS, tiny_rollouts.KEY
    options = dict(params=tiny_rollouts.PARAMS, max_prompt_tokens=256)
    talk = functools.partial(rollouts.run, Discussion(task.prompts, 2), *arguments, **options)
    kept = talk()

    def all_of_them():
        jax.clear_caches()
        forgotten.append(True)

    given_back = []
    monkeypatch.setattr(host_memory, "make_room_for_programs", all_of_them)
    monkeypatch.setattr(host_memory, "give_back_if_scarce", lambda: given_back.append(True))
    anew = talk()
    assert len(forgotten) == len(given_back) == 3  # one agent has its turn, then the other, then nobody
    assert_equal(kept, anew)


@pytest.mark.slow
def test_a_rollout_of_ones_own_leaves_compiled_programs_alone(monkeypatch):
    forgotten = []
    monkeypatch.setattr(jax, "clear_caches", lambda: forgotten.append(True))
    monkeypatch.setattr(host_memory, "make_room_for_programs", lambda most=0: jax.clear_caches())
    tiny_rollouts.run(tiny.Task(tiny_rollouts.total))
    assert not forgotten
