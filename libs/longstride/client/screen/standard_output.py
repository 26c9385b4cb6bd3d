"""Standard output that says in a sentence that it cannot be written: a full disk, a closed descriptor."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from longstride.client.errors import ClientError


class OutputLost(ClientError):
    """Standard output cannot be written."""


class StandardOutput(io.TextIOWrapper):
    """As the one of the interpreter. A reader that went away stays a ``BrokenPipeError``: it wants nothing more."""

    def write(self, text: str) -> int:
        """Write text; see ``io.TextIOWrapper``."""
        with self._told():
            return super().write(text)

    def flush(self) -> None:
        """Write what waits; see ``io.TextIOWrapper``."""
        with self._told():
            super().flush()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self._drop()
            raise
        except OSError as error:
            self._drop()
            raise OutputLost(f"standard output cannot be written: {error.strerror}") from error

    def _drop(self) -> None:
        """What waits goes nowhere: the interpreter would try it again at its end, and fail."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def guard() -> None:
    """Put it in the place of the interpreter's own; where there is none, what is said goes nowhere."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # The lowest free descriptor is this one's: nothing else that is opened later may be written to in its place.
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115 - to the end
    own = sys.stdout
    if isinstance(own, io.TextIOWrapper) and not isinstance(own, StandardOutput):
        encoding, errors, by_line = own.encoding, own.errors, own.line_buffering
        sys.stdout = StandardOutput(cast(IO[bytes], own.detach()), encoding, errors, line_buffering=by_line)
