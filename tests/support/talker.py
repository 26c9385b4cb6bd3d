"""Somebody who talks with a sandboxed program, for tests."""

import threading
from dataclasses import dataclass, field

from longstride.sandbox.base import Command, Execution, Input, SandboxBackend, Stream
from tests.support.eventually import eventually


@dataclass
class Talker:
    """Remembers what it heard."""

    stdin: Input | None = None
    out: bytes = b""
    err: bytes = b""
    cancelled: threading.Event = field(default_factory=threading.Event)
    execution: Execution | None = None

    def opened(self, stdin: Input) -> None:
        """From now on it may speak."""
        self.stdin = stdin

    def heard(self, stream: Stream, data: bytes) -> None:
        """Both apart."""
        if stream == "stdout":
            self.out += data
        else:
            self.err += data

    def start(self, backend: SandboxBackend, command: Command) -> threading.Thread:
        """Run it in a thread, until it listens or has ended."""

        def run() -> None:
            self.execution = backend.run(command, self.cancelled, self)

        thread = threading.Thread(target=run)
        thread.start()
        eventually(lambda: self.stdin is not None or not thread.is_alive())
        return thread

    def tell(self, data: bytes) -> None:
        """To a program that listens."""
        assert self.stdin is not None
        self.stdin.tell(data)
