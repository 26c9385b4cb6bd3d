"""One sandbox on this host, from the shell that waits inside to the end of its command."""

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Self

from longstride.sandbox import launcher
from longstride.sandbox.base import (
    NEVER,
    Cancellation,
    Command,
    Dialogue,
    Execution,
    Owner,
    Stats,
    Stream,
    Volume,
    Volumes,
)
from longstride.sandbox.cgroup import BWRAP, Group, Overhead
from longstride.sandbox.clock import RunningClock
from longstride.sandbox.dialogue import OpenInput, Still
from longstride.sandbox.egress.gate import Gates
from longstride.sandbox.egress.inside import with_relay
from longstride.sandbox.errors import NetworkGone, SandboxFailed
from longstride.sandbox.meter import GroupMeter, Meter, TreeMeter, descendants, parent
from longstride.sandbox.programs import program, signalled
from longstride.sandbox.runs import RunFolder
from longstride.sandbox.supervisor import GLANCE_S, LocalProcess, Outcome, Outer, Supervisor, readable, reported
from longstride.sandbox.verdict import Evidence, judge

START_S = 30.0
"""For a sandbox to be built; a machine under load takes seconds."""


def always() -> bool:
    """Yes."""
    return True


class Jailer:
    """A started bwrap, or its like. It and all below it are dead when it is ended, whatever happened."""

    passes_code_on = False
    """Whether it ends with the command's exit code, rather than report it."""

    def __init__(self, process: Outer, status_fd: int) -> None:
        """
        Args:
            process: started; its input never blocks who writes.
            status_fd: where it reports; closed at the end.
        """
        self.process = process
        self.status_fd = status_fd
        self.reports = b""

    @classmethod
    def start(
        cls, command_line: Sequence[str], status: tuple[int, int], pass_fds: Sequence[int], env: Mapping[str, str]
    ) -> Self:
        """A child of this process.

        Args:
            command_line: the launcher's.
            status: both ends of the pipe for reports, which are closed in time.
            pass_fds: what else it reads; closed here.
            env: its environment.
        """
        read_end, write_end = status
        try:
            process = LocalProcess(
                command_line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(*pass_fds, write_end),
                env=env,
                cwd="/",
                bufsize=0,
            )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            for descriptor in (*pass_fds, write_end):
                os.close(descriptor)
        assert process.stdin is not None
        # Code inside can fill the pipe itself, at any moment after there was room in it.
        os.set_blocking(process.stdin.fileno(), False)
        return cls(process, read_end)

    def wait_until_ready(self) -> None:
        """Until the shell inside answers.

        Raises:
            SandboxFailed: it does not; the text is what was said instead.
        """
        self.tell(launcher.READY_QUESTION)
        if not self.answers():
            self.process.kill()
            raise SandboxFailed(f"the sandbox did not start: {self._complaint()}")
        self._learn_first()

    def answers(self) -> bool:
        """Whether the shell inside says that it is ready; ``False`` when it ended instead, or took too long."""
        assert self.process.stdout is not None
        return readable(self.process.stdout.fileno(), START_S) and self.process.stdout.read(1) == launcher.READY

    @property
    def first(self) -> int | None:
        """Host pid of the first process inside."""
        return reported(self.reports, "child-pid")

    def tell(self, script: bytes, still: Still = always) -> None:
        """Let the shell inside carry this out, or what it has become read it.

        Args:
            script: all of it is written, however long nobody reads.
            still: asked meanwhile whether to go on.

        Raises:
            SandboxFailed: nobody listens any more.
        """
        assert self.process.stdin is not None
        poll = select.poll()
        poll.register(self.process.stdin.fileno(), select.POLLOUT)
        waiting = memoryview(script)
        try:
            while waiting and still():
                if poll.poll(1e3 * GLANCE_S):
                    waiting = waiting[self.process.stdin.write(waiting) or 0 :]
        except BrokenPipeError as error:
            raise SandboxFailed("the sandbox broke while it waited for its command") from error
        if waiting:
            raise SandboxFailed("the sandbox ended before it read all that it was told")

    def hang_up(self) -> None:
        """Nothing more will be told."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self, group: Group) -> None:
        """Kill, wait, close."""
        if self.process.returncode is None:
            group.kill()
            self.process.kill()
            self.process.wait()
        os.close(self.status_fd)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _learn_first(self) -> None:
        """bwrap reports it before it lets that process go on."""
        while self.first is None:
            report = os.read(self.status_fd, 4096)
            if not report:
                raise SandboxFailed("the sandbox did not start: its first process was not named")
            self.reports += report

    def _complaint(self) -> str:
        assert self.process.stderr is not None
        self.process.wait()
        said: str = self.process.stderr.read().decode(errors="replace").strip()[-1000:]
        return said or f"no answer within {START_S:g} s (launcher exit code {self.process.returncode})"


@dataclass(frozen=True, slots=True)
class Habits:
    """How a host's sandboxes are bounded."""

    grouped: bool
    """Whether control groups hold memory and processes."""
    nproc: str | None = None
    """prlimit, where they do not."""
    overhead: Overhead = BWRAP
    """What the sandbox itself takes."""


class HostedCell:
    """Waits, runs one command, and is gone. ``held`` undoes everything its making did."""

    def __init__(
        self,
        habits: Habits,
        volumes: Volumes,
        jailer: Jailer,
        folder: RunFolder,
        group: Group,
        owner: Owner | None,
        bound: Volume | None,
        gates: Gates,
        held: ExitStack,
    ) -> None:
        """
        Args:
            habits: the host's.
            volumes: where its workspace comes from.
            jailer: the running bwrap.
            folder: its files on the host.
            group: its control group, without limits yet.
            owner: whom its code is on the host.
            bound: the workspace it was made with; ``None``: it is attached by ``put``.
            gates: ways out, for the commands that have one.
            held: closed by ``destroy``.
        """
        self._habits = habits
        self._volumes = volumes
        self._jailer = jailer
        self._folder = folder
        self._group = group
        self._owner = owner
        self._bound = bound
        self._gates = gates
        self._held = held
        self._clock = RunningClock()
        self._guard = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether bwrap runs."""
        return self._jailer.process.poll() is None

    def put(self, workspace: Volume) -> None:
        """Attach it, its files owned by the ids inside."""
        if self._bound is not None:
            if self._bound != workspace:
                raise SandboxFailed(f"this sandbox was made for {self._bound.path}, not for {workspace.path}")
            return
        namespace = self._open_namespace("user")
        if namespace is None:
            raise SandboxFailed("the sandbox broke while it waited for its workspace")
        try:
            self._folder.attach(workspace, namespace)
        finally:
            os.close(namespace)

    def exec(self, command: Command, cancelled: Cancellation = NEVER, dialogue: Dialogue | None = None) -> Execution:
        """Bound it, tell the shell inside, and watch."""
        inside = with_relay(command)
        script = self._start(inside, listens=dialogue is not None).script()
        self._group.limit(inside.limits, self._habits.overhead)
        self._folder.fill(inside.limits, inside.files)
        with self._gates.open(command.egress, self._folder.support, self._owner, command.sites) as gate:
            return gate.account(self._watched(command, script, cancelled, dialogue))

    def _watched(
        self, command: Command, script: bytes, cancelled: Cancellation, dialogue: Dialogue | None
    ) -> Execution:
        meter = GroupMeter(self._group) if self._habits.grouped else TreeMeter()
        supervisor = Supervisor(
            self._jailer.process,
            self._jailer.status_fd,
            self._jailer.reports,
            command.limits,
            cancelled,
            meter,
            self._group.kill,
            self._clock,
            self._jailer.passes_code_on,
            dialogue.heard if dialogue else unheard,
        )
        self._jailer.tell(script)
        with self._conversing(dialogue):
            return judge(self._evidence(command, meter, supervisor.watch()))

    @contextmanager
    def _conversing(self, dialogue: Dialogue | None) -> Iterator[None]:
        """Whoever talks with the program may do so until it has ended."""
        stdin = OpenInput(self._jailer.tell, self._jailer.hang_up)
        if dialogue and self._jailer.answers():
            dialogue.opened(stdin)
        else:
            stdin.hang_up()
        try:
            yield
        finally:
            stdin.cut_off()

    def collect(self, workspace: Volume) -> None:
        """The volume is the workspace itself: only the second way to it goes."""
        if self._bound is None:
            self._folder.detach()

    def open_network(self) -> int:
        """A descriptor of its network namespace, which stays that one whatever ends meanwhile.

        Raises:
            NetworkGone: it has ended.
        """
        descriptor = self._open_namespace("net")
        if descriptor is None:
            raise NetworkGone
        return descriptor

    def _open_namespace(self, kind: str) -> int | None:
        """A descriptor of one of its namespaces, which stays that one whatever ends meanwhile; ``None``: it has ended."""
        try:
            descriptor = os.open(f"/proc/{self._jailer.first}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        if not self._first_is_ours:
            # The number was another's, and so was the namespace: it may be the host's.
            os.close(descriptor)
            return None
        return descriptor

    @property
    def _first_is_ours(self) -> bool:
        """Whether the number is that of the first process inside, still: then it is a child of what started it, which has only
        the one, and whose own number is kept until it was waited for."""
        outer = self._jailer.process
        assert isinstance(outer, LocalProcess), "only such sandboxes are shared, or asked to end"
        first = self._jailer.first
        return first is not None and outer.poll() is None and parent(first) == outer.pid

    def terminate(self) -> None:
        """SIGTERM from outside, where the processes have numbers there."""
        first = self._jailer.first
        if first is None or not isinstance(self._jailer.process, LocalProcess):
            raise SandboxFailed("the processes of this sandbox have no numbers on the host, or an engine keeps them")
        for pid in program(first):
            signalled(pid, signal.SIGTERM, lambda pid=pid: self._first_is_ours and pid in descendants(first))  # type: ignore[misc]

    def pause(self) -> None:
        """Freeze the group."""
        if not self._group.freeze(True):
            raise SandboxFailed(
                "a sandbox cannot be paused here: no control group with a freezer can be made, or something in it does not stop"
            )
        self._clock.pause()

    def resume(self) -> None:
        """Thaw it."""
        self._group.freeze(False)
        self._clock.resume()

    def stats(self) -> Stats:
        """From the group, or the processes themselves."""
        if self._habits.grouped:
            return Stats(self._group.cpu_seconds(), self._group.memory_bytes(), self._group.processes())
        meter, first = TreeMeter(), self._jailer.first
        meter.look(first)
        return Stats(meter.cpu_s, meter.memory_bytes, len(descendants(first)) if first else 0)

    def destroy(self) -> None:
        """Kill, unmount, remove."""
        with self._guard:
            held, self._held = self._held, ExitStack()
        held.close()

    def _start(self, command: Command, *, listens: bool) -> launcher.Start:
        nproc, hold_data = self._habits.nproc, not self._habits.grouped
        return launcher.Start(command.argv, command.env, command.limits, nproc, hold_data, listens, command.cwd)

    def _evidence(self, command: Command, meter: Meter, outcome: Outcome) -> Evidence:
        limits = command.limits
        return Evidence(
            outcome=outcome,
            limits=limits,
            out_of_memory=0 if outcome.stopped_by else self._group.out_of_memory(),
            refused_processes=self._group.refused_processes(),
            exhausted=self._volumes.exhausted(command.workspace, limits) or self._folder.exhausted(limits),
            cpu_s=meter.cpu_s,
            peak_memory_bytes=meter.peak_memory_bytes,
            bounded=command.workspace.bounded,
        )


def unheard(stream: Stream, data: bytes) -> None:
    """Nobody listens; what was written is in the execution."""
