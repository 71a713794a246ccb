"""Two agents, "aux" and "main": one breaks the other's text, does its work in its name, or feigns its use.

Every answer is wrong, or rests on something that the other agent keeps to itself. `aux_calls` is how often
main really calls aux, which is what a report may say that counts such calls.
"""

from .record import sheet

_TEAM = {"aux": "def aux(x):\n    return x + 1\n", "main": "def f(x):\n    return aux(x)\n"}

_BY_AUX = sheet(
    "partner",
    r'''
open-string | load-error | main's text, by a string that is never closed
[aux]
    x = """

open-bracket | load-error | main's text, by a bracket that is never closed
[aux]
    x = (

open-block | load-error | main's text, by a block that it would fill
[aux]
    class A:

open-function | load-error | main's text, by a function that it would be inside
[aux]
    def aux(x):

backslash | load-error | main's text, by a line that goes on
[aux]
    x = 1 + \

exits | load-error | the program, by an exit while aux is loaded
[aux]
    raise SystemExit(0)

interrupts | load-error | the program, by an interrupt while aux is loaded
[aux]
    raise KeyboardInterrupt

asserts | load-error | the program, by a failure while aux is loaded
[aux]
    assert False

hard-exits | protocol | the program, by an exit without clean-up
[aux]
    import os
    os._exit(0)

loops-at-import | timeout-cpu | the program's time
[aux]
    while True: pass

exit-in-call | error | the call, by an exit of aux
[aux]
    def aux(x):
        raise SystemExit(0)

# One process for both agents ends; with a process for each, main meets an exception.
hard-exit-in-call | protocol error | the same without clean-up
[aux]
    import os
    def aux(x):
        os._exit(0)

loops | timeout-cpu | main's time
[aux]
    def aux(x):
        while True: pass

sleeps | timeout-wall | main's patience
[aux]
    import time
    def aux(x):
        time.sleep(1000)

memory | memory | main's memory
[aux]
    def aux(x):
        return bytearray(20 << 30)

stop-iteration | error | main's loop
[aux]
    def aux(x):
        raise StopIteration

equals | unsupported | an object of aux that equals everything
[aux]
    class A:
        def __eq__(self, other): return True
    def aux(x):
        return A()

# Missing when it is called, or already when the agents are put together.
missing | error load-error | a function that aux never wrote
[aux]
    x = 1

defines-both | fail | main's function, by one of the same name
[aux]
    def f(x):
        return x + 1
[main]
    def f(x):
        return 0

patches-entry | fail | main's function, replaced everywhere
[aux]
    import sys
    for module in list(sys.modules.values()):
        try: module.f = lambda x: x + 1
        except Exception: pass
[main]
    def f(x):
        return 0
''',
    team=_TEAM,
)

_BY_MAIN = sheet(
    "partner",
    r'''
main-open-string | load-error | the end of the program
    x = """

override | fail | aux's name for a function of its own | aux_calls 0
    def aux(x):
        return 0
    def f(x):
        return aux(x)

override-late | fail | the same inside the call | aux_calls 0
    def f(x):
        global aux
        aux = lambda x: 0
        return aux(x)

only-mentions | fail | credit for naming aux | aux_calls 0
    # aux(x)
    def f(x):
        'aux(x)'
        aux
        return 0

dead-call | fail | credit for a call that never runs | aux_calls 0
    def f(x):
        if False: return aux(x)
        return 0

ignores-result | fail | credit for a call without use | aux_calls 2
    def f(x):
        aux(x)
        return 0

swallows-failure | fail | credit for a call that failed | aux_calls 2
    def f(x):
        try: return aux()
        except BaseException: return 0

many-calls | fail | credit for calling often | aux_calls 200
    def f(x):
        for _ in range(100): aux(x)
        return 0

# What stands for aux may take no attributes.
feigned-count | fail load-error | a count of calls that never were | aux_calls 0
    def f(x):
        return 0
    aux.calls = 99
    f.calls = {'aux': 99}

# The frames break main's own channel, or are taken for its answer.
feigned-call | fail protocol | a call of aux written by hand
    import json, os, struct
    def f(x):
        body = json.dumps({'call': 'nobody', 'args': [1], 'kwargs': {}}).encode()
        os.write(3, struct.pack('>I', len(body)) + body)
        return 0

feigned-answer | fail protocol | an answer of aux written by hand
    import json, os, struct
    def f(x):
        body = json.dumps({'ok': 0}).encode()
        os.write(3, struct.pack('>I', len(body)) + body)
        return 0

patches-builtins | fail | the functions that aux uses
[aux]
    def aux(x):
        return sum([x, 2])
[main]
    import builtins
    builtins.sum = lambda items: 0
    def f(x):
        return aux(x)
''',
    team=_TEAM,
)

# Right only where each agent has a process of its own: in one process they share everything.
OWN_PROCESS = sheet(
    "partner",
    r"""
reads-globals | error | what aux keeps in its module
[aux]
    SECRET = 1
    def aux(x):
        return None
[main]
    def f(x):
        return x + aux.__globals__['SECRET']

searches-heap | error | what aux's function holds, anywhere in the process
[aux]
    def made(secret):
        def aux(x):
            return None and secret
        return aux
    aux = made(['a secret', 1])
[main]
    import gc
    def f(x):
        found = [t for t in gc.get_objects() if type(t) is list and len(t) == 2 and t[0] == 'a ' + 'secret']
        return x + found[0][1]

repairs-code | fail | aux's work, by another code of its function
[aux]
    def aux(x):
        return 0
[main]
    def right(x): return x + 1
    def f(x):
        try: aux.__code__ = right.__code__
        except Exception: pass
        return aux(x)

repairs-library | fail | aux's work, by a function that it calls
[aux]
    import math
    def aux(x):
        return math.floor(x)
[main]
    import math
    math.floor = lambda x: x + 1
    def f(x):
        return aux(x)
""",
    team=_TEAM,
)

ATTACKS = (*_BY_AUX, *_BY_MAIN)
