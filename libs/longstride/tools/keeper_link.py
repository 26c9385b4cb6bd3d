"""Having the keeper carry out a call, and starting it when there is none."""

import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Protocol

from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.events import ActionExecuted
from longstride.observability.spans import current_traceparent
from longstride.sandbox.base import NEVER, Cancellation
from longstride.sandbox.errors import ExecutionCancelled, SandboxFailed
from longstride.tools.keeper import Door
from longstride.tools.kept_call import HELLO, KeptAnswer, KeptCall

GLANCE_S = 0.05
"""How soon a lost lease is passed on."""
START_S = 60.0
"""For a keeper to start."""
GREET_S = 20.0
"""For a keeper that is there to say so: it may be out of descriptors for a moment."""
NO_ANSWER = f"the process that keeps tasks' processes has not answered in {GREET_S:g} s"
CALLED_OFF_S = 20.0
"""For a call that was called off to end."""
TRIES = 3
"""A keeper may end just when somebody comes."""


class Executes(Protocol):
    """``Executor``, or what stands in for it."""

    def execute(
        self,
        command: ExecuteAction,
        *,
        task_id: str,
        session_id: str,
        tenant: str = "default",
        cancelled: Cancellation = NEVER,
    ) -> ActionExecuted:
        """As ``Executor.execute``."""
        ...


class KeeperLink:
    """Stands in for the executor of the keeper."""

    def __init__(self, door: Door, command_line: Sequence[str]) -> None:
        """
        Args:
            door: of the service's keeper.
            command_line: starts one; it belongs to the service, not to this process.
        """
        self._door = door
        self._command_line = command_line

    def execute(
        self,
        command: ExecuteAction,
        *,
        task_id: str,
        session_id: str,
        tenant: str = "default",
        cancelled: Cancellation = NEVER,
    ) -> ActionExecuted:
        """As ``Executor.execute``.

        Raises:
            SandboxFailed: the keeper cannot be started or does not answer, or ended during the call; its processes are gone then.
            ExecutionCancelled: ``cancelled`` was set.
        """
        call = KeptCall(
            task_id=task_id, session_id=session_id, tenant=tenant, traceparent=current_traceparent(), command=command
        )
        with self._connected(cancelled) as connection:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(call.line())
            line = _answer(connection, cancelled)
        if line.endswith(b"\n"):
            return KeptAnswer.model_validate_json(line).result()
        if cancelled.is_set():
            raise ExecutionCancelled
        raise SandboxFailed("the process that keeps tasks' processes ended during the call")

    def _connected(self, cancelled: Cancellation) -> socket.socket:
        try:
            for _ in range(TRIES):
                if connection := self._greeted(cancelled) or self._first(cancelled):
                    return connection
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            raise SandboxFailed(f"no socket for tasks' processes in {self._door.folder}: {error.strerror}") from error
        raise SandboxFailed("the process that keeps tasks' processes ends as soon as it is asked")

    def _greeted(self, cancelled: Cancellation) -> socket.socket | None:
        """``None``: no keeper is there, or it is about to end.

        Raises:
            SandboxFailed: one is there, and does not answer.
        """
        with ExitStack() as undo:
            connection = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            connection.setblocking(False)
            try:
                greeting = self._greeting(connection, cancelled)
            except (FileNotFoundError, NotADirectoryError, ConnectionError):
                return None
            if greeting != HELLO:
                return None
            connection.setblocking(True)
            undo.pop_all()
            return connection

    def _greeting(self, connection: socket.socket, cancelled: Cancellation) -> bytes:
        """Shorter where the keeper ends."""
        for _ in _glances(cancelled, GREET_S):
            # Where as many wait as may, that is said at once.
            with suppress(BlockingIOError), self._door.address() as address:
                connection.connect(address)
                return _hello(connection, cancelled)
        raise SandboxFailed(NO_ANSWER)

    def _first(self, cancelled: Cancellation) -> socket.socket | None:
        """Start one, unless somebody else just did."""
        for _ in _glances(cancelled, START_S + GREET_S):
            with self._door.locked() as mine:
                if mine:
                    return self._greeted(cancelled) or self._start(cancelled)
        raise SandboxFailed("the process that keeps tasks' processes is being started, and takes too long")

    def _start(self, cancelled: Cancellation) -> socket.socket:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(
            self._command_line, stdin=subprocess.DEVNULL, start_new_session=True, env=environment
        )
        # It may outlive this process; while it does not, somebody has to take note of its end.
        threading.Thread(target=process.wait, name="end of the keeper", daemon=True).start()
        for _ in _glances(cancelled, START_S):
            if connection := self._greeted(cancelled):
                return connection
            # One that ends well found another, whose starter is gone.
            if process.poll():
                break
        else:
            process.kill()
            process.wait()
        raise SandboxFailed(
            f"the process that keeps tasks' processes did not start (exit code {process.returncode}): see its log"
        )


class Divided:
    """Carries a call out here, or has the keeper do so where the task may keep processes."""

    def __init__(self, here: Executes, keeper: Executes, kept: Callable[[ExecuteAction], bool]) -> None:
        """``kept``: whether all calls of a command's task go to the keeper."""
        self._here, self._keeper, self._kept = here, keeper, kept

    def execute(
        self,
        command: ExecuteAction,
        *,
        task_id: str,
        session_id: str,
        tenant: str = "default",
        cancelled: Cancellation = NEVER,
    ) -> ActionExecuted:
        """As ``Executor.execute``."""
        executor = self._keeper if self._kept(command) else self._here
        return executor.execute(command, task_id=task_id, session_id=session_id, tenant=tenant, cancelled=cancelled)


def _answer(connection: socket.socket, cancelled: Cancellation) -> bytes:
    """A line, or less where the other side ended. A lost lease is passed on at once."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    answer, deadline = b"", None
    while not answer.endswith(b"\n") and (deadline is None or time.monotonic() < deadline):
        if poll.poll(1e3 * GLANCE_S):
            with suppress(ConnectionResetError):
                if data := connection.recv(1 << 16):
                    answer += data
                    continue
            return answer
        if deadline is None and cancelled.is_set():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + CALLED_OFF_S
    return answer


def _hello(connection: socket.socket, cancelled: Cancellation) -> bytes:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    greeting = b""
    for _ in _glances(cancelled, GREET_S, lambda seconds: poll.poll(1e3 * seconds)):
        with suppress(BlockingIOError):
            more = connection.recv(len(HELLO) - len(greeting))
            greeting += more
            if not more or len(greeting) == len(HELLO):
                return greeting
    raise SandboxFailed(NO_ANSWER)


def _glances(cancelled: Cancellation, seconds: float, pause: Callable[[float], object] = time.sleep) -> Iterator[None]:
    """One now, and one each ``GLANCE_S`` until the time is over.

    Raises:
        ExecutionCancelled: the call was called off.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if cancelled.is_set():
            raise ExecutionCancelled
        yield
        pause(GLANCE_S)
