"""What to do if a machine does not offer a level: the remedy for each known situation."""

from __future__ import annotations

import errno
import os
import platform
import re
import sys

_SECCOMP_OPTION = (
    "start it with --security-opt seccomp=unconfined (in Kubernetes: securityContext.seccompProfile.type: "
    "Unconfined)"
)
_SYSCTLS = {
    "kernel.apparmor_restrict_unprivileged_userns": "0",
    "kernel.unprivileged_userns_clone": "1",
    "user.max_user_namespaces": "10000",
}


def accept(level: int) -> str:
    """How to accept a lower level, for every way to start an executor."""
    return (
        f"min_level={level} in Python, --config.executor.min_level={level} for experiments.train and "
        f"experiments.evaluate, --min-level {level} for python -m jaxmarl_llm.executor"
        + ("; do so inside a container or virtual machine without secrets only" if level < 2 else "")
    )


def remedy(wanted: int, reason: str) -> str:
    """What makes this machine offer the wanted level (2 or 3), where `reason` is why it does not."""
    if sys.platform != "linux":
        return _other_platform(sys.platform)
    from ..isolation import landlock, namespaces, seccomp  # here: they need Unix

    if why := landlock.supported():
        return _landlock(_error_number(why))
    if why := seccomp.supported():
        return _seccomp(why)
    if wanted > 2 and (why := namespaces.supported()):
        return _namespaces(why)
    if "read the project's files" in reason:
        return (
            "install this project into a virtual environment (python -m venv), not beside the standard "
            "library, whose folder programs may read"
        )
    return (
        "run it on another machine, or in a virtual machine; the layers are all there, so this is a defect "
        "of the executor or of the kernel, and worth a report with this text"
    )


def _other_platform(name: str) -> str:
    here = {"darwin": "macOS", "win32": "Windows"}.get(name, name)
    how = {
        "darwin": "a Linux virtual machine or container (Lima, Colima, Docker Desktop)",
        "win32": "the Windows Subsystem for Linux, version 2",
    }.get(name, "a Linux virtual machine")
    return f"Landlock, seccomp and namespaces exist on Linux only, and this is {here}: run it in {how}"


def _landlock(code: int) -> str:
    """By the error number of landlock_create_ruleset."""
    kernel = platform.release()
    if code == errno.EOPNOTSUPP:
        return (
            "Landlock is switched off: put landlock first in the list of the kernel's boot parameter lsm=, "
            "as in lsm=landlock,lockdown,yama,integrity,apparmor,bpf (/sys/kernel/security/lsm holds the "
            "list in force), and start the machine again"
        )
    if code == errno.ENOSYS and _version(kernel) < (5, 13):
        return f"update the kernel: Landlock came with Linux 5.13, this is {kernel}"
    filtered = (
        "if this is a container, its seccomp profile refuses Landlock, as Docker's default profile did "
        f"before version 23: update Docker, or {_SECCOMP_OPTION}"
    )
    if code == errno.ENOSYS:
        return f"{filtered}; if not, use a kernel built with CONFIG_SECURITY_LANDLOCK, unlike this {kernel}"
    return filtered


def _seccomp(reason: str) -> str:
    if "no table" in reason:
        return "run it with a 64-bit Python on x86_64 or aarch64, the machines whose system calls are known"
    return (
        f"if this is a container or a service with a seccomp profile of its own, {_SECCOMP_OPTION}; if not, "
        "use a kernel built with CONFIG_SECCOMP_FILTER"
    )


def _namespaces(reason: str) -> str:
    """By the sysctl that the reason names, if it does."""
    match = re.search(r"sysctl (\S+) is ", reason)
    if match and match[1] in _SYSCTLS:
        command = f"sudo sysctl -w {match[1]}={_SYSCTLS[match[1]]} (and a line in /etc/sysctl.d to keep it)"
        return f"{command}; {_apparmor_profile()}" if "apparmor" in match[1] else command
    if _error_number(reason) in (errno.ENOSYS, errno.EINVAL):
        return f"use Linux 5.12 or newer, built with namespaces; this is {platform.release()}"
    return (
        "in a container, start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
        "and as a user other than root (--user 1000); outside one, allow unprivileged user namespaces; level "
        "2 needs none of this"
    )


def _apparmor_profile() -> str:
    python = os.path.realpath(sys.executable)
    text = f"abi <abi/4.0>, profile jaxmarl-python {python} flags=(unconfined) {{ userns, }}"
    path = "/etc/apparmor.d/jaxmarl-python"
    return f"or for this interpreter alone: write '{text}' to {path} and run sudo apparmor_parser -r {path}"


def _error_number(text: str) -> int:
    """The number in the "[Errno n]" of an error's text; 0 where there is none."""
    match = re.search(r"\[Errno (\d+)\]", text)
    return int(match[1]) if match else 0


def _version(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)[:2]))
