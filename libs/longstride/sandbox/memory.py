"""The in-memory twin of a sandbox backend: registered Python functions against a real workspace directory.

For tests of what lies above the port. It isolates nothing, so it runs nothing but the functions it was given.
"""

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from longstride.contracts.v1.action import Usage
from longstride.contracts.v1.egress import Connection, Egress
from longstride.contracts.v1.limits import Isolation, SandboxLimits
from longstride.sandbox.base import NEVER, Cancellation, Capabilities, Command, Execution, ExecutionStatus, Volumes
from longstride.sandbox.capture import Capture
from longstride.sandbox.egress.allowlist import judged
from longstride.sandbox.errors import SandboxFailed
from longstride.sandbox.volumes import DirectoryVolumes

MEBIBYTE = 1 << 20
PATIENCE_S = 0.005


class LimitReached(Exception):
    """A program uses more than a limit allows: ``LimitReached("memory_mb")``."""


class _Stopped(Exception):
    """The program was killed from outside."""


@dataclass
class Process:
    """What a program is given: the twin of a process's world."""

    argv: tuple[str, ...]
    workspace: Path
    env: Mapping[str, str]
    files: Mapping[str, bytes]
    limits: SandboxLimits
    stdout: io.BytesIO = field(default_factory=io.BytesIO)
    stderr: io.BytesIO = field(default_factory=io.BytesIO)
    egress: Egress | None = None
    connections: list[Connection] = field(default_factory=list)
    _cancelled: Cancellation = NEVER
    _started: float = field(default_factory=time.monotonic)

    def print(self, text: str) -> None:
        """A line to standard output."""
        self.stdout.write(text.encode() + b"\n")
        self.check()

    def work(self, seconds: float) -> None:
        """Be busy; a cancellation or the wall clock ends the program here, as a kill would."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check()
            time.sleep(PATIENCE_S)
        self.check()

    def check(self) -> None:
        """Die now if the sandbox was killed."""
        if self._cancelled.is_set() or time.monotonic() - self._started > self.limits.wall_s:
            raise _Stopped
        if self.written > self.limits.output_mb * MEBIBYTE:
            raise LimitReached("output_mb")

    def connect(self, host: str, port: int) -> bool:
        """Ask for a connection, as through a proxy that reaches nothing; whether the rules allow it."""
        if self.egress is None:
            return False
        self.connections.append(judged(self.egress, host, port))
        return self.connections[-1].verdict == "allowed"

    @property
    def written(self) -> int:
        """Bytes of output so far."""
        return len(self.stdout.getbuffer()) + len(self.stderr.getbuffer())


Program = Callable[[Process], int]
"""Returns its exit code."""


class MemorySandbox:
    """Looks up ``argv[0]`` among its programs."""

    def __init__(
        self,
        root: Path,
        programs: Mapping[str, Program],
        *,
        isolation: frozenset[Isolation] = frozenset({"process"}),
    ) -> None:
        """
        Args:
            root: a folder for the volumes.
            programs: what can be run, by name.
            isolation: what it claims to give.
        """
        self._volumes = DirectoryVolumes(root)
        self._programs = programs
        self._isolation = isolation

    @property
    def volumes(self) -> Volumes:
        """Plain directories."""
        return self._volumes

    def capabilities(self) -> Capabilities:
        """Nothing is enforced."""
        return Capabilities(
            "memory", self._isolation, (), ("nothing is isolated: this backend is for tests",), egress=True
        )

    def run(self, command: Command, cancelled: Cancellation = NEVER) -> Execution:
        """Call the program; its end is judged like a real one's."""
        self.capabilities().require(command.isolation)
        program = self._programs.get(command.argv[0])
        if program is None:
            raise SandboxFailed(f"no program {command.argv[0]!r}; there are {', '.join(sorted(self._programs))}")
        process = Process(
            command.argv,
            command.workspace.path,
            command.env,
            command.files,
            command.limits,
            egress=command.egress,
            _cancelled=cancelled,
        )
        status, exit_code, limit = self._call(program, process, command)
        return Execution(
            status=status,
            exit_code=exit_code,
            stdout=_kept(process.stdout, command.limits),
            stderr=_kept(process.stderr, command.limits),
            limit=limit,
            written=process.written,
            usage=Usage(wall_ms=(time.monotonic() - process._started) * 1e3),
            killed=cancelled.is_set(),
            connections=tuple(process.connections),
        )

    def close(self) -> None:
        """Nothing is held."""

    def _call(
        self, program: Program, process: Process, command: Command
    ) -> tuple[ExecutionStatus, int | None, str | None]:
        try:
            code = program(process)
            process.check()
        except _Stopped:
            late = not process._cancelled.is_set()
            return ("timeout", None, f"wall_s={command.limits.wall_s:g}") if late else ("failed", None, None)
        except LimitReached as reached:
            killed_with_the_sandbox = str(reached) in ("output_mb", "cpu_s")
            return (
                "limit",
                None if killed_with_the_sandbox else 137,
                f"{reached}={getattr(command.limits, str(reached))}",
            )
        if code == 0:
            return "ok", 0, None
        exhausted = self._volumes.exhausted(command.workspace, command.limits)
        return ("limit" if exhausted else "failed"), code, exhausted


def _kept(stream: io.BytesIO, limits: SandboxLimits) -> bytes:
    capture = Capture(limits.output_bytes // 2)
    capture.feed(stream.getvalue())
    return capture.bytes()
