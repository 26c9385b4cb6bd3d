"""What has Celery's loop see at once what a signal handler has noted: it sleeps until its next timer, for seconds."""

import os
from contextlib import suppress
from typing import Any

from celery.bootsteps import StartStopStep
from celery.worker import WorkController


class WakePipe:
    """A pipe to oneself, for a handler can take no locks. Close it in children that were forked, too."""

    def __init__(self) -> None:
        self._ends: tuple[int, ...] = os.pipe()
        for end in self._ends:
            os.set_blocking(end, False)

    def listen(self, hub: Any) -> None:
        """From now on ``wake`` ends the sleep of kombu's hub. A second call does nothing."""
        hub.add_reader(self._ends[0], self._drain)

    def wake(self) -> None:
        """For signal handlers; once it is closed, nothing."""
        if self._ends:
            with suppress(BlockingIOError):  # full: it wakes already
                os.write(self._ends[1], b".")

    def close(self) -> None:
        """A second call does nothing."""
        ends, self._ends = self._ends, ()
        for end in ends:
            os.close(end)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._ends[0], 1024):
                pass


class Listening(StartStopStep):  # type: ignore[misc]
    """Celery's step: the loop listens to ``app.wake_pipe``, anew with each connection, after which a hub may have been reset."""

    requires = ("celery.worker.components:Hub",)

    def register_with_event_loop(self, controller: WorkController, hub: Any) -> None:
        """Called by Celery before each loop."""
        controller.app.wake_pipe.listen(hub)
