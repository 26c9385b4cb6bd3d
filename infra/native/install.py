"""The system packages that the stack and the sandbox need: which are missing, and getting them where that is allowed."""

import ctypes.util
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.native import rabbitmq
from infra.native.errors import StackError

PACKAGES: dict[str, Callable[[], bool]] = {
    "rabbitmq-server": rabbitmq.SCRIPT.exists,
    "bubblewrap": lambda: shutil.which("bwrap") is not None,
    "libseccomp2": lambda: ctypes.util.find_library("seccomp") is not None,
    "util-linux": lambda: shutil.which("unshare") is not None and shutil.which("setpriv") is not None,
}
"""Debian's name of each, and whether what it brings is there, however it came."""
LOCK = Path("/run/lock/longstride-install")
POLICY = Path("/usr/sbin/policy-rc.d")
WAIT_SECONDS = 600
"""For other users of apt and dpkg, e.g. unattended upgrades."""
RETRY_SECONDS = 2.0


def missing() -> list[str]:
    """Names of the packages whose content is not on this machine."""
    return [name for name, present in PACKAGES.items() if not present()]


def install(say: Callable[[str], None]) -> None:
    """Install what is missing; at once done where nothing is.

    Raises:
        StackError: something is missing and this is not root on a Debian, or apt failed.
    """
    if not missing():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise StackError(
            f"missing system packages: {', '.join(missing())}. Install them and try again, on Debian or Ubuntu with: "
            f"sudo apt-get install --no-install-recommends {' '.join(missing())}"
        )
    with _alone(), _services_not_started():
        names = missing()  # Whoever held the lock may have installed them.
        if names:
            say(f"installing {', '.join(names)} with apt-get")
            _apt("update")
            _apt("install", "-y", "--no-install-recommends", *names)
    if missing():
        raise StackError(f"apt-get installed {', '.join(names)}, and yet {', '.join(missing())} cannot be found")


def _apt(*arguments: str) -> None:
    """Run apt-get. It waits for dpkg's lock by itself, but for the lock on its package lists only we do."""
    command = ["apt-get", "-q", "-o", f"DPkg::Lock::Timeout={WAIT_SECONDS}", *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode == 0:
            return
        locked = "Could not get lock" in done.stderr and time.monotonic() < deadline
        if not locked:
            output = (done.stdout + done.stderr)[-3000:]
            raise StackError(f"`{' '.join(command)}` ended with exit code {done.returncode}:\n{output}")
        time.sleep(RETRY_SECONDS)


@contextmanager
def _alone() -> Iterator[None]:
    """One installation at a time on this machine."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _services_not_started() -> Iterator[None]:
    """Keep packages from starting their system services: the stack runs nodes of its own, and nothing is to stay."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text(
        "#!/bin/sh\n# Made for the time of an installation by longstride's infra/native/install.py.\nexit 101\n"
    )
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
