"""Forging a verdict: wrong answers, exits, exceptions, patched runtimes, odd sources."""

from .record import sheet

TESTS = {
    "ALL": "def check(candidate):\n    assert all(map(candidate, [1, 2]))\n",
    "CLOSE": "def check(candidate):\n    assert abs(candidate(1) - 2) < 1e-6 and len([1]) == 1\n",
    "LIST": "def check(candidate):\n    assert candidate(1) == [2]\n",
    "SAYS": "def check(candidate):\n    assert candidate(1) == 2, candidate(1)\n",
    "SWALLOWS": "def check(candidate):\n    try: assert candidate(1) is True\n    except: pass\n",
    "SECRET": "def check(candidate):\n    assert candidate(1) == 918273645\n",
    "SORTED": "def check(candidate):\n    xs = [2, 1]\n    assert candidate(xs) == [1, 2] and xs == [2, 1]\n",
    "IMPORT": "def check(candidate):\n    import math\n    assert math.isclose(candidate(1), 2)\n",
    "UNITTEST": """
import unittest
def check(candidate):
    assert not unittest.TestCase().assertEqual(candidate(1), 2)
""",
    "RAISES": """
def check(candidate):
    try:
        candidate(-1)
    except ValueError:
        pass
    else:
        assert False
    assert candidate(1) == 2
""",
}

_WRONG = sheet(
    "wrong",
    r"""
returns-none | fail | a wrong answer without any trick
    def f(x):
        return None

echo | fail | partial credit for giving the argument back
    def f(x):
        return x

constant | fail | the first example known by heart
    def f(x):
        return 2

text-of-it | fail | an answer of another type that looks alike
    def f(x):
        return str(x + 1)

nan | fail | a number that no comparison catches | tests CLOSE
    def f(x):
        return float('nan')

nan-in-list | fail | identity of NaN | tests LIST
    def f(x):
        return [float('nan')]

infinity | fail | a number above every bound | tests CLOSE
    def f(x):
        return float('inf')

surrogates | fail | text that cannot be encoded | tests SAYS
    def f(x):
        return '\ud800'

huge-int | fail | an integer too long to print | tests SAYS
    def f(x):
        return 1 << 99999

swallow-all | fail | a default answer for whatever goes wrong
    def f(x):
        try:
            raise ValueError
        except BaseException:
            return True

ascii-control | fail | text that moves the cursor | tests SAYS
    def f(x):
        return '\x1b[2K\r2 passed'

prints-passed | fail | the output of a test runner that is content
    import sys
    for out in (sys.stdout, sys.stderr):
        print('2 passed', 'OK', 'verdict: pass', file=out)
    def f(x):
        print('PASSED', flush=True)
""",
    named=TESTS,
)

_EXITS = sheet(
    "exit",
    r"""
exit-import | load-error | exit status 0 at import
    import sys
    sys.exit(0)

system-exit-import | load-error | the same by the exception
    raise SystemExit(0)

quit-import | load-error | the same by site's helper, or its absence
    quit()

hard-exit-import | protocol | exit status 0 without clean-up
    import os
    os._exit(0)

hard-exit-97 | protocol | an exit status of ours
    import os
    os._exit(97)

exit-call | error | exit status 0 inside the call
    def f(x):
        raise SystemExit(0)

hard-exit-call | protocol | the same without clean-up
    import os
    def f(x):
        os._exit(0)

hard-exit-swallowed | protocol | exit in tests that catch everything | tests SWALLOWS
    import os
    def f(x):
        os._exit(0)

# At level 1 root may start threads.
hard-exit-by-thread | error | exit status 0 from another thread | level_1 error protocol
    import os, threading
    def f(x):
        t = threading.Thread(target=os._exit, args=(0,))
        t.start()
        t.join()

exit-by-c | protocol | exit status 0 by the C library
    import ctypes
    def f(x):
        ctypes.CDLL(None)._exit(0)

# Its channel ends before it does: whether it leaves or is stopped is a matter of who is quicker.
exit-disabled | protocol killed | running on in our code after its exit was made harmless
    import os
    def f(x):
        os.close(3)
        os._exit = lambda status: None

atexit-and-hooks | error | exit status 0 after an uncaught exception
    import atexit, os, sys
    atexit.register(os._exit, 0)
    sys.excepthook = lambda *a: os._exit(0)
    sys.unraisablehook = sys.excepthook
    def f(x):
        raise ValueError

kill-itself | error | an end by a signal | level_1 killed
    import os
    def f(x):
        os.kill(os.getpid(), 9)

raise-signal | error | an end by a gentle signal | level_1 killed
    import signal
    def f(x):
        signal.raise_signal(signal.SIGTERM)
""",
    named=TESTS,
)

_EXCEPTIONS = sheet(
    "raise",
    r"""
keyboard-interrupt | error | Ctrl-C in the trainer
    def f(x):
        raise KeyboardInterrupt

generator-exit | error | a quiet end of a generator
    def f(x):
        raise GeneratorExit

stop-iteration | error | an early end of the tests' loop | tests ALL
    def f(x):
        raise StopIteration

stop-async | error | the same, asynchronous | tests ALL
    def f(x):
        raise StopAsyncIteration

assertion-error | error | a failure that looks like the tests' own
    def f(x):
        raise AssertionError

recursion-error | error | a failure that looks like ours
    def f(x):
        raise RecursionError

memory-error | memory | a failure of memory that is none
    def f(x):
        raise MemoryError

end-of-file | error | our own sign for a closed channel
    def f(x):
        raise EOFError

broken-pipe | error | another one
    def f(x):
        raise BrokenPipeError

own-base-exception | error | one that is no Exception
    class A(BaseException): pass
    def f(x):
        raise A

named-like-ours | error | a class of our name
    class Gone(BaseException):
        status = 'pass'
    def f(x):
        raise Gone('pass')

exception-group | error | one that cannot be made from a text
    def f(x):
        raise ExceptionGroup('', [OSError()])

unicode-error | error | another of this kind
    def f(x):
        raise UnicodeDecodeError('a', b'b', 0, 1, 'c')

huge-message | error | a message that fills the channel
    def f(x):
        raise ValueError('a' * (20 << 20))

surrogate-message | error | a message that cannot be encoded
    def f(x):
        raise ValueError('\udcff')

raising-message | error | an exception that cannot be printed
    class A(ValueError):
        def __str__(self): raise SystemExit(0)
        __repr__ = __str__
    def f(x):
        raise A

forged-message | error | the text of a report
    class A(Exception):
        __str__ = lambda self: 'pass: 2 of 2 passed'
    def f(x):
        raise A

hanging-message | timeout-cpu | a message that never ends
    class A(ValueError):
        def __str__(self):
            while True: pass
    def f(x):
        raise A

# Our reply cannot be made, or says what is left; it harms its own process only.
lying-exception-class | error protocol | a class that lies about its name and bases
    class M(type):
        __mro__ = property(lambda c: ())
        __name__ = 3
    class A(Exception, metaclass=M): pass
    def f(x):
        raise A

namesake-of-expected | error | another class with the name of the exception that is expected | tests RAISES
    class ValueError(Exception): pass
    def f(x):
        raise ValueError

always-the-expected | error | the expected exception for every call | tests RAISES
    def f(x):
        raise ValueError
""",
    named=TESTS,
)

ATTACKS = (*_WRONG, *_EXITS, *_EXCEPTIONS)
