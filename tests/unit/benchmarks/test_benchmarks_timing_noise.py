"""The benchmark of unchanged programs: what it measures, and what it counts. Nothing is timed here."""

import dataclasses
import itertools
import re

import pytest

from benchmarks import timing_noise
from jaxmarl_llm.executor import Timing
from jaxmarl_llm.tasks.programs.optimisation_items import load_items

SAME = Timing(1.02, 0.98, 1.04, 7, 1.05, False, 0.1, 0.1, 1.0, 2.8, False, "max-pairs")
FASTER = dataclasses.replace(SAME, speedup=1.2, low=1.1, high=1.3, significant=True)


class Known:
    """An executor that measures what it is told."""

    def __init__(self, *timings):
        self.timings, self.asked = itertools.cycle(timings), []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def measure(self, baseline, candidate, plan):
        self.asked.append((baseline, candidate, plan))
        return next(self.timings)


@pytest.mark.parametrize("source", ["python", "cpp"])
def test_candidates_differ_in_a_comment_or_a_name_only(source):
    items, known = load_items(source), Known(SAME)
    timing_noise.run_trials(known, items, 2 * len(items), {"min_pairs": 7})
    names = 0
    for trial, (baseline, candidate, plan) in enumerate(known.asked):
        item = items[trial % len(items)]
        assert baseline.sources == {"main": item.source} and baseline.tests == candidate.tests
        assert (plan.seed, plan.min_pairs) == (trial, 7)
        text = candidate.sources["main"]
        assert text != item.source
        plain = re.sub(rf"(#|//) Trial {trial}\.\n", "", text).replace(f"_{trial}", "")
        assert plain == item.source, item.task_id
        names += "Trial" not in text
        if source == "python":
            compile(text, item.task_id, "exec")
    assert names >= 0.8 * len(items)


def test_what_is_counted(monkeypatch, capsys):
    for share, status in ((4, 1), (19, 0)):  # 4 of 5, and 19 of 20 unchanged
        known = Known(*[SAME] * share, FASTER)
        monkeypatch.setattr(timing_noise, "Executor", lambda known=known, **_: known)
        assert timing_noise.main([f"--trials={share + 1}"]) == status
        text = capsys.readouterr().out
        assert f"credited exactly 1.0: {share} of {share + 1} trials" in text
        assert "off by more than 5 %: 1;" in text
    assert "| raw speed-up | 1.020 | 1.020 | 1.020 | 1.020 | 1.020 | 1.020 | 1.200 |" in text


def test_a_trial_without_a_result_is_an_error():
    wrong = dataclasses.replace(SAME, reason="wrong-answer", detail="fail")
    with pytest.raises(ValueError, match="trial 0: wrong-answer fail"):
        timing_noise.run_trials(Known(wrong), load_items("python"), 1, {})
