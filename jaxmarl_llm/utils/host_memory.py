"""Keep the host's memory between programs, and make room for compiled ones.

A program's arrays on a CPU come from ``malloc``, which gives large ones back to the system as soon as they
are freed. The next program allocates the same again, and the system returns it page by page, each filled with
zeros first: measured as a third of an iteration's time with full copies of a small model.

A compiled program takes memory maps, whose number Linux limits for a process; at the limit XLA crashes.
"""

import ctypes
import gc
import pathlib
import re
import sys

from jaxmarl_llm.utils import jax_settings

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h
TRIM_THRESHOLD, MMAP_MAX = 128 * 1024, 65536  # glibc's own settings
SCARCE = 0.25  # share of the memory: where less is available, the next large program may not fit


def keep() -> bool:
    """Keep freed memory for later use, until the process ends; returns whether that is possible here.

    Call it before JAX computes anything, since programs are then run by the thread that calls them: glibc
    keeps large pieces for the main thread only. Peak memory grows by fragmentation: where small pieces split
    a large one, another is allocated, in the first runs of a program up to twenty times. Does nothing except
    on Linux with glibc. Where programs run on an accelerator `give_back` undoes it.
    """
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    jax_settings.update("jax_cpu_enable_async_dispatch", False)
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, -1))


def give_back() -> bool:
    """Undo `keep`, and return what is free to the system; returns whether that is possible here.

    With an accelerator no program's arrays are on the host: memory freed there, for example after reading
    models, is not needed again.
    """
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        return False
    library = ctypes.CDLL(None)
    done = library.mallopt(M_MMAP_MAX, MMAP_MAX) and library.mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD)
    library.malloc_trim(0)
    return bool(done)


def give_back_if_scarce(least: float = SCARCE) -> bool:
    """`give_back` if less than the share ``least`` of the memory is available; return whether it did.

    The memory that a process keeps grows with the number of programs of different sizes, until the system
    kills the largest process. The next programs then wait for new pages, as without `keep`. Does nothing
    except on Linux with glibc.
    """
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        return False
    return available() < least and bool(ctypes.CDLL(None).malloc_trim(0))


def available(root: pathlib.Path = pathlib.Path("/")) -> float:
    """The available share of the memory of the machine or the container's limit; 1 if it is unknown.

    ``root``: folder with proc and sys.
    """
    shares = [1.0]
    about, group = root / "proc/meminfo", root / "sys/fs/cgroup"
    if about.exists():
        kilobytes = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", about.read_text("utf-8"), re.M))
        if len(kilobytes) == 2:
            shares.append(int(kilobytes["MemAvailable"]) / int(kilobytes["MemTotal"]))
    limit, used, statistics = (group / f"memory.{name}" for name in ("max", "current", "stat"))
    if (
        all(path.exists() for path in (limit, used, statistics))
        and limit.read_text("utf-8").strip().isdigit()
    ):
        cached = re.search(r"^inactive_file (\d+)$", statistics.read_text("utf-8"), re.M)
        taken = int(used.read_text("utf-8")) - int(cached[1] if cached else 0)
        shares.append(1 - taken / int(limit.read_text("utf-8")))
    return min(shares)


def make_room_for_programs(most: float = 0.5) -> bool:
    """Drop compiled programs if more than the share ``most`` of the allowed maps is in use; whether it did.

    On a CPU, a program that samples takes about 2,000 maps; `vm.max_map_count` allows 65,530 unless somebody
    has raised it. Programs that are needed again are compiled again, to the same program. Does nothing except
    on Linux, and nothing where programs run on an accelerator.
    """
    import jax  # here: `keep` is called before a command knows whether it needs JAX

    if jax.default_backend() != "cpu":
        return False
    maps, allowed = pathlib.Path("/proc/self/maps"), pathlib.Path("/proc/sys/vm/max_map_count")
    if not (maps.exists() and allowed.exists()):
        return False
    if maps.read_bytes().count(b"\n") <= most * int(allowed.read_text("utf-8")):
        return False
    jax.clear_caches()
    gc.collect()  # programs that only each other refer to
    return True
