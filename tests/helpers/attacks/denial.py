"""Denial of service: time, patience, crashes, processes and output, of the candidate and of the tester."""

from .record import attack, sheet

# No answer is right even where an attack fails to hold up the run.
_TIME = sheet(
    "time",
    r"""
loop | timeout-cpu | an endless loop
    def f(x):
        while True: pass

import | timeout-cpu | one at import
    while True: pass

except | timeout-cpu | one that catches everything
    def f(x):
        while True:
            try:
                while True: pass
            except BaseException: pass

finally | timeout-cpu | one in a clean-up
    def f(x):
        try: return 1
        finally:
            while True: pass

finaliser | timeout-cpu | one in a finaliser
    class A:
        def __del__(self):
            while True: pass
    def f(x):
        A()

blocked | timeout-cpu | one with all signals blocked
    import signal
    def f(x):
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        while True: pass

ignored | timeout-cpu | one that ignores every signal
    import signal
    def f(x):
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: pass

timers | error | timers of its own | level_1 timeout-cpu
    import signal
    signal.signal(signal.SIGALRM, lambda *a: None)
    def f(x):
        signal.setitimer(signal.ITIMER_REAL, 1e-5, 1e-5)
        while True: pass

half-asleep | timeout-cpu | as much sleep as work
    import time
    def f(x):
        while True:
            end = time.process_time() + 0.01
            while time.process_time() < end: pass
            time.sleep(0.01)

sum | timeout-cpu | a loop in C
    def f(x):
        return sum(range(10**13))

power | timeout-cpu | arithmetic without end
    def f(x):
        return len(str(9**9**9))

modular-power | timeout-cpu | the same in constant memory
    def f(x):
        return pow(3, 1 << 99999, (1 << 99999) + 1) * 0

factorial | timeout-cpu | a product without end
    import math
    def f(x):
        return math.factorial(10**8) * 0

digits | timeout-cpu | digits of a large number
    import sys
    def f(x):
        sys.set_int_max_str_digits(0)
        return len(str(1 << 99999999))

regex | timeout-cpu | a regular expression that tries everything
    import re
    def f(x):
        return re.match('(a+)+$', 'a' * 60 + 'b')

membership | timeout-cpu | a search in an endless iterator
    import itertools
    def f(x):
        return 0 in itertools.repeat(1)

maximum | timeout-cpu | the largest of endlessly many
    import itertools
    def f(x):
        return max(itertools.count())

consume | timeout-cpu | an endless iterator read to its end
    import collections, itertools
    def f(x):
        collections.deque(itertools.count(), maxlen=0)

sort-key | timeout-cpu | a sort whose key does not return
    def f(x):
        return sorted([1, 2], key=lambda v: max(iter(int, 1)))

collisions | timeout-cpu | keys that all collide
    def f(x):
        return len(dict.fromkeys(i * (2**61 - 1) for i in range(10**5)))

hashing | timeout-cpu | a slow hash
    import hashlib
    def f(x):
        return hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)

answer | timeout-cpu | an answer that takes long to send
    class A(list):
        def __iter__(self): return iter(int, 1)
    def f(x):
        return list(A())

tree | timeout-cpu | calls without number
    def f(x):
        return f(x + 1) + f(x + 1) if x < 99 else 0

# Looping or asking for too much memory: the first limit that is met.
orders | timeout-cpu memory | all orders of many things
    import itertools
    def f(x):
        return len(list(itertools.permutations(range(20))))
""",
)

_WAITS = sheet(
    "wait",
    r"""
sleep | timeout-wall | a sleep
    import time
    def f(x):
        time.sleep(1000)

sleep-import | timeout-wall | a sleep at import
    import time
    time.sleep(1000)

lock | timeout-wall | a lock that nobody opens
    import threading
    def f(x):
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

event | timeout-wall | an event that never comes
    import threading
    def f(x):
        threading.Event().wait(1000)

queue | timeout-wall | an empty queue
    import queue
    def f(x):
        queue.Queue().get()

input | error | an answer from the keyboard
    def f(x):
        input()

stdin | fail | the end of an endless input
    import sys
    def f(x):
        return sys.stdin.read()

pause | fail | a signal | level_1 timeout-wall
    import signal
    def f(x):
        signal.pause()

select | error | nothing at all | level_1 timeout-wall
    import select
    def f(x):
        select.select([], [], [])

stop | error | a signal to go on | level_1 timeout-wall
    import os, signal
    def f(x):
        os.kill(os.getpid(), signal.SIGSTOP)
""",
)

_CRASHES = sheet(
    "crash",
    r"""
null | killed | a read of address 0
    import ctypes
    def f(x):
        ctypes.string_at(0)

import | killed | the same at import
    import ctypes
    ctypes.string_at(0)

abort | killed | a core file
    import os
    os.abort()

jump | killed | a jump to nowhere
    import ctypes
    def f(x):
        ctypes.CFUNCTYPE(None)(16)()

broken-type | killed | an interpreter whose types are gone
    import ctypes
    def f(x):
        ctypes.memset(id(int), 255, 400)
        return int(x)
""",
)

_OUTPUT = sheet(
    "output",
    r"""
stdout | fail | 600 MB of output
    import os
    block = bytes(1 << 20)
    def f(x):
        for _ in range(600): os.write(1, block)

stderr | fail | 600 MB of errors
    import os
    block = bytes(1 << 20)
    def f(x):
        for _ in range(600): os.write(2, block)

print | fail | long lines
    def f(x):
        for _ in range(9): print('a' * 1000000)

file | error | a file without end | level_1 timeout-cpu
    def f(x):
        with open('/dev/null', 'wb', 0) as file:
            while True: file.write(bytes(1 << 20))
""",
)

_BOMBS = sheet(
    "bomb",
    r"""
fork | error | processes without number
    import os
    def f(x):
        while True: os.fork()

fork-stubborn | timeout-cpu | the same, again and again
    import os
    def f(x):
        while True:
            try: os.fork()
            except OSError: pass

spawn | error | a shell
    import os
    def f(x):
        os.posix_spawn('/bin/sh', ['sh', '-c', ':'], {})

system | fail | a shell by the C library
    import os
    def f(x):
        os.system('sleep 9 & sleep 9')

subprocess | error | a process by the library
    import subprocess
    def f(x):
        subprocess.run(['/bin/true'])

thread | error | threads without number
    import threading, time
    def f(x):
        while True: threading.Thread(target=time.sleep, args=(9,)).start()

raw-thread | error | threads without a name
    import _thread
    def f(x):
        while True: _thread.start_new_thread(int, ())

pool | error | a pool of processes
    import multiprocessing
    def f(x):
        multiprocessing.get_context('fork').Process(target=int).start()
""",
    level=2,  # at level 1 root may start what it likes
)

# What is slow for the tester: bounded in size, so it gets through, and the answer is wrong.
_TESTER = (
    attack(
        "tester-collisions",
        "fail",
        "a set in the tester whose items all collide",
        "def f(x):\n    return {i * (2**61 - 1) for i in range(2000)}\n",
        tests="def check(candidate):\n    assert candidate(1) == {1}\n",
    ),
    attack("tester-list", "fail", "a long list for the tester", "def f(x):\n    return [0] * 100000\n"),
    attack("tester-int", "fail", "an integer of a million bits", "def f(x):\n    return 1 << 1000000\n"),
    attack("tester-text", "fail", "a long text for the tester", "def f(x):\n    return 'a' * (4 << 20)\n"),
)

ATTACKS = (*_TIME, *_WAITS, *_CRASHES, *_OUTPUT, *_BOMBS, *_TESTER)
