"""Rollouts of a tiny random team with a scripted task: who said what, in which answer, and what it earned."""

import contextlib
import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rounds_of_lessons
import tiny
from tiny_rollouts import KEY, PARAMS, built, run, total

from jaxmarl_llm import sampling, team, tokenizer, update
from jaxmarl_llm.forest import Node, SpeakRequest
from jaxmarl_llm.forest import metrics as forest_metrics
from jaxmarl_llm.protocols import Discussion
from jaxmarl_llm.rollout import bridge, episode, requests
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import pad_prompts, pad_team
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.update import collate


def turns_of(forest, joint):
    return {forest.turns[i].agent: forest.turns[i] for i in joint.turns}


def test_turns_are_numbered_in_the_order_of_the_requests():
    forest = run(tiny.Task(total))
    assert forest.items == ("zzz", "x")
    assert [turn.id for turn in forest.turns] == list(range(8))
    order = [(t.request, t.item, t.agent, t.sample) for t in forest.turns]
    asked = [(0, 0, "a"), (1, 0, "b"), (2, 1, "a"), (3, 1, "b")]
    assert order == [(*request, g) for request in asked for g in range(2)]
    expected = tiny.Tokenizer().encode_chat([{"content": "b:x"}])
    assert forest.turns[7].prompt.tolist() == expected and forest.turns[7].parent is None


def test_turns_hold_what_the_sampler_drew():
    forest, (member,) = run(tiny.Task(total)), built().members
    prompts = [[forest.turns[i].prompt.tolist() for i in ids] for ids in ((0, 4), (2, 6))]
    padded = [pad_prompts(p) for p in prompts]
    tokens, lengths = (np.stack(arrays) for arrays in zip(*padded, strict=True))
    key = jax.random.fold_in(jax.random.fold_in(KEY, 0), 0)
    drawn = sampling.generate(
        member.stack, member.base, member.trainable, tokens, lengths, key, samples=2, params=PARAMS
    )
    for turn in forest.turns:
        n, row = tiny.AGENTS.index(turn.agent), turn.item * 2 + turn.sample
        length = int(drawn.lengths_NR[n, row])
        assert turn.completion.tolist() == drawn.tokens_NRL[n, row, :length].tolist()
        np.testing.assert_array_equal(turn.logprobs, drawn.logprobs_NRL[n, row, :length])
        assert turn.text == " ".join(map(str, turn.completion.tolist()))
        assert turn.finished == (turn.completion[-1] in tiny.Tokenizer.eos_ids)


@pytest.mark.parametrize("mode, answers", [("aligned", 2), ("cross", 4)])
def test_every_joint_answer_is_judged_on_its_own_texts(mode, answers):
    task = tiny.Task(total)
    forest = run(task, mode)
    assert len(task.calls) == 1  # one call for everything
    assert [joint.item for joint in forest.joints] == [0] * answers + [1] * answers
    for j, joint in enumerate(forest.joints):
        turns = turns_of(forest, joint)
        assert list(turns) == ["a", "b"] and {t.item for t in turns.values()} == {joint.item}
        texts = [turn.text for turn in turns.values()]
        assert joint.judgement.total == total(forest.items[joint.item], *texts)
        g = (j % 2, j % 2) if mode == "aligned" else divmod(j % 4, 2)
        assert tuple(turn.sample for turn in turns.values()) == g


def test_the_tasks_order_of_agents_is_the_joint_answers_order():
    task = tiny.Task(total)
    task.agents = ("b", "a")
    forest = run(task, "cross")
    assert [list(turns_of(forest, joint)) for joint in forest.joints] == [["b", "a"]] * 8
    # The task asks b first as well, so its turns come first; b's sample moves slower in the product.
    assert [joint.turns for joint in forest.joints[:4]] == [(0, 2), (0, 3), (1, 2), (1, 3)]


@pytest.mark.slow
def test_two_architectures_in_one_rollout():
    task = tiny.Task(total)
    forest = run(task, "cross", built(("small", "other")))
    assert [turn.id for turn in forest.turns] == list(range(8))
    assert [turn.agent for turn in forest.turns] == ["a", "a", "b", "b"] * 2
    for joint in forest.joints:
        texts = [turn.text for turn in turns_of(forest, joint).values()]
        assert joint.judgement.total == total(forest.items[joint.item], *texts)


@dataclasses.dataclass
class Twice:
    """One sample each, then two more that continue it: another number of samples at every level."""

    def step(self, state):
        level = len({turn.turn for turn in state.turns})
        if level == 2:
            return []
        parents = {(turn.agent, turn.item): turn.id for turn in state.turns}
        message = ({"role": "user", "content": "go" * (level + 1)},)
        return [
            SpeakRequest(agent, i, message, level + 1, level, parents.get((agent, i)))
            for i in range(len(state.items))
            for agent in tiny.AGENTS
        ]

    def observe(self, state, turns):
        if turns[0].turn == 0:
            return []

        def ids(item, agent):
            return tuple(turn.id for turn in turns if (turn.item, turn.agent) == (item, agent))

        return [Node(i, {agent: ids(i, agent) for agent in tiny.AGENTS}, turn=1) for i in (0, 1)]


@pytest.mark.slow
def test_later_turns_continue_earlier_ones_and_only_what_is_complete_is_judged():
    forest = run(tiny.Task(total), protocol=Twice())
    assert [turn.id for turn in forest.turns] == list(range(4 + 8))
    assert [turn.parent for turn in forest.turns] == [None] * 4 + [0, 0, 1, 1, 2, 2, 3, 3]
    assert [turn.request for turn in forest.turns] == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    assert [joint.turns for joint in forest.joints] == [(4, 6), (5, 7), (8, 10), (9, 11)]


@pytest.mark.slow
def test_what_continues_a_greedy_answer_is_greedy():
    members, task = built(), tiny.Task(total)
    forest = run(task, protocol=Discussion(task.prompts, samples=3), max_prompt_tokens=160, last_greedy=True)
    greedy = [turn for turn in forest.turns if turn.greedy]
    assert len(greedy) == 2 * 4 and len(forest.turns) == 3 * 2 * 4  # items x (agents x rounds)
    for turn in greedy:
        assert (turn.sample, turn.parent is None) in ((2, True), (0, False))
        assert turn.parent is None or forest.turns[turn.parent].greedy
        n = tiny.AGENTS.index(turn.agent)
        prompts_NBP, lengths_NB, _ = pad_team([[turn.prompt.tolist()]] * 2)
        (member,) = members.members
        inputs = (member.stack, member.base, member.trainable, prompts_NBP, lengths_NB, KEY)
        alone = sampling.generate(*inputs, samples=1, params=SamplingParams(4, temperature=0.0))
        assert turn.completion.tolist() == alone.tokens_NRL[n, 0, : alone.lengths_NR[n, 0]].tolist()
    assert not any(turn.greedy for turn in run(task).turns)


def test_steps_without_judgement_leave_the_sizes_as_they_were(monkeypatch):
    sizes = []

    def speak(*arguments):
        sizes.append(arguments[5])
        return requests.sample_turns(*arguments)

    monkeypatch.setattr(episode, "sample_turns", speak)
    rounds_of_lessons.run(rounds_of_lessons.Programs((1, 2)))
    # 2 items; after the first step 2 x 2 joint answers have been judged, after the third as many
    assert sizes == [(2, 2), (2, 4), (2, 4), (2, 4)]


def test_a_prompt_that_is_too_long_is_an_error_with_the_items_id():
    with pytest.raises(ValueError, match="for item zzz has .* tokens, the limit is 1; raise"):
        run(tiny.Task(total), max_prompt_tokens=1)


def test_the_phases_are_timed():
    seen = []

    def timer(phase):
        seen.append(phase)
        return contextlib.nullcontext()

    run(tiny.Task(total), timer=timer)
    assert seen == ["sample", "score"]


def test_what_the_task_raises_comes_through():
    def broken(item, *texts):
        raise LookupError(f"item {item} has no tests")

    with pytest.raises(LookupError, match="item zzz has no tests"):
        run(tiny.Task(broken))


@dataclasses.dataclass
class Once:
    """Everybody is asked on both items, but for the last ``less`` requests; nothing is judged."""

    less: int = 0
    samples: tuple[int, ...] = (1, 1, 1, 1)

    def step(self, state):
        if state.turns:
            return []
        asked = [(i, agent) for i in (0, 1) for agent in tiny.AGENTS]
        asked = [
            SpeakRequest(a, i, ({"role": "user", "content": f"{a}{i}"},), g)
            for (i, a), g in zip(asked, self.samples, strict=True)
        ]
        return asked[: len(asked) - self.less]

    def observe(self, state, turns):
        return []


@pytest.mark.slow
def test_agents_of_a_stack_may_be_asked_unequally_often():
    """Greedy answers do not depend on what else is asked."""
    every, fewer = (run(tiny.Task(total), protocol=Once(less), last_greedy=True).turns for less in (0, 1))
    assert [turn.agent for turn in fewer] == ["a", "b", "a"]
    for turn, same in zip(fewer, every[:3], strict=True):
        assert turn.completion.tolist() == same.completion.tolist() and turn.item == same.item
    with pytest.raises(ValueError, match=r"agents \('a', 'b'\) must be asked for the same .* not \[1, 2\]"):
        run(tiny.Task(total), protocol=Once(samples=(1, 1, 1, 2)))


def test_the_rewards_that_the_callback_returns_are_learned_from(monkeypatch):
    """What the host returns to the program is changed on its way; the judgements stay as they are."""
    task, rewards = tiny.Task(total), iter(np.float32([[5, 1, 9, 3], [2, 2, 2, np.nan]]))
    before = run(task, "cross")
    deliver = bridge._host

    def changed(room, message):
        own, number = deliver(room, message)
        own = own.copy()
        own[:8] = np.concatenate(list(rewards))
        return own, number

    monkeypatch.setattr(bridge, "_host", changed)
    bridge._program.cache_clear()
    forest = run(task, "cross")
    bridge._program.cache_clear()
    assert [j.judgement.total for j in forest.joints] == [j.judgement.total for j in before.joints]
    np.testing.assert_array_equal(forest.totals(), [5, 1, 9, 3, 2, 2, 2, np.nan])
    advantages = magrpo.assign(forest).advantages
    # of "a" 3 and 6, of "b" 7 and 2 in mean; the second item's are all 2
    assert advantages.tolist() == [-1.5, 1.5, 2.5, -2.5, 0, 0, 0, 0]
    updates = [updated(made, magrpo.assign(made).advantages) for made in (forest, before)]
    pairs = zip(*map(jax.tree.leaves, updates), strict=True)
    assert max(float(np.abs(one - other).max()) for one, other in pairs) > 1e-3


def updated(forest, advantages):
    """Parameters of the tiny team after an update."""
    (member,) = built().members
    config, optimizer = update.LossConfig(PARAMS), optax.sgd(1.0)
    (batch,) = collate.collate(forest, advantages, member.stack, 4, 0)
    state = update.init_state(jax.tree.map(jnp.copy, member.trainable), optimizer)
    packed = (config.pack(batch),)
    state, _ = update.train_step(member.stack, config, optimizer, member.base, state, packed)
    return jax.device_get(state.trainable)


def test_every_completion_is_decoded_once():
    decoded = []

    def decode(ids, **_):
        decoded.append(tuple(ids))
        return " ".join(map(str, ids))

    words = SimpleNamespace(
        chat_template=None,
        encode=lambda text, **_: [7 + ord(char) % 50 for char in text],
        decode=decode,
        get_vocab=lambda: {f"w{i}": i for i in range(tiny.V)},
    )
    tokens = tokenizer.Tokenizer(words, (3, 5))
    vars(tokens)["_line_break"] = []  # it puts no space in front of a text
    own = dataclasses.replace(tiny.model(), tokenizer=tokens)
    members = team.build({"own": own}, dict.fromkeys(tiny.AGENTS, "own"), jax.random.key(0), rank=2)
    task = tiny.Task(total)
    forest = run(task, "cross", members)
    spoken = [tuple(turn.completion.tolist()) for turn in forest.turns]
    assert sorted(decoded) == sorted(set(spoken)) and len(task.calls[0][0]) == 8
    judged = {text for texts in task.calls[0][1].values() for text in texts}
    assert {turn.text for turn in forest.turns} == judged


@dataclasses.dataclass
class HalfGiven:
    """Agent a has answered the second item before; everybody else answers now."""

    def step(self, state):
        if state.turns:
            return []
        message = ({"role": "user", "content": "go"},)
        return [
            SpeakRequest(agent, i, message, 1, given="6 7 8" if (agent, i) == ("a", 1) else None)
            for i in range(len(state.items))
            for agent in tiny.AGENTS
        ]

    def observe(self, state, turns):
        ids = {(turn.item, turn.agent): (turn.id,) for turn in turns}
        return [Node(i, {agent: ids[i, agent] for agent in tiny.AGENTS}) for i in (0, 1)]


def test_a_given_answer_is_judged_and_costs_nothing():
    forest = run(tiny.Task(total), protocol=HalfGiven())
    assert [turn.given for turn in forest.turns] == [False, False, True, False]
    assert [turn.agent for turn in forest.turns] == ["a", "b"] * 2
    given = forest.turns[2]
    assert given.text == "6 7 8" and given.tokens == (0, 0) and not given.logprobs.any() and given.finished
    answers = [turn.text for turn in turns_of(forest, forest.joints[1]).values()]
    assert given.completion.tolist() == [6, 7, 8, 3] and answers[0] == "6 7 8"
    assert forest.joints[1].total == pytest.approx(total("x", *answers))
    assert forest_metrics.tokens(forest) == sum(len(forest.turns[i].completion) for i in (0, 1, 3))


def test_a_given_answer_is_one_sample():
    with pytest.raises(ValueError, match="agent 'a': a given answer is one sample, not 2"):
        requests.given_turn(requests.PendingRequest(0, 0, SpeakRequest("a", 0, (), 2, given="5"), []), None)
