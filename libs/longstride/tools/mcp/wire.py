"""The wire between a sandboxed server and the SDK's session: what is heard on one thread is read on another, in an event loop."""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from longstride.sandbox.base import Input, Stream
from longstride.sandbox.errors import ProgramEnded


class Wire:
    """A ``Dialogue``. ``opened``, ``heard`` and ``end`` are called by the thread that watches the sandbox; the rest by the one that
    talks. What waits to be read is bounded by the sandbox's own limit on output."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._heard: deque[bytes] = deque()
        self._over = False
        self._begun = threading.Event()
        self._stdin: Input | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None

    def opened(self, stdin: Input) -> None:
        """The server is about to start."""
        self._stdin = stdin
        self._begun.set()

    def heard(self, stream: Stream, data: bytes) -> None:
        """It wrote this; what it writes to standard error is kept by the sandbox."""
        if stream == "stdout":
            with self._guard:
                if not self._over:
                    self._heard.append(data)
                    self._tell()

    def end(self) -> None:
        """Nothing more will be heard."""
        with self._guard:
            self._over = True
            self._tell()
        self._begun.set()

    def wait_begun(self) -> Input | None:
        """Once there is somebody to talk with; ``None``: nobody ever was."""
        self._begun.wait()
        return self._stdin

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Read from the event loop that runs; what is heard afterwards is dropped."""
        with self._guard:
            self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        try:
            yield
        finally:
            with self._guard:
                self._loop, self._over = None, True
                self._heard.clear()

    async def read(self) -> bytes:
        """What was heard next; empty at the end."""
        assert self._changed is not None, "it is read while it is attached"
        while True:
            with self._guard:
                self._changed.clear()
                if self._heard:
                    return self._heard.popleft()
                if self._over:
                    return b""
            await self._changed.wait()

    def _tell(self) -> None:
        if self._loop is not None and self._changed is not None:
            self._loop.call_soon_threadsafe(self._changed.set)


class Pen:
    """Writes to a server in a thread of its own: a server that does not read blocks nobody else."""

    def __init__(self, stdin: Input) -> None:
        self._stdin = stdin
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="mcp-pen", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Write this when all before it is written."""
        self._lines.put(line)

    def hang_up(self) -> None:
        """Then close the server's input."""
        self._lines.put(None)

    def join(self) -> None:
        """Until everything is written or nobody reads; comes to its end once the server has."""
        self._thread.join()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._stdin.tell(line)
            except ProgramEnded:
                return
        self._stdin.hang_up()
