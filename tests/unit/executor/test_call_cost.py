"""What calls between agents cost is measured on the machine, and all switches of their processes are counted."""

import os
import subprocess
import sys
import time

from repository import ROOT

from jaxmarl_llm.executor import Executor, Limits, Program, scheduling

MAIN = "def f(n):\n    t = 0\n    for _ in range(n):\n        t = aux(t)\n    return t\n"
AUX = "def aux(x):\n    return x + 1\n"


def report(calls, cpu_seconds):
    tests = f"def check(candidate):\n    assert candidate({calls}) == {calls}\n"
    limits = Limits(cpu_seconds=cpu_seconds, wall_seconds=600)
    with Executor(workers=1, limits=limits, min_level=1) as executor:
        return executor.run([Program({"aux": AUX, "main": MAIN}, "f", tests)])[0]


def test_the_measured_cost_is_that_of_real_calls():
    """Most of what many calls cost is left out, and no more than all of it."""
    many, few = report(20_000, 30.0), report(2_000, 30.0)
    assert many.verdict == few.verdict == "pass"
    spent = many.cpu_seconds + many.calls_cpu_seconds - few.cpu_seconds - few.calls_cpu_seconds
    left_out = many.calls_cpu_seconds - few.calls_cpu_seconds
    assert 0.5 * spent < left_out <= spent + few.cpu_seconds + few.calls_cpu_seconds, (spent, left_out)


ALONE = """
import os
from jaxmarl_llm.executor.sandbox import call_cost

allowed, files = os.sched_getaffinity(0), len(os.listdir("/proc/self/fd"))
seconds = call_cost.switch_seconds()
assert call_cost.LEAST <= seconds < 0.01, seconds
assert call_cost.switch_seconds() == seconds  # measured once
assert os.sched_getaffinity(0) == allowed and len(os.listdir("/proc/self/fd")) == files
try:
    print("left:", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("nothing left")
"""


def test_measuring_leaves_nothing_behind():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("nothing left\n", "")


def test_switches_that_the_kernel_forces_count():
    """Two processes that never wait share a CPU: all their switches are forced."""
    code = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nprint(flush=True)\nwhile True: pass"
    pair = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for process in pair:
            process.stdout.readline()
        before, end = scheduling.switches(pair[0].pid), time.monotonic() + 30
        while scheduling.switches(pair[0].pid) < before + 5 and time.monotonic() < end:
            time.sleep(0.05)
        counted = scheduling.switches(pair[0].pid)
    finally:
        for process in pair:
            process.kill()
            process.stdout.close()
    usage = os.wait4(pair[0].pid, 0)[2]
    pair[1].wait()
    assert before + 5 <= counted <= usage.ru_nvcsw + usage.ru_nivcsw
    pair[0].returncode = -9  # reaped above
