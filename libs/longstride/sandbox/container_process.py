"""The first process of an engine's container, as if it were a child of this process."""

import contextlib
import io
import os
import socket
import struct
import threading
from typing import IO, Any, cast

FRAME = struct.Struct(">BxxxI")
"""Stream number and length of what follows, in what an engine sends of an attached container."""
Api = Any
"""``docker.APIClient``; the SDK has no types."""


class ContainerInput(io.RawIOBase):
    """Standard input over an attached connection, which has one direction closed at the end."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def writable(self) -> bool:
        """Yes."""
        return True

    def fileno(self) -> int:
        """The connection's."""
        return self._connection.fileno()

    def write(self, data: Any) -> int | None:
        """What the engine takes at once; ``None``: nothing."""
        try:
            return self._connection.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Nothing more comes."""
        if not self.closed:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)
        super().close()


class ContainerProcess:
    """A container as if it were a child of this process: a thread takes its output apart into two pipes."""

    def __init__(self, api: Api, container: str, stream: Any) -> None:
        """``stream``: what the SDK gives of an attached container; closed at the end."""
        connection: socket.socket = stream._sock
        connection.settimeout(None)
        self.returncode: Any = None
        self._api, self._container, self._stream, self._connection = api, container, stream, connection
        self.stdin: IO[bytes] | None = cast(IO[bytes], ContainerInput(connection))
        out, err = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        self.stdout: IO[bytes] | None = cast(IO[bytes], os.fdopen(out[0], "rb", buffering=0))
        self.stderr: IO[bytes] | None = cast(IO[bytes], os.fdopen(err[0], "rb", buffering=0))
        self._ended, over = os.pipe2(os.O_CLOEXEC)
        self._pump = threading.Thread(target=self._run, args=({1: out[1], 2: err[1]}, over), daemon=True)
        self._pump.start()

    def poll(self) -> int | None:
        """Its exit code; ``None`` while it runs."""
        return None if self._pump.is_alive() else self.wait()

    def kill(self) -> None:
        """All of it."""
        import docker.errors

        with contextlib.suppress(docker.errors.APIError):
            self._api.kill(self._container)

    def wait(self) -> int:
        """Until it and its output have ended."""
        self._pump.join()
        if self.returncode is None:
            self.returncode = int(self._api.wait(self._container)["StatusCode"])
            self._stream.close()
            self._connection.close()
        return int(self.returncode)

    def end_descriptor(self) -> int:
        """A pipe that the thread closes last."""
        return os.dup(self._ended)

    def forget(self) -> None:
        """Nobody asks any more."""
        os.close(self._ended)

    def _run(self, pipes: dict[int, int], over: int) -> None:
        try:
            while header := self._exactly(FRAME.size):
                stream, length = FRAME.unpack(header)
                _write(pipes[stream], self._exactly(length))
        except ConnectionError:
            self.kill()
        finally:
            for descriptor in (*pipes.values(), over):
                os.close(descriptor)

    def _exactly(self, length: int) -> bytes:
        """Nothing at the end."""
        data = bytearray()
        while len(data) < length:
            part = self._connection.recv(length - len(data))
            if not part:
                return b""
            data += part
        return bytes(data)


def _write(descriptor: int, data: bytes) -> None:
    """All of it, unless nobody reads any more."""
    waiting = memoryview(data)
    with contextlib.suppress(BrokenPipeError):
        while waiting:
            waiting = waiting[os.write(descriptor, waiting) :]
