"""The report's page in a real browser: it shows what it should, and hostile transcripts do nothing in it."""

import dataclasses

import pytest
import report_runs
from chromium import PROGRAM, Chromium, Tab
from report_runs import action, config, rows, write_evaluation, write_run

from jaxmarl_llm.analysis.report import page

NO_BROWSER = "chromium is not installed: apt-get install chromium (or chromium-browser)"
pytestmark = [pytest.mark.skipif(PROGRAM is None, reason=NO_BROWSER), pytest.mark.slow]
CARDS = "[...document.querySelectorAll('#list .action')]"
STATUS = "document.getElementById('status').textContent"
TAB, ENTER = ("Tab", 9), ("Enter", 13)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Addresses of pages: of two seeds, with two evaluations of which both have "ode", and a hostile run."""
    place = tmp_path_factory.mktemp("pages")
    before = [action(0, "ode", 0.5, "fail", "weak"), action(0, "haiku", 1.0, "pass", "short")]
    after = [action(5, "ode", 2.0, "pass", "strong"), action(5, "ode", 1.5, "pass", "good"),
             action(5, "epic", 3.0, "pass", "long")]  # fmt: skip
    answers = (("before.json", 0, before), ("after.json", 5, after))
    evaluations = [write_evaluation(place / name, step, actions) for name, step, actions in answers]
    many = {0: [action(0, f"item{n:02}", float(n)) for n in range(45)], 2: report_runs.actions(2)}
    folders = [write_run(place / "a", spoken=many), write_run(place / "b", config(seed=1), rows(6.0))]
    written = page.write(folders, place / "out" / "page.html", evaluations)[0]
    hostile = page.write([report_runs.hostile_run(place / "bad")])[0]
    return {"plain": written.as_uri(), "hostile": hostile.as_uri()}


def address(pages, **state) -> str:
    return pages["plain"] + "#" + "&".join(f"{name}={value}" for name, value in state.items())


def change(tab: Tab, name: str, value: str) -> None:
    """Give a control of the form a value, as a user would."""
    tab.run(f"control({name!r}).value = {value!r}; control({name!r}).dispatchEvent(new Event('input'))")


def side_by_side(tab: Tab, selector: str) -> bool:
    """Whether the first two of the elements begin at one height."""
    actual = f"[...document.querySelectorAll({selector!r})].slice(0, 2)"
    first, second = tab.run(f"{actual}.map(element => element.getBoundingClientRect().top)")
    return first == second


def rewards(tab: Tab) -> list[str]:
    return tab.run(f"{CARDS}.map(card => card.querySelector('.judged strong').textContent)")


def test_nothing_fails_and_nothing_is_fetched(browser, pages):
    for url in pages.values():
        tab = Tab(browser, url)
        assert tab.run(f"{CARDS}.length") > 0
        wrong = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening")
        assert tab.events("Log.entryAdded", *wrong) == []
        asked = {event["request"]["url"] for event in tab.events("Network.requestWillBeSent")}
        assert url in asked and all(other == url or other.startswith("data:") for other in asked)
        loaded = tab.run("[...document.images].map(image => image.complete && image.naturalWidth > 500)")
        assert len(loaded) == 5 and all(loaded)


def test_hostile_texts_are_shown_and_run_nothing(browser, pages):
    tab = Tab(browser, pages["hostile"])
    shown = tab.run(f"{CARDS}.map(card => card.querySelector('.completion').textContent)")
    hidden = {"\u2028": "[U+2028]", "\u2029": "[U+2029]", "\x00": "[U+0000]", "\x1b": "[U+001B]",
              "\u202e": "[U+202E]", "\u202c": "[U+202C]", "\u200b": "[U+200B]"}  # fmt: skip
    for text, actual in zip(report_runs.HOSTILE, shown, strict=False):
        for sign, name in hidden.items():
            text = text.replace(sign, name)
        assert actual.replace("\ud800", "\ufffd") == text.replace("\ud800", "\ufffd")
    assert len(shown) == len(report_runs.HOSTILE) + 1
    assert tab.run("typeof window.hacked") == "undefined"
    assert tab.run("document.querySelectorAll('script').length") == 2
    made = "#list img, #list svg, #list script, [onerror], [onload], [onmouseover]"
    assert tab.run(f"document.querySelectorAll('{made}').length") == 0
    # everything can be chosen, and each choice shows its own joint action again
    for index in range(1, len(shown) + 1):
        tab.run(f"control('item').selectedIndex = {index}; control('item').dispatchEvent(new Event('input'))")
        assert tab.run(f"{CARDS}.length") == 1
    assert tab.run("typeof window.hacked") == "undefined"


def test_the_policy_stops_what_would_get_through(browser, pages):
    tab = Tab(browser, pages["hostile"])
    tab.run("window.stopped = []; document.addEventListener('securitypolicyviolation',"
            " event => stopped.push(event.effectiveDirective)); 0")  # fmt: skip
    tab.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked = 1\">')")
    tab.run("const added = document.createElement('script'); added.textContent = 'window.hacked = 2';"
            " document.body.append(added)")  # fmt: skip
    tab.run("fetch('https://example.com/').catch(() => 0)")
    tab.until("['script-src-elem', 'img-src', 'connect-src'].every(kind => stopped.includes(kind))")
    assert tab.run("typeof window.hacked") == "undefined"


def test_the_address_says_what_is_shown(browser, pages):
    tab = Tab(browser, address(pages, source="a:iteration 2", verdict="pass", item="ode"))
    assert rewards(tab) == ["reward 2"]
    card = tab.run(f"{CARDS}[0].innerText")
    assert "ode 2 pass" in card and "about ode 2 pass" in card and "rhyme 2" in card and "metre –" in card
    assert "sample 0 · advantage +0.5" in card and "sample 1 · advantage -0.25 · marginal -0.125" in card
    assert side_by_side(tab, "#list .agents > section")
    assert tab.run("control('item').value") == "ode"
    assert tab.run("document.querySelector('#verdicts input:checked').value") == "pass"
    # an address with nonsense shows all of the first source
    tab = Tab(browser, address(pages, source="nothing", verdict="odd", sort="x", **{"from": "y"}))
    assert tab.run(STATUS).startswith("2 joint actions on 2 items pass")


def test_filters_and_order(browser, pages):
    tab = Tab(browser, address(pages, source="a:iteration 2"))
    assert rewards(tab) == ["reward 0.5", "reward 2", "reward –"] * 2
    change(tab, "sort", "high")
    assert rewards(tab) == ["reward 2", "reward 0.5", "reward –"] * 2
    change(tab, "from", "0.5")
    change(tab, "to", "1")
    assert rewards(tab) == ["reward 0.5"] * 2
    change(tab, "text", "RHYME")  # in the failures; the search does not mind capitals
    assert rewards(tab) == ["reward 0.5"] * 2
    change(tab, "text", "sonnet 2 pass")
    assert rewards(tab) == [] and tab.run(STATUS).startswith("0 joint actions on 0 items")
    tab.run("control('reset').click()")
    assert len(rewards(tab)) == 6
    tab.run("document.querySelector('#verdicts input[value=\"not-applicable\"]').click()")
    assert rewards(tab) == ["reward –"] * 2
    assert tab.run("location.hash") == "#source=a%3Aiteration+2&verdict=not-applicable"


def test_more_are_shown_on_demand(browser, pages):
    tab = Tab(browser, address(pages, source="a:iteration 0"))
    counts = [tab.run(f"{CARDS}.length")]
    while not tab.run("control('more').hidden"):
        tab.run("control('more').click()")
        counts.append(tab.run(f"{CARDS}.length"))
    assert counts == [20, 40, 45]
    assert rewards(tab) == [f"reward {n}" for n in range(45)]


def test_two_evaluations_are_compared_on_the_items_of_both(browser, pages):
    names = [f"{name}:sampled" for name in source_names(browser, pages)]
    tab = Tab(browser, address(pages, source=names[0], other=names[1], sort="high"))
    assert tab.run("[...document.querySelectorAll('#list h3')].map(h => h.textContent)") == ["ode"]
    sides = "pair => [...pair.children].map(side => side.innerText)"
    pairs = tab.run(f"[...document.querySelectorAll('.pair')].map({sides})")
    assert len(pairs) == 2
    assert "weak" in pairs[0][0] and "strong" in pairs[0][1]
    assert "no further joint action here" in pairs[1][0] and "good" in pairs[1][1]
    assert all(side.startswith(name) for pair in pairs for side, name in zip(pair, names, strict=True))
    # 0.5 before; (2 + 1.5) / 2 after
    assert tab.run(STATUS) == (
        "2 pairs on 1 item pass the filters; 2 shown. "
        "1 item in both, 1 only in the first, 1 only in the second. "
        "Mean reward on those in both: 0.5 and 1.75 (+1.25)."
    )
    assert side_by_side(tab, ".pair > *")


def test_turns_can_be_told_apart_and_means_are_of_final_answers(browser, tmp_path):
    def spoken(*later):
        first = [action(0, "ode", 0.0, "fail"), action(0, "ode", 1.0, "fail")]
        return [*first, *(action(0, "ode", total, turn=1, follows=n) for n, total in enumerate(later))]

    action_lists = [spoken(2, 3), spoken(4)]
    names = [write_evaluation(tmp_path / f"{n}.json", 0, actions) for n, actions in enumerate(action_lists)]
    written = page.write([write_run(tmp_path / "run")], evaluations=names)[0].as_uri()
    one, two = (f"{tmp_path.name}/{n}:sampled" for n in (0, 1))
    tab = Tab(browser, f"{written}#source={one}&other={two}")
    assert not tab.run("control('turns').hidden")
    # 2 and 3; 4 and the second first answer, which nothing follows
    assert "Mean reward on those in both: 2.5 and 2.5 (0)." in tab.run(STATUS)
    change(tab, "turn", "1")
    assert "Mean reward on those in both: 0.5 and 0.5 (0)." in tab.run(STATUS)
    change(tab, "turn", "2")
    assert "Mean reward on those in both: 2.5 and 4 (+1.5)." in tab.run(STATUS)
    change(tab, "other", "")
    assert rewards(tab) == ["reward 2", "reward 3"]
    assert "turn 2, after reward 1" in tab.run(f"{CARDS}[1].innerText")
    change(tab, "turn", "")
    assert "4 joint actions, mean reward 2.5" in tab.run("document.querySelector('#list').innerText")
    change(tab, "source", "run:iteration 0")  # of one turn: nothing to choose
    assert tab.run("control('turns').hidden")


def test_a_remark_is_shown_below_its_answer_and_found_by_its_text(browser, tmp_path):
    joint_action = action(0, "ode", 1.0)
    remark = report_runs.hostile_speech("<b>shorter</b> lines")
    agents = joint_action.agents | {"poet": dataclasses.replace(joint_action.agents["poet"], remark=remark)}
    spoken = {0: [action(0, "ode", 0.0), dataclasses.replace(joint_action, agents=agents)]}
    tab = Tab(browser, page.write([write_run(tmp_path / "run", spoken=spoken)])[0].as_uri())
    assert tab.run(f"{CARDS}.map(card => card.querySelectorAll('h5').length)") == [0, 1]
    change(tab, "text", "Shorter")
    assert rewards(tab) == ["reward 1"]
    shown = tab.run(f"{CARDS}[0].innerText")
    assert "then said" in shown and "<b>shorter</b> lines" in shown and "advantage +0.5" in shown


def source_names(browser, pages) -> list[str]:
    tab = Tab(browser, pages["plain"])
    labels = tab.run("[...control('source').querySelectorAll('optgroup')].map(group => group.label)")
    assert labels[2:] == ["a", "b"]
    return labels[:2]


def test_it_can_be_used_with_the_keyboard_alone(browser, pages):
    tab = Tab(browser, pages["plain"])
    tab.key(*TAB)
    assert tab.run("document.activeElement.className") == "skip"
    tab.key(*ENTER)
    tab.until("location.hash === '#transcripts'")
    reached = []
    for _ in range(10):
        tab.key(*TAB)
        reached.append(tab.run("document.activeElement.id || document.activeElement.type"))
        if reached[-1] == "text":
            tab.write("short")
    order = ["source", "other", "item", "sort", "from", "to", "text", "checkbox", "checkbox", "reset"]
    assert reached == order
    assert rewards(tab) == ["reward 1"] and "text=short" in tab.run("location.hash")


def test_a_late_event_of_an_older_address_does_not_take_the_focus(browser, pages):
    tab = Tab(browser, pages["plain"])
    change(tab, "text", "short")
    tab.run("document.querySelector('#verdicts input').focus()")
    tab.run("dispatchEvent(new HashChangeEvent('hashchange'))")
    assert tab.run("document.activeElement.type") == "checkbox"


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_nothing_sticks_out_of_the_page(browser, pages, width):
    before, after = (f"{name}:greedy" for name in source_names(browser, pages))
    one, two = address(pages, source="a:iteration 2"), address(pages, source=before, other=after)
    for url in (one, two, pages["hostile"]):
        tab = Tab(browser, url, width=width)
        assert tab.run("document.documentElement.scrollWidth") <= width


def test_light_dark_and_print(browser, pages):
    tab = Tab(browser, pages["plain"])
    brightness = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    shown_as = "getComputedStyle(document.images[0]).filter"
    light = tab.run(brightness), tab.run(shown_as)
    tab.emulate(dark=True)
    tab.until(f"{shown_as} !== 'none'")
    assert light == (255, "none") and tab.run(brightness) < 40
    tab.emulate(dark=True, medium="print")
    tab.until(f"{shown_as} === 'none'")
    assert tab.run(brightness) == 255
    assert tab.run("getComputedStyle(document.getElementById('filters')).display") == "none"
    assert len(tab.send("Page.printToPDF")["data"]) > 10000


def test_texts_can_be_read_on_their_ground(browser, pages):
    """Contrast of at least 4.5 to 1, the AA level of WCAG 2.2 (1.4.3), light and dark."""
    tab = Tab(browser, pages["plain"])
    colours = "['--text', '--soft', '--link', '--pass', '--ground', '--panel', '--code'].map(name =>" \
        " getComputedStyle(document.documentElement).getPropertyValue(name).trim())"  # fmt: skip
    for dark in (False, True):
        tab.emulate(dark=dark)
        *texts, ground, panel, code = map(luminance, tab.run(colours))
        for text in texts:
            for behind in (ground, panel, code):
                lighter, darker = max(text, behind), min(text, behind)
                assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb", as WCAG 2.2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_completions_before_an_answer_are_shown_on_demand(browser, tmp_path):
    """The first answers of a discussion are beside the final ones, and the search sees them."""
    first = action(0, "ode", 1.0, "pass", "an opening").agents["poet"]
    discussed = dataclasses.replace(action(0, "ode", 1.0, "pass", "final"), heard=(("poet", first),))
    run = write_run(tmp_path / "run", spoken={0: [discussed, action(0, "epic", 0.5, "fail", "weak")]})
    tab = Tab(browser, page.write([run], tmp_path / "page.html")[0].as_uri())
    assert sorted(tab.run(f"{CARDS}.map(card => card.querySelectorAll(':scope > details').length)")) == [0, 1]
    details = "document.querySelector('#list .action > details')"
    assert tab.run(f"{details}.querySelector('summary').textContent") == "1 completion before the answer"
    assert tab.run(f"{details}.open") is False and "an opening" in tab.run(f"{details}.textContent")
    change(tab, "text", "opening")
    assert tab.run(f"{CARDS}.length") == 1
