"""The system calls that sandboxed code may not make, as a BPF program for ``bwrap --seccomp``.

A deny-list in front of the namespaces: each entry is a way around them, or a kernel surface that no agent needs.
Calls newer than the list answer ENOSYS, as on an older kernel.
"""

import errno
import functools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from longstride.sandbox.errors import SandboxUnavailable

NEWEST_KNOWN = 451
"""``cachestat``; numbers from 424 on are the same on every architecture."""

REFUSED = (
    # the mount family, and other ways to another root
    *("mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "mount_setattr"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "open_by_handle_at", "name_to_handle_at"),
    # other processes' memory and descriptors
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"),
    # kernel surfaces that namespaces do not cover
    *("bpf", "perf_event_open", "keyctl", "add_key", "request_key", "userfaultfd", "fanotify_init", "lookup_dcookie"),
    *("unshare", "setns", "syslog", "acct", "quotactl", "quotactl_fd", "swapon", "swapoff", "vhangup"),
    # the machine itself
    *("reboot", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "iopl", "ioperm"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname"),
)
"""Answered with EPERM."""

ABSENT = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret")
"""Answered with ENOSYS, so that callers fall back; the flags of ``clone3`` lie in memory, where no filter sees them."""

CALLS = ((REFUSED, errno.EPERM), (ABSENT, errno.ENOSYS))
"""Refused whatever their arguments."""

CLONE_NEW_FLAGS = (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
"""mount, cgroup, uts, ipc, user, pid and net; a time namespace cannot be asked of ``clone``."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET, SOCK_DCCP, SOCK_PACKET, SOCK_TYPE_MASK = 3, 4, 5, 6, 10, 0xF
PROTOCOLS = {AF_INET: {0, 1, 6, 17, 58}, AF_INET6: {0, 1, 6, 17, 58}, AF_NETLINK: {0, 15}}
"""ICMP, TCP, UDP; routes and devices. Whoever asks for another one has the kernel load the module of it, on the host."""
TERMINAL_INJECTION = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX put characters into a terminal's input."""
LEASES = (1024, 1024 + 16)
"""F_SETLEASE and F_SETDELEG. Whoever opens the file of a lease waits until its holder gives it back, or for 45 seconds: the
executor, too, when it collects the files of a process that is paused."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What an argument must be for a call to be refused."""

    index: int
    test: Literal["EQ", "GT"]
    value: int
    mask: int | None = None
    """Bits of the argument that are compared; ``None``: all."""


def by_argument() -> Iterator[tuple[str, int, tuple[Condition, ...]]]:
    """(call, error, conditions that hold together): calls that are refused with some arguments."""
    for flag in CLONE_NEW_FLAGS:
        yield "clone", errno.EPERM, (Condition(0, "EQ", flag, mask=flag),)
    for request in TERMINAL_INJECTION:
        yield "ioctl", errno.EPERM, (Condition(1, "EQ", request, mask=0xFFFFFFFF),)
    for command in LEASES:
        yield "fcntl", errno.EINVAL, (Condition(1, "EQ", command, mask=0xFFFFFFFF),)
    for call in ("socket", "socketpair"):
        yield call, errno.EAFNOSUPPORT, (Condition(0, "GT", AF_NETLINK),)
        for family in sorted(set(range(AF_NETLINK)) - {AF_UNIX, AF_INET, AF_INET6}):
            yield call, errno.EAFNOSUPPORT, (Condition(0, "EQ", family),)
    for family in (AF_INET, AF_INET6):
        for kind in (SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET, SOCK_DCCP, SOCK_PACKET):
            yield "socket", errno.EPERM, (Condition(0, "EQ", family), Condition(1, "EQ", kind, mask=SOCK_TYPE_MASK))
    for family, protocols in PROTOCOLS.items():
        last = max(protocols)
        yield "socket", errno.EPROTONOSUPPORT, (Condition(0, "EQ", family), Condition(2, "GT", last))
        for protocol in sorted(set(range(last)) - protocols):
            yield "socket", errno.EPROTONOSUPPORT, (Condition(0, "EQ", family), Condition(2, "EQ", protocol))


LOAD_NUMBER = struct.pack("=HBBI", 0x20, 0, 0, 0)
"""``A = seccomp_data.nr``."""
SKIP_UNLESS_NEWER = struct.pack("=HBBI", 0x35, 0, 1, NEWEST_KNOWN + 1)
"""``if A >= NEWEST_KNOWN + 1`` go to the next instruction, else skip it."""
RETURN_ENOSYS = struct.pack("=HBBI", 0x06, 0, 0, 0x00050000 | errno.ENOSYS)


@functools.cache
def program() -> bytes:
    """The filter as an array of ``struct sock_filter``.

    Raises:
        SandboxUnavailable: libseccomp is missing.
    """
    compiled = _compile()
    return LOAD_NUMBER + SKIP_UNLESS_NEWER + RETURN_ENOSYS + compiled


def _compile() -> bytes:
    try:
        import pyseccomp as sc
    except (ImportError, RuntimeError) as error:
        raise SandboxUnavailable(
            f"system calls cannot be filtered ({error}): install libseccomp (`apt-get install libseccomp2`) and pyseccomp"
        ) from error
    rules = sc.SyscallFilter(sc.ALLOW)
    rules.set_attr(sc.Attr.ACT_BADARCH, sc.KILL_PROCESS)
    _refuse_calls(sc, rules)
    _refuse_arguments(sc, rules)
    return _export(rules)


def _refuse_calls(sc: Any, rules: Any) -> None:
    for names, code in CALLS:
        for name in names:
            if (number := _number(sc, name)) is not None:
                rules.add_rule(sc.ERRNO(code), number)


def _number(sc: Any, name: str) -> int | None:
    """The call's number here; ``None`` where this architecture, or an old libseccomp, does not have it."""
    number: int = sc.resolve_syscall(sc.Arch.NATIVE, name)
    return number if number >= 0 else FROM_5_0_ON.get(name)


FROM_5_0_ON = {
    **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429},
    **{"fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438},
    **{"process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447},
}
"""Numbers that an old libseccomp does not know by name, the same on every architecture."""


def _refuse_arguments(sc: Any, rules: Any) -> None:
    for call, code, conditions in by_argument():
        rules.add_rule(sc.ERRNO(code), call, *(_argument(sc, condition) for condition in conditions))


def _argument(sc: Any, condition: Condition) -> Any:
    if condition.mask is None:
        return sc.Arg(condition.index, {"EQ": sc.EQ, "GT": sc.GT}[condition.test], condition.value)
    return sc.Arg(condition.index, sc.MASKED_EQ, condition.mask, condition.value)


def _export(rules: Any) -> bytes:
    descriptor = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "r+b") as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
