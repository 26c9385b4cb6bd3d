"""What an executor has done inside a pod: the standard library alone, on whatever Python the image has (3.8 or newer).

It is sent along with each request, so an image needs nothing of Longstride. ``run``, ``look`` and ``send_signal`` are for the container
of the agent's code, ``lay`` and ``fetch`` for the porter, which shares its volumes and none of its processes.
"""

# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import sys
import time
from typing import Any, BinaryIO

from longstride.sandbox.kubernetes.parcel import Bounds, Malformed, pack, unpack, walk

MARK, POD = "LONGSTRIDE_SANDBOX", "pod"
"""A variable of the pod's template, and its value. Without it, the signals below would go to whoever runs on this machine."""
GLANCE_S = 0.05
FAILED, FULL = 125, 124
"""Exit codes of a request that was not carried out; the second: for want of room."""
SWEEPS = 100
GROUP = "/sys/fs/cgroup"
COUNTERS = {
    "cpu_s": (("cpu.stat", "usage_usec", 1e-6), ("cpuacct/cpuacct.usage", "", 1e-9)),
    "memory_bytes": (("memory.current", "", 1), ("memory/memory.usage_in_bytes", "", 1)),
    "peak_memory_bytes": (("memory.peak", "", 1), ("memory/memory.max_usage_in_bytes", "", 1)),
    "out_of_memory": (("memory.events", "oom_kill", 1), ("memory/memory.oom_control", "oom_kill", 1)),
}
"""What is counted → where: file, word before the number, unit. First as control groups version 2 have it, then as version 1."""


def main(request: dict[str, Any], stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Do one thing; the exit code says whether it was done, the last line of standard error why not."""
    do = {"run": run, "look": look, "signal": send_signal, "lay": lay, "fetch": fetch}[request["do"]]
    try:
        return do(request, stdin, stdout)
    except (Malformed, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return FULL if getattr(error, "errno", None) == errno.ENOSPC else FAILED
    finally:
        stdout.flush()


def lay(request: dict[str, Any], stdin: BinaryIO, stdout: BinaryIO) -> int:
    """What comes on standard input becomes the content of ``root``, which is empty."""
    root = os.open(request["root"], os.O_RDONLY | os.O_DIRECTORY)
    laid = unpack(stdin, root, Bounds(request["entries"], request["bytes"]))
    if laid.over:
        raise Malformed(f"more {laid.over} than were said to come")
    stdout.write(b"%d\n" % laid.entries)
    return 0


def fetch(request: dict[str, Any], stdin: BinaryIO, stdout: BinaryIO) -> int:
    """The content of ``root`` goes to standard output."""
    for piece in pack(os.open(request["root"], os.O_RDONLY | os.O_DIRECTORY)):
        stdout.write(piece)
    return 0


def run(request: dict[str, Any], stdin: BinaryIO, stdout: BinaryIO) -> int:
    """A command, and then the end of all that it left behind; its exit code, 128 + n where signal n ended it."""
    _require_pod()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        try:
            _become(request)
        except OSError as error:
            sys.stderr.write(f"{request['argv'][0]}: {error.strerror}\n")
            sys.stderr.flush()
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
        finally:
            os._exit(FAILED)
    code = _watch(child, request["cpu_s"])
    _signal_all(signal.SIGKILL)
    return code


def look(request: dict[str, Any], stdin: BinaryIO, stdout: BinaryIO) -> int:
    """What has been used, as JSON; with ``sweep``, once no process is left."""
    if request["sweep"] and not _sweep():
        sys.stderr.write("processes of the command do not end\n")
        return FAILED
    seen: dict[str, Any] = {name: _counter(name) for name in COUNTERS}
    seen["processes"] = len(_others())
    seen.update(_filled(request["workspace"], request["entries"], request["bytes"]))
    stdout.write(json.dumps(seen).encode())
    return 0


def send_signal(request: dict[str, Any], stdin: BinaryIO, stdout: BinaryIO) -> int:
    """To every process but this one and the first."""
    _require_pod()
    _signal_all(signal.Signals[request["signal"]])
    return 0


def _become(request: dict[str, Any]) -> None:
    os.setsid()
    # When the node itself runs out of memory, sandboxes go first; not every kernel in user space has a say in that.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    for name, value in request["rlimits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (least, least))
    os.chdir(request["cwd"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(request["argv"][0], request["argv"], request["env"])


def _watch(child: int, cpu_s: float) -> int:
    """Until it ends, or all of it has used too much CPU time; then everything is killed, itself included."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if _counter("cpu_s") > cpu_s:
            _signal_all(signal.SIGKILL)
        time.sleep(GLANCE_S)


def _sweep() -> bool:
    _require_pod()
    for _ in range(SWEEPS):
        _signal_all(signal.SIGKILL)
        if not _others():
            return True
        time.sleep(GLANCE_S)
    return False


def _require_pod() -> None:
    if os.environ.get(MARK) != POD:
        raise OSError(f"{MARK} is not {POD!r}: this is no sandbox, and its processes are left alone")


def _signal_all(number: int) -> None:
    """The kernel does it in one go: no process is born in between."""
    try:
        os.kill(-1, number)
    except ProcessLookupError:
        return


def _others() -> list[int]:
    """Processes besides the first and this one; a zombie is none any more."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os.getpid())]
    return [number for number in found if _runs(number)]


def _runs(number: int) -> bool:
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _counter(name: str) -> float:
    """0 where nobody counts."""
    for path, word, unit in COUNTERS[name]:
        try:
            with open(f"{GROUP}/{path}") as file:
                lines = [line.split() for line in file]
        except OSError:
            continue
        for line in lines:
            if not word or line[0] == word:
                return int(line[-1]) * unit
    return 0.0


def _filled(workspace: str, entries: int, size: int) -> dict[str, Any]:
    """Whether the file system is full, and how much lies in the workspace; counted to one above each bound at the most."""
    state = os.statvfs(workspace)
    count = used = 0
    for found in walk(os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)):
        count, used = count + 1, used + found.status.st_blocks * 512
        if count > entries or used > size:
            break
    full, no_inodes = state.f_bavail == 0, state.f_files > 0 and state.f_favail == 0
    return {"full": full, "no_inodes": no_inodes, "entries": count, "bytes": used}
