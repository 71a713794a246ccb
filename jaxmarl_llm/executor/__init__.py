"""Runs model-written Python against tests, outside the trainer; imports no JAX and is usable alone.

    with Executor(workers=2) as executor:
        reports = executor.run([Program({"main": text}, entry_point="f", tests="def check(candidate): ...")])

Processes: the trainer starts a supervisor, which keeps the queue and starts a zygote and a tester per worker.
The zygote forks one process per program for the candidate text; the tester holds the tests and calls the
candidate over a socket that carries data only. All of them end with the trainer.

A program's way through the files: `pool` (the public Executor) -> `serving` (client, supervisor, worker) ->
`sandbox` (zygote and candidate, kept in by `isolation`) and `judging` (tester), which talk over `channel`;
`cpp` builds sources that are not Python. `levels` and `probing` say beforehand what holds on this machine,
`measuring` compares times, `health` counts what happened.

Level 1 promises: the trainer never runs candidate text; the tests are not in the candidate's process; neither
its answers nor its exit can forge a verdict; its CPU time, memory and file sizes are bounded. It does not
promise: nothing stops a candidate from reading files, using the network or signalling this user's processes.
Level 2 adds a filter of system calls (`seccomp`) and of files (`landlock`): only the standard library can be
read, and there is no network, no other process, no signal. Level 3 puts the zygote into namespaces besides
(`namespaces`, `rootfs`): other files, processes and networks do not exist there. The strongest level that the
machine offers is used unless one is named; levels 2 and 3 need Linux on x86_64 or aarch64.
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
