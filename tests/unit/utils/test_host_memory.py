"""Freed memory that stays with the process, and room for programs, seen in what the kernel counts."""

import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm.utils import host_memory

PROGRAM = """
import resource, statistics, sys
import jax, jax.numpy as jnp
from jaxmarl_llm.utils import host_memory

if sys.argv[1] != "give back" and not host_memory.keep():
    sys.exit(3)
if sys.argv[1] == "undo" and not host_memory.give_back():
    sys.exit(3)

@jax.jit
def work(x):  # an array of 36 MB that is not the result; glibc may keep one of up to 32 MB by itself
    return (x @ x.T) @ x

x = jnp.ones((3072, 16))
faults = []
for _ in range(100):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work(x).block_until_ready()
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(int(statistics.median(faults[50:])))
"""


def pages(what: str) -> int:
    """Pages that the kernel handed out each time that a program ran again, once it had run fifty times.

    Small pieces may lie in a large one that was freed, which is then a little too small for the next: new
    pages are asked for until there are enough large pieces (after up to 19 runs among 37 processes), later
    hardly ever, hence the median.
    """
    done = subprocess.run([sys.executable, "-c", PROGRAM, what], capture_output=True, text=True)
    if done.returncode == 3:
        pytest.skip("not Linux with glibc")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
def test_a_program_that_runs_again_gets_the_same_pages():
    asked, kept, undone = pages("give back"), pages("keep"), pages("undo")
    assert asked > 3072**2 * 4 // 4096  # the array, in pages of 4 KB
    assert kept < asked / 50
    assert undone > 3072**2 * 4 // 4096  # as if nothing had been set


SCARCE = """
import pathlib, re, sys
import numpy as np
from jaxmarl_llm.utils import host_memory

if not host_memory.keep():
    sys.exit(3)

def held():  # MB
    return int(re.search(r"VmRSS:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) // 1024

before = held()
pieces = [np.ones(8 << 20, np.uint8) for _ in range(50)]
kept = pieces[::10]  # what is still used lies between
del pieces
freed = held()
assert not host_memory.give_back_if_scarce(0.0)
enough = held()
assert host_memory.give_back_if_scarce(1.1)
print(freed - before, enough - before, held() - before, sum(map(len, kept)) >> 20)
"""


def test_where_memory_is_scarce_what_is_free_goes_back():
    done = subprocess.run([sys.executable, "-c", SCARCE], capture_output=True, text=True)
    if done.returncode == 3:
        pytest.skip("not Linux with glibc")
    assert done.returncode == 0, done.stderr
    freed, enough, scarce, used = map(int, done.stdout.split())
    assert freed > 380 and enough > 380  # it stays with the process
    assert used - 40 < scarce < used + 40  # what importing had left goes back too


@pytest.mark.parametrize("limit, used, expected", [
    (None, None, 0.5), ("max", 900, 0.5), ("1000", 900, 0.2), ("4000", 900, 0.5),
])  # fmt: skip
def test_what_is_available_is_that_of_the_machine_or_of_the_container(tmp_path, limit, used, expected):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  2000 kB\nMemFree:  10 kB\nMemAvailable:  1000 kB\n")
    if limit is not None:
        group = tmp_path / "sys/fs/cgroup"
        group.mkdir(parents=True)
        values = {"max": limit, "current": used, "stat": "active_file 7\ninactive_file 100\n"}
        for name, value in values.items():
            (group / f"memory.{name}").write_text(f"{value}\n")
    assert host_memory.available(tmp_path) == pytest.approx(expected)
    assert host_memory.available(tmp_path / "nowhere") == 1.0


def test_elsewhere_nothing_is_done(monkeypatch):
    monkeypatch.setattr(host_memory.sys, "platform", "darwin")
    monkeypatch.setattr(host_memory.ctypes, "CDLL", lambda name: pytest.fail("was asked for a library"))
    assert not host_memory.keep() and not host_memory.give_back()
    assert not host_memory.give_back_if_scarce(1.1)


@pytest.mark.slow
def test_programs_are_forgotten_where_they_take_many_maps():
    maps = pathlib.Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("not Linux")

    @jax.jit
    def sort(x):
        traced.append(x.shape)
        return jnp.sort(jnp.tanh(x @ x.T), axis=0)

    traced, given = [], [np.arange(n * n, dtype=np.float32).reshape(n, n) / n**2 for n in range(10, 40)]
    first = [np.asarray(sort(x)) for x in given]
    assert not host_memory.make_room_for_programs(1.0)  # there is room: what is compiled stays
    sort(given[0])
    assert len(traced) == 30
    before = len(maps.read_text().splitlines())
    assert host_memory.make_room_for_programs(0.0)
    assert len(maps.read_text().splitlines()) < before - 30  # at least one for each program
    again = [np.asarray(sort(x)) for x in given]
    assert len(traced) == 60
    np.testing.assert_array_equal(
        np.concatenate([x.ravel() for x in first]), np.concatenate([x.ravel() for x in again])
    )


def test_with_an_accelerator_programs_are_not_forgotten(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "clear_caches", lambda: pytest.fail("forgot its programs"))
    assert not host_memory.make_room_for_programs(0.0)
