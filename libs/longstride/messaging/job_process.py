"""The job worker as a process of its own, beside the service that it belongs to.

Celery's parent forks its children at any time. It must not have threads that a fork would tear away from their locks,
so it does not share a process with the service's consumers and housekeeping.
"""

import logging
import signal
import subprocess
from collections.abc import Sequence

from longstride.messaging.errors import MessagingError

logger = logging.getLogger(__name__)


class JobProcessEnded(MessagingError):
    """The job worker's process ended by itself."""


class JobProcess:
    """A ``Part`` that starts a command, e.g. ``python -m services.tool_executor.jobs``, and ends it with the service."""

    name = "job process"

    def __init__(self, command: Sequence[str]) -> None:
        """
        Args:
            command: runs ``JobWorker.run``. It ends with this process, even when this one is killed.
        """
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._draining = False

    @property
    def failure(self) -> BaseException | None:
        """Set when it ended although nobody had asked it to."""
        if self._process is None or self._draining or (code := self._process.poll()) is None:
            return None
        return JobProcessEnded(f"{' '.join(self._command)} ended with exit code {code}")

    @property
    def busy(self) -> int:
        """1 while it finishes its jobs."""
        return int(self._draining and self._process is not None and self._process.poll() is None)

    def start(self) -> None:
        """Start the process."""
        self._process = subprocess.Popen(self._command)

    def drain(self) -> None:
        """Have it take no more jobs, and end after those it has."""
        self._draining = True
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self, timeout_s: float = 10.0) -> None:
        """End it; jobs that do not finish are given up, and become the next attempts at once."""
        self.drain()
        if self._process is None or self._waited(timeout_s / 2):
            return
        self._process.send_signal(signal.SIGQUIT)
        if not self._waited(timeout_s / 2):
            logger.error("the job worker did not end; it is killed")
            self._process.kill()
            self._process.wait()

    def _waited(self, timeout_s: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True
