"""The verdicts of a program.

The tests decide while the candidate's process lives (`judging.tester`); where it ends before them, how it ended
decides (`sandbox.watch` sees it, `serving.worker` writes the report).
"""

VERDICTS = (
    "pass",  # every statement of check() ran without an exception
    "fail",  # the first failure was a wrong answer
    "error",  # the first failure was an exception raised by the candidate
    "load-error",  # the sources do not compile, raise when run, or do not define the entry point
    "unsupported",  # the first failure was a value that does not cross or compare (object, too large)
    "protocol",  # the candidate ended or garbled its channel, for example with os._exit
    "timeout-cpu",  # CPU limit reached
    "timeout-wall",  # asleep for longer than the wall limit
    "memory",  # MemoryError under the memory limit
    "killed",  # the candidate died from a signal
    "infra",  # our own fault: retried, then raised as ExecutorError, never returned by run()
)

# What the end of the candidate's process means where the tests were not through.
FATES = {
    "exit": "protocol",
    "signal": "killed",
    "timeout-cpu": "timeout-cpu",
    "timeout-wall": "timeout-wall",
    "disk": "killed",
}
