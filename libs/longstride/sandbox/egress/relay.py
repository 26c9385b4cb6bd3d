"""Runs inside the sandbox: ``relay.py SOCKET PORT -- PROGRAM ARGUMENT…``. The standard library alone, any Python from 3.6 on.

Listens on 127.0.0.1, lets a grandchild carry the bytes of each connection to the socket, and becomes the program. The
grandchild is nobody's child but the first process's, so that the program never waits for it, and dies with the sandbox.
"""

import contextlib
import errno
import os
import selectors
import signal
import socket
import sys

CHUNK = 1 << 16
MOST = 128
NOT_FOUND, NOT_RUNNABLE, NO_RELAY = 127, 126, 125


class Pair:
    """A client's connection and the one to the proxy. Each is only read when the other has taken what came before."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.other = {near: far, far: near}
        self.waiting = {near: b"", far: b""}
        self.speaks = {near: True, far: True}

    def wants(self, end: socket.socket) -> int:
        """The events to wait for."""
        reads = selectors.EVENT_READ if self.speaks[end] and not self.waiting[self.other[end]] else 0
        return reads | (selectors.EVENT_WRITE if self.waiting[end] else 0)

    def read(self, end: socket.socket) -> None:
        """Take what is there, or pass on that no more will come."""
        try:
            data = end.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.waiting[self.other[end]] = data
        if not data:
            self.speaks[end] = False
            with contextlib.suppress(OSError):
                self.other[end].shutdown(socket.SHUT_WR)

    def write(self, end: socket.socket) -> None:
        """Give what it takes; what a broken end does not take is dropped, and it may still have something to say."""
        try:
            self.waiting[end] = self.waiting[end][end.send(self.waiting[end]) :]
        except BlockingIOError:
            return
        except OSError:
            self.waiting[end] = b""

    def done(self) -> bool:
        """Nothing will come any more, and nothing waits."""
        return not any(self.speaks.values()) and not any(self.waiting.values())


class Relay:
    """All pairs, in one thread."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        self.listener, self.path = listener, path
        self.selector = selectors.DefaultSelector()
        self.pairs = 0

    def serve(self) -> None:
        """For ever."""
        self.selector.register(self.listener, selectors.EVENT_READ)
        while True:
            for key, mask in self.selector.select():
                end = key.fileobj
                assert isinstance(end, socket.socket), "nothing else is registered"
                if key.data is None:
                    self.accept()
                elif end.fileno() >= 0:
                    self.move(key.data, end, mask)

    def accept(self) -> None:
        """One more client; the rest wait in the backlog."""
        near, _ = self.listener.accept()
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            far.connect(self.path)
        except OSError:
            near.close()
            far.close()
            return
        pair = Pair(near, far)
        self.pairs += 1
        for end in (near, far):
            end.setblocking(False)
            self.selector.register(end, selectors.EVENT_READ, pair)
        if self.pairs >= MOST:
            self.selector.unregister(self.listener)

    def move(self, pair: Pair, end: socket.socket, mask: int) -> None:
        """Bytes of one end, then wait for what both can do next."""
        if mask & selectors.EVENT_READ:
            pair.read(end)
        if mask & selectors.EVENT_WRITE:
            pair.write(end)
        if pair.done():
            self.close(pair)
            return
        for each in pair.other:
            self.watch(pair, each)

    def watch(self, pair: Pair, end: socket.socket) -> None:
        """Register, change or unregister."""
        wanted, known = pair.wants(end), end in self.selector.get_map()
        if wanted and known:
            self.selector.modify(end, wanted, pair)
        elif wanted:
            self.selector.register(end, wanted, pair)
        elif known:
            self.selector.unregister(end)

    def close(self, pair: Pair) -> None:
        """Both ends."""
        for end in pair.other:
            if end in self.selector.get_map():
                self.selector.unregister(end)
            end.close()
        if self.pairs == MOST:
            self.selector.register(self.listener, selectors.EVENT_READ)
        self.pairs -= 1


def detach(listener: socket.socket, path: str) -> None:
    """Serve from a process that has no terminal, no output, and no parent but the first process."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.chdir("/")
    Relay(listener, path).serve()


def listening(port: int) -> socket.socket:
    """At the port, or at another when a call that shares this network has its relay there: the program is told which."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(MOST)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        listener.close()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen(MOST)
        usual, other = (f"http://127.0.0.1:{number}" for number in (port, listener.getsockname()[1]))
        os.environ.update({name: other for name, value in os.environ.items() if value == usual})
    return listener


def become(argv: "list[str]") -> None:
    """The program, with the signals that Python had set aside."""
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE)


def main() -> None:
    """See above."""
    path, port, argv = sys.argv[1], int(sys.argv[2]), sys.argv[4:]
    try:
        listener = listening(port)
    except OSError as error:
        sys.stderr.write(f"the relay to the egress proxy cannot listen on port {port}: {error.strerror}\n")
        sys.exit(NO_RELAY)
    detach(listener, path)
    listener.close()
    become(argv)


if __name__ == "__main__":
    main()
