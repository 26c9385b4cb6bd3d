"""Where a consumer's messages come from."""

from collections.abc import Sequence
from typing import Any

from longstride.contracts.topology import EXCHANGE
from longstride.messaging.link import Link


class Source:
    """The queue to consume: durable and shared, or this process's own."""

    def __init__(self, queue: str, own_keys: Sequence[str] | None = None) -> None:
        """
        Args:
            queue: its name.
            own_keys: ``None`` for a queue that exists; else the queue is exclusive to this consumer's connection, is
                declared at each connect, bound to these routing keys, and gone with the connection. What was published
                in between is missed: read the truth from the database in ``on_connect``.
        """
        self.queue = queue
        self._own_keys = own_keys

    def prepare(self, link: Link, channel: Any) -> None:
        """Declare it, where it is our own."""
        if self._own_keys is None:
            return
        with link.held():
            channel.queue_declare(self.queue, durable=False, exclusive=True, auto_delete=True)
            for key in self._own_keys:
                channel.queue_bind(self.queue, EXCHANGE, key)
