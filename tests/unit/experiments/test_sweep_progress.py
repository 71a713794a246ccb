"""experiments/sweep.py: how far a sweep is, while it runs."""

import re
import sys

from experiments import sweep
from jaxmarl_llm.cli.launch import FAILED, FINISHED, Job, Outcome


def test_members_that_have_ended_are_counted(tmp_path, capsys):
    jobs = []
    for name, code in (("a", "pass"), ("b", "import sys; sys.exit(3)"), ("c", "pass")):
        ended = code == "pass"
        jobs.append(Job(name, tmp_path / name, [sys.executable, "-c", code], lambda ended=ended: ended))
    actual = sweep.run(jobs, [{}])
    assert list(actual.values()) == [Outcome(FINISHED), Outcome(FAILED, "exit code 3"), Outcome(FINISHED)]
    lines = [re.sub(r"[\d.]+ s each", "1.0 s each", line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        f"[1/3] a: log in {tmp_path}/a/log.txt", "a: finished", lines[2],
        f"[2/3] b: log in {tmp_path}/b/log.txt", f"b: failed: exit code 3 ({tmp_path}/b/log.txt)", lines[5],
        f"[3/3] c: log in {tmp_path}/c/log.txt", "c: finished", "members 3/3  1.0 s each  ETA 0:00",
    ]  # fmt: skip
    assert all(re.fullmatch(r"members [12]/3  1.0 s each  ETA 0:\d\d", lines[i]) for i in (2, 5))


def test_nothing_is_shown_where_nothing_is_run(capsys):
    assert sweep.run([], [{}]) == {} and capsys.readouterr().out == ""
