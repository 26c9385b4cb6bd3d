"""A service's process: starts its parts, waits for the end, drains."""

import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from types import FrameType

from longstride.messaging.backbone import Backbone
from longstride.messaging.part import Part

logger = logging.getLogger(__name__)

DRAIN_S = 20.0
"""From SIGTERM to the end: below the 30 s that Kubernetes and the 25 s that our compose file give."""
RELEASE_S = 5.0
"""What is still running so long before the end has its lease released, for another worker to take it at once."""


class ServiceRuntime:
    """Parts that live and die together. ``run`` for a process of its own, ``start`` and ``stop`` inside another one."""

    def __init__(self, backbone: Backbone, parts: Sequence[Part], *, drain_s: float = DRAIN_S) -> None:
        """
        Args:
            backbone: started first, stopped last.
            parts: consumers, housekeeping and what else the service has, in the order in which they start.
            drain_s: seconds from the request to stop until the process ends.
        """
        self._backbone = backbone
        self._parts = [*backbone.essentials(), *parts]
        self._drain_s = drain_s
        self._ending = threading.Event()

    def start(self) -> None:
        """Start every part; returns at once."""
        for part in self._parts:
            part.start()
        logger.info("%s %s started", self._backbone.service, self._backbone.incarnation)

    def run(self) -> int:
        """Start, wait for SIGTERM, SIGINT or a part that cannot go on, drain; returns the exit code."""
        self.end_on_signals()
        self.start()
        failed = self.wait()
        self.stop()
        return 1 if failed else 0

    def wait(self) -> Part | None:
        """Wait until the end is asked for, or a part cannot go on: then which."""
        while not self._ending.wait(0.25):
            if (failed := self.failed()) is not None:
                logger.critical("%s: %s cannot go on: %r", self._backbone.service, failed.name, failed.failure)
                return failed
        return None

    def failed(self) -> Part | None:
        """A part that cannot go on, where there is one: the process must end."""
        return next((part for part in self._parts if part.failure is not None), None)

    def end(self) -> None:
        """Have ``wait`` and ``run`` return."""
        self._ending.set()

    def stop(self) -> None:
        """Take no new work, finish what can be finished, release the rest, end."""
        deadline = time.monotonic() + self._drain_s
        for part in self._parts:
            part.drain()
        release_at = deadline - min(RELEASE_S, self._drain_s / 2)
        while any(part.busy for part in self._parts) and time.monotonic() < release_at:
            time.sleep(0.02)
        if released := self._backbone.leases.release_all():
            logger.warning("%s: %d commands handed back unfinished", self._backbone.service, released)
        for part in reversed(self._parts):
            part.stop(max(0.5, deadline - time.monotonic()))
        self._backbone.close()
        logger.info("%s %s ended", self._backbone.service, self._backbone.incarnation)

    def end_on_signals(self) -> None:
        """Have SIGTERM and SIGINT end the service; a second one ends the process at once. In the main thread only."""

        def end(number: int, _frame: FrameType | None) -> None:
            if self._ending.is_set():  # asked twice: somebody is in a hurry
                os._exit(128 + number)
            self._ending.set()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
