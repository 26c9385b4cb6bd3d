"""What a process that has just begun still waits for, as its health check says."""

import logging

logger = logging.getLogger(__name__)

CHECK = "start"
"""Its name among the health checks, until the start is over."""


class Startup:
    """A health check that fails until the service can work: who asks too early must not be told that all is well."""

    def __init__(self) -> None:
        self._waits_for = "it has begun, and nothing is connected yet"

    def __call__(self) -> str:
        """What it waits for."""
        return self._waits_for

    def say(self, sentence: str) -> None:
        """It waits for this now."""
        logger.warning(sentence)
        self._waits_for = sentence
