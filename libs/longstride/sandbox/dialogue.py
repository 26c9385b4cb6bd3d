"""The standard input of a program that runs: bytes from any thread, until either side ends it."""

import contextlib
import threading
from collections.abc import Callable

from longstride.sandbox.errors import ProgramEnded, SandboxFailed


class OpenInput:
    """Lets one thread at a time write, and nobody once the sandbox's end of it may be somebody else's descriptor."""

    def __init__(self, write: Callable[[bytes], None], hang_up: Callable[[], None]) -> None:
        """
        Args:
            write: takes all of it, or raises ``SandboxFailed`` or ``OSError`` when nobody reads.
            hang_up: called once.
        """
        self._write, self._hang_up = write, hang_up
        self._guard = threading.Lock()
        self._open = True

    def tell(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            ProgramEnded: nobody will read it.
        """
        with self._guard:
            if not self._open:
                raise ProgramEnded
            try:
                self._write(data)
            except (SandboxFailed, OSError) as error:
                raise ProgramEnded from error

    def hang_up(self) -> None:
        """Nothing more will be told."""
        with self._guard:
            if self._open:
                self._open = False
                with contextlib.suppress(OSError):
                    self._hang_up()
