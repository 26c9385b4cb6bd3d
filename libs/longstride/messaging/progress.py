"""What a consumer is doing, for the watchdog and for draining."""

import time


class Progress:
    """Counts of a consumer with a number of slots. Its owner's lock guards it."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.busy = 0
        """Slots that handle something."""
        self.last_moved = time.monotonic()
        """When something last arrived, started or finished (monotonic seconds)."""

    def moved(self) -> None:
        """A message was delivered."""
        self.last_moved = time.monotonic()

    def started(self) -> None:
        """A slot took a message."""
        self.busy += 1
        self.last_moved = time.monotonic()

    def finished(self) -> None:
        """A slot is free again."""
        self.busy -= 1
        self.last_moved = time.monotonic()

    @property
    def free(self) -> int:
        """Slots that handle nothing."""
        return self.slots - self.busy
