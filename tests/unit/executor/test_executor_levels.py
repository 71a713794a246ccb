"""Levels: what is offered, what is refused, and what the refusal says in each situation."""

import errno
import os
import platform
import re
import subprocess
import sys

import pytest
from repository import ROOT

from jaxmarl_llm.executor import Limits, available_level, levels
from jaxmarl_llm.executor.isolation import landlock, namespaces, seccomp
from jaxmarl_llm.executor.probing import probe

ACCEPT = ("min_level=1 in Python", "--config.executor.min_level=1", "--min-level 1")


@pytest.fixture
def few_attacks(monkeypatch):
    """The table is tested in test_executor_probe.py; here it is short."""
    tables = {1: {"fork": "done", "mount": "refused"}, 2: {"fork": "refused", "mount": "refused"}}
    monkeypatch.setattr(
        levels, "probe_tables", lambda highest: {k: tables[k] for k in tables if k <= highest}
    )


@pytest.fixture
def layers(monkeypatch):
    """Substitutes what the layers say of themselves: pretend(landlock="...", holes={3: ("mount",)})."""
    levels.available_level.cache_clear()

    def pretend(holes=None, **reasons):
        for module in (landlock, seccomp, namespaces):
            reason = reasons.get(module.__name__.rpartition(".")[2], "")
            monkeypatch.setattr(module, "supported", lambda reason=reason: reason)
        monkeypatch.setattr(probe, "holes", lambda level: (holes or {}).get(level, ()))

    yield pretend
    levels.available_level.cache_clear()


def refusal(min_level=2, level=None):
    with pytest.raises(levels.ExecutorRefused) as caught:
        levels.require_level(min_level, level)
    return str(caught.value)


def error(code):
    return f"there is no Landlock: {OSError(code, f'landlock_create_ruleset: {os.strerror(code)}')}"


NEW, OLD = "6.8.0-45-generic", "5.4.0-100-generic"


@pytest.mark.skipif(sys.platform != "linux", reason="about Linux")
@pytest.mark.parametrize(
    "kernel, reasons, wanted, advice",
    [
        (OLD, {"landlock": error(errno.ENOSYS)}, 2, "Landlock came with Linux 5.13, this is 5.4"),
        (NEW, {"landlock": error(errno.ENOSYS)}, 2, "CONFIG_SECURITY_LANDLOCK"),
        (NEW, {"landlock": error(errno.ENOSYS)}, 2, "--security-opt seccomp=unconfined"),
        (NEW, {"landlock": error(errno.EOPNOTSUPP)}, 2, "lsm=landlock,"),
        (NEW, {"landlock": error(errno.EPERM)}, 2, "update Docker, or start it with --security-opt"),
        (NEW, {"landlock": error(errno.EPERM)}, 2, "seccompProfile.type: Unconfined"),
        (NEW, {"seccomp": "no table of system calls for riscv64"}, 2, "x86_64 or aarch64"),
        (NEW, {"seccomp": "the kernel takes no seccomp filters"}, 2, "CONFIG_SECCOMP_FILTER"),
        (
            NEW,
            {"namespaces": "[Errno 13] x; sysctl kernel.apparmor_restrict_unprivileged_userns is 1: y"},
            3,
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            NEW,
            {"namespaces": "[Errno 13] x; sysctl kernel.apparmor_restrict_unprivileged_userns is 1: y"},
            3,
            f"{os.path.realpath(sys.executable)} flags=(unconfined) {{ userns, }}",
        ),
        (
            NEW,
            {"namespaces": "[Errno 1] x; sysctl kernel.unprivileged_userns_clone is 0: set it to 1"},
            3,
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            NEW,
            {"namespaces": "[Errno 28] x; sysctl user.max_user_namespaces is 0: raise it"},
            3,
            "sudo sysctl -w user.max_user_namespaces=10000",
        ),
        (NEW, {"namespaces": "[Errno 38] unshare: x; the kernel is older"}, 3, "use Linux 5.12 or newer"),
        # Docker's default profile: unshare gives EPERM.
        (NEW, {"namespaces": "[Errno 1] unshare: Operation not permitted; in a container"}, 3, "--user 1000"),
        (NEW, {"holes": {3: ("mount",), 2: ("mount",)}}, 2, "worth a report"),
        (NEW, {"holes": {3: ("fork",), 2: ("read the project's files",)}}, 2, "python -m venv"),
    ],
)  # fmt: skip
def test_each_situation_has_its_remedy(monkeypatch, few_attacks, layers, kernel, reasons, wanted, advice):
    monkeypatch.setattr(platform, "release", lambda: kernel)
    layers(**reasons)
    available = 2 if wanted == 3 else 1
    text = refusal(wanted)
    first, remedy, accepted, *table = text.splitlines()
    have = f"the level available here is {available}, {levels.NAMES[available]}: "
    assert first.startswith(f"min_level is {wanted}, {levels.NAMES[wanted]}, but {have}")
    for reason in reasons.values():
        assert (reason if isinstance(reason, str) else " ".join(reason[2])) in first
    assert remedy.startswith(f"To get level {wanted}: ") and advice in remedy
    for way in ACCEPT:
        assert way.replace("1", str(available)) in accepted
    assert ("without secrets" in accepted) == (available == 1)
    lines = ["Probe at level 1, 2 attacks:", "  1 done: fork", "  1 refused: mount",
             "Probe at level 2, 2 attacks:", "  2 refused: fork, mount"]  # fmt: skip
    assert table == lines


@pytest.mark.parametrize(
    "name, pattern",
    [
        ("darwin", "this is macOS: run it in .* Docker Desktop"),
        ("win32", "Subsystem"),
        ("plan9", "plan9: .*Linux v"),
    ],
)
def test_other_platforms(monkeypatch, few_attacks, name, pattern):
    monkeypatch.setattr(sys, "platform", name)
    text = levels._refusal(2, None, 1, "there is no Landlock: [Errno 78] it exists on Linux only")
    assert re.search(
        f"To get level 2: Landlock, seccomp and namespaces exist on Linux only, and .*{pattern}", text
    )


def test_without_fork_there_is_nothing_to_accept(monkeypatch):
    monkeypatch.setattr(levels, "_can_fork", lambda: False)
    assert levels.available_level.__wrapped__()[0] == 0
    monkeypatch.setattr(levels, "available_level", levels.available_level.__wrapped__)
    text = refusal(1)
    assert "available here is none: this platform has no fork" in text
    assert "accept" not in text and "Probe" not in text


def test_a_level_asked_for_by_name(monkeypatch, few_attacks):
    monkeypatch.setattr(levels, "available_level", lambda: (2, "no namespaces"))
    assert refusal(1, 3).startswith(
        "level is 3, full (level 2 inside namespaces), but the level available here is 2,"
    )
    assert levels.require_level(1) == levels.require_level(2, 2) == 2 and levels.require_level(1, 1) == 1
    assert levels.require_level() == 2  # the default is 2
    with pytest.raises(ValueError, match="level is 1, below min_level 2; to accept it, set min_level=1"):
        levels.require_level(2, 1)
    monkeypatch.setattr(levels, "available_level", lambda: (1, "no Landlock"))
    assert "min_level is 2" in refusal()


@pytest.mark.parametrize("value", [0, 4, True, "2", None])
def test_levels_that_do_not_exist(value):
    with pytest.raises(ValueError, match="min_level is .*; allowed: 1, 2, 3"):
        levels.require_level(value)


def test_a_long_table_is_cut_but_for_what_is_done(monkeypatch):
    table = {f"attack {i}": "done" if i < 30 else "refused" for i in range(60)}
    text = "\n".join(levels._compact(1, table))
    assert "30 done: attack 0, attack 1," in text and "attack 29" in text and "30 refused: all others" in text
    assert levels._compact(3, dict.fromkeys(table, "refused"))[1:] == ["  60 refused: all"]
    assert max(map(len, text.splitlines())) <= 108


def test_metadata():
    actual = levels.describe(2, Limits(cpu_seconds=1, memory_mb=128))
    assert actual == {
        "level": 2, "landlock_abi": landlock.abi(), "python": platform.python_version(),
        "cpu_seconds": 1, "wall_seconds": 3, "memory_mb": 128,
    }  # fmt: skip


# Installs a filter of system calls that gives an error for one call, and starts a command under it. With
# `argument`, only calls whose first argument is that.
DENY = """
import ctypes, os, struct, sys
number, argument, code = map(int, sys.argv[1:4])
libc = ctypes.CDLL(None, use_errno=True)
steps = [(0x20, 0, 0, 0), (0x15, 0, 1 if argument < 0 else 3, number)]
if argument >= 0:
    steps += [(0x20, 0, 0, 16), (0x15, 0, 1, argument)]
steps += [(0x06, 0, 0, 0x50000 | code), (0x06, 0, 0, 0x7FFF0000)]
text = b"".join(struct.pack("=HBBI", *step) for step in steps)
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("text", ctypes.c_char_p)]
assert libc.prctl(38, *map(ctypes.c_ulong, (1, 0, 0, 0))) == 0
assert libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(Filter(len(steps), text))) == 0
os.execv(sys.executable, [sys.executable, *sys.argv[4:]])
"""
PRCTL = {"x86_64": 157, "aarch64": 167}.get(platform.machine())
DENIED = [  # number, argument, error; what the refusal says
    ((444, -1, errno.ENOSYS), "landlock_create_ruleset: Function not implemented"),
    ((444, -1, errno.EPERM), "landlock_create_ruleset: Operation not permitted"),
    ((PRCTL, 22, errno.EPERM), "the kernel takes no seccomp filters: Operation not permitted"),
]


def denied(call, *arguments, text=None):
    """The finished `python` command with a system call taken away."""
    line = [sys.executable, "-c", DENY, *map(str, call), *map(str, arguments)]
    return subprocess.run(line, cwd=ROOT, input=text, capture_output=True, text=True, timeout=600)


@pytest.fixture
def can_deny():
    if PRCTL is None or available_level()[0] < 2:
        pytest.skip("needs a machine whose layers can be taken away")


PROGRAM = (
    '{"sources": {"a": "def f(x):\\n    return x"}, "entry_point": "f", '
    '"tests": "def check(c):\\n    assert c(1) == 1"}'
)


@pytest.mark.slow
@pytest.mark.parametrize("call, reason", DENIED)
def test_a_machine_without_a_layer_is_refused_for_real(can_deny, call, reason):
    done = denied(call, "-m", "jaxmarl_llm.executor", text=PROGRAM)
    assert done.returncode == 2 and done.stdout == ""
    first, remedy, accepted, *table = done.stderr.splitlines()
    assert first.startswith("min_level is 2, ") and "available here is 1, " in first and reason in first
    assert remedy.startswith("To get level 2: ") and "seccomp=unconfined" in remedy
    assert all(way in accepted for way in ACCEPT)
    assert table[0].startswith("Probe at level 1, ") and "read /etc/passwd" in table[1]
    assert not any("level 2" in line for line in table)  # nothing can be run there
    assert "Traceback" not in done.stderr


def test_less_can_be_accepted(can_deny):
    done = denied(DENIED[0][0], "-m", "jaxmarl_llm.executor", "--min-level=1", text=PROGRAM)
    assert done.returncode == 0, done.stderr
    assert '"verdict": "pass"' in done.stdout and '"level": 1' in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "evaluate"])
def test_a_run_is_refused_before_models_load(can_deny, tmp_path, name):
    fields = ["--config=configs/coding.py:smoke", "--config.model=/no/such/model"]
    where = [f"--workdir={tmp_path / 'run'}"] if name == "train" else []
    done = denied(DENIED[0][0], "-m", f"experiments.{name}", *fields, *where)
    assert done.returncode == 1 and done.stdout.startswith("reading problems and models")
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr.startswith("error: min_level is 2, ") and "Traceback" not in done.stderr
    assert "--config.executor.min_level=1" in done.stderr and "Probe at level 1" in done.stderr
    assert "/no/such/model" not in done.stderr  # which is said once models are looked for
    assert not list(tmp_path.rglob("*.json"))


def test_a_process_with_many_descriptors_open_is_offered_as_much():
    """A notebook's kernel has more than the 64 that our own processes may have."""
    code = (
        "import os\nfor _ in range(100):\n    os.dup(0)\n"
        "from jaxmarl_llm.executor import available_level\nprint(*available_level())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    level, reason = levels.available_level()
    assert done.stdout == f"{level} {reason}\n", done.stderr
