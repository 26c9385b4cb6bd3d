"""Watching one sandbox from outside until it has ended: output, wall clock, CPU time, cancellation."""

import contextlib
import json
import os
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, Literal, Protocol

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Cancellation, Stream
from longstride.sandbox.capture import Capture
from longstride.sandbox.errors import SandboxFailed
from longstride.sandbox.meter import Meter

CHUNK = 1 << 16
MEBIBYTE = 1 << 20
GLANCE_S = 0.02
"""How soon a cancellation is noticed."""
LOOK_S = 0.1
"""How often the meter is read."""
GRACE_S = 10.0
"""For the kernel to end a killed sandbox; memory of gigabytes takes a while to free."""

Cause = Literal["cancelled", "wall_s", "cpu_s", "memory_mb", "output_mb"]


class Outer(Protocol):
    """What runs on the host for one sandbox, e.g. bwrap."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None
    returncode: Any
    """``None`` until it was waited for."""

    def poll(self) -> int | None:
        """Its exit code; ``None`` while it runs."""
        ...

    def kill(self) -> None:
        """At once; nothing when it has ended."""
        ...

    def wait(self) -> int:
        """Until it has ended."""
        ...

    def end_descriptor(self) -> int:
        """A new descriptor that is readable once it has ended and all its output is in its pipes. The caller closes it."""
        ...


class LocalProcess(subprocess.Popen[bytes]):
    """A child of this process."""

    def end_descriptor(self) -> int:
        """A pidfd."""
        return os.pidfd_open(self.pid)


@dataclass
class Outcome:
    """What was seen."""

    exit_code: int | None
    """bwrap's report of the command's own; ``None`` when there was none."""
    stopped_by: Cause | None
    stdout: Capture
    stderr: Capture
    wall_s: float
    launcher_code: int


@dataclass
class Supervisor:
    """One process, from the start of its command on."""

    process: Outer
    status_fd: int
    """Where the outer process reports the child's pid and exit code as JSON, one object a line."""
    reported: bytes
    """What was read from there already."""
    limits: SandboxLimits
    cancelled: Cancellation
    meter: Meter
    kill_group: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    """Seconds of running; stands still while the sandbox is paused."""
    passes_code_on: bool = False
    """Whether the outer process reports no exit code but ends with the command's."""
    heard: Callable[[Stream, bytes], None] = lambda _stream, _data: None
    """Told of all output as it comes."""
    _status: bytearray = field(default_factory=bytearray)
    _child: int | None = None
    """A pidfd of the sandbox's first process: the number alone might be another's by the time it is used."""
    _stopped_by: Cause | None = None
    _too_much: bool = False
    """It has written more than it may."""

    def __post_init__(self) -> None:
        half = self.limits.output_bytes // 2
        self._streams: dict[int, Stream] = {
            self._fd(self.process.stdout): "stdout",
            self._fd(self.process.stderr): "stderr",
        }
        self._captures = {descriptor: Capture(half) for descriptor in self._streams}
        self._started = self.clock()
        self._next_look = self._started + LOOK_S
        self._note(self.reported)

    def watch(self) -> Outcome:
        """Block until the sandbox has ended and all output was read."""
        pidfd = self.process.end_descriptor()
        selector = selectors.DefaultSelector()
        try:
            for descriptor in (*self._captures, self.status_fd):
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            selector.register(pidfd, selectors.EVENT_READ)
            self._until_exit(selector, pidfd)
            self._drain()
            self._until_all_are_gone()
            self.meter.look(None)
            return self._outcome()
        finally:
            selector.close()
            os.close(pidfd)
            if self._child is not None:
                os.close(self._child)

    def _until_exit(self, selector: selectors.BaseSelector, pidfd: int) -> None:
        give_up = None
        while True:
            ready = [key.fd for key, _ in selector.select(GLANCE_S)]
            if pidfd in ready:
                return
            for descriptor in ready:
                if not self._read(descriptor):
                    selector.unregister(descriptor)
            if give_up is None and (cause := self._cause_to_stop()):
                self._stopped_by = cause
                self._kill()
                give_up = time.monotonic() + GRACE_S
            elif give_up is not None and time.monotonic() > give_up:
                self._kill_hard()
                raise SandboxFailed(f"the sandbox did not end within {GRACE_S:g} s of being killed")

    def _cause_to_stop(self) -> Cause | None:
        now = self.clock()
        if self.cancelled.is_set():
            return "cancelled"
        if now - self._started > self.limits.wall_s:
            return "wall_s"
        if self._too_much:
            return "output_mb"
        if now < self._next_look:
            return None
        self._next_look = now + LOOK_S
        self.meter.look(self._reported("child-pid"))
        if self.meter.cpu_s > self.limits.cpu_s:
            return "cpu_s"
        return "memory_mb" if self.meter.memory_bytes > self.limits.memory_mb * MEBIBYTE else None

    @property
    def _written(self) -> int:
        return sum(capture.total for capture in self._captures.values())

    def _read(self, descriptor: int) -> bool:
        """Take what is there; ``False`` at the end."""
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return True
        if descriptor == self.status_fd:
            self._note(data)
        else:
            self._take(descriptor, data)
        return bool(data)

    def _note(self, report: bytes) -> None:
        self._status += report
        if self._child is None and (pid := self._reported("child-pid")) is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child = os.pidfd_open(pid)

    def _take(self, descriptor: int, data: bytes) -> None:
        self._keep(descriptor, data)
        if self._captures[descriptor].full:
            # What is dropped is not worth this process's CPU: let the writer wait.
            time.sleep(0.001)

    def _keep(self, descriptor: int, data: bytes) -> None:
        """Up to the limit, to the byte: what is beyond it was never said."""
        room = round(self.limits.output_mb * MEBIBYTE) - self._written
        self._too_much = self._too_much or len(data) > room
        data = data[:room]
        self._captures[descriptor].feed(data)
        if data:
            self.heard(self._streams[descriptor], data)

    def _drain(self) -> None:
        """Every writer is dead: what is left in the pipes is all there is."""
        for descriptor in (*self._captures, self.status_fd):
            with contextlib.suppress(BlockingIOError):
                while data := os.read(descriptor, CHUNK):
                    if descriptor == self.status_fd:
                        self._note(data)
                    else:
                        self._keep(descriptor, data)

    def _until_all_are_gone(self) -> None:
        """bwrap ends when the command does; what the command left in the background dies with the first process, and is
        gone when that is."""
        if self._child is None:
            return
        if not readable(self._child, GRACE_S):
            self._kill_hard()
            raise SandboxFailed(f"processes of the sandbox were still there {GRACE_S:g} s after its end")

    def _kill(self) -> None:
        """The sandbox's first process, which takes all others along and leaves bwrap to reap it; else everything."""
        if self._child is None:
            self._kill_hard()
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._child, signal.SIGKILL)

    def _kill_hard(self) -> None:
        self.kill_group()
        self.process.kill()

    def _outcome(self) -> Outcome:
        self.process.wait()
        stdout, stderr = self._captures.values()
        return Outcome(
            exit_code=self.process.returncode if self.passes_code_on else self._reported("exit-code"),
            stopped_by=self._stopped_by or ("output_mb" if self._too_much else None),
            stdout=stdout,
            stderr=stderr,
            wall_s=self.clock() - self._started,
            launcher_code=self.process.returncode,
        )

    def _reported(self, key: str) -> int | None:
        return reported(self._status, key)

    @staticmethod
    def _fd(stream: object) -> int:
        fileno: Callable[[], int] = getattr(stream, "fileno")  # noqa: B009 - Popen's streams are optional for mypy
        return fileno()


def readable(descriptor: int, patience_s: float) -> bool:
    """Whether there is something to read, or an end, in time. ``select`` takes no number above 1023."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1e3 * patience_s))


def reported(status: bytes | bytearray, key: str) -> int | None:
    """A number from bwrap's reports. bwrap writes them from outside the sandbox."""
    for line in status.split(b"\n"):
        if line.startswith(b"{") and line.rstrip().endswith(b"}") and key in (report := json.loads(line)):
            return int(report[key])
    return None
