"""Members that write one text: the tokens that one member would write alone, what each reads, what is counted."""

import math
import string
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import letter_team
import numpy as np
import pytest
import tiny
from tokenizers import Tokenizer as Raw
from tokenizers import decoders, models
from transformers import PreTrainedTokenizerFast

from jaxmarl_llm import team as team_lib
from jaxmarl_llm import update
from jaxmarl_llm.decoding import engine as engines
from jaxmarl_llm.decoding import values
from jaxmarl_llm.decoding.engine import MixedEngine, SwitchingEngine
from jaxmarl_llm.decoding.ledger import Ledger
from jaxmarl_llm.decoding.settings import ANSWER, LINE, TOKEN
from jaxmarl_llm.decoding.switching import Draft, Piece, of_rollouts, of_switcher, write
from jaxmarl_llm.decoding.writers import Prompts, Writers
from jaxmarl_llm.rollout.engines import LOCAL
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.mixtures import MeanLogits
from jaxmarl_llm.systems import critics
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tokenizer import Tokenizer
from jaxmarl_llm.weights import LoadedModel

KEY = jax.random.key(7)


class Task:
    """Two questions; an answer earns the number of its letters e."""

    agents = ("one",)
    items = tuple(SimpleNamespace(task_id=text, text=text) for text in ("what is it", "and that?"))

    def prompts(self, item):
        return {"one": [{"role": "user", "content": item.text}]}

    def judge(self, items, completions):
        self.judged = [item.task_id for item in items]
        return [Judgement({}, float(text.count("e"))) for text in completions["one"]]


SHORT = SamplingParams(6)


def setting(team=None, every=TOKEN, params=SHORT, candidates=1, horizon=0):
    team = team or letter_team.built()
    ledger, prompts = Ledger(team.agents), Prompts.of(Task(), team, 200)
    options = dict(every=every, candidates=candidates, horizon=horizon, ledger=ledger)
    return SimpleNamespace(team=team, ledger=ledger, prompts=prompts, write=Writers(team, prompts, params, **options),
                           params=params)  # fmt: skip


def drawn(s, value, samples=1, key=KEY, greedy=False, rows=(0, 1)):
    engine = SwitchingEngine(s.team, s.prompts, s.write, value, 0.0, s.ledger)
    return _draw(engine, s, samples, key, greedy, rows)


def _draw(engine, s, samples, key, greedy, rows=(0, 1), agent="a"):
    (speaker,), (trainable,) = (lambda t, p: (t.members, p))(*engines.speaker(s.team[agent], agent, "one"))
    prompts = {"one": [list(s.prompts.tokens_JB[0][b]) for b in rows]}
    published = engine.publish(0, speaker, trainable)
    options = dict(greedy={"one": [greedy] * len(rows)}, sizes=(2, 2))
    return engine.draw(published, prompts, key, samples, s.params, **options).samples


def texts(samples):
    return [row[:n].tolist() for row, n in zip(samples.tokens_NRL[0], samples.lengths_NR[0], strict=True)]


def prefer(member):
    return lambda drafts: [float(draft.pieces[-1].member == member) for draft in drafts]


@pytest.mark.parametrize("member, agent", [(0, "a"), (1, "b")])
def test_tokens_of_one_member_only_are_its_greedy_text(member, agent):
    s = setting(params=SamplingParams(9))
    own = drawn(s, prefer(member))
    greedily = setting(params=SamplingParams(9, temperature=0))
    alone = _draw(LOCAL, greedily, 1, KEY, False, agent=agent)
    assert texts(own) == texts(alone) and own.finished_NR.tolist() == alone.finished_NR.tolist()
    steps = sum(map(len, texts(own)))
    assert sum(s.ledger.by_member) == steps and s.ledger.answers == 2
    assert (s.ledger.passes, s.ledger.drawn, s.ledger.judged) == (2 * steps, 0, 0)  # both members read each token


@pytest.mark.slow
@pytest.mark.parametrize("every", [LINE, ANSWER])
def test_lines_of_one_member_are_its_text_in_pieces(every):
    s = setting(every=every, params=SamplingParams(24, temperature=0))
    own = drawn(s, prefer(1))
    assert texts(own) == texts(_draw(LOCAL, s, 1, KEY, False, agent="b"))
    s.write.begin((0, 1), (), KEY)
    pieces = [c.piece for row in s.write.propose([Draft(0), Draft(1)]) for c in row]
    ends = [letter_team.letters().decode(p.ids).endswith("\n") for p in pieces]
    assert [not p.last for p in pieces] == ends if every == LINE else all(p.last for p in pieces)


def test_rollouts_go_on_from_the_tokens_and_are_judged_with_their_problem():
    s = setting(horizon=3)
    task, judged = Task(), []
    judge = values.Judge(task, s.write, s.ledger)
    start = Draft(0).with_piece(Piece(1, (5,)))

    def watched(drafts):
        judged.extend(drafts)
        return judge(drafts)

    s.write.begin((1, 0), (), KEY)
    value = of_rollouts(s.write.go_on, watched, 2)
    (mean, ended) = value([start, Draft(1, (Piece(0, (4, 4, 0), last=True),))])
    assert task.judged == ["and that?", "and that?", "what is it"] and s.ledger.judged == 3
    counts = [letter_team.letters().decode([i for p in d.pieces for i in p.ids]).count("e") for d in judged]
    assert mean == sum(counts[:2]) / 2 and ended == counts[2]
    assert all(d.pieces[0] == start.pieces[0] and 1 <= len(d.pieces[1].ids) <= 3 for d in judged[:2])
    assert s.ledger.drawn == sum(len(d.pieces[1].ids) for d in judged[:2])


@pytest.mark.slow
def test_a_repetition_gives_the_same_and_another_key_does_not():
    def text(key):
        s = setting(candidates=2)
        judge = values.Judge(Task(), s.write, s.ledger)
        return texts(drawn(s, of_rollouts(s.write.go_on, judge, 1), 2, key)), s.ledger.describe()

    first = text(KEY)
    assert first == text(KEY)
    assert first[0] != text(jax.random.key(8))[0]
    assert first[1]["judged_per_token"] > 1  # a roll-out of each of several candidates at each token


@pytest.mark.slow
def test_rollouts_by_the_switcher():
    """What the judge counts most is written more often than where each member goes on alone, or as often."""
    earned = []
    for best in (False, True):
        s = setting(candidates=2, params=SamplingParams(4))
        judge = values.Judge(Task(), s.write, s.ledger)
        value = of_rollouts(s.write.go_on, judge, 1)
        value = of_switcher(s.write.propose, value, 0.0, judge, 1) if best else value
        earned.append(sum(judge(write(s.write.begin((0, 1) * 3, (), KEY), s.write.propose, value))))
    assert earned[1] >= earned[0] > 0


def test_copies_of_a_prompt_are_answered_once():
    s = setting()
    own = texts(drawn(s, prefer(0), rows=(0, 1, 0)))
    assert own[2] == own[0] != own[1] and s.ledger.answers == 2


@pytest.mark.slow
def test_equal_members_of_a_mixture_answer_as_one_does():
    s = setting()
    member = s.team.members[0]
    member = team_lib.Member(member.stack, member.base, jax.tree.map(lambda x: jnp.stack([x[1]] * 2), member.trainable),
                             member.tokenizer, "tiny")  # fmt: skip
    engine = MixedEngine(member, MeanLogits((0.5, 0.5)), s.ledger)
    both, one = _draw(engine, s, 3, KEY, True), _draw(LOCAL, s, 3, KEY, True, agent="b")
    assert texts(both) == texts(one)
    tokens = sum(map(len, texts(one)))
    assert s.ledger.describe() == {
        "answers": 6, "tokens": tokens / 6, "shares": {"a": 1.0, "b": 0.0}, "switches": 0.0, "drawn_tokens": tokens / 6,
        "forward_passes": 2 * tokens / 6, "judged": 0.0, "judged_per_token": 0.0,
    }  # fmt: skip


def other_letters() -> Tokenizer:
    """The tokens of `letter_team.letters` with other ids, and without pairs."""
    vocab = {token: i for i, token in enumerate(["<end>", *reversed([*string.ascii_lowercase, *" []?!:\n"])])}
    raw = Raw(models.BPE(vocab, []))
    raw.decoder = decoders.Fuse()
    hf = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", chat_template=letter_team.TEMPLATE)
    return Tokenizer(hf, (0,))


def unlike() -> team_lib.Team:
    """Two members whose models have vocabularies of their own."""
    two = {"one": LoadedModel(tiny.POLICY, tiny.params(), letter_team.letters()),
           "two": LoadedModel(tiny.POLICY, tiny.params(1), other_letters())}  # fmt: skip
    return team_lib.build(two, {"a": "one", "b": "two"}, KEY, rank=2)


@pytest.mark.slow
def test_members_of_different_vocabularies_meet_at_line_ends():
    s = setting(unlike(), every=LINE, params=SamplingParams(40))
    turns = lambda drafts: [float(d.pieces[-1].member == len(d.pieces) % 2) for d in drafts]  # noqa: E731
    drafts = write(s.write.begin((0, 1) * 4, (), KEY), s.write.propose, turns)
    first, second = letter_team.letters(), other_letters()
    assert any(len(draft.pieces) > 1 for draft in drafts)
    for draft in drafts:
        own = [(first, second)[p.member].decode(p.ids) for p in draft.pieces]
        assert s.write.text(draft) == "".join(own) and all(text.endswith("\n") for text in own[:-1])
        for member, tokenizer in enumerate((first, second)):
            prompt = tokenizer.encode_chat(Task().prompts(s.write.items([draft])[0])["one"])
            read = [list(p.ids) if p.member == member else tokenizer.encode(text)
                    for p, text in zip(draft.pieces, own, strict=True)]  # fmt: skip
            assert s.write.tokens(draft, member) == [*prompt, *(i for ids in read for i in ids)]
    samples = drawn(s, turns, 4)
    drafts = write(s.write.begin((0, 0, 0, 0, 1, 1, 1, 1), (), KEY), s.write.propose, turns)
    assert [first.decode(ids) for ids in texts(samples)] == [s.write.text(draft) for draft in drafts]


@pytest.mark.slow
@pytest.mark.parametrize("line, long", [("babebiboba\n", 11), ("babebibobab\n", 12), ("babebibobabebibo\n", 17)])
def test_a_text_that_is_full_in_a_members_tokens_gets_none_of_them(line, long):
    """The second member has no pairs: the same line takes it more tokens, in the end more than there may be."""
    s = setting(unlike(), every=LINE, params=SamplingParams(12), candidates=4)
    ids = tuple(letter_team.letters().encode(line))
    s.write.begin((0,), (), KEY)
    draft = Draft(0).with_piece(Piece(0, ids))
    assert len(ids) < 12 and len(s.write.written(draft, 1)) == long
    (proposed,) = s.write.propose([draft])
    for piece in [c.piece for c in proposed]:
        read = len(ids) if piece.member == 0 else long
        assert len(piece.ids) <= max(0, 12 - read)
        if piece.member == 1 and long >= 12:
            assert piece.last and piece.cut and s.write.text(draft.with_piece(piece)) == line


def test_confidence_is_per_byte():
    s = setting()
    ids = tuple(letter_team.letters().encode("abc"))
    s.write.begin((0,), (), KEY)
    assert values.confidence(s.write)([Draft(0, (Piece(0, ids, -6.0),))]) == [-2.0]
    assert values.confidence(s.write)([Draft(0, (Piece(0, (0,), -6.0, True),))]) == [-6.0]  # nothing but the end


@pytest.mark.slow
def test_a_head_learns_what_each_member_earns():
    """Of two members one earns 1 and one 0, whatever they write: so say their values after a few updates."""
    s = setting()
    own = critics.build(s.team, KEY, joint=False, rank=2)
    models = critics.Critics(own, update.make_optimizer(lr=3e-2, steps=40), by_token=True)
    s.write.begin((0, 1), (), KEY)
    judge = lambda drafts: [float(d.pieces[0].member) for d in drafts]  # noqa: E731
    sizes, shown = dict(samples=4, updates=40, batch=4, random=np.random.default_rng(0)), []
    numbers = values.fit(models, s.write, judge, s.team.agents, **sizes, progress=lambda *done: shown.append(done))
    assert shown == [(done, 40) for done in range(1, 41)]
    head = values.Head(models, s.write, s.team.agents, s.ledger)
    starts = [Draft(row).with_piece(Piece(member, (9,))) for row in (0, 1) for member in (0, 1)]
    np.testing.assert_allclose(head(starts), [0, 1, 0, 1], atol=0.15)
    assert head(starts[1:2]) == pytest.approx(head(starts)[1:2], abs=1e-5)  # whatever else is read beside it
    assert numbers["answers"] == 16 and numbers["a/critic_loss"] < 0.05


def test_rewards_that_do_not_apply_and_tasks_of_several():
    s = setting()
    task = Task()
    task.judge = lambda items, completions: [Judgement({}, None) for _ in items]
    (draft,) = s.write.begin((0,), (), KEY)
    assert math.isnan(values.Judge(task, s.write, s.ledger)([draft.with_piece(Piece(0, (4,)))])[0])
    task.agents = ("one", "two")
    with pytest.raises(ValueError, match="are judged where one agent answers once"):
        values.Judge(task, s.write, s.ledger)


def test_a_prompt_that_is_no_problems_own():
    s = setting()
    engine = SwitchingEngine(s.team, s.prompts, s.write, prefer(0), 0.0, s.ledger)
    (speaker,), (trainable,) = (lambda t, p: (t.members, p))(*engines.speaker(s.team["a"], "a", "one"))
    with pytest.raises(ValueError, match="a prompt of 3 tokens is not that of a problem"):
        published = engine.publish(0, speaker, trainable)
        engine.draw(published, {"one": [[1, 2, 3]]}, KEY, 1, s.params, greedy={"one": [False]})
