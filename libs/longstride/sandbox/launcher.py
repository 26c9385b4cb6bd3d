"""The command line that starts a sandbox: join the groups, lower the rlimits, drop every privilege, then bwrap."""

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Owner
from longstride.sandbox.rootfs import GID, UID

MEBIBYTE = 1 << 20
OPEN_FILES = 1024
FAILED = 125
"""The launcher's own exit code, before bwrap."""

SCRIPT = f"""\
while [ "$1" != -- ]; do echo 0 > "$1" || exit {FAILED}; shift; done
shift
while [ "$1" != -- ]; do ulimit "$1" "$2" || exit {FAILED}; shift 2; done
shift
echo 1000 > /proc/self/oom_score_adj || exit {FAILED}
exec "$@"
"""
"""Arguments: group entrances, ``--``, rlimits as flag and value, ``--``, the rest of the command line. POSIX sh.
When the host itself runs out of memory, sandboxes go first."""

NAMESPACES = (
    *("--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--new-session"),
    *("--uid", str(UID), "--gid", str(GID), "--hostname", "sandbox", "--clearenv"),
)


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the host's programs are."""

    bwrap: str
    setpriv: str | None
    """``None``: this process has no privileges to drop."""
    prlimit: str | None
    sh: str = "/bin/sh"


@dataclass(frozen=True, slots=True)
class Launch:
    """One start."""

    programs: Programs
    entrances: Sequence[str]
    owner: Owner | None
    limits: SandboxLimits
    argument_fd: int
    argv: Sequence[str]
    grouped: bool
    """Whether control groups hold the memory and the processes; else rlimits do what they can."""

    def command_line(self) -> list[str]:
        """bwrap's own arguments come through a descriptor: its command line can be read inside, as pid 1's."""
        flags = rlimits(self.limits, grouped=self.grouped)
        inner = [self.programs.bwrap, "--args", str(self.argument_fd), "--", *self._limited_argv()]
        start = [self.programs.sh, "-c", SCRIPT, "sh", *self.entrances, "--", *flags, "--"]
        return [*start, *self._drop(), *inner]

    def _drop(self) -> list[str]:
        if not self.owner:
            return []
        assert self.programs.setpriv, "root never starts bwrap as root"
        ids = ["--reuid", str(self.owner.uid), "--regid", str(self.owner.gid), "--clear-groups"]
        return [self.programs.setpriv, *ids, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]

    def _limited_argv(self) -> list[str]:
        """RLIMIT_NPROC counts a user's processes in its user namespace: it is set inside, where only the sandbox's count."""
        if self.grouped or not self.programs.prlimit:
            return list(self.argv)
        return [self.programs.prlimit, f"--nproc={self.limits.processes}", "--", *self.argv]


def rlimits(limits: SandboxLimits, *, grouped: bool) -> list[str]:
    """Flags of the shell's ``ulimit``, which takes file sizes in units of 512 bytes and memory in KiB."""
    wanted = {
        "-c": (resource.RLIMIT_CORE, 0, 1),
        "-n": (resource.RLIMIT_NOFILE, OPEN_FILES, 1),
        "-f": (resource.RLIMIT_FSIZE, limits.disk_mb * MEBIBYTE, 512),
        "-t": (resource.RLIMIT_CPU, max(1, int(limits.cpu_s) + 1), 1),
    }
    if not grouped:
        wanted["-d"] = (resource.RLIMIT_DATA, limits.memory_mb * MEBIBYTE, 1024)
    return [word for flag, (kind, value, unit) in wanted.items() for word in (flag, str(_at_most(kind, value) // unit))]


def _at_most(kind: int, value: int) -> int:
    """A hard limit that is already lower cannot be raised, and need not be."""
    hard = resource.getrlimit(kind)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def argument_block(arguments: Sequence[str]) -> int:
    """A descriptor that bwrap reads its arguments from."""
    descriptor = os.memfd_create("bwrap-arguments", os.MFD_CLOEXEC)
    os.write(descriptor, b"".join(os.fsencode(argument) + b"\0" for argument in arguments))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
