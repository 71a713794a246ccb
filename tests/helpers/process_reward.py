"""`smoke_runs.distinct_letters` that writes down which process judged what."""

import os

import smoke_runs

_CALLS = 0


def distinct_letters(completions, task_id, **columns):
    global _CALLS
    _CALLS += 1
    with open(os.environ["JUDGED"], "a") as file:
        for name in task_id:
            file.write(f"{os.getpid()} {_CALLS} {name}\n")
    return smoke_runs.distinct_letters(completions, task_id, **columns)


distinct_letters.reward_range = smoke_runs.distinct_letters.reward_range
