"""The subscriptions of a consumer's slots, on one connection."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from longstride.messaging.delivery import Delivery
from longstride.messaging.errors import BusUnavailable
from longstride.messaging.link import Link
from longstride.messaging.slot import Slot
from longstride.messaging.source import Source


class Subscriptions:
    """One a slot, each with a prefetch of one, on a channel that they share."""

    def __init__(self, link: Link, source: Source) -> None:
        """Prepare the queue and the channel.

        Raises:
            BusUnavailable: the connection broke, or there is no such queue; ``link`` is closed.
        """
        self._link = link
        self._queue = source.queue
        self._inbox: list[Delivery] = []
        try:
            self._channel = link.channel()
            source.prepare(link, self._channel)
            with link.held():
                self._channel.basic_qos(0, 1, False)
        except BusUnavailable:
            link.close()
            raise

    def resume(self, slots: Iterable[Slot]) -> None:
        """Let these slots be sent messages."""
        for slot in slots:
            if not slot.subscribed:
                slot.subscribed = True
                with suppress(BusUnavailable), self._link.held():  # the reader finds out, and connects again
                    self._channel.basic_consume(
                        queue=self._queue, consumer_tag=slot.tag, callback=self._on_message, nowait=True
                    )

    def pause(self, slots: Iterable[Slot]) -> None:
        """Let them be sent none."""
        for slot in slots:
            if slot.subscribed:
                slot.subscribed = False
                with suppress(BusUnavailable), self._link.held():
                    self._channel.basic_cancel(slot.tag, nowait=True)

    def turn(self, timeout_s: float) -> list[Delivery]:
        """Wait for messages; returns what arrived.

        Raises:
            BusUnavailable: the connection broke.
        """
        self._link.turn(timeout_s)
        inbox, self._inbox = self._inbox, []
        return inbox

    def wake(self) -> None:
        """Make ``turn`` return."""
        self._link.wake()

    def close(self) -> None:
        """Hang up."""
        self._link.close()

    def _on_message(self, raw: Any) -> None:
        # Runs with the link held, so it takes no other lock.
        self._inbox.append(Delivery(self._channel.message_to_python(raw), self._queue, self._link))
