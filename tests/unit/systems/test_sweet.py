"""SWEET-RL: what is kept of dialogues, pairs by a critic's scores, and the stages by hand; files of each stage."""

import contextlib
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from preference_trees import ROLES, tree
from scripted_rounds import play

from jaxmarl_llm.config import base_config, validate
from jaxmarl_llm.factory import sweet as sweet_factory
from jaxmarl_llm.protocols.dialogue import Dialogue
from jaxmarl_llm.systems import dpo
from jaxmarl_llm.systems.preferences import Pool, dialogues, siblings
from jaxmarl_llm.systems.preferences.pairs import select
from jaxmarl_llm.systems.sweet import Learned, Sweet
from jaxmarl_llm.tasks.reasoning import guess
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask

IDS = {text: [n, 1] if text in guess.ASKS else [n] for n, text in enumerate((*guess.ASKS, *guess.PAIRS), start=2)}
# By turn, of each request those that go on first. Of two dialogues about left_low one ends right.
TEXTS = (("ask_A", "left_half", "left_low", "right_low"), ("left_low", "ask_B"))


def hidden(item):
    return np.array([90 + guess.PAIRS.index(item.answer)], np.int32)


def drawn(items=1, texts=TEXTS):
    """Two dialogues about each item, with a candidate beside each text, and token ids that tell texts apart."""
    task = ReasoningTask(guess.load()[:items], ("actor",), "last", partner="partner")
    protocol = Dialogue(task.prompts, "partner", task.privileged, task.briefing, task.ends, 2, 3, candidates=2)

    def text_of(request, n):
        row = texts[request.turn] if request.agent == "actor" else ()
        return row[n % len(row)] if row else guess.Answerer()(request, 0)

    forest = play(protocol, task, texts=text_of).forest
    turns = [
        dataclasses.replace(
            turn, prompt=np.array([5, 50 + turn.request], np.int32),
            completion=np.array(IDS.get(turn.text, [1]), np.int32), logprobs=np.zeros(len(IDS.get(turn.text, [1]))),
        )
        for turn in forest.turns
    ]  # fmt: skip
    return dataclasses.replace(forest, turns=tuple(turns))


class Critic:
    """Scores by token ids: the last one of a text, less those of the hidden text; counts its updates."""

    def __init__(self):
        self.states, self.learned = {}, []

    def learn(self, pairs, sizes):
        self.learned.append((pairs, sizes))
        return {"loss": np.float32(len(self.learned)), "accuracy": np.float32(1)}

    def scores(self, texts, sizes):
        return np.array([completion[0] for _, completion in texts], np.float32)

    def kept_in(self, folder, keep):
        (folder / "critic").mkdir(exist_ok=True)
        return contextlib.nullcontext()

    def save(self, step):
        pass

    def restore(self, step):
        self.learned = []


class Scores:
    """Log-probabilities of a policy that moves by ``moved`` per token id."""

    moved = 0.0

    def __call__(self, forest, reference):
        assert not reference
        return [-(0.03 + self.moved) * turn.completion.astype(np.float32) for turn in forest.turns]


def system(scores=None, critic=None, nll=0.0, **options):
    options = {"most": 0, "selection": "halves", "batch": 2, "updates": 3, "begins_at": 3} | options
    models = Learned("actor", hidden, critic or Critic(), (0,), **options)
    return Sweet(models, "actor", scores or Scores(), 2, collect=1, critic_steps=2, beta=0.5, nll=nll)


def played(made, steps, begin=0):
    results = []
    for step in range(begin, steps):
        credit = made.assign(drawn() if step == 0 else None)
        results.append((credit, made.learn(credit)))
    return results


def test_a_record_has_the_texts_of_every_prompt_and_the_path_of_every_dialogue():
    (record,) = dialogues.records_of(drawn(), "actor", hidden)
    assert record.item == "guess/left_low" and record.hidden.tolist() == [90]
    assert [[turn.text for turn in visit] for visit in record.visits] == [[*TEXTS[0]], [*TEXTS[1]]]
    # One dialogue names another pair at once; the other one, which ends later, asks and is right.
    assert record.dialogues == ((0.0, ((0, 1),)), (1.0, ((0, 0), (1, 0))))
    prompt, completion = record.text(1, 0)
    assert prompt.tolist() == [90, *record.visits[1][0].prompt] and completion.tolist() == IDS["left_low"]
    assert [len(record.sequence(d)) for d in (0, 1)] == [1, 2]


def test_pairs_of_dialogues_are_of_one_item_and_the_better_comes_first():
    kept = dialogues.Dialogues("actor", hidden, (0,))
    kept.add(drawn(2), 0)  # about the second pair, left_half, the dialogues end the other way round
    ends = set()
    for times in range(20):
        for winner, loser in kept.draw(2, times):
            assert winner[0][0][0] == loser[0][0][0]  # the hidden text is the same
            ends.add((int(winner[0][0][0]), len(winner), len(loser)))
    assert ends == {(90, 2, 1), (91, 1, 2)}
    assert len(kept.draw(5, 0)) == 5 and str(kept.draw(5, 0)) == str(kept.draw(5, 0)) != str(kept.draw(5, 1))
    kept.add(drawn(1, (("left_half", "left_half", "ask_A", "ask_A"), TEXTS[1])), 0)
    assert kept.draw(2, 0) == []
    with pytest.raises(ValueError, match="after 1 iterations no two dialogues about an item ended differently"):
        kept.require()


def test_halves_pair_each_answer_at_most_once():
    totals = [0.1, 0.9, 0.3, 0.8, 0.5]
    better = [(w, l) for w in range(5) for l in range(5) if totals[w] > totals[l]]
    partners = set()
    for seed in range(20):
        chosen = select(better, totals, np.random.default_rng(seed), most=0, selection="halves")
        assert sorted(w for w, _ in chosen) == [1, 3] and sorted(l for _, l in chosen) == [0, 2]
        partners |= set(chosen)
        assert len(select(better, totals, np.random.default_rng(seed), most=1, selection="halves")) == 1
    assert partners == {(1, 0), (1, 2), (3, 0), (3, 2)}
    assert select([], totals, np.random.default_rng(0), most=0, selection="halves") == []
    tied = [(0, 1), (0, 2), (0, 3)]  # 1, 2 and 3 are worth the same
    chosen = select(tied, [1.0, 0.0, 0.0, 0.0], np.random.default_rng(0), most=0, selection="halves")
    assert [w for w, _ in chosen] == [0]


def test_in_the_first_two_stages_the_agent_learns_nothing():
    critic = Critic()
    made = system(critic=critic)
    (first, _), (second, metrics), (third, _) = played(made, 3)
    assert [credit.learn for credit in (first, second, third)] == [False] * 3
    assert len(first.forest.turns) == len(first.advantages) > 0 and not first.advantages.any()
    assert not second.forest.turns and second.metrics() == {}
    assert metrics == {"preference/pairs": 0, "sweet/critic_loss": 2, "sweet/critic_accuracy": 1}
    assert len(critic.learned) == 6
    pairs, sizes = critic.learned[0]
    assert len(pairs) == 2 and sizes == (2, 32, 2)


def test_then_it_prefers_what_the_critic_ranks_higher_to_its_parameters_at_the_beginning(tmp_path):
    scores = Scores()
    made = system(scores)
    with made.models.kept_in(tmp_path, 2):
        played(made, 3)
        ((first, metrics),) = played(made, 4, begin=3)
        # Of the first prompt 4, 5 over 2, 10 by id: ask_A is 2, left_low 4, left_half 5, right_low 10.
        made_pairs = [(pair.winner[0].text, pair.loser[0].text) for pair in made.models.pool.pairs]
        assert {w for w, _ in made_pairs[:2]} == {"left_half", "right_low"}
        assert {l for _, l in made_pairs[:2]} == {"ask_A", "left_low"}
        assert made_pairs[2:] == [("left_low", "ask_B")]  # of the second prompt
        assert metrics["actor/dpo_loss"] == pytest.approx(np.log(2), rel=1e-5) and metrics["preference/pairs"] == 3
        np.testing.assert_allclose(first.advantages, [0.5, -0.5] * 2, rtol=1e-5)
        assert not any(turn.extra for turn in first.forest.turns)  # the update would leave them out
        scores.moved = 0.01  # the reference stays
        ((second, _),) = played(made, 5, begin=4)
        ids = [turn.completion.sum() for turn in second.forest.turns]
        margins = 0.5 * -0.01 * (np.array(ids[0::2]) - np.array(ids[1::2]))
        np.testing.assert_allclose(second.advantages[0::2], 1 / (1 + np.exp(margins)), rtol=1e-5)
    resumed = Scores()
    resumed.moved = 0.01
    again = system(resumed)
    with again.models.kept_in(tmp_path, 2):
        again.models.restore(4)
        ((other, _),) = played(again, 5, begin=4)
        np.testing.assert_array_equal(other.advantages, second.advantages)
        again.models.restore(3)  # at the beginning of the stage the parameters themselves are the reference
        ((other, metrics),) = played(again, 4, begin=3)
        assert metrics["actor/dpo_loss"] == pytest.approx(np.log(2), rel=1e-5)
        again.models.restore(2)  # in the second one the dialogues are read
        ((_, metrics),) = played(again, 3, begin=2)
        assert metrics["sweet/critic_accuracy"] == 1
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"critic", "dialogues", "pairs", "reference.json"}


def test_files_give_back_the_records(tmp_path):
    kept, again = (dialogues.Dialogues("actor", hidden, (0,)) for _ in range(2))
    with kept.kept_in(tmp_path), again.kept_in(tmp_path):
        kept.add(drawn(2), 0)
        kept.add(drawn(1), 1)
        again.restore(1)
    assert [record.item for record in again.records] == [record.item for record in kept.records][:2]
    for one, other in zip(again.records, kept.records, strict=False):
        assert one.dialogues == other.dialogues
        for v, visit in enumerate(one.visits):
            for a in range(len(visit)):
                np.testing.assert_array_equal(np.concatenate(one.text(v, a)), np.concatenate(other.text(v, a)))
                assert visit[a].text == other.visits[v][a].text


def test_the_likelihood_of_the_better_text_is_added_by_finite_differences():
    """Of the loss mean(dpo) - nll mean(log p(w) / T_w) by whole log-probabilities, as the update divides by 2 P."""
    made = system(nll=0.2)
    played(made, 3)
    ((credit, metrics),) = played(made, 4, begin=3)
    scores = Scores()(credit.forest, False)
    tokens = [len(turn.completion) for turn in credit.forest.turns]

    def loss(sums):
        margins = 0.5 * ((sums[0::2] - sums[1::2]) - (start[0::2] - start[1::2]))
        return np.mean(np.log1p(np.exp(-margins))) - 0.2 * np.mean(sums[0::2] / np.array(tokens[0::2]))

    start = np.array([each.sum() for each in scores], np.float64)
    for i in range(4):
        step = 1e-5 * np.eye(4)[i]
        slope = (loss(start + step) - loss(start - step)) / 2e-5
        assert credit.advantages[i] == pytest.approx(-4 * slope, rel=1e-4)
    assert metrics["actor/nll"] == pytest.approx(np.mean([-each.mean() for each in scores[0::2]]))


def test_without_a_difference_a_sentence_says_so_after_the_first_stage():
    made = system()
    made.learn(made.assign(drawn(1, (("left_half", "left_half", "ask_A", "ask_A"), TEXTS[1]))))
    with pytest.raises(ValueError, match="no two dialogues about an item ended differently, so the critic has nothing"):
        made.assign(None)


def test_a_plain_dpo_may_add_the_likelihood_too():
    def credit(nll):
        return dpo.Dpo(Pool((0,), siblings.pairs_of), ROLES, Scores(), batch=2, collect=0, nll=nll).assign(tree())

    plain, added = credit(0.0), credit(0.2)
    tokens = np.array([len(turn.completion) for turn in added.forest.turns])
    winners = np.arange(len(tokens)) % 2 == 0
    gained = added.advantages - plain.advantages
    np.testing.assert_allclose(gained, np.where(winners, 0.4 / tokens, 0), rtol=1e-5, atol=1e-7)


FIELDS = {
    "task.kind": "reasoning", "task.source": "guess", "task.total": "last", "team.agents": ("actor", "partner"),
    "team.models": ("game-tiny", "scripted:answerer"), "train.protocol": "dialogue", "train.turns": 3,
    "train.joint_mode": "aligned", "train.system": "sweet",
}  # fmt: skip


@pytest.mark.parametrize("fields, text", [
    ({"train.protocol": "simultaneous", "train.turns": 1, "team.models": ()},
     "train.protocol='simultaneous': train.system='sweet' needs 'dialogue': the critic reads what only the partner"),
    ({"sweet.critic_steps": 90}, "sweet.critic_steps=90: with preference.collect=10 it must be below 90"),
    ({"preference.collect": 100}, "preference.collect=100: must be below train.steps=100, or nobody learns"),
    ({"preference.reference": True}, "preference.reference=True: only train.system='madpo' and 'madpo_iter'"),
    ({"train.clip": 0.2}, "train.clip=0.2: train.system='sweet' allows 0.0 only"),
    ({"train.backup": "max"}, "train.backup='max': train.system='sweet' allows"),
    ({"train.turn_loss": "mean"}, "train.turn_loss='mean': train.system='sweet' allows"),
    ({"sweet.candidates": 1}, "sweet.candidates=1: allowed is 2 to any larger number"),
    ({"train.system": "magrpo", "train.backup": "last", "sweet.privileged": False},
     "sweet.privileged=False: only train.system='sweet' reads it"),
    ({"train.system": "magrpo", "train.backup": "last", "preference.nll": 0.1},
     "preference.nll=0.1: only train.system='dpo' and 'malt' and 'sweet' read it"),
    ({"mesh.data": 2}, "mesh.data=2: train.system='sweet' needs 1"),
    ({"team.models": ("scripted:answerer", "scripted:answerer")}, "the first agent, which must be a model of ours"),
])  # fmt: skip
def test_what_the_config_does_not_allow(fields, text):
    config = base_config()
    config.update_from_flattened_dict(FIELDS | fields)
    with pytest.raises(ValueError) as caught:
        validate(config)
    assert text in str(caught.value)


def test_a_hidden_text_that_leaves_no_room_is_refused_by_name():
    config = base_config()
    config.update_from_flattened_dict(FIELDS | {"sampling.max_prompt_tokens": 90, "sampling.max_new_tokens": 5})
    task = ReasoningTask(guess.load(), ("actor",), "last", partner="partner")
    policy = SimpleNamespace(config=SimpleNamespace(max_positions=100))
    tokenizer = SimpleNamespace(encode=lambda text: [1] * len(text.split()))
    member = SimpleNamespace(stack=SimpleNamespace(policy=policy), tokenizer=tokenizer, model_name="game-tiny")
    assert sweet_factory.hidden_tokens(config, member, task)(task.items[0]).tolist() == [1] * 4
    assert sweet_factory.hidden_tokens(config, member, None)(task.items[0]).tolist() == []
    config.sampling.max_prompt_tokens = 92
    with pytest.raises(ValueError, match="sampling.max_prompt_tokens=92: with the hidden text of guess/left_low"):
        sweet_factory.hidden_tokens(config, member, task)
