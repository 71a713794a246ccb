"""The probe finds the holes that are there, and harms nothing where attacks succeed."""

import os
import pathlib

import pytest

from jaxmarl_llm.executor import ExecutorError, Limits, Program, available_level, levels
from jaxmarl_llm.executor.probing import attacks, probe
from jaxmarl_llm.executor.serving import worker

# Section by section of the threat model, what a process with its user's rights can do on any Linux.
OPEN_AT_LEVEL_1 = {
    "read /etc/passwd", "read the project's files", "list /", "list /tmp", "write to /tmp",
    "make a symbolic link", "make a hard link", "read its environment in /proc",
    "read the trainer's command line", "open a TCP socket", "open a UDP socket", "open a unix socket",
    "connect to this machine", "listen on loopback", "listen on an abstract socket", "execute a program",
    "execute its own interpreter", "signal its parent", "signal the trainer", "signal the trainer's group",
    "signal every process", "signal through the kernel", "change its priority", "choose its CPUs",
    "change a resource limit", "make a file in memory", "learn the host's name",
    "learn whether a file exists", "learn whether a process exists",
}  # fmt: skip
# Refused at level 1 too: these are the promises of every level, and what x86_64 kernels are built without.
PROMISED = {"inherit the trainer's environment", "find a descriptor that is not its own"}


def needs(level):
    if level > available_level()[0]:
        pytest.skip(available_level()[1])


@pytest.fixture(scope="module")
def at_level_1():
    return probe.table(1)


def test_level_1_is_full_of_holes(at_level_1):
    done = {name for name, outcome in at_level_1.items() if outcome == "done"}
    assert tuple(at_level_1) == probe.ATTACKS and set(at_level_1.values()) == {"done", "refused"}
    assert OPEN_AT_LEVEL_1 <= done
    assert not PROMISED & done
    assert probe.holes(1) == ()  # level 1 promises nothing of this


def test_root_can_do_nearly_everything_at_level_1(at_level_1):
    """An attack that is refused everywhere would show nothing: as root each one but these succeeds."""
    if os.geteuid() != 0 or available_level()[0] < 3:
        pytest.skip("needs root outside a container")
    refused = {name for name, outcome in at_level_1.items() if outcome == "refused"}
    assert refused <= PROMISED | {
        "make x32 system calls", "connect to the cloud's metadata", "use bpf", "use perf events",
        "use userfaultfd", "make an io_uring", "add a key", "use a keyring",
    }  # fmt: skip


@pytest.mark.parametrize("level", [2, 3])
def test_higher_levels_have_no_holes(level):
    needs(level)
    assert probe.holes(level) == ()
    done = {name for name, outcome in probe.table(level).items() if outcome == "done"}
    assert done == (set(attacks.NEEDS_LEVEL_3) if level == 2 else set())


def test_every_class_of_escape_is_tried():
    assert len(probe.ATTACKS) == len(set(probe.ATTACKS)) >= 50
    assert probe.required(1) == () and probe.required(3) == probe.ATTACKS
    assert set(probe.ATTACKS) - set(probe.required(2)) == set(attacks.NEEDS_LEVEL_3)


def test_attacks_that_succeed_leave_nothing_behind(at_level_1):
    assert not list(pathlib.Path("/tmp").glob("probe-*")) + list(pathlib.Path("/dev/shm").glob("probe-*"))
    assert " probe " not in pathlib.Path("/proc/self/mounts").read_text()


def test_the_worker_lives_after_every_attack():
    made = worker.Worker(Limits(cpu_seconds=10), 1)
    good = Program({"a": "def f(x):\n    return x"}, "f", "def check(c):\n    assert c(1) == 1")
    try:
        zygote = made.zygote.popen.pid
        assert not probe._refused(made, probe.ATTACKS)
        for name in probe.ATTACKS:
            probe._refused(made, [name])
        assert made.run(good).verdict == "pass" and made.zygote.popen.pid == zygote
    finally:
        made.close()


def test_an_attack_that_ends_its_process_counts_as_done(monkeypatch):
    text = pathlib.Path(attacks.__file__).read_text()
    for crash in ("os._exit(0)", "ctypes.string_at(0)", "raise KeyboardInterrupt"):
        monkeypatch.setattr(
            probe, "_source", lambda crash=crash: f"{text}\ndef attempt(name):\n    {crash}\n"
        )
        assert set(probe._outcomes(1, ["mount", "fork"]).values()) == {"done"}


def test_a_level_with_holes_is_not_offered(monkeypatch):
    available = levels.available_level.__wrapped__
    if available()[0] < 3:
        pytest.skip(available()[1])
    monkeypatch.setattr(probe, "holes", lambda level: ("mount", "fork") if level == 3 else ())
    assert available() == (2, "at level 3 a program can mount, fork")
    monkeypatch.setattr(probe, "holes", lambda level: ("mount",))
    assert available() == (1, "at level 2 a program can mount")


def test_a_level_at_which_nothing_runs_is_not_offered(monkeypatch):
    def broken(limits, level):
        raise worker.WorkerDied("zygote ended")

    monkeypatch.setattr(probe, "Worker", broken)
    with pytest.raises(ExecutorError, match="no process can be made at level 2: zygote ended"):
        probe.table(2)
    level, reason = levels.available_level.__wrapped__()
    assert level == 1 and reason
    assert levels.probe_tables() == {}
