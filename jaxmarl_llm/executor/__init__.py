"""Runs model-written Python against tests, outside the trainer; imports no JAX and is usable alone.

    with Executor(workers=2) as executor:
        reports = executor.run([Program({"main": text}, entry_point="f", tests="def check(candidate): ...")])

Processes: the trainer starts a supervisor, which keeps the queue and starts a zygote and a tester per worker.
The zygote forks one process per program for the candidate text; the tester holds the tests and calls the
candidate over a socket that carries data only. All of them end with the trainer.

The path of a program: `pool` (the public Executor) -> `serving` (client, supervisor, worker) ->
`sandbox` (zygote and candidate, confined by `isolation`) and `judging` (tester), which talk over `channel`;
`cpp` builds sources that are not Python. `levels` and `probing` find the isolation that this machine offers,
`measuring` compares times, `health` collects counts.

Level 1 guarantees: the trainer never runs candidate text; the tests are not in the candidate's process;
neither its answers nor its exit can forge a verdict; its CPU time, memory and file sizes are bounded. But at
level 1 a candidate can read files, use the network and send signals to this user's processes.
Level 2 adds a filter of system calls (`seccomp`) and of files (`landlock`): a candidate can read only the
standard library, and cannot use the network, start processes or send signals. Level 3 also puts the zygote
into namespaces (`namespaces`, `rootfs`): other files, processes and networks do not exist there. The default
is the strongest level that the machine offers; levels 2 and 3 need Linux on x86_64 or aarch64.
"""

from .levels import ExecutorRefused, available_level
from .measuring.timing import Timing, TimingPlan
from .pool import Executor
from .types import MAX_AGENTS, ExecutorError, Interaction, Limits, Program, Report
from .verdicts import VERDICTS

__all__ = [
    "MAX_AGENTS",
    "VERDICTS",
    "Executor",
    "ExecutorError",
    "ExecutorRefused",
    "Interaction",
    "Limits",
    "Program",
    "Report",
    "Timing",
    "TimingPlan",
    "available_level",
]
