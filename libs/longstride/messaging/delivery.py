"""A message as a consumer got it."""

from collections.abc import Callable, Mapping
from typing import Any

from longstride.messaging.errors import BusUnavailable
from longstride.messaging.link import Link


class Delivery:
    """One delivery: its bytes, and what is to become of the message. Safe to use from any thread."""

    def __init__(self, message: Any, queue: str, link: Link) -> None:
        self.queue = queue
        body = message.body
        self.body: bytes = body.encode() if isinstance(body, str) else bytes(body)
        self.headers: Mapping[str, Any] = message.headers or {}
        self.routing_key: str = message.delivery_info["routing_key"]
        self.exchange: str = message.delivery_info["exchange"]
        self.consumer_tag: str = message.delivery_info["consumer_tag"]
        self.redelivered: bool = bool(message.delivery_info.get("redelivered"))
        self.acknowledged = False
        """Whether the handler has said that the message need not come again."""
        self.settled = False
        """Whether the broker has been told."""
        self._properties: Mapping[str, Any] = message.properties
        self._message = message
        self._link = link

    @property
    def message_id(self) -> str | None:
        """AMQP's ``message_id``, where the publisher set one."""
        return self._properties.get("message_id")

    @property
    def reply_to(self) -> str | None:
        """The queue that waits for an answer."""
        return self._properties.get("reply_to") or None

    @property
    def correlation_id(self) -> str | None:
        """What the answer must carry."""
        return self._properties.get("correlation_id") or None

    def acknowledge(self) -> None:
        """The message need not come again, whatever becomes of the handler.

        The broker is told when the handler returns, or when it has run for ``consumer.HOLD_S``: telling it at once
        would have it send the next message to a slot that is taken.
        """
        self.acknowledged = True

    def take_off(self) -> bool:
        """Take the message off its queue. ``False``: the connection broke first, so it will be delivered again."""
        return self._settle(lambda: self._message.ack())

    def requeue(self) -> bool:
        """Give it back for another delivery."""
        return self._settle(lambda: self._message.reject(requeue=True))

    def _settle(self, act: Callable[[], object]) -> bool:
        if self.settled:
            return True
        self.settled = True
        try:
            with self._link.held():
                act()
        except BusUnavailable:
            return False
        return True
