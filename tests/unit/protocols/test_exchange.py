"""What a rollout takes from a protocol of one's own: lists of any kind, and a sentence about anything else."""

import dataclasses
import sys

import pytest
import tiny
from ml_collections import config_dict
from tiny_rollouts import ITEM_IDS, KEY, PARAMS, built, run, total

from jaxmarl_llm.factory import rollouts
from jaxmarl_llm.protocols import Pipeline, Simultaneous, custom
from jaxmarl_llm.protocols.custom import CustomProtocol
from jaxmarl_llm.protocols.with_tools import WithTools
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.utils.dotted import UserCodeError

TASK = tiny.Task(total)  # about "zzz" and "x"


def own(step=lambda requests: requests, observe=lambda nodes: nodes):
    """A protocol whose lists are changed."""
    inner = Simultaneous(TASK.prompts, samples=2)

    class Own:
        def step(self, state):
            return step(inner.step(state))

        def observe(self, state, turns):
            return observe(inner.observe(state, turns))

    return CustomProtocol(Own())


def piped(config, task, samples):
    return Pipeline(task.prompts, samples or 2)


def each(**changes):
    """A change of all requests or nodes; a value is a constant, or made from the one that stands there."""

    def changed(one):
        values = {name: value(one) if callable(value) else value for name, value in changes.items()}
        return dataclasses.replace(one, **values)

    return lambda listed: [changed(one) for one in listed]


def raises(listed):
    raise KeyError("nothing")


def test_any_list_will_do():
    wanted = run(TASK)
    for kind in (tuple, iter, lambda listed: (one for one in listed)):
        forest = run(TASK, protocol=own(kind, kind))
        assert [joint.total for joint in forest.joints] == [joint.total for joint in wanted.joints]


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize(
    "wrong, message",
    [
        (dict(step=lambda requests: None), "step gave None; expected a list, empty or with a SpeakRequest in each"),
        (dict(step=lambda requests: []), "step gave no request about zzz, with which it begins"),
        (dict(step=lambda requests: ["a"]), "step gave 'a' in its list; expected a SpeakRequest"),
        (dict(step=each(agent="zed")), "step gave a request to 'zed' about zzz; the team is a, b"),
        (dict(step=each(item=lambda one: one.item - 1)), "step gave a request about item -1; allowed are 0 to 1"),
        (dict(step=each(messages="hi")), "a request to 'a' about zzz with messages 'hi'; expected chat messages"),
        (dict(step=each(messages=())), r"with messages \(\); expected chat messages"),
        (dict(step=each(samples=0)), "with samples=0, extra=0; expected whole numbers from 1 and 0"),
        (dict(step=each(kind="reply")), "with turn=0, kind='reply'; turns are whole numbers from 0, kinds answer"),
        (dict(step=each(parent=5)), "to 'a' about zzz with parent=5; there are 0, counted from 0"),
        (dict(step=each(follows=5)), "to 'a' about zzz with follows=5; there are 0, counted from 0"),
        (dict(step=raises), r"step raised after 0 steps about zzz, x \(KeyError: 'nothing'\)"),
        (dict(step=lambda requests: sys.exit(3)), r"step raised after 0 steps about zzz, x \(SystemExit: 3\)"),
        (dict(observe=lambda nodes: None), "observe gave None; expected a list, empty or with a Node in each"),
        (dict(observe=lambda nodes: ["x"]), "observe gave 'x' in its list; expected a Node"),
        (dict(observe=each(item=lambda one: 1 - one.item)), "a node of x with turn=0, which is about zzz"),
        (dict(observe=each(item=5)), "observe gave a node of item 5; allowed are 0 to 1"),
        (dict(observe=each(turns={})), "a node of zzz with turns {}; expected ids of turns by agent"),
        (dict(observe=each(turns={"a": 0})), "a node of zzz with turns {'a': 0}; expected ids of turns by agent"),
        (dict(observe=each(turns={"a": (99,)})), "a node of zzz with the turn 99; there are 8, counted from 0"),
        (dict(observe=each(turns={"a": (2, 3)})), "a node of zzz with the turn 2 as one of 'a'; it is of 'b'"),
        (dict(observe=each(turns={"zed": (0, 1)})), "a node of zzz with (turns of|the turn 0 as one of) 'zed'; "),
        (dict(observe=raises), r"observe raised after 1 steps about zzz, x \(KeyError: 'nothing'\)"),
    ],
)
def test_what_cannot_be_answered_or_judged_is_a_sentence(wrong, message, tools):
    protocol = own(**wrong)
    protocol = WithTools(protocol, None, 1, ()) if tools else protocol
    with pytest.raises((ValueError, UserCodeError), match=f"train.protocol: .*{message}") as caught:
        run(TASK, protocol=protocol)
    if isinstance(caught.value, UserCodeError):
        assert "test_exchange.py" in caught.value.user_frames()[-1]


def test_an_item_that_nobody_answers_ends_the_run():
    trainables = [member.trainable for member in built().members]
    options = {"max_prompt_tokens": 16, "params": PARAMS}
    for kept, left in ((0, "zzz"), (1, "x")):
        protocol = own(observe=lambda nodes, kept=kept: nodes[:kept])
        given = protocol, built(), trainables, TaskScorer.of_team(TASK, built(), "aligned"), ITEM_IDS, KEY
        with pytest.raises(ValueError, match=f"train.protocol: it ended without a joint answer to {left}; obs"):
            rollouts.run(*given, **options)


def test_samples_that_read_a_partners_are_not_combined():
    pipeline, long = Pipeline(TASK.prompts, samples=2), {"max_prompt_tokens": 64}
    assert run(TASK, protocol=CustomProtocol(pipeline), **long).joints
    with pytest.raises(ValueError, match="joint_mode='cross': the samples of 'b' about zzz continue different turns"):
        run(TASK, "cross", protocol=CustomProtocol(pipeline, combined=True), **long)
    simultaneous = Simultaneous(TASK.prompts, samples=2)
    assert len(run(TASK, "cross", protocol=CustomProtocol(simultaneous, combined=True)).joints) == 8
    cross = config_dict.ConfigDict({"train": {"joint_mode": "cross"}})
    for samples in (None, 2):  # in training, and in an evaluation, whose samples are not combined
        assert custom.build(f"{__name__}.piped", cross, TASK, samples)._combined is (samples is None)


def test_a_bug_of_ours_keeps_its_traceback():
    protocol = Simultaneous(TASK.prompts, samples=None)
    with pytest.raises(TypeError):
        run(TASK, protocol=protocol)
