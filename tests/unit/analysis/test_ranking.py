"""The ranking of a sweep's settings: points and bars are the numbers, which docs/game.md has too."""

import json
import pathlib
import re

import pytest
from report_runs import THREE_SETTINGS, setting
from repository import ROOT

from configs import sweep_game
from jaxmarl_llm import plots
from jaxmarl_llm.analysis.report import sweep_ranking

GAME = ROOT / "docs/game_returns.json"


def test_rows_are_the_settings_best_first():
    figure = sweep_ranking.draw([*THREE_SETTINGS, setting("worst", 10.0, 5.0, 15.0)])
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["worst", "base", "best"]  # from below
    assert [label.get_fontweight() for label in axes.get_yticklabels()] == ["normal", "bold", "normal"]
    points = {
        round(float(y)): float(x)
        for line in axes.lines
        if line.get_color() == plots.SAMPLED
        for x, y in line.get_xydata()
    }
    assert points == {0: 10.0, 1: 20.0, 2: 30.0}
    bars = [c.get_segments()[0][:, 0].tolist() for c in axes.collections]
    assert bars == [[5, 15], [6, 16], [18, 22], [19, 23]]  # sampled and greedy; one seed has none
    (dashed,) = (line for line in axes.lines if line.get_linestyle() == "--")
    assert set(dashed.get_xdata()) == {20.0}
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [
        "sampled, mean and 95 % interval", "greedy, mean and 95 % interval", "baseline, sampled",
    ]  # fmt: skip


@pytest.mark.parametrize("text, message", [
    ("{}", "x.json is no sweep.json (KeyError: 'settings')"),
    ("nonsense", "x.json is no sweep.json (JSONDecodeError: "),
    ('{"settings": [{"setting": "a"}]}', "x.json is no sweep.json (KeyError: 'return')"),
    (json.dumps({"settings": [setting("a", None)]}), "x.json: no setting has a return yet"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_named(tmp_path, text, message):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        sweep_ranking.read(tmp_path / "x.json")


def test_a_file_that_is_not_there():
    with pytest.raises(ValueError, match="nowhere.json is no sweep.json .FileNotFoundError"):
        sweep_ranking.read(pathlib.Path("nowhere.json"))


def test_the_picture_of_the_game_is_its_table():
    """Names are those of the sweep, numbers those of docs/game.md, from which the file was made."""
    actual = sweep_ranking.read(GAME)
    assert {each["setting"] for each in actual} == set(sweep_game.TRAINERS)
    assert [each["setting"] for each in actual if each["baseline"]] == [next(iter(sweep_game.TRAINERS))]
    text = (ROOT / "docs/game.md").read_text()
    rows = re.findall(r"^\| (.*?) \| (\S+ \[.*?\]) \| (\S+ \[.*?\]) \|", text, re.M)
    assert [(name.strip("*"), sampled, greedy) for name, sampled, greedy in rows] == [
        (each["setting"], in_brackets(each["return"]), in_brackets(each["return_greedy"]))
        for each in sweep_ranking.ranked(actual)
    ]


def in_brackets(actual):
    return f"{actual['mean']:.1f} [{actual['low']:.1f}, {actual['high']:.1f}]"


