"""How a sandbox starts: join the groups, lower the rlimits, drop every privilege, bwrap, and a shell inside that waits.

The shell reads what to do from its standard input, and becomes the command: by then it has the command's limits and
environment, and no descriptor of its own.
"""

import os
import resource
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from longstride.contracts.v1.environment import WORKSPACE
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Owner
from longstride.sandbox.rootfs import GID, UID, searched

MEBIBYTE = 1 << 20
OPEN_FILES = 1024
FAILED = 125
"""The launcher's own exit code, before bwrap and inside."""
INIT = "/bin/sh"
READY_QUESTION, READY = b"echo\n", b"\n"
"""What the waiting shell is asked first, and what it answers once the sandbox is built around it."""

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
    nsenter: str | None = None
    """``None``: no sandbox shares another's network."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One start."""

    programs: Programs
    entrances: Sequence[str]
    owner: Owner | None
    argument_fd: int
    network_fd: int | None = None
    """A network namespace to start in; ``None``: the host's, which is left at once."""

    def command_line(self) -> list[str]:
        """bwrap's own arguments come through a descriptor: its command line can be read inside, as pid 1's."""
        inner = [self.programs.bwrap, "--args", str(self.argument_fd), "--", INIT]
        start = [self.programs.sh, "-c", SCRIPT, "sh", *self.entrances, "--", *rlimits(OF_EVERY_COMMAND), "--"]
        return [*start, *joining(self.programs.nsenter, self.network_fd), *self._drop(), *inner]

    def _drop(self) -> list[str]:
        if not self.owner:
            return []
        assert self.programs.setpriv, "root never starts bwrap as root"
        ids = ["--reuid", str(self.owner.uid), "--regid", str(self.owner.gid), "--clear-groups"]
        return [self.programs.setpriv, *ids, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]


def joining(nsenter: str | None, network_fd: int | None) -> list[str]:
    """What a command line is preceded by to start in a network namespace. It takes the host's root."""
    if network_fd is None:
        return []
    assert nsenter, "Capabilities.shares_network says so"
    return [nsenter, f"--net=/proc/self/fd/{network_fd}", "--"]


@dataclass(frozen=True, slots=True)
class Start:
    """What the waiting shell is told."""

    argv: Sequence[str]
    env: Mapping[str, str]
    limits: SandboxLimits
    nproc: str | None
    """prlimit, where no control group holds the processes. RLIMIT_NPROC counts a user's processes in its user namespace: set
    inside, only the sandbox's count."""
    hold_data: bool
    """Whether RLIMIT_DATA stands in for a control group's memory."""
    listens: bool = False
    """Whether the command gets the rest of the shell's input, once the shell has answered ``READY`` a second time; else none.
    A shell may read ahead, but not past the line that it carries out."""
    cwd: str = WORKSPACE
    """As ``Command.cwd``."""

    def script(self) -> bytes:
        """Commands for a POSIX shell; the last one replaces it.

        Raises:
            ValueError: a name in ``env`` is not one that a shell can set, or something holds a NUL.
        """
        flags = rlimits(of_command(self.limits, hold_data=self.hold_data))
        bounds = [
            f"ulimit {flag} {value} || exit {FAILED}" for flag, value in zip(flags[::2], flags[1::2], strict=True)
        ]
        if self.nproc:
            bounds.append(f"{shlex.quote(self.nproc)} --pid $$ --nproc={self.limits.processes} || exit {FAILED}")
        # The shell marks OLDPWD for its children. Variables come last: LD_PRELOAD, say, is the agent's code in any program.
        lines = [
            f"cd {shlex.quote(self.cwd)} || exit {FAILED}",
            "unset OLDPWD",
            *bounds,
            *map(_export, self.env.items()),
        ]
        last = shlex.join(["exec", *self.argv])
        text = "\n".join([*lines, f"echo && {last}\n" if self.listens else f"{last} </dev/null\n"])
        if "\0" in text:
            raise ValueError("a command or its environment holds a NUL character: the system cannot pass it on")
        return os.fsencode(text)


def _export(variable: tuple[str, str]) -> str:
    name, value = variable
    if not (name.isascii() and name.isidentifier()):
        raise ValueError(f"{name!r} cannot be an environment variable: use letters, digits and _, no digit first")
    return f"export {assigned(name, value)}"


def assigned(name: str, value: str) -> str:
    """``NAME=value`` for a shell inside, whose PATH is still the sandbox's own: that of a command only comes before it."""
    if name != "PATH":
        return f"{name}={shlex.quote(value)}"
    before = searched(value, own="")
    return f'PATH={shlex.quote(before)}"$PATH"'


Bounds = Mapping[str, tuple[int, int, int]]
"""Flag of the shell's ``ulimit`` → (resource, value, unit of the flag's number)."""
OF_EVERY_COMMAND: Bounds = {"-c": (resource.RLIMIT_CORE, 0, 1), "-n": (resource.RLIMIT_NOFILE, OPEN_FILES, 1)}


def of_command(limits: SandboxLimits, *, hold_data: bool) -> Bounds:
    """``ulimit`` takes file sizes in units of 512 bytes and memory in KiB."""
    data = {"-d": (resource.RLIMIT_DATA, limits.memory_mb * MEBIBYTE, 1024)} if hold_data else {}
    return {
        "-f": (resource.RLIMIT_FSIZE, limits.disk_mb * MEBIBYTE, 512),
        "-t": (resource.RLIMIT_CPU, max(1, int(limits.cpu_s) + 1), 1),
        **data,
    }


def rlimits(wanted: Bounds) -> list[str]:
    """Flags and values, one after the other."""
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
