"""The writing task: prompts, judgements in order, one agent alone, worked examples that keep the rules."""

import dataclasses
import re

import pytest

from jaxmarl_llm.config.team import WRITERS
from jaxmarl_llm.tasks import CustomRewardTask, Judgement
from jaxmarl_llm.tasks.writing import prompts as writing_prompts
from jaxmarl_llm.tasks.writing import reward as writing_reward
from jaxmarl_llm.tasks.writing.items import WritingItem, load_items
from jaxmarl_llm.tasks.writing.prompts import DELIMITER, KINDS
from jaxmarl_llm.tasks.writing.reward import bands
from jaxmarl_llm.tasks.writing.task import WritingTask, split

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


ALL = {"tldr": ("short", "long", "longer"), "arxiv": ("background", "method", "results")}
TEAMS = [(kind, names[:n]) for kind, names in ALL.items() for n in (2, 3)]


def without(text, kind, part, writers):
    """A question without the sentences about a part, so that what is left can be compared."""
    return text.replace(writing_prompts._request(kind, part, writers), "<request>")


@pytest.mark.parametrize("kind, agents", TEAMS)
def test_every_agent_of_every_method_reads_the_same(kind, agents):
    """All but the sentences about one's part and the worked answers is equal, also for who works alone."""
    team = WritingTask([POST], kind, agents).prompts(POST)
    assert tuple(team) == agents
    read = [(i, messages) for i, messages in enumerate(team.values())]
    read.append((None, writing_prompts.render(kind, POST, None, len(agents))))
    if len(agents) == 2:
        assert WritingTask([POST], kind, ("solo",)).prompts(POST) == {"solo": read[-1][1]}
    common = [
        [(m["role"], without(m["content"], kind, part, len(agents))) for m in own if m["role"] != "assistant"]
        for part, own in read
    ]
    assert all(own == common[0] for own in common)
    assert len(common[0]) == 2 + len(KINDS[kind].examples)
    assert "A kettle\nThe kettle hums {all} night.\n\n<request>" in common[0][-1][1]
    assert all("<request>" in text for role, text in common[0] if role == "user")
    last = {messages[-1]["content"] for messages in team.values()}
    assert len(last) == len(agents) and DELIMITER not in str(team)
    for agent, messages in team.items():  # nobody sees the others' answers
        others = [m for name in agents if name != agent for m in team[name]]
        assert not any(m["content"] in str(messages) for m in others if m["role"] == "assistant")


def test_what_two_agents_are_to_write():
    def requests(kind):
        return [m[-1]["content"].split("\n\n")[1] for m in WritingTask([POST], kind).prompts(POST).values()]

    assert requests("tldr") == [
        "Write a concise summary in one or two sentences.",
        "Write a detailed summary in four sentences, with many different words and some transition words.",
    ]
    assert requests("arxiv") == [
        "Write the background and motivation in 150 words, with transition words. "
        "Another writer adds the method and implications.",
        "Write the method and implications in 170 words, with transition words. "
        "Another writer adds the background and motivation.",
    ]


@pytest.mark.parametrize("writers", [2, 3, 5])
def test_published_prompts_of_posts_do_not_mention_the_others(writers):
    task = WritingTask([POST], agents=tuple("abcde"[:writers]), prompts="published")
    prompts = task.prompts(POST)
    assert [[m["role"] for m in messages] for messages in prompts.values()] == [["user"]] * writers
    texts = [messages[0]["content"] for messages in prompts.values()]
    assert len(set(texts)) == writers
    for text in texts:
        assert text.startswith("Post:\nA kettle\nThe kettle hums {all} night.\n\nWrite a ")
        assert not re.search("other|agent|writer|both|pair|longer|shorter|than", text)
        assert not any(example.text in text for example in KINDS["tldr"].examples)
    assert "detailed" not in texts[0] and all("detailed summary" in text for text in texts[1:])


@pytest.mark.parametrize("writers", [2, 3, 4, 5])
def test_published_prompts_of_abstracts_name_the_parts_of_the_others(writers):
    parts = writing_prompts.PARTS[writers]
    prompts = WritingTask([POST], "arxiv", tuple("abcde"[:writers]), prompts="published").prompts(POST)
    for i, (message,) in enumerate(prompts.values()):
        own, others = message["content"].split("Write the ")[1].split(" agent", 1)
        assert own.startswith(f"{parts[i]} of the introduction") and "Avoid " in others
        assert all((f"the {part}" in others) == (part != parts[i]) for part in parts)


def test_one_agent_alone_has_the_published_text_too():
    for kind in ALL:
        (message,) = WritingTask([POST], kind, ("solo",), prompts="published").prompts(POST)["solo"]
        assert "The kettle hums {all} night." in message["content"] and DELIMITER in message["content"]


def test_names_of_agents_are_free():
    prompts = WritingTask([POST], agents=("left", "right")).prompts(POST)
    assert list(prompts.values()) == list(WritingTask([POST]).prompts(POST).values())


@pytest.mark.parametrize("kind", ["tldr", "arxiv"])
@pytest.mark.parametrize("matching", ["paper", "corrected"])
def test_worked_examples_keep_every_rule(kind, matching):
    """What the agents are shown must be what is asked of them; five categories of transition words do."""
    for writers in (2, 3):
        task = WritingTask([POST], kind, tuple("abc"[:writers]), matching)
        for example in KINDS[kind].examples:
            answers = [writing_prompts.answer(example, i, writers) for i in range(writers)]
            texts = {agent: [text] for agent, text in zip(task.agents, answers, strict=True)}
            judgements = task.judge([POST], texts)
            if writers == 2:
                alone = {"solo": [writing_prompts.answer(example, None)]}
                judgements += WritingTask([POST], kind, ("solo",), matching).judge([POST], alone)
            for judgement in judgements:
                assert judgement.failures == ()
                assert judgement.parts["transitions"] >= 0.24 - 1e-9  # .4 (.4 + .05 * 4)
                assert judgement.parts == pytest.approx(
                    {**PARTS, "overlap": 0.6, "transitions": judgement.parts["transitions"]})


def test_three_texts_earn_the_mean_of_neighbours():
    longest = " ".join(f"{a}{b}" for a in "efgh" for b in "zyxwvqjk").ljust(160, ".")  # 32 words, all new
    task = WritingTask([POST], agents=("a", "b", "c"))
    good, gap, unlike = task.judge([POST] * 3, {
        "a": [SHORT, SHORT, SHORT], "b": [LONG + " hence aa", "no", LONG], "c": [longest, longest, LONG],
    })
    # Pairs by hand: SHORT and LONG with "hence": 2.76 (see above). LONG with "hence" has 18 words and 89
    # characters: ratio 160/89 is full, uniqueness (32/18 - 1.3)/.7 of .5; nothing shared, no transition word.
    assert good.total == pytest.approx((2.76 + 0.5 + 1.0 + 0.5 * (32 / 18 - 1.3) / 0.7) / 2)
    assert good.parts["transitions"] == pytest.approx(0.16 / 2) and good.failures == ()
    assert gap.total == 0.0 and len(gap.failures) == 2
    assert gap.failures[1] == "texts 2 and 3: length: 1 and 32 words, allowed 8 to 256"
    # The first pair is whole, the second ends at the ratio: its .5 for the length stays.
    assert unlike.total == pytest.approx((2.0 + 0.5) / 2)
    assert unlike.failures == ("texts 2 and 3: ratio: 1.00, allowed 1.1 to 5.0",)


def test_two_texts_earn_the_published_reward_to_the_last_digit():
    written = KINDS["arxiv"].examples[0].answers[2]
    for kind, texts in (("tldr", (SHORT, LONG + " hence aa")), ("arxiv", written)):
        parts, stops = writing_reward.mark_all(texts, bands(kind))
        assert (parts, stops) == (writing_reward.mark(*texts, bands(kind)).parts, ())


def test_the_most_writers_are_those_of_the_configs():
    assert WRITERS == writing_prompts.MOST
    assert set(writing_prompts.PARTS) == set(range(2, 1 + max(writing_prompts.MOST.values())))


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
    ([POST], {"prompts": "short"}, "prompts is 'short'; allowed: examples, published"),
    ([POST], {"matching": "exact"}, "matching is 'exact'; allowed: paper, corrected"),
    ([POST], {"agents": ()}, "agents is .*allowed with prompts='examples': 1 to 3 names"),
    ([POST], {"agents": ("a", "a")}, "agents is .*allowed with prompts='examples': 1 to 3 names"),
    ([POST], {"agents": ("a", "b", "c", "d")}, "agents is .*allowed with prompts='examples': 1 to 3 names"),
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
