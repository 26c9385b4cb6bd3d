"""What this host has of what a sandbox is made of."""

import os
import platform
import shutil
from dataclasses import dataclass

from longstride.sandbox import cgroup
from longstride.sandbox.base import Capabilities
from longstride.sandbox.cgroup import Hierarchy
from longstride.sandbox.errors import SandboxUnavailable
from longstride.sandbox.launcher import Programs

INSTALL = (
    "bubblewrap is not installed, and code never runs without isolation: `apt-get install bubblewrap` (Debian, Ubuntu), "
    "`dnf install bubblewrap` (Fedora), `pacman -S bubblewrap` (Arch), `apk add bubblewrap` (Alpine)"
)
NO_GROUPS = (
    "{what} of a whole sandbox cannot be held: no control group can be made here. Run the executor as root, or in a "
    "delegated cgroup (systemd: Delegate=yes; a container: a writable /sys/fs/cgroup). {instead}"
)
INSTEAD = {
    "memory": "Until then what processes have mapped is looked at ten times a second, and each one's data segment is held "
    "(RLIMIT_DATA).",
    "pids": "Until then RLIMIT_NPROC holds the processes.",
    "cpu": "Until then a sandbox may use every core, and its CPU seconds are looked at ten times a second.",
}
NO_QUOTA = (
    "the bytes and files of a workspace are measured after each command rather than held during it: no file system can "
    "be mounted here. Run the executor as root (CAP_SYS_ADMIN). Until then no single file exceeds disk_mb (RLIMIT_FSIZE)."
)
NO_POOL = (
    "no sandbox is made before it is asked for, and a call waits some ten milliseconds for it: a workspace cannot be attached to "
    "a sandbox that is there already. Run the executor as root on Linux 6.3 or newer (ID-mapped mounts of tmpfs)."
)
NO_SHARING = (
    "a task's calls do not reach the ports of the processes that it keeps running: run the executor as root, with util-linux's "
    "nsenter."
)
NO_IDS = "sandboxes share this user's ids, and so the kernel's limits per user: run the executor as root to give each its own."


@dataclass(frozen=True, slots=True)
class Host:
    """Found once, when the backend starts."""

    programs: Programs
    hierarchies: tuple[Hierarchy, ...]
    privileged: bool

    @property
    def grouped(self) -> bool:
        """Whether control groups hold memory and processes."""
        return {"memory", "pids"} <= cgroup.given(self.hierarchies)


def find_nsenter() -> str | None:
    """util-linux's."""
    return shutil.which("nsenter", path="/usr/bin:/bin")


def find_host() -> Host:
    """Look for the programs and the control groups.

    Raises:
        SandboxUnavailable: something that nothing can replace is missing; the text says how to get it.
    """
    if platform.system() != "Linux":
        raise SandboxUnavailable(
            f"bubblewrap needs Linux, and this is {platform.system()}: run the executor in a Linux VM"
        )
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxUnavailable(INSTALL)
    privileged = os.geteuid() == 0
    setpriv = shutil.which("setpriv")
    if privileged and setpriv is None:
        raise SandboxUnavailable("setpriv is not installed, and bwrap never starts as root: install util-linux")
    prlimit = shutil.which("prlimit", path="/usr/bin:/bin")
    programs = Programs(bwrap, setpriv if privileged else None, prlimit, nsenter=find_nsenter() if privileged else None)
    return Host(programs, cgroup.discover(), privileged)


def describe(host: Host, *, quota: bool, separate_ids: bool, prewarm: bool) -> Capabilities:
    """In words, for ``longstride doctor``."""
    have = cgroup.given(host.hierarchies)
    enforced = ["user, pid, mount, network, ipc, uts and cgroup namespaces", "system call filter", "no network"]
    enforced += ["wall clock, output size, open files, no core dumps"]
    enforced += [f"{name} of the whole sandbox (cgroup)" for name in ("memory", "pids", "cpu") if name in have]
    missing = [
        NO_GROUPS.format(what=name, instead=INSTEAD[name]) for name in ("memory", "pids", "cpu") if name not in have
    ]
    (enforced if quota else missing).append("bytes and inodes of the workspace (tmpfs)" if quota else NO_QUOTA)
    (enforced if separate_ids else missing).append("host ids of its own for each sandbox" if separate_ids else NO_IDS)
    (enforced if prewarm else missing).append("sandboxes that wait in a pool" if prewarm else NO_POOL)
    if host.programs.nsenter is None:
        missing.append(NO_SHARING)
    return Capabilities(
        "bubblewrap",
        frozenset({"process"}),
        tuple(enforced),
        tuple(missing),
        prewarm,
        links=True,
        egress=True,
        folders=True,
        shares_network=host.programs.nsenter is not None,
    )
