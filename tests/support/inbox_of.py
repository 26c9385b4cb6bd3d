"""A consumer's handler that remembers what it got, and does what the test says."""

import threading
from collections.abc import Callable

from longstride.messaging.delivery import Delivery


class InboxOf:
    """Remembers deliveries; `act` is what the handler does with each."""

    def __init__(self, act: Callable[[Delivery], object] = lambda _delivery: None) -> None:
        self._act = act
        self._lock = threading.Lock()
        self.deliveries: list[Delivery] = []
        self.at_work = 0

    def __call__(self, delivery: Delivery) -> None:
        with self._lock:
            self.deliveries.append(delivery)
            self.at_work += 1
        try:
            self._act(delivery)
        finally:
            with self._lock:
                self.at_work -= 1

    @property
    def bodies(self) -> list[str]:
        """The bodies, in the order in which they were started."""
        with self._lock:
            return [delivery.body.decode() for delivery in self.deliveries]
