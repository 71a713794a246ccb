"""Turns that are steps of an episode: the judge gets what came before from the callback, and ends are ends."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny
from hand_made_forests import Tree
from tiny_rollouts import built
from worlds import Counting

from jaxmarl_llm import records, rollout, transcripts
from jaxmarl_llm.analysis.audit import rescoring
from jaxmarl_llm.protocols import Discussion, Pipeline, Simultaneous
from jaxmarl_llm.rollout import counterfactuals, scoring
from jaxmarl_llm.rollout.counterfactuals import SecondRollout
from jaxmarl_llm.rollout.journal import Journal
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tasks.worlds.task import WorldTask
from jaxmarl_llm.testing import check_protocol
from jaxmarl_llm.update import collate

pytestmark = pytest.mark.usefixtures("programs_shared")
KEY, PARAMS = jax.random.key(7), SamplingParams(4)


class Digits(Counting):
    """The tiny team's texts are numbers: an agent adds 1 where its text has a 1 alone, and any other waits."""

    def __init__(self, goal=4):
        super().__init__(tiny.AGENTS, goal)

    def legal(self, state, agent):
        return tuple(map(str, range(10))) + ("wait",)

    def step(self, state, actions):
        return super().step(state, {agent: "wait" if action == "wait" else "add" for agent, action in actions.items()})


class Watched(WorldTask):
    """A task that keeps what its judge was given."""

    def __init__(self, *args):
        super().__init__(*args)
        self.calls = []

    def judge(self, items, completions, histories):
        self.calls.append((list(items), dict(completions), list(histories)))
        return super().judge(items, completions, histories)


def protocol(task, kind=Simultaneous, samples=2, turns=3, later=1, **options):
    return kind(task.prompts, samples, turns, task.feedback, later_samples=later, remember=False, **options)


def play(task, made, **options):
    members = built()
    trainables = [member.trainable for member in members.members]
    scorer = TaskScorer.of_team(task, members, "aligned")
    fixed = {"params": PARAMS, "max_prompt_tokens": 200} | options
    return rollout.run(made, members, trainables, scorer, [0, 1], KEY, **fixed)


@pytest.mark.parametrize("kind", [Simultaneous, Pipeline])
@pytest.mark.parametrize("later", [1, 2])
def test_the_judge_gets_the_answers_before(kind, later):
    task = Watched(Digits())
    forest = play(task, protocol(task, kind, later=later))
    assert {joint.turn for joint in forest.joints} == {0, 1, 2}
    given = [history for _, _, histories in task.calls for history in histories]
    assert given == forest.histories() and [len(history) for history in given] == [j.turn for j in forest.joints]
    for history, joint in zip(given, forest.joints, strict=True):
        texts = [forest.texts_of(joint.follows)] if joint.turn else []
        assert list(history[-1:]) == texts  # as tokens through the callback, and texts again
    again = WorldTask(Digits())
    items, texts = [forest.items[joint.item] for joint in forest.joints], forest.joint_texts()
    for judgement, joint in zip(again.judge(items, texts, given), forest.joints, strict=True):
        assert judgement == joint.judgement and joint.total == judgement.total


@dataclasses.dataclass(frozen=True)
class Begun:
    """A protocol whose agents have written ``prefix`` already."""

    inner: Simultaneous
    prefix: str

    def step(self, state):
        return [dataclasses.replace(request, prefix=self.prefix) for request in self.inner.step(state)]

    def observe(self, state, turns):
        return self.inner.observe(state, turns)


def test_the_answers_before_are_judged_with_what_they_go_on_from(tmp_path):
    """In the histories of the callback, in the forest's, and in those of a transcript."""
    task = Watched(Digits(goal=50))
    forest = play(task, Begun(protocol(task, later=2), "7 "), params=SamplingParams(1))
    given = [history for _, _, histories in task.calls for history in histories]
    assert given == forest.histories() and {joint.turn for joint in forest.joints} == {0, 1, 2}
    assert {text[0] for history in given for texts in history for text in texts.values()} == {"7"}
    shown = dict.fromkeys(tiny.AGENTS, type("Shown", (), {"show": staticmethod(str)}))
    actions = records.joint_actions(0, forest, task, shown, np.zeros(len(forest.turns), np.float32))
    transcripts.TranscriptWriter(tmp_path).write(0, actions)
    read = transcripts.read(tmp_path, 0)
    assert [action.agents["a"].message for action in read] == [forest.texts_of(j)["a"] for j in range(len(read))]
    again, _ = rescoring.forest_of(read, {item.task_id: item for item in task.items}, 2, False)
    assert again.joint_texts() == forest.joint_texts() and again.histories() == forest.histories()


def test_what_came_before_is_what_the_callback_is_sent(monkeypatch):
    """With other tokens sent as history the rewards are others."""
    task = WorldTask(Digits(goal=50))
    honest = play(task, protocol(task)).totals()
    real = scoring.TaskScorer.__call__

    def forged(self, tokens, lengths, items_B, earlier=None):
        nothing = jax.tree.map(np.zeros_like, earlier)  # no turn before
        return real(self, tokens, lengths, items_B, nothing)

    counting = lambda self, items, texts, before: [Judgement({}, float(len(history))) for history in before]  # noqa: E731
    monkeypatch.setattr(WorldTask, "judge", counting)
    lengths = play(task, protocol(task)).totals()
    assert sorted(set(lengths)) == [0, 1, 2] and len(honest) == len(lengths)
    monkeypatch.setattr(scoring.TaskScorer, "__call__", forged)
    assert set(play(task, protocol(task)).totals()) == {0.0}


def test_prompts_of_later_turns_show_what_is_seen_alone():
    task = WorldTask(Digits(goal=50))
    forest = play(task, protocol(task))
    shown = {turn.turn: len(turn.prompt) for turn in forest.turns}
    assert len(set(shown.values())) == 1  # one digit: the same number of characters in every turn
    longer = play(WorldTask(Digits(goal=50), remember=True), dataclasses.replace(protocol(task), remember=True))
    lengths = {turn.turn: len(turn.prompt) for turn in longer.turns}
    assert lengths[0] < lengths[1] < lengths[2]


@pytest.mark.parametrize("kind", [Simultaneous, Pipeline, Discussion])
def test_protocols_keep_their_rules_in_a_world(kind):
    task = WorldTask(Counting(goal=3))
    check_protocol(protocol(task, kind), task, texts=lambda request, n: ("add", "wait")[n % 2])


def test_nobody_answers_after_the_end():
    """Both add in every turn: from 0 an episode of goal 3 has two turns, from 1 one."""
    task = WorldTask(Digits(goal=3))

    class Always(WorldTask):
        def judge(self, items, completions, histories):
            ones = [[dict.fromkeys(texts, "1") for texts in history] for history in histories]
            return super().judge(items, {agent: ["1"] * len(items) for agent in completions}, ones)

    always = Always(Digits(goal=3))
    forest = play(always, protocol(task, turns=5))
    assert [(joint.item, joint.turn, joint.done) for joint in forest.joints] == [
        (0, 0, False), (0, 0, False), (1, 0, True), (1, 0, True), (0, 1, True), (0, 1, True)
    ]  # fmt: skip
    returns = magrpo.joint_returns(forest, CreditConfig(turns=5))
    assert returns.tolist() == [1.25, 1.25, 1.0, 1.0, 1.0, 1.0]  # what follows is added, but nothing for turns not had
    half = magrpo.joint_returns(forest, CreditConfig(turns=5, discount=0.5))
    assert half.tolist() == [0.75, 0.75, 1.0, 1.0, 1.0, 1.0]
    batches = collate.collate(forest, np.ones(len(forest.turns)), built().members[0].stack, 4, all_turns=5)
    assert [batch.prompts_NBP.shape[1] for batch in batches] == [2, 4, 4, 4, 4]
    assert [int((batch.lengths_NR > 0).sum()) for batch in batches] == [8, 4, 0, 0, 0]


def test_a_rollout_that_was_broken_off_goes_on_from_its_journal(tmp_path):
    task = WorldTask(Digits())
    whole = play(task, protocol(task))

    class Stop(Exception):
        pass

    for stop in range(3):
        calls = []

        class Stopping(WorldTask):
            def judge(self, items, completions, histories, calls=calls, stop=stop):
                calls.append(histories)
                if len(calls) > stop:
                    raise Stop
                return super().judge(items, completions, histories)

        folder = tmp_path / str(stop)
        stopping = Stopping(Digits())
        with pytest.raises(Stop):
            play(stopping, protocol(stopping), journal=Journal(folder))
        fresh = Watched(Digits())
        forest = play(fresh, protocol(fresh), journal=Journal(folder))
        assert len(fresh.calls) == 3 - stop and forest.joints == whole.joints
        assert [turn.text for turn in forest.turns] == [turn.text for turn in whole.turns]


def test_without_an_agents_part_after_the_same_history():
    """By hand: the reward of the step in which the agent's text is empty, so that it waits."""
    task = WorldTask(Digits(goal=3))
    made = protocol(task, turns=3)
    forest = play(task, made)
    scorer = TaskScorer.of_team(task, built(), "aligned")
    again = SecondRollout(None, made, [], KEY)
    actual = counterfactuals.with_counterfactuals(forest, "nothing", scorer, again)
    for j, (joint, history) in enumerate(zip(forest.joints, forest.histories(), strict=True)):
        for n, agent in enumerate(tiny.AGENTS):
            texts = {a: [""] if a == agent else [text] for a, text in forest.texts_of(j).items()}
            (wanted,) = WorldTask(Digits(goal=3)).judge([forest.items[joint.item]], texts, [history])
            assert actual.counterfactuals[n, j] == wanted.total
    assert (actual.counterfactuals != forest.totals()).any()
    assert {joint.turn for joint in forest.joints} == {0, 1, 2}


def test_a_transcript_earns_the_same_rewards(tmp_path):
    task = WorldTask(Digits(goal=3))
    forest = play(task, protocol(task, turns=3, later=2))
    shown = dict.fromkeys(tiny.AGENTS, type("Shown", (), {"show": staticmethod(str)}))
    actions = records.joint_actions(0, forest, task, shown, np.zeros(len(forest.turns), np.float32))
    transcripts.TranscriptWriter(tmp_path).write(0, actions)
    read = transcripts.read(tmp_path, 0)
    assert [action.done for action in read] == [joint.done for joint in forest.joints] and any(a.done for a in read)
    items = {item.task_id: item for item in task.items}
    again, _ = rescoring.forest_of(read, items, 2, False)
    np.testing.assert_array_equal(magrpo.joint_returns(again, CreditConfig(turns=3)),
                                  magrpo.joint_returns(forest, CreditConfig(turns=3)))  # fmt: skip
    rejudged = rescoring.rejudged(again, WorldTask(Digits(goal=3)))
    assert [j.judgement.scores for j in rejudged.joints] == [j.judgement.scores for j in forest.joints]


def test_a_tree_of_episodes_returns_the_mean_of_what_follows():
    """Two answers of a node, of which one is done with 1; after the other two more, worth 0.5 and 0."""
    forest = Tree("aligned").node([1.0, 0.25]).node([0.5, 0.0], follows=1).forest()
    ended = dataclasses.replace(forest.joints[0], judgement=Judgement({}, 1.0, done=True))
    forest = dataclasses.replace(forest, joints=(ended, *forest.joints[1:]))
    assert magrpo.joint_returns(forest, CreditConfig(turns=3)).tolist()[:2] == [1.0, 0.25 + 0.25 + 0.25]


def test_actions_in_the_same_state_are_compared():
    """Groups by prompt: an agent's turns that read the same number about the same start, whatever the turn."""
    task = WorldTask(Digits(goal=50))
    forest = play(task, protocol(task, samples=3, turns=4))
    keys = magrpo.groups(forest, "prompt")
    shown: dict[tuple, set] = {}
    for turn in forest.turns:
        shown.setdefault((turn.agent, turn.item, bytes(turn.prompt)), set()).add(int(keys[turn.id]))
    assert all(len(group) == 1 for group in shown.values())
    assert len({min(group) for group in shown.values()}) == len(shown)
    credit = magrpo.assign(forest, CreditConfig(turns=4, group_by="prompt"))
    for key in set(keys.tolist()):
        ids = np.flatnonzero(keys == key)
        wanted = credit.returns[ids] - credit.returns[ids].mean()
        np.testing.assert_allclose(credit.advantages[ids], wanted, atol=1e-6)
    assert len({forest.turns[i].turn for i in np.flatnonzero(keys == keys[-1])}) >= 1
    with pytest.raises(ValueError, match="group_by='place'; allowed: turn, prompt"):
        CreditConfig(group_by="place")
