"""A command inside a pod, over the API server's ``exec``: a websocket that carries numbered streams.

The wire is ``v4.channel.k8s.io`` (and ``v5``, which adds a way to close a stream): each binary message is the stream's number and its
bytes; stream 3 brings, at the end, a ``Status`` with the exit code. Nothing of the pod's network takes part in it.
"""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from longstride.sandbox.errors import SandboxFailed

STDIN, STDOUT, STDERR, ERROR = range(4)
FRAME = 1 << 16
MAX_STATUS = 64 << 10
SEND_S = 60.0
"""A peer that takes no bytes for so long is gone."""
PING_S = 20.0
"""A command may be quiet for long; what stands before an API server often cuts connections that are quiet for a minute."""


class Channel:
    """The command as if it were a child of this process. First everything is sent, then a thread listens: a TLS connection is not for two
    threads at a time."""

    def __init__(self, connection: Any) -> None:
        """``connection``: an open ``websocket.WebSocket``; closed at the end."""
        self._connection, self._socket = connection, connection.sock
        self.stdin: IO[bytes] | None = None
        self.returncode: Any = None
        out, err = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        self.stdout: IO[bytes] | None = cast(IO[bytes], os.fdopen(out[0], "rb"))
        self.stderr: IO[bytes] | None = cast(IO[bytes], os.fdopen(err[0], "rb"))
        self._ended, self._over = os.pipe2(os.O_CLOEXEC)
        self._pipes = {STDOUT: out[1], STDERR: err[1]}
        self._status = bytearray()
        self._pump = threading.Thread(target=self._listen, name="pod-channel", daemon=True)

    def send(self, pieces: Iterable[bytes]) -> None:
        """To standard input, small pieces together. Where the command ends before it has read all, what it says tells why."""
        self._connection.settimeout(SEND_S)
        for block in blocks(pieces):
            if not self._send(block):
                break
        self._connection.settimeout(PING_S)
        self._pump.start()

    @property
    def exit_code(self) -> int | None:
        """``None``: it has not ended, or its end was not told."""
        return cast(int | None, self.returncode)

    @property
    def complaint(self) -> str:
        """What the API said instead of an exit code."""
        try:
            said = json.loads(self._status).get("message", "")
        except (ValueError, AttributeError):
            said = ""
        return said or "the connection was lost"

    def poll(self) -> int | None:
        """Its exit code; ``None`` while it runs, or where nobody told."""
        return None if self._pump.is_alive() else self.exit_code

    def kill(self) -> None:
        """Let go of it; that alone does not end it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def wait(self) -> int:
        """Until its end was told, or will not be."""
        self._pump.join()
        return self.exit_code if self.exit_code is not None else -1

    def end_descriptor(self) -> int:
        """A pipe that the thread closes last."""
        return os.dup(self._ended)

    def close(self) -> None:
        """Nobody asks any more."""
        self.kill()
        for stream in (self.stdout, self.stderr):
            assert stream is not None
            stream.close()
        if self._pump.ident is not None:
            self._pump.join()
        else:
            self._end()
        os.close(self._ended)

    def _send(self, block: bytes) -> bool:
        """``False``: nobody takes it any more."""
        import websocket

        try:
            self._connection.send(bytes([STDIN]) + block, opcode=websocket.ABNF.OPCODE_BINARY)
        except (websocket.WebSocketException, OSError):
            return False
        return True

    def _listen(self) -> None:
        import websocket

        try:
            while self._next():
                pass
        except (websocket.WebSocketException, OSError):
            pass  # Without a status the end is not known, which ``exit_code`` says.
        finally:
            self.returncode = _exit_code(self._status)
            self._end()

    def _next(self) -> bool:
        """Hear one message, or say that this side is there; what has come of a message is kept until the rest does."""
        import websocket

        try:
            return self._take(*self._connection.recv_data_frame(True))
        except websocket.WebSocketTimeoutException:
            self._connection.ping()
            return True

    def _take(self, opcode: int, frame: Any) -> bool:
        """``False`` at the end."""
        import websocket

        if opcode == websocket.ABNF.OPCODE_CLOSE:
            return False
        if opcode in (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT) and frame.data:
            stream, data = frame.data[0], frame.data[1:]
            if stream in self._pipes:
                _write(self._pipes[stream], data)
            elif stream == ERROR:
                self._status += data[: MAX_STATUS - len(self._status)]
        return True

    def _end(self) -> None:
        # A close that the peer asked for was answered when it was read; one of our own need not be.
        self._connection.shutdown()
        self._socket.close()
        for descriptor in (*self._pipes.values(), self._over):
            os.close(descriptor)


@contextmanager
def limited(channel: Channel, seconds: float, what: str) -> Iterator[None]:
    """Let go of a command that takes too long.

    Raises:
        SandboxFailed: it did.
    """
    late = threading.Event()

    def give_up() -> None:
        late.set()
        channel.kill()

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if late.is_set():
            raise SandboxFailed(f"{what} took more than {seconds:g} s")


def blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in blocks of about ``FRAME``."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= FRAME:
            yield bytes(waiting[:FRAME])
            del waiting[:FRAME]
    if waiting:
        yield bytes(waiting)


def _exit_code(status: bytes | bytearray) -> int | None:
    """From a ``Status`` as ``remotecommand`` sends it: a success, or a failure for the reason ``NonZeroExitCode``."""
    try:
        said = json.loads(status)
        if said["status"] == "Success":
            return 0
        causes = {cause["reason"]: cause["message"] for cause in said["details"]["causes"]}
        return int(causes["ExitCode"])
    except (ValueError, KeyError, TypeError):
        return None


def _write(descriptor: int, data: bytes) -> None:
    """All of it, unless nobody reads any more."""
    waiting = memoryview(data)
    with contextlib.suppress(BrokenPipeError):
        while waiting:
            waiting = waiting[os.write(descriptor, waiting) :]
