"""The table of a convention sweep: numbers by hand, and what is refused."""

import json

import pytest

from configs import convention
from experiments import conventions

HALF = {"aux_first": 0.4, "aux_second": 0.5, "main_first": 0.45, "main_second": 0.45}
ONE = {"aux_first": 0.9, "aux_second": 0.0, "main_first": 0.8, "main_second": 0.1}


def test_an_agent_that_settles_gains_beside_one_partner_what_it_loses_beside_the_other():
    before = conventions.team({"return": 41.0} | HALF)
    after = conventions.team({"return": 80.0} | ONE)
    assert before.able == pytest.approx(90) and after.able == pytest.approx(90)
    assert before.beside_fixed == after.beside_fixed == pytest.approx(45)
    assert [before.convention(n) for n in (0, 1)] == ["both", "both"]
    assert [after.convention(n) for n in (0, 1)] == ["first", "first"]
    nothing = conventions.team({"return": 0.0} | dict.fromkeys(HALF, 0.0))
    assert nothing.convention(0) == "both"
    with pytest.raises(ValueError, match="no 'aux_first': the run is not of the convention task"):
        conventions.team({"return": 3.0})


def test_the_rows_of_a_sweep(tmp_path):
    folder = tmp_path / "cross" / "seed0"
    folder.mkdir(parents=True)
    config = convention.get_config("cross")
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    ends = {"warm": {"step": 0, "return": 41.0} | HALF, "after": {"step": 3, "return": 80.0} | ONE}
    (folder / "summary.json").write_text(json.dumps(ends | {"seconds": 90.0}))
    members = [
        {"seed": 0, "folder": str(folder), "state": "finished"},
        {"seed": 1, "folder": "x", "state": "failed"},
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"settings": [{"setting": "cross", "members": members}]}))
    rows = conventions.rows(tmp_path)
    assert [(row["state"], row["aux"], row["judged"]) for row in rows] == [
        ("warm", "both", 0), ("after", "first", 3 * 4 * 64),
    ]  # fmt: skip
    headers, texts = conventions.table(rows)
    assert texts[1] == ("cross", "0", "after", "80.0", "90.0", "45.0", "first", "first", "768", "1.5")
    assert len(headers) == len(texts[0])
    with pytest.raises(ValueError, match="there is no sweep.json; run experiments.sweep first"):
        conventions.rows(folder)
