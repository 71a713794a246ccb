"""Every level and every boundary of the writing reward, with values worked out by hand."""

import itertools
import math

import pytest

from jaxmarl_llm.tasks.writing.reward import Bands, bands, categories, mark, normalise, score
from jaxmarl_llm.tasks.writing.words import STOP_WORDS, TRANSITIONS

# One entry of each category that is part of no other category's, not even as a part of a word.
ONE_OF_EACH = {
    "elaboration": "moreover", "examples": "namely", "explanation": "that is", "cause_effect": "hence",
    "contrast": "but", "sequence": "next", "emphasis": "surely", "summary": "overall",
    "comparison": "much like", "concession": "though", "condition": "unless", "time": "until",
}


def text(words, different=None, chars=None, letter="w", start=0):
    """`words` words of four characters without transition words, `different` of them different, made `chars`
    characters long with full stops at the end."""
    names = [f"{letter}{k:03d}" for k in range(start, start + (different or words))]
    joined = " ".join(itertools.islice(itertools.cycle(names), words))
    return joined.ljust(chars or 0, ".")


def test_the_texts_of_these_tests_are_what_they_say():
    example = text(5, 3, 30)
    assert example == "w000 w001 w002 w000 w001......" and len(example) == 30 and len(example.split()) == 5
    assert categories(text(256)) == set()


def parts(first, second, name, **kwargs):
    """Parts in their order, checked against the total."""
    scores = score(first, second, bands(name), **kwargs)
    total = scores.pop("total")
    assert list(scores) == ["length", "ratio", "uniqueness", "transitions", "overlap"]
    assert total == sum(scores.values())
    return tuple(scores.values())


def same(values):
    return pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize("name, least, most", [
    ("tldr", 8, 256), ("arxiv", 128, 256), ("arxiv_later", 128, 256),
])
def test_length(name, least, most):
    for words, earned in ((least - 1, 0), (least, 0.5), (most, 0.5), (most + 1, 0)):
        inside = (least + most) // 2
        assert parts(text(words), text(inside), name)[0] == earned
        assert parts(text(inside), text(words), name)[0] == earned
        if not earned:
            assert sum(parts(text(inside), text(words), name)) == 0  # nothing after it counts
    for empty in ("", " \n\t "):
        assert sum(parts(empty, text(least), name)) == sum(parts(text(least), empty, name)) == 0


def test_words_are_split_at_any_white_space():
    assert parts("a\nb\tc  d e f g h", text(8), "tldr")[0] == 0.5  # eight


# Characters of the second text per 1000 of the first -> ratio part; None: the count stops before uniqueness.
RATIOS = {
    "tldr": {  # up from 1.1 to 1.6, down from 3.2 to 5
        1099: None, 1100: 0.0, 1350: 0.5, 1599: 0.998,  # .499/.5
        1600: 1.0, 2500: 1.0, 3200: 1.0,
        3209: 0.995, 4100: 0.5, 5000: 0.0, 5001: None,  # 1 - .009/1.8
    },
    "arxiv": {  # up from .8 to 1, down from 1.3 to 1.5
        799: None, 800: 0.0, 900: 0.5, 999: 0.995,  # .199/.2
        1000: 1.0, 1150: 1.0, 1300: 1.0,
        1301: 0.995, 1400: 0.5, 1500: 0.0, 1501: None,
    },
    "arxiv_later": {  # up from .8 to 1.3, down from 1.6 to 2
        799: None, 800: 0.0, 1050: 0.5, 1299: 0.998,  # .499/.5
        1300: 1.0, 1450: 1.0, 1600: 1.0,
        1601: 0.9975, 1800: 0.5, 2000: 0.0, 2001: None,  # 1 - .001/.4
    },
}


@pytest.mark.parametrize("name, chars, earned",
                         [(name, *row) for name, rows in RATIOS.items() for row in rows.items()])
def test_ratio(name, chars, earned):
    # Of 130 words each 65 and 130 are different: u = 2 is full in 'tldr'; the others need u = 1.
    first = text(130, 65 if name == "tldr" else 130, 1000)
    actual = parts(first, text(130, 130, chars, letter="v"), name)
    if earned is None:
        assert actual == (0.5, 0.0, 0.0, 0.0, 0.0)
    else:
        assert actual == same((0.5, earned, 0.5, 0.0, 0.0))  # at an end, too, the count goes on


# Different words of the second text per 100 of the first -> uniqueness part; None: the count stops there.
UNIQUENESS = {
    "tldr": {  # up from 1.3 to 2, no upper end
        129: None, 130: 0.0, 165: 0.25, 199: 0.345 / 0.7,  # .5 * .69/.7
        200: 0.5, 250: 0.5,
    },
    "arxiv": {  # up from .5 to .7, down from 1.3 to 1.7
        49: None, 50: 0.0, 60: 0.25, 69: 0.475,  # .5 * .19/.2
        70: 0.5, 100: 0.5, 130: 0.5,
        131: 0.4875, 150: 0.25, 170: 0.0, 171: None,  # .5 (1 - .01/.4)
    },
}
UNIQUENESS["arxiv_later"] = UNIQUENESS["arxiv"]


@pytest.mark.parametrize("name, different, earned",
                         [(name, *row) for name, rows in UNIQUENESS.items() for row in rows.items()])
def test_uniqueness(name, different, earned):
    # Ratio 2.5 or 1.3, on the plateau of both arXiv bands. The second text's "hence" is among its words.
    chars = 2500 if name == "tldr" else 1300
    second = "hence " + text(max(different, 140) - 1, different - 1, chars - 6, letter="v")
    actual = parts(text(140, 100, 1000), second, name)
    if earned is None:
        assert actual == (0.5, 1.0, 0.0, 0.0, 0.0)
    else:
        assert actual == same((0.5, 1.0, earned, 0.16, 0.0))  # .4 * .4 for one category


def test_uniqueness_counts_stop_words_and_case_does_not():
    # 8 words in the first; the second has 16, all stop words, in capitals: u = 2.
    first = "a an the of to in on at".ljust(100, ".")
    second = "A AN THE OF TO IN ON AT HE HIM HER ME MY WE YOU THEY".ljust(200, ".")
    assert parts(first, second, "tldr") == same((0.5, 1.0, 0.5, 0.0, 0.6))  # no content words: J is 1
    repeated = "a an the of to in on at A AN THE OF TO IN ON AT".ljust(200, ".")
    assert parts(first, repeated, "tldr") == (0.5, 1.0, 0.0, 0.0, 0.0)  # u = 1, below 1.3


def test_a_text_of_punctuation_has_no_words_to_compare():
    dots = " ".join(["..."] * 130)  # 519 characters
    for name in ("tldr", "arxiv", "arxiv_later"):
        chars = 1038 if name == "tldr" else 675  # ratios 2 and 1.3006
        actual = parts(dots, text(130, chars=chars), name)
        assert actual[0] == 0.5 and actual[1] > 0.9 and actual[2:] == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("name, first, second, start, earned", [
    # The texts share words start.. of the first. TLDR, cap .03:
    ("tldr", 20, 40, 20, 0.0),
    ("tldr", 20, 40, 19, 0.6 * (1 / 59) / 0.03),  # 1 shared of 20 + 40 - 1
    ("tldr", 20, 40, 18, 0.6),  # 2/58 = .0345
    ("tldr", 20, 83, 17, 0.6),  # 3/100, the cap
    # arXiv, cap .23:
    ("arxiv", 200, 200, 200, 0.0),
    ("arxiv", 200, 200, 177, 0.6 * (23 / 377) / 0.23),  # 23 shared of 400 - 23
    ("arxiv", 200, 200, 160, 0.6 * (1 / 9) / 0.23),  # 40/360
    ("arxiv", 150, 150, 90, 0.6),  # 60/240 = .25
    ("arxiv_later", 200, 200, 160, 0.6 * (1 / 9) / 0.23),
    ("arxiv_later", 150, 150, 90, 0.6),
])
def test_overlap(name, first, second, start, earned):
    ratio = {"tldr": 2.5, "arxiv": 1.2, "arxiv_later": 1.5}[name]
    texts = text(first, chars=1000), text(second, chars=round(1000 * ratio), start=start)
    assert parts(*texts, name) == same((0.5, 1.0, 0.5, 0.0, earned))


def test_overlap_exactly_at_the_cap_of_arxiv():
    # 123 different words each, 46 of them shared: 46/200.
    first, second = text(130, 123, 1000), text(130, 123, 1200, start=77)
    assert parts(first, second, "arxiv") == same((0.5, 1.0, 0.5, 0.0, 0.6))
    # One shared word less: 45/201.
    second = text(130, 123, 1200, start=78)
    assert parts(first, second, "arxiv")[4] == same(0.6 * (45 / 201) / 0.23)


def test_stop_words_do_not_overlap():
    first = "the of to in on at w000 w001".ljust(100, ".")
    second = "the of to in on at " + text(10, letter="v", chars=181)  # 16 words: u = 2
    assert parts(first, second, "tldr") == same((0.5, 1.0, 0.5, 0.0, 0.0))


def test_sizes_of_the_word_lists():
    """Counted in the original, not here."""
    sizes = {"elaboration": 21, "examples": 22, "explanation": 22, "cause_effect": 26, "contrast": 29,
             "sequence": 33, "emphasis": 24, "summary": 21, "comparison": 17, "concession": 19,
             "condition": 19, "time": 26}
    assert {name: len(set(phrases)) for name, phrases in TRANSITIONS.items()} == sizes
    assert sum(sizes.values()) == 279 and len(STOP_WORDS) == 106
    phrases = [phrase for group in TRANSITIONS.values() for phrase in group]
    assert all(phrase and phrase == " ".join(phrase.lower().split()) for phrase in [*phrases, *STOP_WORDS])


@pytest.mark.parametrize("matching", ["paper", "corrected"])
def test_every_entry_is_found_in_its_category(matching):
    for category, phrase in ONE_OF_EACH.items():
        assert categories(f"x {phrase.upper()}, y", matching) == {category}
    for category, phrases in TRANSITIONS.items():
        for phrase in phrases:
            assert category in categories(f"({phrase})", matching)
    assert categories("", matching) == set()


@pytest.mark.parametrize("sentence, actual", [
    ("last", {"time"}),  # as
    ("wife", {"condition"}),  # if
    ("person", {"cause_effect"}),  # so
    ("attribute", {"contrast"}),  # but
    ("shadow", {"condition"}),  # had
    ("Both sat at last on a different bench.", {"time", "condition"}),  # nobody wrote a connective
    ("to clarify", {"explanation", "condition"}),
    ("strengthen", {"cause_effect", "sequence"}),  # then
])
def test_parts_of_words_count_in_the_papers_matching_only(sentence, actual):
    assert categories(sentence) == actual
    assert categories(sentence, "corrected") == ({"explanation"} if sentence == "to clarify" else set())


@pytest.mark.parametrize("matching", ["paper", "corrected"])
@pytest.mark.parametrize("count, earned", [
    (0, 0.0), (1, 0.16), (2, 0.18), (3, 0.20), (7, 0.28), (11, 0.36), (12, 0.38),  # .4 (.4 + .05 (c - 1))
])
def test_transitions(count, earned, matching):
    phrases = " ".join(list(ONE_OF_EACH.values())[:count])
    padding = text(60, letter="v")
    actual = parts(text(20, chars=300), f"{phrases} {padding}".ljust(600, "."), "tldr", matching=matching)
    assert actual == same((0.5, 1.0, 0.5, earned, 0.0))


def test_where_transition_words_are_looked_for():
    hence, until = "hence " + text(140, chars=994), text(140, chars=1194, letter="v") + " until"
    assert parts(hence, until, "arxiv")[3] == same(0.18)  # in both texts
    assert parts(hence, text(140, chars=1200, letter="v"), "arxiv")[3] == same(0.16)
    short, long = "hence " + text(20, chars=294), "until " + text(60, chars=594, letter="v")
    assert parts(short, long, "tldr")[3] == same(0.16)  # in the second only


def test_the_original_joins_the_texts_without_a_space():
    first, second = text(140, chars=999) + "a", "s" + text(140, chars=1199, letter="v")
    assert parts(first, second, "arxiv")[3] == same(0.16)  # "…a" and "s…" make "as"
    assert parts(first, second, "arxiv", matching="corrected")[3] == 0.0


@pytest.mark.parametrize("matching", ["paper", "corrected"])
def test_nobody_earns_more_than_2_98(matching):
    all_twelve = " ".join(ONE_OF_EACH.values())
    # 4 words are shared, of 20 and of 60 + 10 (the phrases, without stop words): J = 4/86, above .03.
    short, long = text(20, chars=300), f"{all_twelve} {text(60, start=16)}".ljust(600, ".")
    assert score(short, long, bands("tldr"), matching)["total"] == same(2.98)
    shared = text(140)
    for name, chars in (("arxiv", 1150), ("arxiv_later", 1450)):
        second = f"{all_twelve} {shared}".ljust(chars, ".")
        assert score(shared.ljust(1000, "."), second, bands(name), matching)["total"] == same(2.98)


def test_where_the_count_ended():
    tldr = bands("tldr")
    assert mark(text(7), text(300), tldr).stop == "length: 7 and 300 words, allowed 8 to 256"
    assert mark(text(8, chars=100), text(8, chars=550), tldr).stop == "ratio: 5.50, allowed 1.1 to 5.0"
    assert mark(text(8, chars=100), text(8, chars=200), tldr).stop == "uniqueness: 1.00, allowed 1.3 to inf"
    assert mark(text(8, chars=100), text(16, chars=200), tldr).stop == ""


def test_normalise():
    halves = {"length": 0.5, "ratio": 1.0, "uniqueness": 0.25, "transitions": 0.2, "overlap": 0.3}
    # 1.75/2, .3/.6, .2/.4, 2.25/3
    assert normalise({**halves, "total": 2.25}) == same(
        {"structure": 87.5, "style": 50.0, "coherence": 50.0, "return": 75.0})
    most = {"length": 0.5, "ratio": 1.0, "uniqueness": 0.5, "transitions": 0.38, "overlap": 0.6}
    assert normalise({**most, "total": 2.98}) == same(
        {"structure": 100.0, "style": 100.0, "coherence": 95.0, "return": 298 / 3})
    # TLDR as published: structure 98.7, coherence 78.5, return 94.5, which implies style 91.2.
    published = {"length": 0.49, "ratio": 0.99, "uniqueness": 0.494, "transitions": 0.314, "overlap": 0.5472}
    actual = normalise({**published, "total": sum(published.values())})
    assert actual["structure"] == same(98.7) and actual["coherence"] == same(78.5)
    assert actual["style"] == same(91.2) and actual["return"] == pytest.approx(94.5, abs=0.05)


def test_return_is_the_weighted_mean_of_the_three():
    for name, chars in itertools.product(RATIOS, (799, 850, 1200, 1700, 2200, 3900)):
        for different in (100, 120, 150):
            second = "hence " + text(160, different, chars, start=50)
            n = normalise(score(text(140, 100, 1000), second, bands(name)))
            assert n["return"] == same((2 * n["structure"] + 0.4 * n["coherence"] + 0.6 * n["style"]) / 3)


@pytest.mark.parametrize("call, message", [
    (lambda: bands("reddit"), "bands are 'reddit'; allowed: tldr, arxiv, arxiv_later"),
    (lambda: score("", "", bands("tldr"), "exact"), "matching is 'exact'; allowed: paper, corrected"),
    (lambda: categories("", "exact"), "matching is 'exact'; allowed: paper, corrected"),
    (lambda: Bands((0, 8), (1, 1, 2, 2), (1, 1, 2, 2), 0.1, True), r"words is \(0, 8\); the least must be 1"),
    (lambda: Bands((9, 8), (1, 1, 2, 2), (1, 1, 2, 2), 0.1, True), r"words is \(9, 8\)"),
    (lambda: Bands((1, 8), (1, 3, 2, 4), (1, 1, 2, 2), 0.1, True), "ratio is .*; its four corners must rise"),
    (lambda: Bands((1, 8), (1, 1, 2, 2), (2, 1, 2, 2), 0.1, True), r"uniqueness is .*must rise"),
    (lambda: Bands((1, 8), (1, 1, 2, 2), (1, 1, 2, 2), 0, True), "overlap_cap is 0; it must be above 0"),
])
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bands_of_ones_own():
    """A band without ramps: all or nothing."""
    own = Bands((1, 5), (1, 1, 2, 2), (0, 0, math.inf, math.inf), 1.0, False)
    assert score("aa", "bb", own)["ratio"] == score("aa", "bbbb", own)["ratio"] == 1.0
    assert score("aa", "b", own)["total"] == 0.5
    assert score("aa bb", "bb aa", own)["total"] == same(0.5 + 1.0 + 0.5 + 0.6)
    assert score("..", "...", own)["total"] == 1.5  # no words: outside of every band
