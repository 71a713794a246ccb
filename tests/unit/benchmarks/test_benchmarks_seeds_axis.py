"""The table of seeds together against single runs, by hand."""

import json

from benchmarks import seeds_axis


def test_a_row_for_each_number_of_seeds(monkeypatch):
    monkeypatch.setattr(seeds_axis, "together", lambda config, count: {"iteration": 2.0 + count})
    monkeypatch.setattr(seeds_axis, "apart", lambda config, count: {"iteration": 3.0 * count})
    header, _, *rows = seeds_axis.measure(None, (1, 4), 3).splitlines()
    assert header.startswith("| seeds | together (s) |")
    # Four: 6 s together, 12 s one after the other, 1.5 s for each.
    assert rows == [
        "| 1 | 3 | 3 | 1.00 (1.00..1.00) | 3 |",
        "| 4 | 6 | 12 | 2.00 (2.00..2.00) | 1.5 |",
    ]


def test_the_first_iteration_and_evaluations_do_not_count(tmp_path):
    rows = [{"step": 0, "seconds": 9.0}, {"step": 1, "seconds": 2.0}, {"step": 2, "eval/return": 1.0},
            {"step": 2, "seconds": 3.0}]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert seeds_axis._seconds(tmp_path) == [2.0, 3.0]
