"""Requests whose agent has written something already, and those that end at a text: the same tokens as in one piece."""

import dataclasses

import letter_team
import numpy as np
import pytest

from jaxmarl_llm import sampling
from jaxmarl_llm.forest import LINE, Node, SpeakRequest
from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.rollout import requests
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.stops import Stops
from jaxmarl_llm.team import REMOTE, Member, Stack

TASK = letter_team.Task()
GREEDY = {"params": SamplingParams(24, temperature=0.0)}


@dataclasses.dataclass(frozen=True)
class Pieces:
    """Every agent writes on from its own text, up to ``until``, ``times`` times; the last piece is judged."""

    until: dict
    times: int

    def step(self, state):
        last = [turn for turn in state.turns if turn.step == state.turns[-1].step]
        if not last:
            return [
                SpeakRequest(agent, i, tuple(messages), 1, kind="remark", until=self.until[agent])
                for i, item in enumerate(state.items)
                for agent, messages in TASK.prompts(item).items()
            ]
        done = last[0].step + 1
        if done == self.times:
            return []
        kind = "answer" if done == self.times - 1 else "remark"
        return [
            dataclasses.replace(
                state.requests[turn.request], prefix=state.requests[turn.request].prefix + turn.text,
                parent=turn.id, kind=kind,
            )
            for turn in last
        ]  # fmt: skip

    def observe(self, state, turns):
        if turns[0].kind == "remark":
            return []
        by_item = {}
        for turn in turns:
            by_item.setdefault(turn.item, {})[turn.agent] = (turn.id,)
        return [Node(item, own) for item, own in by_item.items()]


def test_pieces_are_the_tokens_of_the_whole():
    whole, _ = letter_team.run(Simultaneous(TASK.prompts, 1), **GREEDY)
    texts = {(turn.agent, turn.item): turn for turn in whole.turns}
    until = {agent: texts[agent, 0].text[3] for agent in TASK.agents}
    pieces, asked = letter_team.run(Pieces(until, 6), **GREEDY)
    assert any(request.prefix for request in asked)
    joined, ends = {}, 0
    for turn in pieces.turns:
        joined.setdefault((turn.agent, turn.item), []).extend(turn.completion.tolist())
        ends += turn.text.endswith(until[turn.agent]) and len(turn.completion) < 24
        np.testing.assert_allclose(turn.logprobs, letter_team.logprobs(turn), atol=2e-5)
    assert ends > 2  # some pieces did end there
    for place, tokens in joined.items():
        ids = texts[place].completion.tolist()
        assert tokens[: len(ids)] == ids[: len(tokens)] and len(tokens) > 3


def test_a_piece_goes_on_from_the_tokens_that_were_drawn():
    forest, asked = letter_team.run(Pieces(dict.fromkeys(TASK.agents, "e"), 3))
    (end,) = letter_team.letters().eos_ids
    for turn in forest.turns:
        if turn.parent is not None:
            before = forest.turns[turn.parent]
            drawn = [i for i in before.completion.tolist() if i != end]
            assert turn.prompt.tolist() == [*before.prompt.tolist(), *drawn]


def test_a_prefix_of_somebody_else_is_read_as_text():
    tokens = letter_team.letters()
    request = SpeakRequest("a", 0, ({"role": "user", "content": "hi"},), 1, prefix="abc\n")
    ids = requests.encode_prompt(tokens, request, 100)
    plain = requests.encode_prompt(tokens, dataclasses.replace(request, prefix=""), 100)
    assert ids == [*plain, *tokens.encode("abc\n")] and tokens.show(ids).endswith("[assistant]abc\n")
    with pytest.raises(ValueError, match="the prompt of agent 'a' for item 0 has .* tokens, the limit is 5"):
        requests.encode_prompt(tokens, request, 5)


def test_one_program_for_each_end(monkeypatch):
    """Requests of one step with different ends are drawn apart; the same end later is the same program."""
    seen, generate = [], sampling.generate

    def watched(*inputs, **options):
        seen.append(options["params"])
        return generate(*inputs, **options)

    monkeypatch.setattr(sampling, "generate", watched)
    letter_team.run(Pieces({"a": LINE, "b": ""}, 3))
    assert len(seen) == 6 and len(set(seen)) == 2  # two kinds in each of three steps
    seen.clear()
    letter_team.run(Pieces({"a": "", "b": ""}, 2))
    assert len(set(seen)) == 1 and seen[0].until == ()


def test_ends_are_those_of_the_stack_and_of_the_request():
    tokens = letter_team.letters()
    stack = Stack(("a",), None, tokens.eos_ids, "frozen", stops=tokens.stop_texts(("be", "a")))
    params = SamplingParams(2, until=tokens.stop_texts(("a", "long")))
    stops = Stops.of_stack(stack, params)
    assert stops.ids == tokens.eos_ids and [text.text for text in stops.texts] == ["be", "a", "long"]


@pytest.mark.parametrize("field", ["prefix", "until"])
def test_not_behind_an_endpoint(field):
    request = SpeakRequest("a", 0, ({"role": "user", "content": "hi"},), 1, **{field: "x"})
    member = Member(Stack(("a",), None, (0,), REMOTE), None, None, letter_team.letters(), "expert:some")
    pending = [requests.PendingRequest(0, 0, request, [1])]
    with pytest.raises(ValueError, match="agent 'a' speaks through 'expert:some', which cannot go on from a prefix"):
        requests.ask(member, pending, letter_team.KEY, SamplingParams(4))


def test_an_answer_in_pieces_is_judged_whole():
    """The last piece is in the joint answer; what is judged, and read again later, is all that was written."""
    forest, _ = letter_team.run(Pieces(dict.fromkeys(TASK.agents, "e"), 4), **GREEDY)
    for j, joint in enumerate(forest.joints):
        whole = {}
        for agent, i in zip(TASK.agents, joint.turns, strict=True):
            turn, parts = forest.turns[i], []
            while turn is not None:
                parts.insert(0, turn.text)
                turn = None if turn.parent is None else forest.turns[turn.parent]
            assert len(parts) == 4 and forest.turns[i].prefix == "".join(parts[:-1])
            whole[agent] = "".join(parts)
        assert forest.texts_of(j) == whole
        assert joint.total == sum(map(len, whole.values()))  # what letter_team pays


def test_an_answer_that_begins_with_a_text_of_somebody_else_is_judged_with_it():
    class Begun(Pieces):
        def step(self, state):
            return [dataclasses.replace(request, prefix="abc\n", kind="answer") for request in super().step(state)]

    forest, _ = letter_team.run(Begun(dict.fromkeys(TASK.agents, "e"), 1), **GREEDY)
    for joint in forest.joints:
        assert joint.total == sum(4 + len(forest.turns[i].text) for i in joint.turns)
