"""experts/limits.py: the rate limit and the budget, with a clock that the test moves."""

import threading

import pytest

from jaxmarl_llm.experts.limits import Account, OverBudget, RateLimit, estimate_prompt, estimate_tokens
from jaxmarl_llm.experts.types import Request, Spent


def test_no_more_than_the_limit_in_any_minute():
    """Three a minute: what is asked for at 20 and 30 s, the fourth and fifth, may start at 60 s."""
    now = [0.0]
    limit = RateLimit(3, clock=lambda: now[0])
    starts = []
    for now[0] in (0.0, 0.0, 10.0, 20.0, 30.0, 100.0, 100.0):
        starts.append(now[0] + limit.delay())
    assert starts == [0, 0, 10, 60, 60, 100, 120]  # the last: the minute after 60 holds 60, 60 and 100
    for i, start in enumerate(starts[3:]):
        assert start - starts[i] >= 60


def test_no_limit_never_waits():
    limit = RateLimit(None)
    assert [limit.delay() for _ in range(1000)] == [0] * 1000


def test_a_budget_counts_what_is_promised_until_it_is_settled():
    account = Account(100, Spent(requests=2, input_tokens=10, output_tokens=10))
    assert account.reserve(50)  # 20 spent, 50 promised, 30 left
    assert not account.reserve(31)  # the one under way may cost less
    assert account.reserve(30)
    account.settle(50, 5, 5)
    account.settle(30, 20, 10)  # more or less than promised, it is what it is
    assert account.spent == Spent(requests=4, input_tokens=35, output_tokens=25)
    with pytest.raises(OverBudget, match="it may need 41 tokens, and 40 of the token budget of 100 are left"):
        account.reserve(41)
    assert account.reserve(40)


def test_a_budget_that_was_overdrawn_has_nothing_left():
    account = Account(10, Spent(input_tokens=50))
    with pytest.raises(OverBudget, match="it may need 1 tokens, and 0 of the token budget of 10 are left"):
        account.reserve(1)


def test_threads_lose_nothing():
    account, limit = Account(None, Spent()), RateLimit(10, clock=lambda: 0.0)
    delays = []

    def work():
        for _ in range(200):
            account.reserve(5)
            account.settle(5, 2, 1)
            delays.append(limit.delay())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert account.spent == Spent(requests=1600, input_tokens=3200, output_tokens=1600)
    assert sorted(delays) == [60.0 * (i // 10) for i in range(1600)]


def test_estimates():
    assert [estimate_tokens(text) for text in ("", "a", "abc", "abcd", "é" * 3, "\ud800")] == [
        0,
        1,
        1,
        2,
        2,
        1,
    ]
    messages = ({"role": "system", "content": "abcd"}, {"role": "user", "content": "a"})
    assert estimate_prompt(Request(messages, "i")) == 8 + 2 + 8 + 1
