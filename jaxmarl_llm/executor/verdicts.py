"""The verdicts of a program.

The tests decide while the candidate's process lives (`judging.tester`). If it ends before the tests do, the
way it ended decides (`sandbox.watch` sees it, `serving.worker` writes the report).
"""

VERDICTS = (
    "pass",  # every statement of check() ran without an exception
    "fail",  # the first failure was a wrong answer
    "error",  # the first failure was an exception raised by the candidate
    "load-error",  # the sources do not compile, raise when run, or do not define the entry point
    "unsupported",  # the first failure was a value that cannot be sent or compared (object, too large)
    "protocol",  # the candidate ended or corrupted its channel, for example with os._exit
    "timeout-cpu",  # CPU limit reached
    "timeout-wall",  # asleep for longer than the wall limit
    "memory",  # MemoryError under the memory limit
    "killed",  # the candidate died from a signal
    "infra",  # our own fault: retried, then raised as ExecutorError, never returned by run()
)

# The verdict if the candidate's process ended before the tests did.
FATES = {
    "exit": "protocol",
    "signal": "killed",
    "timeout-cpu": "timeout-cpu",
    "timeout-wall": "timeout-wall",
    "disk": "killed",
}
