"""The standard input of a program that runs: bytes from any thread, until either side ends it."""

import contextlib
import threading
from collections.abc import Callable

from longstride.sandbox.errors import ProgramEnded, SandboxFailed

Still = Callable[[], bool]
"""Whether a write may go on."""


class OpenInput:
    """Lets one thread at a time write, and nobody once the sandbox's end of it may be somebody else's descriptor."""

    def __init__(self, write: Callable[[bytes, Still], None], hang_up: Callable[[], None]) -> None:
        """
        Args:
            write: takes all of it, or raises ``SandboxFailed`` or ``OSError`` when nobody reads, or it need not go on.
            hang_up: called once.
        """
        self._write, self._hang_up = write, hang_up
        self._guard = threading.Lock()
        self._open = True
        self._ended = threading.Event()

    def tell(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            ProgramEnded: nobody will read it.
        """
        with self._guard:
            if not self._open:
                raise ProgramEnded
            try:
                self._write(data, lambda: not self._ended.is_set())
            except (SandboxFailed, OSError) as error:
                raise ProgramEnded from error

    def hang_up(self) -> None:
        """Nothing more will be told."""
        with self._guard:
            if self._open:
                self._open = False
                with contextlib.suppress(OSError):
                    self._hang_up()

    def cut_off(self) -> None:
        """The program has ended; so does a write that is under way. Its end of a pipe may be in other hands, which read nothing."""
        self._ended.set()
        self.hang_up()
