"""One program that runs on between the calls of its task, in a sandbox of its own."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from longstride.contracts.v1.action import Usage
from longstride.contracts.v1.egress import Connection
from longstride.sandbox.base import (
    NEVER,
    Cancellation,
    Command,
    Execution,
    Input,
    Sandbox,
    SandboxBackend,
    Stream,
    spec_of,
)
from longstride.sandbox.errors import ProgramEnded, SandboxError, SandboxFailed
from longstride.tools.lookout import Found, Lookout, anything
from longstride.tools.output_ring import OutputRing

logger = logging.getLogger(__name__)

GLANCE_S = 0.05
"""How soon a cancelled call stops waiting."""
TAKEN_S = 2.0
"""For a program to read what it is sent."""
HUNG_UP_S = 0.2
"""For a program to end because its input does."""
QUIET_S, SETTLES = 0.1, 20
"""A program that writes without a pause is not waited for."""
MOST_WAITING = 1 << 20
"""Bytes that wait for a program to read them."""
END_S = 15.0
"""For a killed sandbox to be gone."""


class InputClosed(ValueError):
    """It reads nothing any more; the text says why."""


class InputFull(ValueError):
    """The program does not read what it was sent before."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a program wrote since the last time, and how it does."""

    output: bytes
    dropped: int
    """Bytes before ``output`` that were too many to keep."""


class LiveProcess:
    """Started once. Asked from any thread; each question names its step, and a step that is made again is answered the same."""

    def __init__(self, name: str, command: Command, step: int, cancelled: Cancellation) -> None:
        """
        Args:
            name: the task's own.
            command: its ``network`` and ``workspace`` are the task's.
            step: in which it is started.
            cancelled: whether that call is stopped before the program runs.
        """
        self.name = name
        self.step = step
        self.execution: Execution | None = None
        """How it ended."""
        self.ended_at: float | None = None
        """``time.monotonic()`` of its end."""
        self.remark = ""
        """What else an agent should know of its end."""
        self.failure: str | None = None
        """Why it is gone, where it did not end by itself: a sentence for the agent."""
        self._command: Command | None = command
        self._starting = cancelled
        self._ring = OutputRing(command.limits.output_bytes)
        self._changed = threading.Condition()
        self._changes = 0
        self._cancelled = threading.Event()
        self._sandbox: Sandbox | None = None
        self._opened = False
        self._input: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._waiting = 0
        self._told_in: int | None = None
        self._hung_up = False
        self._read_from, self._read_in = 0, step
        self._next = 0
        self._accounted_in: int | None = None
        self._thread = threading.Thread(target=self._live, name=f"process {name}", daemon=True)

    @property
    def running(self) -> bool:
        """Whether it has a sandbox that works."""
        return self.execution is None and self.failure is None

    @property
    def gone(self) -> bool:
        """Whether nothing of it is left."""
        return not self._thread.is_alive()

    @property
    def sandbox(self) -> Sandbox | None:
        """While it runs."""
        return self._sandbox if self.running else None

    @property
    def seconds(self) -> float:
        """Since its start."""
        return time.monotonic() - self._began

    def start(self, backend: SandboxBackend) -> None:
        """Until the program runs, or could not be started.

        Its thread makes the sandbox and lives as long: a sandbox dies with the thread that made it.
        """
        self._began = time.monotonic()
        self._backend = backend
        try:
            self._thread.start()
        except RuntimeError as error:
            self._end(None, f"it could not be started: {error}")
        self._until(lambda: self._opened, None, self._starting)

    # The sandbox's side

    def opened(self, stdin: Input) -> None:
        """The program listens."""
        threading.Thread(target=self._feed, args=(stdin,), name=f"input of {self.name}", daemon=True).start()
        self._note(lambda: setattr(self, "_opened", True))

    def heard(self, stream: Stream, data: bytes) -> None:
        """Both streams as one, in the order in which they came."""
        self._note(lambda: self._ring.write(data))

    def _live(self) -> None:
        command = self._command
        execution: Execution | None = None
        assert command is not None, "it lives once"
        try:
            sandbox = self._backend.create(spec_of(command))
            try:
                sandbox.put(command.workspace)
                self._sandbox = sandbox
                execution = sandbox.exec(command, self._cancelled, self)
                sandbox.collect(command.workspace)
            finally:
                sandbox.destroy()
        except SandboxError as error:
            self._end(execution, f"its sandbox broke: {error}")
        except BaseException as error:
            self._end(execution, f"it could not be kept running: {error}")
            raise
        else:
            self._end(execution, None)

    def _end(self, execution: Execution | None, failure: str | None) -> None:
        def end() -> None:
            self.execution, self.failure = execution, self.failure or failure
            self.ended_at = time.monotonic()
            self._command = self._sandbox = None

        self._note(end)
        self._input.put(None)

    def _note(self, change: Callable[[], object]) -> None:
        with self._changed:
            change()
            self._changes += 1
            self._changed.notify_all()

    def _feed(self, stdin: Input) -> None:
        """Only this thread waits for a program that does not read."""
        with suppress(ProgramEnded):
            while (data := self._input.get()) is not None:
                stdin.tell(data)
                self._note(lambda taken=len(data): self._taken(taken))  # type: ignore[misc]
        stdin.hang_up()

    def _taken(self, size: int) -> None:
        self._waiting -= size

    # The task's side

    def wait(self, step: int, seconds: float, cancelled: Cancellation, found: Found = anything) -> bool:
        """Until what is new satisfies ``found``, the program ends, the time is over, or the call is stopped.

        Returns:
            Whether ``found`` was satisfied.
        """
        lookout = Lookout(self._ring, self._new_from(step), found, seconds, cancelled)
        self._until(lookout.look, seconds, cancelled)
        return lookout.found

    def settle(self, cancelled: Cancellation) -> None:
        """Until it has written nothing for a moment: an answer seldom comes at once."""
        for _ in range(SETTLES):
            before = self._ring.end
            self._until(lambda before=before: self._ring.end > before, QUIET_S, cancelled)  # type: ignore[misc]
            if self._ring.end == before:
                return

    def peek(self) -> Heard:
        """All of it, so far; it stays new."""
        return Heard(*self._ring.since(0))

    def poll(self, step: int) -> Heard:
        """What is new to the agent."""
        self._read_from, self._read_in = self._new_from(step), step
        with self._changed:
            self._next = self._ring.end
        output, dropped = self._ring.since(self._read_from)
        return Heard(output, dropped)

    def _new_from(self, step: int) -> int:
        return self._read_from if step == self._read_in else self._next

    def send(self, step: int, data: bytes, *, end: bool, cancelled: Cancellation) -> bool:
        """Pass it on; ``False``: the program has not read all of it yet.

        Raises:
            InputClosed: nobody will ever read it.
            InputFull: too much waits already.
        """
        if step != self._told_in:
            if not self.running or self._hung_up:
                raise InputClosed("its input was closed before" if self.running else "it does not run any more")
            if self._waiting + len(data) > MOST_WAITING:
                raise InputFull
            self._told_in = step
            with self._changed:
                self._waiting += len(data)
            self._input.put(data)
            if end:
                self._hung_up = True
                self._input.put(None)
        self._until(lambda: self._waiting == 0, TAKEN_S, cancelled)
        return self._waiting == 0

    def stop(self, grace_s: float, cancelled: Cancellation) -> None:
        """Hang up, ask it to end, and kill it when it does not."""
        self._input.put(None)
        self._until(lambda: False, min(HUNG_UP_S, grace_s), cancelled)
        if sandbox := self.sandbox:
            try:
                sandbox.terminate()
                self._until(lambda: False, grace_s, cancelled)
            except SandboxFailed as error:
                logger.info("%s is killed without being asked: %s", self.name, error)
        self.kill(None)

    def kill(self, why: str | None) -> None:
        """At once; ``why`` is what the agent is told, ``None`` when it asked for that."""
        if self.running and why:
            self.failure = why
        self._cancelled.set()
        if self._thread.ident is None:
            return
        self._thread.join(END_S)
        if self._thread.is_alive():
            logger.error("process %s did not end within %g s", self.name, END_S)

    def account(self, step: int) -> tuple[Usage, tuple[Connection, ...]]:
        """What it used, once it has ended: the first step that asks is told, and is told again when it is made again."""
        if self.execution is None:
            return Usage(), ()
        if self._accounted_in is None:
            self._accounted_in = step
        return self._used(self.execution) if step == self._accounted_in else (Usage(), ())

    def accounted_before(self, step: int) -> bool:
        """Whether nothing of it is left to be told from this step on."""
        if self._accounted_in is None:
            return not self.running and self.execution is None
        return self._accounted_in < step

    def unaccounted(self) -> tuple[Usage, tuple[Connection, ...]]:
        """What it used that no step was told."""
        return self._used(self.execution) if self.execution and self._accounted_in is None else (Usage(), ())

    def _used(self, ended: Execution) -> tuple[Usage, tuple[Connection, ...]]:
        """Its life is not the time of a call."""
        used = ended.usage.model_copy(
            update={
                "wall_ms": 0.0,
                "output_bytes": ended.written,
                "sent_bytes": sum(connection.sent for connection in ended.connections),
                "received_bytes": sum(connection.received for connection in ended.connections),
            }
        )
        return used, ended.connections

    def pause(self) -> bool:
        """Stand still; ``False`` when it has ended.

        Raises:
            SandboxFailed: it runs, and cannot be paused here.
        """
        sandbox = self.sandbox
        if sandbox is None:
            return False
        try:
            sandbox.pause()
        except SandboxFailed:
            if self._ends():
                return False
            raise
        return True

    def resume(self) -> None:
        """Go on."""
        if sandbox := self._sandbox:
            with suppress(SandboxFailed):
                sandbox.resume()

    def _ends(self) -> bool:
        """Whether its program has ended by now, and only its thread does not say so yet."""
        sandbox = self._sandbox
        if sandbox is None or not sandbox.alive:
            self._until(lambda: False, END_S, NEVER)
        return not self.running

    def _until(self, condition: Callable[[], bool], seconds: float | None, cancelled: Cancellation) -> None:
        deadline = None if seconds is None else time.monotonic() + seconds
        while self.running and not cancelled.is_set():
            # The condition may take long, and who tells of a change never waits for it.
            seen = self._changes
            if condition():
                return
            left = GLANCE_S if deadline is None else min(GLANCE_S, deadline - time.monotonic())
            if left <= 0:
                return
            with self._changed:
                if self._changes == seen:
                    self._changed.wait(left)
