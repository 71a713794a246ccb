"""Worked examples of the writing tasks: texts that are in no data set, with answers of two and three writers.

The answers earn the full reward for length, ratio, uniqueness and overlap (a test checks this).
"""

from __future__ import annotations

import typing


class Example(typing.NamedTuple):
    """A worked text and its answers: by number of writers, one answer per writer."""

    text: str
    answers: dict[int, tuple[str, ...]]


def _line(text: str) -> str:
    return " ".join(text.split())


_BAKERY_TEXT = _line("""
    I start work at a bakery at five in the morning. My neighbor practices the drums every evening until
    eleven. I like her, we water each other's plants. Last night I knocked and she looked so
    embarrassed. She says she has a concert in June. Should I tell the landlord or wait?""")
_BAKERY_FIRST = _line("""
    A baker who starts at five cannot sleep because a friendly neighbor plays the drums until eleven,
    and wonders whether to tell the landlord.""")
_BAKERY_SECOND = _line("""
    The writer begins early shifts at a bakery and therefore needs quiet nights. However, the woman next
    door practices drums every evening. Although they water each other's plants, knocking only
    embarrassed her. In fact, her concert comes in June, so waiting might be enough; otherwise the
    landlord must help.""")
_BAKERY_THIRD = _line("""
    Somebody who bakes bread starts work at five in the morning, which means going to bed while most people
    still eat dinner. Unfortunately, a neighbor in the same house plays the drums each evening and does not
    stop until eleven. The two are friends: for example, each waters the plants of the other, so an open
    quarrel would hurt. Last night the tired baker finally knocked on her door. Instead of anger there was
    shame, since the drummer looked deeply embarrassed and explained that a concert is planned for June.
    Therefore two ways remain. First, one could tell the landlord, although that might end a good friendship.
    Otherwise patience until summer may solve everything, because after the show such long practice is perhaps
    no longer needed.""")
_CAR_TEXT = _line("""
    In March I lent my brother my car while his was being repaired. His car has been ready for weeks and
    he still drives mine. I need it for a trip in August. When I ask, he laughs and says next week. How
    do I get it back without a fight?""")
_CAR_FIRST = _line("""
    A car lent to a brother in March has not come back, and the owner needs it for a trip in August but
    fears a fight.""")
_CAR_SECOND = _line("""
    First, the writer lent a car to a brother whose own was broken. That repair finished weeks ago, yet
    he still drives the borrowed one. Whenever somebody asks, he just laughs and promises next week.
    Since a trip is planned for August, the question is how to recover it before then, ideally while
    keeping peace in the family.""")
_CAR_THIRD = _line("""
    In March a helpful person gave a car to a brother for some days, because his own vehicle was at the garage
    for repair. Meanwhile several weeks have passed, and although the brother's car runs again, he keeps using
    the one that does not belong to him. Nobody has shouted so far. However, every friendly reminder ends in
    the same way: he laughs, says that next week will be fine, and drives off. Now time is short, as a long
    trip in August needs exactly this car. Therefore the owner wants to know what could be done. Possible
    answers reach from a fixed date for its return, for example in writing, to a serious conversation. Above
    all, no fight should come out of it, since both still want to meet at family dinners after that
    summer.""")
_TREES_TEXT = _line("""
    We study how street trees lower the temperature of city streets in summer. Sensors were placed on
    forty streets for two years. Streets with many trees were up to four degrees cooler at noon, most of
    all where the trees stood close together. A simple model predicts the cooling from the number of
    trees and the width of the street. It can help cities decide where to plant.""")
_TREES_FIRST = _line("""
    Summer heat is a growing problem in cities. Streets with dark surfaces and little shade store heat
    during the day, so the temperature stays high long after noon. Because many people live and walk on
    such streets, heat also harms their health, especially that of older people. Trees are a simple
    answer: their shade keeps a street cooler, and water from their leaves cools the air. However,
    cities have little space and money, and trees grow slowly. For example, a narrow street may have
    room for one row of trees, while a wide street needs two. Although earlier studies measured the
    temperature of parks, they rarely measured streets, and they lasted only one summer. Therefore
    cities still do not know how many trees a street needs, or where trees lower the temperature most.
    In short, better evidence is needed before cities decide where to plant.""")
_TREES_SECOND = _line("""
    To measure how trees lower the temperature of streets, sensors were first placed on forty streets
    for two years. Some streets had many trees and some had none, so streets could be compared in the
    same way during each summer. In addition, the width of each street and the number of trees were
    counted. Then a simple model was built that predicts the temperature at noon from these numbers. The
    results show that trees keep a street up to four degrees cooler, especially where trees stand close
    together and shade the dark surfaces. However, one row of trees is not enough on a wide street,
    while a narrow street needs little more. Therefore cities can use the model to decide where to plant
    before they spend money. Overall, this evidence may help people who live and walk on hot streets,
    for example older people. It also shows where more trees would do little against the heat, so that
    money can be spent in other ways.""")
_TREES_METHOD = _line("""
    To learn how many trees a street needs, sensors were first placed on forty streets for two years. Some
    streets had many trees, while others had none, so their temperature could be compared in the same way
    during each summer. In addition, the width of every street was measured and the trees were counted,
    because shade depends on both. Sensors stood at the same height above dark surfaces, for example where
    many people walk, and stored the temperature of the air day and night. Then a simple model was built that
    predicts the temperature at noon from the number of trees and the width of the street. The model was
    tested on streets that it had not seen before. However, it knows nothing about wind or rain, although both
    cool a street. In short, the method needs little time and money: a few sensors, a count of trees, and one
    summer or two are enough for most cities.""")
_TREES_IMPLICATIONS = _line("""
    The results show that trees keep a street up to four degrees cooler at noon, especially where they stand
    close together and shade the dark surfaces. However, one row of trees is not enough on a wide street,
    while a narrow street needs little more. Therefore cities can use the simple model to decide where to
    plant before they spend money. For example, a city could first count the trees of each street, and then
    plant where the model predicts the highest temperature in summer. Such streets are often those in which
    many older people live and walk, so their health would gain most from shade. In addition, the model shows
    where more trees would do little against the heat, and money can be spent in other ways. Overall, two
    years with sensors on forty streets give cities evidence that was not there before, even though trees grow
    slowly and the effect of a new row comes late.""")

BAKERY = Example(
    _BAKERY_TEXT,
    {2: (_BAKERY_FIRST, _BAKERY_SECOND), 3: (_BAKERY_FIRST, _BAKERY_SECOND, _BAKERY_THIRD)},
)
CAR = Example(_CAR_TEXT, {2: (_CAR_FIRST, _CAR_SECOND), 3: (_CAR_FIRST, _CAR_SECOND, _CAR_THIRD)})
TREES = Example(
    _TREES_TEXT,
    {2: (_TREES_FIRST, _TREES_SECOND), 3: (_TREES_FIRST, _TREES_METHOD, _TREES_IMPLICATIONS)},
)
