"""counterfactuals.py with a tiny random team: which answers are judged again, and what is said for them."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import tiny
from hand_made_forests import judged_nodes
from tiny_rollouts import built

from jaxmarl_llm import rollout
from jaxmarl_llm.protocols import Discussion, Pipeline, Simultaneous
from jaxmarl_llm.rollout import counterfactuals, scoring
from jaxmarl_llm.rollout.counterfactuals import SecondRollout
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams

pytestmark = pytest.mark.usefixtures("programs_shared")
ITEM_IDS = [2, 0]  # "zzz", then "x"


def summed(text):
    return sum(map(int, text.split()))


def total(item, a, b):
    """Sums of the tokens' numbers, those of b count a hundredfold."""
    return float(summed(a) + 100 * summed(b))


def talked(protocol, task, mode="aligned", trainables=None):
    """A rollout, the same without each agent, and the forests of all that was said for that."""
    members = built()
    trainables = trainables or [member.trainable for member in members.members]
    scorer, forests = TaskScorer.of_team(task, members, mode), []

    def talk(*args, **fields):
        limits = {"params": SamplingParams(4), "max_prompt_tokens": 200}
        forests.append(rollout.run(*args, team=members, scorer=scorer, item_ids=ITEM_IDS, **limits, **fields))
        return forests[-1]

    forest = talk(protocol, trainables=trainables, key=jax.random.key(3))
    again = SecondRollout(talk, protocol, trainables, jax.random.key(4))
    return forest, functools.partial(counterfactuals.with_counterfactuals, forest, scorer=scorer, again=again), forests


def sums(forest):
    """Of a's and of b's part in every joint answer, (2, J)."""
    return np.array([[summed(forest.turns[i].text) for i in joint.turns] for joint in forest.joints]).T


@pytest.mark.parametrize("mode, asked", [("aligned", 2 * 2 * 2), ("cross", 2 * 2 * 2)])
def test_nothing(mode, asked):
    task = tiny.Task(total)
    forest, judged, forests = talked(Simultaneous(task.prompts, samples=2), task, mode)
    of_a, of_b = sums(forest)
    actual = judged("nothing")
    assert actual.counterfactuals.tolist() == [(100 * of_b).tolist(), of_a.tolist()]
    assert actual.counterfactuals.dtype == np.float32 and actual.turns == forest.turns and len(forests) == 1
    # One call: two items, two samples of each agent alone, although four pairs contain each with "cross".
    _, (items, texts) = task.calls
    assert (actual.extra_answers, actual.extra_tokens) == (asked, 0)
    assert len(items) == asked and {"zzz", "x"} == set(items)
    assert all(("" in pair) for pair in zip(texts["a"], texts["b"], strict=True))


def test_the_next_sample():
    nodes = ([((g, g), 0.0) for g in range(3)] for _ in range(2))
    forest = judged_nodes(*nodes, samples=3)
    turns = tuple(dataclasses.replace(turn, text=str(turn.id)) for turn in forest.turns)
    forest = dataclasses.replace(forest, turns=turns)
    actual = counterfactuals.next_samples(forest, "ab")
    # Turns 0 1 2 are a's of the first node, 3 4 5 b's; then 6 7 8 and 9 10 11.
    assert actual == {"a": ["1", "2", "0", "7", "8", "6"], "b": ["4", "5", "3", "10", "11", "9"]}
    with pytest.raises(ValueError, match="agent 'a' has one sample at a node"):
        counterfactuals.next_samples(judged_nodes([((0, 0), 1.0)], samples=1), "ab")
    task = tiny.Task(total)
    forest, judged, _ = talked(Simultaneous(task.prompts, samples=2), task)
    (of_a, of_b), other = sums(forest), [1, 0, 3, 2]
    wanted = [of_a[other] + 100 * of_b, of_a + 100 * of_b[other]]
    assert judged("sample").counterfactuals.tolist() == np.array(wanted).tolist()


def test_what_was_judged_is_not_judged_again():
    task = tiny.Task(total)
    forest, judged, _ = talked(Simultaneous(task.prompts, samples=2), task, "cross")
    totals = forest.totals()  # of each item 00, 01, 10, 11
    wanted = [totals[[2, 3, 0, 1, 6, 7, 4, 5]], totals[[1, 0, 3, 2, 5, 4, 7, 6]]]
    assert judged("sample").counterfactuals.tolist() == np.array(wanted).tolist()
    assert len(task.calls) == 1
    with pytest.raises(ValueError, match="counterfactual='both'; allowed: nothing, sample, reference, solo"):
        judged("both")


def greedy(prompt):
    """The untrained model's most likely answer, token by token from the beginning."""
    tokens = []
    while len(tokens) < 4 and not (tokens and tokens[-1] in tiny.Tokenizer.eos_ids):
        tokens.append(int(tiny.logits(tiny.params(0), [*prompt, *tokens])[-1].argmax()))
    return sum(tokens)


@pytest.mark.slow
def test_the_reference_is_the_untrained_agents_greedy_answer():
    task = tiny.Task(total)
    random = np.random.default_rng(0)
    trained = jax.tree.map(
        lambda x: x + random.normal(size=x.shape).astype(x.dtype), built().members[0].trainable
    )
    forest, judged, forests = talked(Simultaneous(task.prompts, samples=2), task, trainables=[trained])
    of_a, of_b = sums(forest)
    prompts = {(turn.agent, turn.item): turn.prompt.tolist() for turn in forest.turns}
    items = [joint.item for joint in forest.joints]
    ref_a, ref_b = ([greedy(prompts[agent, item]) for item in items] for agent in "ab")
    actual = judged("reference")
    assert actual.counterfactuals.tolist() == [
        [a + 100 * b for a, b in zip(ref_a, of_b, strict=True)],
        [a + 100 * b for a, b in zip(of_a, ref_b, strict=True)],
    ]
    # One completion per agent and item, never judged by themselves: the rollout, and what replaces.
    assert len(forests[1].turns) == 4 and not forests[1].joints and len(task.calls) == 2
    assert actual.extra_tokens == sum(len(turn.completion) for turn in forests[1].turns) > 0
    assert actual.extra_answers == len(task.calls[1][0])
    assert set(items) == {0, 1} and all(turn.greedy for turn in forests[1].turns)


@pytest.mark.slow
def test_in_a_pipeline_alone_is_who_heard_the_agent():
    task = tiny.Task(total)
    forest, judged, forests = talked(Pipeline(task.prompts, samples=3), task)
    actual = judged("solo")
    _, alone, silent = task.calls
    assert set(alone[1]["a"]) == {""} and alone[0] == ["zzz"] * 3 + ["x"] * 3
    worth = [100 * summed(text) for text in alone[1]["b"]]
    means = np.repeat([np.mean(worth[:3]), np.mean(worth[3:])], 3)
    np.testing.assert_allclose(actual.counterfactuals[0], means, rtol=1e-6)
    # Nobody heard b: without it a's text stands as it is.
    assert set(silent[1]["b"]) == {""} and actual.counterfactuals[1].tolist() == sums(forest)[0].tolist()
    assert actual.turns == forest.turns and len(forest.turns) == 12
    (_, solo) = forests  # b, who has heard nobody
    assert {turn.agent for turn in solo.turns} == {"b"}
    asked = [tiny.Tokenizer().encode_chat([{"content": f"b:{item}"}]) for item in ("zzz", "x")]
    assert [turn.prompt.tolist() for turn in solo.turns] == [asked[0]] * 3 + [asked[1]] * 3


def test_in_a_discussion_everybody_was_heard():
    """Two agents, two rounds, two samples: what is said without an agent is given by hand."""
    made = judged_nodes([((0, 0), 1.0), ((1, 1), 1.0)], [((0, 0), 1.0), ((1, 1), 1.0)])
    second = [dataclasses.replace(turn, id=8 + turn.id, parent=turn.id, turn=1) for turn in made.turns]
    last = [tuple(8 + t for t in joint.turns) for joint in made.joints]
    pairs = zip(made.joints, last, strict=True)
    joints = [dataclasses.replace(j, turns=t, heard=j.turns, turn=1) for j, t in pairs]
    forest = dataclasses.replace(made, turns=(*made.turns, *second), joints=tuple(joints))
    rewards = {"b": (3.0, 5.0, None, None), "a": (2.0, None, 0.0, 1.0)}  # of who is left
    asked, keys = [], []

    def talk(protocol, trainables, key):
        (left,) = protocol.prompts("x")
        asked.append(left), keys.append(jax.random.key_data(key).tolist())
        totals = rewards[left]
        return judged_nodes(*[[((g, g), totals[2 * p + g]) for g in (0, 1)] for p in (0, 1)])

    task = tiny.Task(total)
    scorer = TaskScorer(task, dict.fromkeys(tiny.AGENTS), "aligned")
    again = SecondRollout(talk, Discussion(task.prompts, samples=2), [None], jax.random.key(4))
    judged = counterfactuals.with_counterfactuals(forest, "solo", scorer, again)
    assert judged.extra_answers == 8
    assert judged.extra_tokens == 2 * sum(len(turn.completion) for turn in made.turns)
    actual = judged.counterfactuals
    assert asked == ["b", "a"] and keys[0] != keys[1] and task.calls == []
    np.testing.assert_array_equal(actual, [[4, 4, np.nan, np.nan], [2, 2, 0.5, 0.5]])


def test_a_reward_that_does_not_apply_without_the_agent():
    task = tiny.Task(lambda item, a, b: None if b == "" else total(item, a, b))
    forest, judged, _ = talked(Simultaneous(task.prompts, samples=2), task)
    actual = judged("nothing").counterfactuals
    assert actual[0].tolist() == (100 * sums(forest)[1]).tolist() and np.isnan(actual[1]).all()


def test_each_process_judges_its_share_of_the_texts(monkeypatch):
    task = tiny.Task(lambda item, a, b: f"{item}{a}{b}")
    scorer = TaskScorer(task, dict.fromkeys(tiny.AGENTS), "aligned")
    texts = {"a": ["1", "2", "3"], "b": ["4", "5", "6"]}
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    first = task.judge(["x", "z"], {"a": ["1", "3"], "b": ["4", "6"]})
    monkeypatch.setattr(scoring.distributed, "run_together", lambda own: [first, own()])
    actual = scorer.judge_texts(["x", "y", "z"], texts)
    assert [judgement.total for judgement in actual] == ["x14", "y25", "z36"]
    assert task.calls[1] == (["y"], {"a": ["2"], "b": ["5"]})
