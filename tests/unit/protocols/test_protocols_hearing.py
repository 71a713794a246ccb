"""Pipeline and discussion with a tiny random team: who has heard whom, what is judged and learned."""

import jax
import numpy as np
import pytest
import tiny
from tiny_rollouts import built, total

from jaxmarl_llm import rollout
from jaxmarl_llm.protocols import Discussion, Pipeline, Tree
from jaxmarl_llm.protocols.hearing import with_quotes
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.update import collate

KEY = jax.random.key(3)


def run(protocol, task):
    members = built()
    trainables = [member.trainable for member in members.members]
    scorer = TaskScorer.of_team(task, members, "aligned")
    limits = {"params": SamplingParams(4), "max_prompt_tokens": 200}
    return rollout.run(protocol, members, trainables, scorer, [2, 0], KEY, **limits)


def ids(content):
    return tiny.Tokenizer().encode_chat([{"role": "user", "content": content}])


def test_what_was_heard_stands_before_the_question():
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    asked = with_quotes(chat, {"aux": " x \n"})
    assert asked == ({"role": "system", "content": "s"}, {"role": "user", "content": "aux wrote:\nx\n\nq"})


@pytest.mark.slow
def test_in_a_pipeline_sample_g_has_heard_sample_g():
    task = tiny.Task(total)
    forest = run(Pipeline(task.prompts, samples=3), task)
    first, second = ([turn for turn in forest.turns if turn.agent == agent] for agent in tiny.AGENTS)
    assert [(t.item, t.sample) for t in first] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [t.parent for t in second] == [t.id for t in first] and [t.sample for t in second] == [0] * 6
    for before, turn in zip(first, second, strict=True):
        asked = f"a wrote:\n{before.text.strip()}\n\nb:{forest.items[turn.item]}"
        assert turn.prompt.tolist() == ids(asked)
    assert [joint.turns for joint in forest.joints] == [(i, 6 + i) for i in range(6)]
    assert len(task.calls) == 1
    # The three answers to an item compete, although each has heard something else.
    assert magrpo.groups(forest).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_a_pipeline_is_learned_from_agent_by_agent():
    task = tiny.Task(total)
    forest = run(Pipeline(task.prompts, samples=3), task)
    first, second = collate.collate(forest, np.arange(12.0), built().members[0].stack, max_new_tokens=4)
    assert (first.agents, second.agents) == (("a",), ("b",))
    assert first.prompts_NBP.shape[:2] == (1, 2) and second.prompts_NBP.shape[:2] == (1, 6)
    assert first.advantages_NR.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert second.advantages_NR.tolist() == [[6, 7, 8, 9, 10, 11]]


@pytest.mark.slow
def test_in_a_tree_every_path_is_continued():
    task = tiny.Task(total)
    forest = run(Tree(task.prompts, fan_out=(2, 3)), task)
    first, second = ([turn for turn in forest.turns if turn.agent == agent] for agent in tiny.AGENTS)
    assert [(t.item, t.sample, t.parent) for t in first] == [(i, g, None) for i in (0, 1) for g in (0, 1)]
    assert [(t.parent, t.sample) for t in second] == [(t.id, g) for t in first for g in range(3)]
    for turn in second:
        asked = f"a wrote:\n{forest.turns[turn.parent].text.strip()}\n\nb:{forest.items[turn.item]}"
        assert turn.prompt.tolist() == ids(asked)
    paths = [((t.parent, t.id), k // 3) for k, t in enumerate(second)]
    assert [(joint.turns, joint.node) for joint in forest.joints] == paths
    for joint in forest.joints:
        expected = total(forest.items[joint.item], *(forest.turns[i].text for i in joint.turns))
        assert joint.judgement.total == pytest.approx(expected)
    assert len(task.calls) == 1
    with pytest.raises(ValueError, match=r"fan_out=\(2,\); allowed: one number per agent, a, b"):
        run(Tree(task.prompts, fan_out=(2,)), task)


def test_a_tree_is_learned_from_agent_by_agent():
    task = tiny.Task(total)
    forest = run(Tree(task.prompts, fan_out=(2, 3)), task)
    advantages = np.arange(16.0)
    first, second = collate.collate(forest, advantages, built().members[0].stack, max_new_tokens=4)
    assert (first.agents, second.agents) == (("a",), ("b",))
    assert first.advantages_NR.tolist() == [[0, 1, 2, 3]]
    assert second.prompts_NBP.shape[:2] == (1, 4) and second.advantages_NR.tolist() == [list(range(4, 16))]


@pytest.mark.slow
def test_in_a_discussion_everybody_hears_the_others_once():
    task = tiny.Task(total)
    forest = run(Discussion(task.prompts, samples=2), task)
    first, final = ([turn for turn in forest.turns if turn.kind == kind] for kind in ("remark", "answer"))
    assert len(first) == len(final) == 8 and len(task.calls) == 1
    remarks = {(t.item, t.agent, t.sample): t for t in first}
    for turn in final:
        own = next(t for t in first if t.id == turn.parent)
        other = remarks[own.item, "b" if own.agent == "a" else "a", own.sample]
        assert turn.agent == own.agent and turn.item == own.item
        content = ids(f"{other.agent} wrote:\n{other.text.strip()}\n\n")
        asked = turn.prompt.tolist()
        assert any(asked[i : i + len(content)] == content for i in range(len(asked)))
    for joint in forest.joints:
        answer, heard = ([forest.turns[i] for i in turns] for turns in (joint.turns, joint.heard))
        assert [t.agent for t in answer] == [t.agent for t in heard] == list(tiny.AGENTS)
        assert [t.parent for t in answer] == list(joint.heard) and joint.turn == 0
        expected = total(forest.items[joint.item], *(t.text for t in answer))
        assert joint.judgement.total == pytest.approx(expected)


def test_the_first_round_earns_what_the_final_answers_do():
    task = tiny.Task(total)
    forest = run(Discussion(task.prompts, samples=2), task)
    returns = magrpo.returns(forest)
    for joint in forest.joints:
        for i in (*joint.turns, *joint.heard):
            assert returns[i] == pytest.approx(joint.judgement.total, rel=1e-6)
