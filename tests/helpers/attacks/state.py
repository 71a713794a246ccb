"""State: each program leaves a trace and answers rightly only if a former run's trace is there.

So it has to be run more than once per worker, under different markers; a pass means that one program can
reach another.
"""

from .escape import LEFT
from .record import attack

_IMPORTS = (
    "import builtins, collections, ctypes, decimal, functools, gc, json, locale, math, os, random, resource\n"
    "import signal, socket, sys, time, warnings"
)


def _trace(name, tries, look, leave, level=1):
    """`look` is true where the trace is found; `leave` makes it, and may fail. Both run at import."""
    body = "".join(f"        {line}\n" for line in leave.splitlines())
    source = (
        f"{_IMPORTS}\nfound = False\n"
        f"try: found = bool({look})\nexcept Exception: pass\n"
        f"def leave():\n    try:\n{body}    except Exception: pass\n"
        "leave()\ndef f(x):\n    return x + 1 if found else 0\n"
    )
    return attack(f"state-{name}", "fail", tries, source, level=level)


ATTACKS = tuple(
    _trace(*row)
    for row in (
        ("stdlib", "a patched module", "hasattr(math, 'left')", "math.left = 1"),
        ("builtins", "a patched builtin", "hasattr(builtins, 'left')", "builtins.left = 1"),
        ("modules", "a module that was never there", "'left' in sys.modules", "sys.modules['left'] = math"),
        ("path", "another place for modules", "'/left' in sys.path", "sys.path.insert(0, '/left')"),
        (
            "type",
            "a method of a type",
            "collections.Counter.__dict__.get('left')",
            "collections.Counter.left = 1",
        ),
        (
            "wire",
            "our own functions",
            "'left' in vars(sys.modules['executor.wire'])",
            "import executor.wire\nexecutor.wire.left = 1",
        ),
        (
            "code",
            "a default of a library function",
            "json.dumps.__kwdefaults__.get('left')",
            "json.dumps.__kwdefaults__['left'] = 1",
        ),
        (
            "cache",
            "a cache of the library",
            "functools.singledispatch.__dict__",
            "functools.singledispatch.left = 1",
        ),
        (
            "random",
            "the random numbers",
            "random.getstate()[1][0] == 1",
            "random.setstate((3, (1,) * 624 + (624,), None))",
        ),
        ("recursion", "the recursion limit", "sys.getrecursionlimit() == 777", "sys.setrecursionlimit(777)"),
        (
            "digits",
            "the limit of digits",
            "sys.get_int_max_str_digits() == 777",
            "sys.set_int_max_str_digits(777)",
        ),
        ("switch", "the switch interval", "sys.getswitchinterval() > 0.5", "sys.setswitchinterval(1)"),
        ("gc", "the garbage collector", "not gc.isenabled()", "gc.disable()"),
        ("trace", "a trace function", "sys.gettrace()", "sys.settrace(lambda *a: None)"),
        ("environment", "the environment", "'LEFT' in os.environ", "os.environ['LEFT'] = '1'"),
        (
            "c-environment",
            "the C library's environment",
            "ctypes.CDLL(None).getenv(b'LEFT')",
            "ctypes.CDLL(None).setenv(b'LEFT', b'1', 1)",
        ),
        (
            "time-zone",
            "the time zone",
            "time.tzname[0] == 'LEFT'",
            "os.environ['TZ'] = 'LEFT-3'\ntime.tzset()",
        ),
        (
            "locale",
            "the locale",
            "locale.setlocale(locale.LC_ALL) == 'C'",
            "locale.setlocale(locale.LC_ALL, 'C')",
        ),
        ("decimal", "the decimal context", "decimal.getcontext().prec == 5", "decimal.getcontext().prec = 5"),
        (
            "warnings",
            "the warning filters",
            "warnings.filters[0][0] == 'error'",
            "warnings.simplefilter('error')",
        ),
        (
            "handler",
            "a signal handler",
            "signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN",
            "signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
        ),
        (
            "mask",
            "blocked signals",
            "signal.pthread_sigmask(signal.SIG_BLOCK, [])",
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])",
        ),
        ("umask", "the rights of new files", "os.umask(0o77) == 0o77", "os.umask(0o77)"),
        ("folder", "the working folder", "os.getcwd() == '/usr'", "os.chdir('/usr')"),
        (
            "limit",
            "a limit",
            "resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 17",
            "resource.setrlimit(resource.RLIMIT_NOFILE, (17, 17))",
        ),
        ("descriptor", "an open file", "os.fstat(4)", "os.open(os.__file__, 0)"),
        ("tmp", "a file in /tmp", f"open('/tmp/{LEFT}')", f"open('/tmp/{LEFT}', 'w')", 2),
        ("shm", "a file in shared memory", f"open('/dev/shm/{LEFT}')", f"open('/dev/shm/{LEFT}', 'w')", 2),
        ("cwd", "a file where it stands", f"open('{LEFT}')", f"open('{LEFT}', 'w')", 2),
        (
            "byte-code",
            "byte code of a module",
            f"open('/tmp/__pycache__/{LEFT}.pyc')",
            f"os.mkdir('/tmp/__pycache__')\nopen('/tmp/__pycache__/{LEFT}.pyc', 'w')",
            2,
        ),
        (
            "sysv",
            "shared memory by number",
            "ctypes.CDLL(None).shmget(0x6c656674, 4096, 0) >= 0",
            "ctypes.CDLL(None).shmget(0x6c656674, 4096, 0o1666)",
            2,
        ),
        (
            "keyring",
            "a key ring",
            "ctypes.CDLL(None).syscall(250, 10, -3, b'user', b'left', 0) > 0",
            "ctypes.CDLL(None).syscall(248, b'user', b'left', b'x', 1, -3)",
            2,
        ),
        (
            "socket",
            "a socket without a file",
            f"socket.socket(1).connect('\\0{LEFT}') is None",
            f"socket.socket(1).bind('\\0{LEFT}')",
            2,
        ),
        ("name", "the machine's name", "os.uname().nodename == 'left'", "socket.sethostname('left')", 2),
        (
            "process",
            "a process that stays",
            "os.getppid() > 1 and os.kill(int(os.environ['LEFT']), 0)",
            "os.environ['LEFT'] = str(os.fork() or (time.sleep(9), os._exit(0)))",
            2,
        ),
    )
)
