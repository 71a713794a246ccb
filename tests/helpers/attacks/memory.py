"""Denial of service by memory, deep recursion, and texts that are hard to compile."""

from .record import attack, sheet

# Who fills all of the memory may run out of CPU time first on a slow machine.
_MEMORY = sheet(
    "memory",
    r"""
bomb | memory | 20 GB at once
    def f(x):
        return bytearray(20 << 30)

import | memory timeout-cpu | all there is, while it is loaded
    a = [0]
    while True: a += a

append | memory | one block after the other
    def f(x):
        a = []
        while True: a.append(bytes(1 << 22))

join | memory timeout-cpu | a text that doubles
    def f(x):
        s = 'a'
        while True: s = s.join([s, s])

repeat | memory | a long text
    def f(x):
        return 'a' * (1 << 40)

list | memory | a long list
    def f(x):
        return [0] * (1 << 36)

shift | memory | a large integer
    def f(x):
        return 1 << (1 << 40)

field | memory | a wide field
    def f(x):
        return format(1, '99999999999')

replace | memory | a text that grows
    def f(x):
        s = 'a' * 99999
        return s.replace('a', s)

pages | error | pages without an object
    import mmap
    def f(x):
        mmap.mmap(-1, 20 << 30)

again | timeout-cpu | memory again and again
    def f(x):
        while True:
            try: bytearray(20 << 30)
            except MemoryError: pass

# Python has none left for an answer, or just enough.
c-library | fail memory protocol | memory past Python
    import ctypes
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    def f(x):
        while malloc(1 << 24): pass

# Its lists are shared, but what they stand for is not: refused for its size, or too slow before.
doubling-answer | unsupported timeout-cpu | an answer that doubles thirty times
    def f(x):
        a = [x]
        for _ in range(30): a = [a, a]
        return a
""",
)

_DEPTH = sheet(
    "deep",
    r"""
calls | error | calls inside calls
    def f(x):
        return f(x)

# Python frames take memory, others the stack; which is met first depends on the version of Python.
calls-without-limit | memory killed error timeout-cpu | the same with a raised limit
    import sys
    sys.setrecursionlimit(1 << 30)
    def f(x):
        return f(x)

# From 3.12 on, Python counts calls in C by itself.
c-calls | killed error memory | calls inside calls in C
    import sys
    sys.setrecursionlimit(1 << 30)
    def f(x):
        return sorted([x], key=f)

text | error | the text of a deep list
    def f(x):
        a = []
        for _ in range(10**5): a = [a]
        return repr(a)
""",
)

# Which limit of the compiler is met first depends on the version of Python: its own count, memory, the stack.
_COMPILER = tuple(
    attack(f"compile-{name}", "load-error memory killed timeout-cpu", f"the compiler, by {tries}", text)
    for name, tries, text in (
        ("signs", "a long row of signs", "x = " + "-" * 100000 + "1\n"),
        ("attributes", "a long chain of attributes", "x = 1" + ".real" * 100000 + "\n"),
        ("functions", "functions inside functions", "x = " + "lambda: " * 5000 + "1\n"),
        ("blocks", "blocks inside blocks", "".join(" " * n + "if 1:\n" for n in range(200))),
        ("branches", "one branch after the other", "if 0: pass\n" + "elif 0: pass\n" * 20000),
        ("brackets", "closed brackets", "x = " + "[" * 3000 + "]" * 3000 + "\n"),
        ("format", "texts inside texts", "x = " + "f'{" * 100 + "1" + "}'" * 100 + "\n"),
        ("dictionary", "a large display", "x = {" + "1: [2, {}], " * 100000 + "}\n"),
    )
)

ATTACKS = (*_MEMORY, *_DEPTH, *_COMPILER)
