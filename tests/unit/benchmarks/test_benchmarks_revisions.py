"""Two trees take turns in processes of their own; and the two forms of a second turn hold the same prompts."""

import argparse

import numpy as np
import pytest

from benchmarks import later_turns, revisions

ITERATION = """
import json, os, pathlib, sys
*options, json_flag = sys.argv[1:]
with open("log.txt", "a") as log:
    print(*options, os.environ.get("XLA_FLAGS", ""), file=log)
seconds = [{"generate": float(SECONDS), "update": 1.0}] * 3
pathlib.Path(json_flag.removeprefix("--json=")).write_text(json.dumps({"seconds": {"ours": seconds}}))
"""


def tree(folder, seconds):
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks" / "iteration.py").write_text(ITERATION.replace("SECONDS", str(seconds)))
    return folder


@pytest.mark.parametrize("isa", ["", "AVX2"])
def test_turns_of_two_trees(tmp_path, monkeypatch, isa):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(revisions, "TREE", tree(tmp_path / "now", 2))
    table = revisions.measure(tree(tmp_path / "before", 6), ["--mode=full"], isa, turns=2)
    assert [line.split("|")[1:5] for line in table.splitlines()[2:]] == [
        [" generate ", " 6 ", " 2 ", " 3.00 (3.00..3.00) "], [" update ", " 1 ", " 1 ", " 1.00 (1.00..1.00) "],
        [" whole ", " 7 ", " 3 ", " 2.33 (2.33..2.33) "],
    ]  # fmt: skip
    lines = (tmp_path / "before" / "log.txt").read_text().splitlines()
    assert len(lines) == 2 and all("--against= --mode=full" in line for line in lines)
    assert all(("--xla_cpu_max_isa=AVX2" in line) == bool(isa) for line in lines)


def test_a_second_turn_in_both_forms():
    args = argparse.Namespace(nodes=3, samples=2, between=20, new_tokens=4)
    whole, apart = later_turns.second_turn(1000, 70, args)
    assert whole.prompt_lengths_NB.tolist() == [[90] * 6] * 2 and apart.prompt_lengths_NB.tolist() == [[20] * 6] * 2
    for n, b in np.ndindex(2, 6):
        together = [*apart.stems.tokens_NSQ[n, b // 3, -70:], *apart.prompts_NBP[n, b, -20:]]
        assert whole.prompts_NBP[n, b, -90:].tolist() == together
    assert whole.tokens_NRL is apart.tokens_NRL and whole.tokens_NRL.shape == (2, 12, 4)


@pytest.mark.parametrize("kept", [0, 96])
def test_more_kept_than_there_is_behind_the_first_prompt_is_refused(kept, capsys):
    with pytest.raises(SystemExit):
        later_turns.main(["--draw", f"--kept={kept}"])
    assert f"--kept={kept}: allowed is 1 or more, and less than --between=96" in capsys.readouterr().err
