"""A TCP relay whose connections a test can cut: a broken network between a client and a server that both live on."""

import socket
import threading
from contextlib import suppress
from types import TracebackType


class Cuttable:
    """Listens on a port of its own and passes bytes on to ``host:port``."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def cut(self) -> int:
        """Break every connection at once; returns how many there were. New ones are let through."""
        broken, self._open = self._open, []
        for end in broken:
            _shut(end)
        return len(broken) // 2

    def __enter__(self) -> "Cuttable":
        self._threads[0].start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # the test is over
            far = socket.create_connection(self._target)
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pass_on, args=(source, sink))
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with source:
            while data := self._received(source):
                try:
                    sink.sendall(data)
                except OSError:
                    break
            _shut(sink)

    @staticmethod
    def _received(source: socket.socket) -> bytes:
        try:
            return source.recv(65536)
        except OSError:
            return b""


def _shut(end: socket.socket) -> None:
    with suppress(OSError):  # the other side was faster
        end.shutdown(socket.SHUT_RDWR)
