"""Calls of several runs: made as one where they agree, and never waited for in vain."""

import threading

import pytest

from jaxmarl_llm.runs.meeting import Meeting


class Add:
    """A call that adds one; ``made`` lists what was made together."""

    made: list

    def __init__(self, made, number, likeness="add"):
        self.made, self.number, self._likeness = made, number, likeness

    def likeness(self):
        return self._likeness

    def make(self):
        self.made.append([self.number])
        if self.number < 0:
            raise ArithmeticError(self.number)
        return self.number + 1

    def make_all(self, calls):
        self.made.append([call.number for call in calls])
        if any(call.number < 0 for call in calls):
            raise ArithmeticError("all")
        return [call.number + 1 for call in calls]


def meet(*works):
    """Each work, a function of what hands in its calls, in a thread of its own; what they return, or raised."""
    meeting, results = Meeting(range(len(works))), [None] * len(works)

    def run(seat):
        try:
            results[seat] = works[seat](lambda call: meeting.call(seat, call))
        except ArithmeticError as error:
            results[seat] = str(error)
        finally:
            meeting.leave(seat)

    threads = [threading.Thread(target=run, args=(seat,)) for seat in range(len(works))]
    for thread in threads:
        thread.start()
    meeting.serve()
    for thread in threads:
        thread.join()
    return results


def several(made, numbers, likeness="add"):
    return lambda call: [call(Add(made, number, likeness)) for number in numbers]


def test_calls_that_agree_are_made_as_one_in_the_order_of_the_runs():
    made = []
    assert meet(several(made, [1, 2]), several(made, [10, 20]), several(made, [100, 200])) == [
        [2, 3], [11, 21], [101, 201]
    ]  # fmt: skip
    assert made == [[1, 10, 100], [2, 20, 200]]


def test_a_run_that_ends_early_is_not_waited_for():
    made = []
    assert meet(several(made, [1]), several(made, [10, 20, 30]), several(made, [100, 200])) == [
        [2], [11, 21, 31], [101, 201]
    ]  # fmt: skip
    assert made == [[1, 10, 100], [20, 200], [30]]


def test_calls_that_do_not_agree_are_made_one_after_the_other():
    made = []
    assert meet(several(made, [1, 2], "one"), several(made, [10], "other")) == [[2, 3], [11]]
    assert sorted(made[:2]) == [[1], [10]] and made[2:] == [[2]]


def test_two_that_agree_wait_for_the_third():
    """Partly equal calls are made alone: as many programs as numbers of runs would be compiled."""
    made = []
    works = several(made, [1], "one"), several(made, [10], "one"), several(made, [100], "other")
    assert meet(*works) == [[2], [11], [101]]
    assert sorted(made) == [[1], [10], [100]]


def test_an_error_reaches_every_run_whose_call_it_was():
    made = []
    works = several(made, [1, -2, 3]), several(made, [10, 20, 30]), several(made, [100], "other")
    assert meet(*works)[:2] == ["all", "all"]
    assert [3, 30] not in made


def test_a_call_without_likeness_is_made_at_once():
    made, first = [], threading.Event()

    def alone(call):
        result = call(Add(made, 5, None))
        first.set()
        return result

    def later(call):
        first.wait()
        return call(Add(made, 1))

    assert meet(alone, later) == [6, 2]
    assert made == [[5], [1]]


def test_two_threads_of_one_run_wait_for_two_of_the_other():
    """As with rollouts that are begun before an update."""
    made = []

    def both(numbers):
        def work(call):
            results = {}
            kinds = dict(zip(("draw", "learn"), numbers, strict=True))

            def hand_in(kind):
                results[kind] = call(Add(made, kinds[kind], kind))

            threads = [threading.Thread(target=hand_in, args=(kind,)) for kind in kinds]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return results

        return work

    assert meet(both([1, 2]), both([10, 20])) == [{"draw": 2, "learn": 3}, {"draw": 11, "learn": 21}]
    assert sorted(number for group in made for number in group) == [1, 2, 10, 20]


@pytest.mark.parametrize("seats", [1, 2])
def test_without_any_call_it_ends(seats):
    assert meet(*[lambda call: "done"] * seats) == ["done"] * seats
