"""Pipeline and discussion in two turns: what each agent sees, and returns and targets computed by hand."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
import tiny
from tiny_rollouts import built

from configs import game
from jaxmarl_llm import rollout
from jaxmarl_llm.config import validate
from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.protocols import Discussion, Episode, Pipeline
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems import magrpo, td_targets
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.td_targets import ReturnOptions

SYSTEM = {"role": "system", "content": "s"}


def prompts(item):
    return {agent: [SYSTEM, {"role": "user", "content": f"{item} for {agent}"}] for agent in "ab"}


def feedback(answers):
    """What each agent reads: its own text again, and the reward."""
    return [
        {agent: f"{agent}, {text} earned {answer.judgement.total}" for agent, text in spoken.items()}
        for answer in answers
        for spoken in [answer.completions]
    ]


def play(protocol, rewards, items=("x",)):
    """The forest and the requests of a protocol whose turn i has the text "ti"; answer j earns rewards[j]."""
    state, nodes = Episode(items), 0
    while requests := protocol.step(state):
        new = []
        for request in requests:
            number = len(state.requests)
            state.requests.append(request)
            for g in range(request.samples):
                i, ids = len(state.turns) + len(new), np.zeros(1, np.int32)
                place = (i, number, request.agent, request.item, request.turn, g)
                spoken = (ids, ids, np.zeros(1, np.float32), f"t{i}", True, request.parent, request.follows)
                new.append(Turn(*place, *spoken, kind=request.kind))
        state.turns += new
        for node in protocol.observe(state, new):
            for g in range(len(next(iter(node.turns.values())))):
                ids = tuple(own[g] for own in node.turns.values())
                judged = SimpleNamespace(total=float(rewards[len(state.joints)]))
                heard = tuple(own[g] for own in node.heard)
                state.joints.append(Joint(node.item, ids, judged, nodes, node.turn, node.follows, heard))
            nodes += 1
    return Forest(tuple(items), tuple(state.turns), tuple(state.joints)), state.requests


REWARDS = [1, 3, 2, 4, 5, 7]  # of the two first answers, of the two after the one, and after the other


def seen(request):
    return [message["content"] for message in request.messages[1:]]


def test_a_pipeline_in_two_turns():
    """Turns: a says t0 and t1, b t2 and t3; a t4 .. t7, b t8 .. t11."""
    forest, requests = play(Pipeline(prompts, 2, 2, feedback), REWARDS)
    assert [(j.turns, j.node, j.turn, j.follows) for j in forest.joints] == [
        ((0, 2), 0, 0, None), ((1, 3), 0, 0, None),
        ((4, 8), 1, 1, 0), ((5, 9), 1, 1, 0), ((6, 10), 2, 1, 1), ((7, 11), 2, 1, 1),
    ]  # fmt: skip
    assert [seen(r) for r in requests[:3]] == [
        ["x for a"], ["a wrote:\nt0\n\nx for b"], ["a wrote:\nt1\n\nx for b"],
    ]  # fmt: skip
    assert seen(requests[3]) == ["x for a", "t0", "a, t0 earned 1.0"] and requests[3].samples == 2
    assert seen(requests[4]) == ["x for a", "t1", "a, t1 earned 3.0"]
    # b goes on from its own history, and has read what a wrote in both turns.
    assert seen(requests[5]) == ["a wrote:\nt0\n\nx for b", "t2", "a wrote:\nt4\n\nb, t2 earned 1.0"]
    assert seen(requests[8]) == ["a wrote:\nt1\n\nx for b", "t3", "a wrote:\nt7\n\nb, t3 earned 3.0"]
    assert [t.parent for t in forest.turns] == [None, None, 0, 1, 0, 0, 1, 1, 2, 2, 3, 3]
    # Returns: 1 + (2 + 4) / 2 and 3 + (5 + 7) / 2; later answers their own rewards. Groups by agent and node.
    assert magrpo.returns(forest).tolist() == [4, 9, 4, 9, 2, 4, 5, 7, 2, 4, 5, 7]
    expected = [-2.5, 2.5, -2.5, 2.5, -1, 1, -1, 1, -1, 1, -1, 1]
    assert magrpo.advantages(forest).tolist() == expected
    weighed = magrpo.advantages(forest, CreditConfig(turn_weights=(1.0, 0.5), discount=0.5))
    # 1 + 3 / 2 and 3 + 6 / 2; the later turn counts half in the return, and half once more by its weight.
    assert weighed.tolist() == [-1.75, 1.75, -1.75, 1.75] + [-0.25, 0.25] * 4
    # A critic's targets: the reward, and the mean value of what the same agent says next.
    values_R = np.arange(12, dtype=np.float32)
    targets = td_targets.of_turns(forest, values_R, ReturnOptions(1.0, False, 2)).tolist()
    assert targets == [1 + 4.5, 3 + 6.5, 1 + 8.5, 3 + 10.5, 2, 4, 5, 7, 2, 4, 5, 7]


def test_a_pipeline_hands_on_the_best_and_stops_where_it_is_good_enough():
    best, requests = play(Pipeline(prompts, 2, 2, feedback, "best"), REWARDS[:2] + [5, 7])
    assert [j.follows for j in best.joints] == [None, None, 1, 1] and len(requests) == 3 + 1 + 2
    # In a chain all answers of a node share what follows: 1 + 6 and 3 + 6.
    assert magrpo.returns(best, CreditConfig(chain=True)).tolist() == [7, 9, 7, 9, 5, 7, 5, 7]
    # Of two problems the second earns enough: the turn that it leaves out counts as its mean reward, 8.
    stopped, _ = play(Pipeline(prompts, 2, 2, feedback, stop_above=5), [1, 3, 7, 9, 2, 4, 5, 7], ("x", "y"))
    assert [(j.item, j.follows) for j in stopped.joints[4:]] == [(0, 0), (0, 0), (0, 1), (0, 1)]
    assert magrpo.joint_returns(stopped, CreditConfig(turns=2)).tolist() == [4, 9, 7 + 8, 9 + 8, 2, 4, 5, 7]
    ended, _ = play(Pipeline(prompts, 2, 2, feedback, stop_above=0), [1, 3])
    assert len(ended.joints) == 2


def test_a_discussion_in_two_turns():
    """Turns: a t0 t1, b t2 t3 blind; t4 .. t7 final, both agents after each sample; then the same twice."""
    forest, requests = play(Discussion(prompts, 2, 2, feedback), REWARDS)
    assert [(j.turns, j.heard, j.turn, j.follows) for j in forest.joints] == [
        ((4, 5), (0, 2), 0, None), ((6, 7), (1, 3), 0, None),
        ((16, 17), (8, 10), 1, 0), ((18, 19), (9, 11), 1, 0),
        ((20, 21), (12, 14), 1, 1), ((22, 23), (13, 15), 1, 1),
    ]  # fmt: skip
    assert [t.turn for t in forest.turns] == [0] * 8 + [1] * 16
    blind = next(r for r in requests if (r.turn, r.kind) == (1, "remark") and r.agent == "b" and r.follows == 1)
    assert seen(blind)[2].startswith("a wrote:\nt1\n\n") and seen(blind)[3:] == ["t7", "b, t7 earned 3.0"]
    assert seen(blind)[:2] == ["x for b", "t3"]
    final = requests[-1]
    assert seen(final)[5] == "t15" and seen(final)[6].startswith("a wrote:\nt13\n\n")
    returns = magrpo.returns(forest)
    assert returns[:8].tolist() == [4, 9, 4, 9, 4, 4, 9, 9]  # both rounds earn what the final answers do
    assert returns[[16, 18, 20, 22]].tolist() == returns[[8, 9, 12, 13]].tolist() == [2, 4, 5, 7]
    weighed = magrpo.advantages(forest, CreditConfig(turn_weights=(1.0, 0.5)))
    assert weighed[:4].tolist() == [-2.5, 2.5, -2.5, 2.5] and weighed[8:12].tolist() == [-0.5, 0.5] * 2
    # A turn that is left out counts once, although it has two rounds.
    stopped, _ = play(Discussion(prompts, 2, 2, feedback, stop_above=5), [1, 3, 7, 9, 2, 4, 5, 7], ("x", "y"))
    assert magrpo.joint_returns(stopped, CreditConfig(turns=2)).tolist() == [4, 9, 7 + 8, 9 + 8, 2, 4, 5, 7]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [Pipeline, Discussion])
def test_an_evaluation_follows_every_chain_to_its_last_turn(protocol):
    """The greedy answers stay together: those of one chain, in both turns."""
    task, members = tiny.Task(lambda item, a, b: float(len(a))), built()
    scorer = TaskScorer.of_team(task, members, "aligned")
    options = dict(params=SamplingParams(3), max_prompt_tokens=250, last_greedy=True)
    advice = {"a": "?", "b": "!"}
    chains = protocol(task.prompts, 2, 2, lambda answers: [advice] * len(answers), later_samples=1)
    trainables = [member.trainable for member in members.members]
    forest = rollout.run(chains, members, trainables, scorer, [2, 0], jax.random.key(3), **options)
    assert [(j.item, j.turn) for j in forest.joints] == [(i, t) for t in (0, 1) for i in (0, 0, 1, 1)]
    assert [j.follows for j in forest.joints] == [None] * 4 + [0, 1, 2, 3]
    for number, joint in enumerate(forest.joints):
        turns = [forest.turns[i] for i in (*joint.turns, *joint.heard)]
        assert {t.greedy for t in turns} == {number % 2 == 1}


def test_a_discussion_alone_cannot_be_taken_apart_in_turns():
    c = game.get_config()
    c.train.turns, c.train.protocol, c.train.counterfactual = 2, "discussion", "solo"
    with pytest.raises(ValueError, match="counterfactual='solo': nothing else shares the nodes"):
        validate(c)
    c.train.counterfactual = ""
    validate(c)
    c.train.protocol = "tree"
    with pytest.raises(ValueError, match=r"train\.protocol='tree': has one turn, train\.turns=2"):
        validate(c)
