"""Requests to a running supervisor: one JSON line each way over a Unix socket in the stack's folder."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.native.errors import StackError

SOCKET = "control.sock"
ANSWER_SECONDS = 300
"""More than any restart is given."""


@contextmanager
def _short_address(folder: Path) -> Iterator[str]:
    """The socket's path by way of a file descriptor: the real one may exceed the 107 bytes that an address holds."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def listen(folder: Path) -> socket.socket:
    """The supervisor's end. The folder is its owner's alone, and so is the socket."""
    (folder / SOCKET).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with _short_address(folder) as address:
        listener.bind(address)
    listener.listen()
    return listener


def ask(folder: Path, do: str, **arguments: Any) -> Any:
    """Have the supervisor of `folder` do something and return its answer; `StackError` where it cannot or does not run."""
    with socket.socket(socket.AF_UNIX) as connection, _short_address(folder) as address:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(address)
        except OSError as error:
            raise StackError(f"no stack runs in {folder}: start one with `python -m infra.native up`") from error
        try:
            connection.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")
            line = connection.makefile().readline()
        except OSError as error:
            raise StackError(f"the stack in {folder} did not answer to {do!r}: {error}") from error
    if not line:
        raise StackError(f"the stack in {folder} ended before it answered: see {folder}/log/supervisor.log")
    answer = json.loads(line)
    if "error" in answer:
        raise StackError(answer["error"])
    return answer["value"]


def receive(listener: socket.socket) -> tuple[socket.socket, dict[str, Any]]:
    """The next request and the connection to answer it on. A caller who says nothing for five seconds is dropped."""
    connection, _ = listener.accept()
    connection.settimeout(5)
    return connection, json.loads(connection.makefile().readline())


def reply(connection: socket.socket, **answer: Any) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")
