"""The writing task: prompts, judgements in order, one agent alone, worked examples that keep the rules."""

import dataclasses

import pytest

from jaxmarl_llm.tasks import CustomRewardTask, Judgement, writing_prompts
from jaxmarl_llm.tasks.writing import WritingTask, split
from jaxmarl_llm.tasks.writing_items import WritingItem, load_items
from jaxmarl_llm.tasks.writing_prompts import DELIMITER, KINDS
from jaxmarl_llm.tasks.writing_reward import bands

POST = WritingItem("p/1", "The kettle hums {all} night.", "A kettle")
OTHER = WritingItem("p/2", "Our boat leaks.")
# 8 different words and 16, 40 characters and 80, no transition words, no word in both.
SHORT = "aa bb cc dd ee ff gg hh".ljust(40, ".")
LONG = "ii jj kk ll mm nn oo pp qq rr ss tt uu vv ww xx".ljust(80, ".")
PARTS = {"length": 0.5, "ratio": 1.0, "uniqueness": 0.5, "transitions": 0.0, "overlap": 0.0}


def test_one_batch_in_order():
    task = WritingTask([POST, OTHER])
    judgements = task.judge([POST, POST, OTHER, OTHER], {
        "short": [SHORT, "too short", SHORT, SHORT],
        "long": [LONG, LONG, LONG + " hence aa", SHORT],
    })
    # .5 + 1 + .5; nothing; "hence" (.16) and 1 shared word of 8 + 18 - 1 = .04, above the cap (.6);
    # as long as the first: ratio 1, below 1.1
    assert [j.total for j in judgements] == pytest.approx([2.0, 0.0, 2.76, 0.5])
    assert judgements[0] == Judgement(parts=PARTS, total=2.0, verdict="judged")
    assert judgements[1].failures == ("length: 2 and 16 words, allowed 8 to 256",)
    assert judgements[3].failures == ("ratio: 1.00, allowed 1.1 to 5.0",)
    assert all(tuple(j.parts) == task.part_names and sum(j.parts.values()) == j.total for j in judgements)


def test_score_is_parts_with_total_and_normalise_is_percent():
    task = WritingTask([POST])
    (scores,) = task.score([POST], {"short": [SHORT], "long": [LONG]})
    assert scores == {**PARTS, "total": 2.0}
    assert task.normalise(scores) == pytest.approx(
        {"structure": 100.0, "style": 0.0, "coherence": 0.0, "return": 200 / 3})
    assert task.reward_range == (0.0, 3.0)


def test_each_text_as_it_was_written():
    """Space around the texts of a team counts as characters, as in the original."""
    (scores,) = WritingTask([POST]).score([POST], {"short": [SHORT], "long": [LONG.rstrip(".").ljust(200)]})
    assert scores["ratio"] == pytest.approx(0.0)  # 200/40, the upper end


def test_kind_matching_and_bands_reach_the_reward():
    texts = {"a": [SHORT], "b": [LONG + " last"]}
    assert WritingTask([POST], agents=("a", "b")).judge([POST], texts)[0].total == pytest.approx(2.16)
    corrected = WritingTask([POST], agents=("a", "b"), matching="corrected")
    assert corrected.judge([POST], texts)[0].total == pytest.approx(2.0)
    own = dataclasses.replace(bands("tldr"), words=(9, 256))
    assert WritingTask([POST], agents=("a", "b"), bands=own).judge([POST], texts)[0].total == 0.0
    (judgement,) = WritingTask([POST], "arxiv").judge([POST], {"background": [SHORT], "method": [LONG]})
    assert judgement.failures == ("length: 8 and 16 words, allowed 128 to 256",)
    # 130 words of 389 characters each, twice: full in 'arxiv', (1 - .8)/(1.3 - .8) in 'arxiv_later'.
    words = " ".join(f"{a}{b}" for a in "bcdfghjklm" for b in "bcdfghjklmnpq")
    texts = {"background": [words], "method": [words]}
    for name, earned in (("arxiv", 1.0), ("arxiv_later", 0.4)):
        (scores,) = WritingTask([POST], "arxiv", bands=bands(name)).score([POST], texts)
        assert scores == pytest.approx({**PARTS, "ratio": earned, "overlap": 0.6, "total": 1.6 + earned})


@pytest.mark.parametrize("kind, agents", [("tldr", ("short", "long")), ("arxiv", ("background", "method"))])
def test_prompts_of_a_team(kind, agents):
    task = WritingTask([POST], kind)
    prompts = task.prompts(POST)
    assert task.agents == tuple(prompts) == agents
    for messages in prompts.values():
        examples = KINDS[kind].examples
        assert [m["role"] for m in messages] == ["system", *["user", "assistant"] * len(examples), "user"]
        assert "A kettle\nThe kettle hums {all} night." in messages[-1]["content"]
        assert DELIMITER not in str(messages)
    assert len({messages[-1]["content"] for messages in prompts.values()}) == 2  # each has its own request
    for agent, other in zip(agents, reversed(agents), strict=True):  # nobody sees the other's examples
        answers = [m["content"] for m in prompts[other] if m["role"] == "assistant"]
        assert not any(answer in str(prompts[agent]) for answer in answers)
    last = {agent: messages[-1]["content"] for agent, messages in prompts.items()}
    if kind == "arxiv":  # each is told that another writes the other part
        assert "Another writer adds the method and implications." in last["background"]
        assert "Another writer adds the background and motivation." in last["method"]
    else:
        assert "concise" in last["short"] and "detailed" in last["long"] and "other" not in last["short"]


def test_prompts_share_all_but_the_last_message():
    for kind, agents in (("tldr", None), ("arxiv", None), ("tldr", ("solo",)), ("arxiv", ("solo",))):
        task = WritingTask([POST, OTHER], kind, agents)
        one, two = task.prompts(POST), task.prompts(OTHER)
        assert all(one[agent][:-1] == two[agent][:-1] != [] for agent in task.agents)
        assert all("Our boat leaks." in two[agent][-1]["content"] for agent in task.agents)


def test_names_of_agents_are_free():
    prompts = WritingTask([POST], agents=("left", "right")).prompts(POST)
    assert list(prompts.values()) == list(WritingTask([POST]).prompts(POST).values())


@pytest.mark.parametrize("kind", ["tldr", "arxiv"])
@pytest.mark.parametrize("matching", ["paper", "corrected"])
def test_worked_examples_keep_every_rule(kind, matching):
    """What the agents are shown must be what is asked of them; five categories of transition words do."""
    for agents in (("first", "second"), ("alone",)):
        task = WritingTask([POST], kind, agents, matching)
        for example in KINDS[kind].examples:
            texts = {agent: [writing_prompts.answer(example, agent)] for agent in agents}
            (judgement,) = task.judge([POST], texts)
            assert judgement.failures == ()
            assert judgement.parts["transitions"] >= 0.24 - 1e-9  # .4 (.4 + .05 * 4)
            assert judgement.parts == pytest.approx(
                {**PARTS, "overlap": 0.6, "transitions": judgement.parts["transitions"]})


def test_worked_examples_are_in_no_data_set():
    texts = {item.text for name in ("sample_posts", "sample_abstracts") for item in load_items(name)}
    assert not texts & {example.text for kind in KINDS.values() for example in kind.examples}


@pytest.mark.parametrize("text, expected", [
    (f" one two {DELIMITER}\nthree ", ("one two", "three")),
    (f"one{DELIMITER}two{DELIMITER}three", ("one", f"two{DELIMITER}three")),
    ("one two three", ("one two three", "")),
    (f"{DELIMITER} two", ("", "two")),
    ("one [paragraph_split] two", ("one [paragraph_split] two", "")),
    ("", ("", "")),
])
def test_the_texts_of_one_agent(text, expected):
    assert split(text) == expected


def test_one_agent_alone():
    task = WritingTask([POST], agents=("solo",))
    (messages,) = task.prompts(POST).values()
    assert DELIMITER in messages[-1]["content"] and DELIMITER in messages[2]["content"]
    answers = [f"{SHORT}\n{DELIMITER}\n{LONG}", f"{SHORT}\n\n{LONG}", f"{SHORT}\nParagraph 2: {LONG}"]
    judgements = task.judge([POST] * 3, {"solo": answers})
    # Without the delimiter nothing is guessed: the second text is empty.
    assert [j.total for j in judgements] == pytest.approx([2.0, 0.0, 0.0])
    assert judgements[1].failures == ("length: 24 and 0 words, allowed 8 to 256",)


def test_a_reward_of_ones_own():
    def reward(completions, text, title, **columns):
        return [float(len(t) + len(name)) for t, name in zip(text, title, strict=True)]

    task = CustomRewardTask(WritingTask([POST, OTHER]), reward)
    judgements = task.judge([OTHER, POST], {"short": ["", ""], "long": ["", ""]})
    assert [j.total for j in judgements] == [15.0, 36.0]  # 15 + 0, 28 + 8


@pytest.mark.parametrize("items, kwargs, message", [
    ([], {}, "items is empty; a writing task needs at least one text"),
    ([POST], {"kind": "poem"}, "kind is 'poem'; allowed: tldr, arxiv"),
    ([POST], {"matching": "exact"}, "matching is 'exact'; allowed: paper, corrected"),
    ([POST], {"agents": ()}, "agents is .*allowed: one name, or two"),
    ([POST], {"agents": ("a", "a")}, "agents is .*allowed: one name, or two"),
    ([POST], {"agents": ("a", "b", "c")}, "agents is .*allowed: one name, or two"),
])
def test_bad_arguments(items, kwargs, message):
    with pytest.raises(ValueError, match=message):
        WritingTask(items, **kwargs)


@pytest.mark.parametrize("completions, message", [
    ({"short": [SHORT]}, r"agents \['short'\], expected \['long', 'short'\]"),
    ({"short": [SHORT, SHORT], "long": [LONG]}, "agent 'short' gave 2 completions for 1 items"),
])
def test_bad_completions(completions, message):
    with pytest.raises(ValueError, match=message):
        WritingTask([POST]).judge([POST], completions)
