"""Completions: who writes on from which steps, and what the answers are worth as targets."""

import numpy as np
from scripted_steps import played, prompts

from jaxmarl_llm.analysis.search import fitting
from jaxmarl_llm.credit import q_targets
from jaxmarl_llm.protocols.completions import Completions, beginnings
from jaxmarl_llm.protocols.repeated import Repeated
from jaxmarl_llm.search.trees import tree_of


class Task:
    """One agent."""

    prompts = staticmethod(prompts)


def write(item, prefix, sample):
    """The first agent begins with 0 or 1 and never ends well; whoever goes on from 1 does."""
    return f"{sample}\nbad<end>" if not prefix else "good<end>" if prefix == "1\n" else "worse<end>"


def run(number=4, items=("a", "b")):
    protocol = Completions(Repeated(Task(), 2, 1), "strong", number, (0,))
    return played(protocol, write, items, judge=lambda text: text.endswith("good"))


def test_the_second_agent_goes_on_from_steps_of_the_first():
    forest, requests = run()
    first = [(r.agent, r.item, r.samples, r.prefix) for r in requests[:2]]
    assert first == [("writer", 0, 2, ""), ("writer", 1, 2, "")]
    begun = {(r.item, r.prefix) for r in requests[2:]}
    assert begun == {(i, text) for i in (0, 1) for text in ("0\n", "1\n")} and len(requests) == 6
    assert {r.agent for r in requests[2:]} == {"strong"}
    assert all(r.messages == requests[r.item].messages for r in requests)
    texts = sorted(joint.judgement.text for joint in forest.joints if forest.turns[joint.turns[0]].agent == "strong")
    assert texts == ["0\nworse", "0\nworse", "1\ngood", "1\ngood"]


def test_fewer_completions_than_steps():
    _, requests = run(number=1)
    assert [r.item for r in requests[2:]] == [0, 1]
    assert run(number=1)[1] == requests  # by the seed alone


def test_a_step_is_worth_what_the_second_agent_makes_of_it():
    forest, _ = run(items=("a",))
    tree = tree_of(fitting.answers_of(forest, first=5))
    assert set(tree.item_S) == {5}
    own_S = np.array([author == "strong" for author in tree.author])
    targets_S = q_targets.completions(tree.reward_S, tree.parent_S, own_S, depth=tree.depth())
    wanted = {"0\n": 0.0, "1\n": 1.0, "0\nworse": 0.0, "1\ngood": 1.0}
    for text, target in zip(tree.texts, np.asarray(targets_S), strict=True):
        assert target == wanted[text] if text in wanted else np.isnan(target)


def test_beginnings():
    assert beginnings("a\nb\nc", False) == ["a\n", "a\nb\n"] and beginnings("a\n", False) == [] == beginnings("", True)
