"""Having the keeper carry out a call, and starting it when there is none."""

import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
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
            SandboxFailed: the keeper cannot be started, or ended during the call; its processes are gone then.
        """
        call = KeptCall(
            task_id=task_id, session_id=session_id, tenant=tenant, traceparent=current_traceparent(), command=command
        )
        with self._connected() as connection:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(call.line())
            line = _answer(connection, cancelled)
        if line.endswith(b"\n"):
            return KeptAnswer.model_validate_json(line).result()
        if cancelled.is_set():
            raise ExecutionCancelled
        raise SandboxFailed("the process that keeps tasks' processes ended during the call")

    def _connected(self) -> socket.socket:
        for _ in range(TRIES):
            if connection := self._greeted() or self._first():
                return connection
        raise SandboxFailed("the process that keeps tasks' processes ends as soon as it is asked")

    def _greeted(self) -> socket.socket | None:
        """``None``: no keeper is there, or it is about to end."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self._door.address() as address:
                connection.connect(address)
            if _exactly(connection, len(HELLO)) == HELLO:
                return connection
        except (FileNotFoundError, NotADirectoryError, ConnectionError):
            pass
        connection.close()
        return None

    def _first(self) -> socket.socket | None:
        """Start one, unless somebody else just did."""
        try:
            with self._door.locked(wait=True):
                return self._greeted() or self._start()
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            raise SandboxFailed(f"no socket for tasks' processes in {self._door.folder}: {error.strerror}") from error

    def _start(self) -> socket.socket:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(
            self._command_line, stdin=subprocess.DEVNULL, start_new_session=True, env=environment
        )
        # It may outlive this process; while it does not, somebody has to take note of its end.
        threading.Thread(target=process.wait, name="end of the keeper", daemon=True).start()
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if connection := self._greeted():
                return connection
            if process.poll() is not None:
                break
            time.sleep(GLANCE_S)
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


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data
