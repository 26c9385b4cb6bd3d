"""What a running process is made of."""

from typing import Protocol


class Part(Protocol):
    """Something with threads or a process of its own, started and stopped with the service."""

    @property
    def name(self) -> str:
        """For the log."""

    @property
    def failure(self) -> BaseException | None:
        """Why it cannot go on, where that is so: the process must end."""

    @property
    def busy(self) -> int:
        """Pieces of work under way."""

    def start(self) -> None:
        """Begin; returns at once."""

    def drain(self) -> None:
        """Take no new work; returns at once."""

    def stop(self, timeout_s: float) -> None:
        """Finish and end, within the time."""
