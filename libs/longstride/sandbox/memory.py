"""The in-memory twin of a sandbox backend: registered Python functions against a real workspace directory.

For tests of what lies above the port. It isolates nothing, so it runs nothing but the functions it was given.
"""

import io
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from longstride.contracts.v1.action import Usage
from longstride.contracts.v1.egress import Connection, Egress
from longstride.contracts.v1.environment import WORKSPACE
from longstride.contracts.v1.limits import Isolation, SandboxLimits
from longstride.sandbox.base import (
    NEVER,
    Cancellation,
    Capabilities,
    Command,
    Dialogue,
    Execution,
    ExecutionStatus,
    Spec,
    Stats,
    Stream,
    Volume,
    Volumes,
    run_once,
)
from longstride.sandbox.capture import Capture
from longstride.sandbox.clock import RunningClock
from longstride.sandbox.dialogue import OpenInput
from longstride.sandbox.egress.allowlist import judged
from longstride.sandbox.egress.served import PORT as SITE_PORT
from longstride.sandbox.egress.served import Caller, Sites, Unserved
from longstride.sandbox.errors import NetworkGone, SandboxFailed
from longstride.sandbox.volumes import DirectoryVolumes

MEBIBYTE = 1 << 20
PATIENCE_S = 0.005


class LimitReached(Exception):
    """A program uses more than a limit allows: ``LimitReached("memory_mb")``."""


class AskedToEnd(Exception):
    """SIGTERM; a program that does not handle it dies of it."""


class _Stopped(Exception):
    """The program was killed from outside."""


class Told:
    """A program's standard input."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting = b""
        self._over = False

    def write(self, data: bytes) -> None:
        """More of it."""
        with self._guard:
            if self._over:
                raise BrokenPipeError
            self._waiting += data

    def end(self) -> None:
        """Nothing more comes."""
        with self._guard:
            self._over = True

    def line(self) -> bytes | None:
        """The next one, or what is left at the end; ``None``: not yet."""
        with self._guard:
            if b"\n" not in self._waiting and not self._over:
                return None
            line, newline, self._waiting = self._waiting.partition(b"\n")
            return line + newline


@dataclass
class Process:
    """What a program is given: the twin of a process's world."""

    argv: tuple[str, ...]
    workspace: Path
    env: Mapping[str, str]
    files: Mapping[str, bytes]
    limits: SandboxLimits
    links: Mapping[str, str] = field(default_factory=dict)
    stdout: io.BytesIO = field(default_factory=io.BytesIO)
    stderr: io.BytesIO = field(default_factory=io.BytesIO)
    folders: Mapping[str, Path] = field(default_factory=dict)
    egress: Egress | None = None
    sites: Sites = field(default_factory=dict)
    connections: list[Connection] = field(default_factory=list)
    stdin: "Told" = field(default_factory=lambda: Told())
    heard: Callable[[Stream, bytes], None] = lambda _stream, _data: None
    network: dict[int, str] = field(default_factory=dict)
    """What is served at which port: the twin of a loopback."""
    cwd: str = WORKSPACE
    """Where a process would start; a program here finds its workspace at ``workspace``."""
    _asked_to_end: threading.Event = field(default_factory=threading.Event)
    _cancelled: Cancellation = NEVER
    _clock: RunningClock = field(default_factory=RunningClock)

    def __post_init__(self) -> None:
        self._started = self._clock()

    def print(self, text: str) -> None:
        """A line to standard output."""
        line = text.encode() + b"\n"
        self.stdout.write(line)
        self.heard("stdout", line)
        self.check()

    def read_line(self) -> bytes:
        """A line of standard input; waits for it, and is empty at the end."""
        while (line := self.stdin.line()) is None:
            self.check()
            time.sleep(PATIENCE_S)
        return line

    def work(self, seconds: float) -> None:
        """Be busy; a cancellation or the wall clock ends the program here, as a kill would."""
        until = self._clock() + seconds
        while self._clock() < until:
            self.check()
            time.sleep(PATIENCE_S)
        self.check()

    def check(self) -> None:
        """Die now if the sandbox was killed; stand still while it is paused."""
        while self._clock.paused and not self._cancelled.is_set():
            time.sleep(PATIENCE_S)
        if self._cancelled.is_set() or self.ran_s > self.limits.wall_s:
            raise _Stopped
        if self.written > self.limits.output_mb * MEBIBYTE:
            raise LimitReached("output_mb")
        if self._asked_to_end.is_set():
            self._asked_to_end.clear()
            raise AskedToEnd

    def connect(self, host: str, port: int) -> bool:
        """Ask for a connection, as through a proxy that reaches nothing; whether the rules allow it."""
        if self.egress is None:
            return False
        self.connections.append(judged(self.egress, host, port))
        return self.connections[-1].verdict == "allowed"

    def get(self, host: str, path: str) -> bytes | None:
        """Ask a host that the proxy answers itself; ``None`` when there is no answer, and the record says why."""
        site = self.sites.get(host)
        if not self.connect(host, SITE_PORT) or site is None:
            return None
        caller = Caller(self._cancelled)
        try:
            answer = site.answer(path, caller)
        except Unserved as error:
            told = {"verdict": "failed", "why": str(error), "received": caller.fetched}
            self.connections[-1] = self.connections[-1].model_copy(update=told)
            return None
        with answer.body as body:
            data = body.read()
        received = max(len(data), caller.fetched)
        self.connections[-1] = self.connections[-1].model_copy(update={"why": answer.told, "received": received})
        return data

    @property
    def ran_s(self) -> float:
        """Seconds so far, those that it was paused left out."""
        return self._clock() - self._started

    @property
    def written(self) -> int:
        """Bytes of output so far."""
        return len(self.stdout.getbuffer()) + len(self.stderr.getbuffer())


Program = Callable[[Process], int]
"""Returns its exit code."""


class MemoryCell:
    """Runs one program."""

    def __init__(
        self, programs: Mapping[str, Program], volumes: Volumes, bound: Volume | None, network: dict[int, str]
    ) -> None:
        self._programs = programs
        self._volumes = volumes
        self._workspace = bound
        self._used = self._over = False
        self._clock = RunningClock()
        self._asked_to_end = threading.Event()
        self.network = network
        self.destroyed = False

    @property
    def alive(self) -> bool:
        """Whether it can still run something, or does."""
        return not self.destroyed and not self._over

    def put(self, workspace: Volume) -> None:
        """Remember it."""
        if self._workspace not in (None, workspace):
            raise SandboxFailed("this sandbox was made for another workspace")
        self._workspace = workspace

    def exec(self, command: Command, cancelled: Cancellation = NEVER, dialogue: Dialogue | None = None) -> Execution:
        """Call the program; its end is judged like a real one's."""
        assert self._workspace == command.workspace, "put comes before exec"
        if self.destroyed or self._used:
            raise SandboxFailed("the sandbox broke while it waited for its command")
        self._used = True
        program = self._program(command.argv[0])
        process = self._process(command, cancelled, dialogue)
        stdin = OpenInput(lambda data, _still: process.stdin.write(data), process.stdin.end)
        if dialogue:
            dialogue.opened(stdin)
        else:
            stdin.hang_up()
        try:
            status, exit_code, limit = self._call(program, process, command)
        finally:
            self._over = True
            stdin.cut_off()
        _clip(process, round(command.limits.output_mb * MEBIBYTE))
        full = self._volumes.exhausted(command.workspace, command.limits) if status == "ok" else None
        execution = _execution(status, exit_code, process)
        return replace(execution, limit=limit, passed=(full,) if full else (), killed=cancelled.is_set())

    def collect(self, workspace: Volume) -> None:
        """The program worked on the volume itself."""

    def terminate(self) -> None:
        """The program learns of it at its next look."""
        self._asked_to_end.set()

    def pause(self) -> None:
        """The program stops at its next look."""
        self._clock.pause()

    def resume(self) -> None:
        """It goes on."""
        self._clock.resume()

    def stats(self) -> Stats:
        """Nothing is counted."""
        return Stats(0.0, 0, 0)

    def destroy(self) -> None:
        """Nothing is held."""
        self.destroyed = True

    def _program(self, name: str) -> Program:
        if name not in self._programs:
            raise SandboxFailed(f"no program {name!r}; there are {', '.join(sorted(self._programs))}")
        return self._programs[name]

    def _process(self, command: Command, cancelled: Cancellation, dialogue: Dialogue | None) -> Process:
        return Process(
            command.argv,
            command.workspace.path,
            command.env,
            command.files,
            command.limits,
            command.links,
            folders=command.folders,
            egress=command.egress,
            sites=command.sites,
            heard=dialogue.heard if dialogue else lambda _stream, _data: None,
            network=self.network,
            cwd=command.cwd,
            _asked_to_end=self._asked_to_end,
            _cancelled=cancelled,
            _clock=self._clock,
        )

    def _call(
        self, program: Program, process: Process, command: Command
    ) -> tuple[ExecutionStatus, int | None, str | None]:
        try:
            code = program(process)
            process.check()
        except _Stopped:
            late = not process._cancelled.is_set()
            return ("timeout", None, f"wall_s={command.limits.wall_s:g}") if late else ("failed", None, None)
        except AskedToEnd:
            return "failed", 128 + signal.SIGTERM, None
        except LimitReached as reached:
            killed_with_the_sandbox = str(reached) in ("output_mb", "cpu_s")
            return (
                "limit",
                None if killed_with_the_sandbox else 137,
                f"{reached}={getattr(command.limits, str(reached)):g}",
            )
        if code == 0:
            return "ok", 0, None
        exhausted = self._volumes.exhausted(command.workspace, command.limits)
        return ("limit" if exhausted else "failed"), code, exhausted


def _clip(process: Process, most: int) -> None:
    """What a program wrote beyond its limit was never said."""
    process.stdout.truncate(min(most, len(process.stdout.getbuffer())))
    process.stderr.truncate(min(most - len(process.stdout.getbuffer()), len(process.stderr.getbuffer())))


class MemorySandbox:
    """A backend whose sandboxes look ``argv[0]`` up among its programs."""

    def __init__(
        self,
        root: Path,
        programs: Mapping[str, Program],
        *,
        isolation: frozenset[Isolation] = frozenset({"process"}),
        prewarm: bool = True,
        copies_workspace: bool = False,
    ) -> None:
        """
        Args:
            root: a folder for the volumes.
            programs: what can be run, by name.
            isolation: what it claims to give.
            prewarm: whether its sandboxes can wait for a workspace.
            copies_workspace: whether it claims that they work on a copy.
        """
        self._volumes = DirectoryVolumes(root)
        self._programs = programs
        self._isolation = isolation
        self._prewarm = prewarm
        self._copies = copies_workspace

    @property
    def volumes(self) -> Volumes:
        """Plain directories."""
        return self._volumes

    def capabilities(self) -> Capabilities:
        """Nothing is enforced."""
        missing = ("nothing is isolated: this backend is for tests",)
        given = {
            "links": True,
            "egress": True,
            "folders": True,
            "shares_network": True,
            "copies_workspace": self._copies,
        }
        return Capabilities("memory", self._isolation, (), missing, prewarm=self._prewarm, **given)

    def create(self, spec: Spec) -> MemoryCell:
        """Nothing but the object."""
        self.capabilities().admit(spec)
        assert self._prewarm or spec.workspace, "capabilities() says that a sandbox is made for its workspace here"
        assert spec.network is None or isinstance(spec.network, MemoryCell), "a backend is given its own sandboxes"
        if spec.network and not spec.network.alive:
            raise NetworkGone
        network = spec.network.network if spec.network else {}
        return MemoryCell(self._programs, self._volumes, None if self._prewarm else spec.workspace, network)

    def run(self, command: Command, cancelled: Cancellation = NEVER, dialogue: Dialogue | None = None) -> Execution:
        """Create, call, destroy."""
        return run_once(self.create, command, cancelled, dialogue)

    def reap(self) -> list[str]:
        """The dead leave nothing."""
        return []

    def close(self) -> None:
        """Nothing is held."""


def _execution(status: ExecutionStatus, exit_code: int | None, process: Process) -> Execution:
    return Execution(
        status=status,
        exit_code=exit_code,
        stdout=_kept(process.stdout, process.limits),
        stderr=_kept(process.stderr, process.limits),
        written=process.written,
        usage=Usage(wall_ms=process.ran_s * 1e3),
        connections=tuple(process.connections),
    )


def _kept(stream: io.BytesIO, limits: SandboxLimits) -> bytes:
    capture = Capture(limits.output_bytes // 2)
    capture.feed(stream.getvalue())
    return capture.bytes()
