"""Health of the executor: counts, percentiles and the alarm, with values computed by hand."""

import pytest

from jaxmarl_llm.executor import Report, health


def report(verdict, cached=False):
    return Report(verdict, 0, 1, (), {}, 3, 0.0, 0.0, cached)


def result(*runs, wait=0.0, restarts=0, error=None):
    return {"runs": [list(run) for run in runs], "queue_seconds": wait, "restarts": restarts, "error": error}


def test_metrics_of_one_period_and_of_the_next():
    state = health.Health()
    state.count_program(result(("pass", 0.1), wait=1.0))
    state.count_program(result(("fail", 0.3), ("timeout-cpu", 0.5), wait=2.0, restarts=1))
    state.count_program(result())  # from the cache
    state.count_program(result(error=["ExecutorError", "infra"], restarts=2))
    state.count_program(result(error=["BadTests", "the caller's fault"]))
    state.count_restart()
    state.add_seconds(1.5)
    state.add_seconds(0.5)
    reports = [
        report("pass"),
        report("timeout-cpu"),
        report("error", cached=True),
        report("error", cached=True),
    ]
    assert state.count_reports(reports) == []
    actual = state.metrics()
    verdicts = {name: value for name, value in actual.items() if name.startswith("verdict/") and value}
    assert verdicts == {"verdict/pass": 1, "verdict/timeout-cpu": 1, "verdict/error": 2, "verdict/infra": 1}
    assert len([name for name in actual if name.startswith("verdict/")]) == 11
    assert {name: value for name, value in actual.items() if "/" not in name} == {
        "programs": 4,
        "runs": 3,
        "runs_per_second": 1.5,  # 3 in 2 s
        "abnormal_share": 0.5,  # timeout-cpu and infra, by 4 programs
        "cached_share": 0.5,
        "cpu_seconds_p50": 0.3,  # the second of 0.1, 0.3, 0.5
        "cpu_seconds_p95": 0.5,
        "queue_seconds_p50": 1.0,  # the first of 1.0, 2.0
        "queue_seconds_p95": 2.0,
        "near_limit_reruns": 1,
        "restarts": 4,  # 1 + 2 workers, 1 supervisor
    }
    assert all(type(value) is float for value in actual.values())
    assert set(state.metrics().values()) == {0.0}


@pytest.mark.parametrize(
    "values, share, wanted",
    [([], 50, 0.0), ([7.0], 95, 7.0), ([4.0, 1.0, 3.0, 2.0], 50, 2.0), (range(1, 101), 95, 95)],
)
def test_percentile_by_nearest_rank(values, share, wanted):
    assert health.percentile(values, share) == wanted


def sentences(state, verdicts):
    """(index, sentence) of the programs at which an alarm is raised."""
    actual = [(i, state.count_reports([report(verdict)])) for i, verdict in enumerate(verdicts)]
    return [(i, text) for i, (text,) in ((i, texts) for i, texts in actual if texts)]


def test_alarm_when_the_abnormal_share_rises_and_once_only():
    state = health.Health()
    # 400 normal programs, 20 of them cached, which do not count: 200 before the window at the 420th.
    state.count_reports([report("pass")] * 100 + [report("fail")] * 300 + [report("killed", cached=True)] * 20)
    # A rise by 0.1 is 20 of the last 200: the 20th abnormal one, where the share before is still 0 of 220.
    bad = ["killed"] * 3 + ["protocol"] * 97
    ((index, sentence),) = sentences(state, bad)
    assert index == 19
    assert sentence == (
        "abnormal verdicts rose to 10.0% of the last 200 programs, from 0.0% of the 220 before; "
        "most frequent: protocol, 8.5%"
    )
    # It falls below half the rise (the share before grows meanwhile to 100 of 700), and rises again.
    assert sentences(state, ["pass"] * 400) == []
    assert len(sentences(state, ["memory"] * 200)) == 1


def test_no_alarm_for_what_was_always_so_or_too_soon():
    even = ["pass", "fail", "error", "load-error", "timeout-cpu"] * 400  # a fifth abnormal, all the time
    assert sentences(health.Health(), even) == []
    # 4 standard errors of a fifth are 4 sqrt(0.2 * 0.8 / 200) = 0.113: 62 of 200 is 0.11 above, no alarm yet.
    # Cycles leave 40 in the window, of which the last 100 are replaced: 20 + 42 = 62, and one more is 63.
    for more, alarms in ((42, 0), (43, 1)):
        assert len(sentences(health.Health(), even + ["pass"] * (100 - more) + ["memory"] * more)) == alarms
    assert sentences(health.Health(), ["pass"] * 199 + ["killed"] * 200) == []  # nothing to compare with


def test_window_of_a_large_batch():
    state = health.Health()
    (sentence,) = state.count_reports(
        [report("pass")] * 1000 + [report("unsupported")] * 30 + [report("pass")] * 500
    )
    assert "most frequent: unsupported" in sentence
