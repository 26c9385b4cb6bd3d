"""Publishing with confirms: many messages in flight, each settled once."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from longstride.messaging.errors import BusUnavailable, MessagingError, Refused, Unroutable
from longstride.messaging.link import Link
from longstride.messaging.outgoing import Outgoing

logger = logging.getLogger(__name__)

Settled = Callable[[MessagingError | None], object]
"""Called once a message: ``None`` when it may be forgotten. Runs on the publisher's thread: be quick, do not raise."""


class Pending:
    """A message that has been written and not settled."""

    __slots__ = ("accepted", "message", "settled")

    def __init__(self, message: Outgoing, accepted: Settled | None, settled: Settled | None) -> None:
        self.message = message
        self.accepted = accepted
        self.settled = settled

    def accept(self, error: MessagingError | None) -> None:
        """The broker has it, or will not."""
        accepted, self.accepted = self.accepted, None
        if accepted is not None:
            accepted(error)

    def settle(self, error: MessagingError | None) -> None:
        """It may be forgotten, or it must be sent again."""
        self.accept(error)
        if self.settled is not None:
            self.settled(error)


class Session:
    """One life of the publisher's connection: its channel, and what is in flight on it."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._pending: dict[int, Pending] = {}
        self._returned: set[tuple[str, str]] = set()
        self._done: list[tuple[Pending, MessagingError | None]] = []
        self._last_tag = 0
        self._channel = link.channel()
        with link.held():
            self._channel.events["basic_ack"].add(self._on_ack)
            self._channel.events["basic_nack"].add(self._on_nack)
            self._channel.events["basic_return"].add(self._on_return)
            self._channel.confirm_select()

    def publish(self, pending: Pending) -> None:
        """Write one message. The link must be held."""
        message = pending.message
        self._last_tag += 1
        self._pending[self._last_tag] = pending
        self._channel.basic_publish(
            self._prepare(message), exchange=message.exchange, routing_key=message.routing_key, mandatory=True
        )
        if not self.link.waits_for_confirm and not self._turned_down(pending):
            pending.accept(None)

    def _turned_down(self, pending: Pending) -> bool:
        """In memory, a return or a refusal is known as soon as a publish returns."""
        message = pending.message
        return self._last_tag not in self._pending or (message.message_id, message.routing_key) in self._returned

    def _prepare(self, message: Outgoing) -> Any:
        properties = {
            "delivery_mode": 2,
            "message_id": message.message_id,
            "type": message.type,
            "reply_to": message.reply_to,
            "correlation_id": message.correlation_id,
        }
        return self._channel.prepare_message(
            message.body,
            content_type=message.content_type,
            content_encoding="utf-8",
            headers=dict(message.headers),
            properties={name: value for name, value in properties.items() if value is not None},
        )

    def turn(self, timeout_s: float) -> None:
        """Wait for confirms and pass them on, without holding the link."""
        self.link.turn(timeout_s)
        done, self._done = self._done, []
        for pending, error in done:
            pending.settle(error)

    def abandon(self, error: MessagingError) -> None:
        """The connection is gone: nobody knows what became of what was in flight."""
        pending, self._pending = self._pending, {}
        for entry in pending.values():
            entry.settle(error)

    def _on_ack(self, tag: int, multiple: bool) -> None:
        for pending in self._take(tag, multiple):
            key = (pending.message.message_id, pending.message.routing_key)
            error = Unroutable(f"no queue wants {_name(pending.message)}") if key in self._returned else None
            self._returned.discard(key)
            self._done.append((pending, error))

    def _on_nack(self, tag: int, multiple: bool) -> None:
        for pending in self._take(tag, multiple):
            self._done.append((pending, Refused(f"the broker does not take {_name(pending.message)} (queue full?)")))

    def _on_return(self, _error: Exception, _exchange: str, routing_key: str, message: Any) -> None:
        # The broker sends the return before the message's confirm, so the tag's fate is known when that comes.
        self._returned.add((message.properties["message_id"], routing_key))

    def _take(self, tag: int, multiple: bool) -> list[Pending]:
        # Tags grow, and dicts keep their order: the ones up to ``tag`` come first.
        tags = []
        for open_tag in self._pending if multiple else ():
            if open_tag > tag:
                break
            tags.append(open_tag)
        return [self._pending.pop(t) for t in tags or [tag] if t in self._pending]


class Publisher:
    """Publishes for every thread of a process over one connection; a thread of its own reads the confirms."""

    def __init__(self, url: str, name: str = "publisher") -> None:
        self._url = url
        self._name = name
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether messages can be sent without waiting for a connection."""
        session = self._session
        return session is not None and session.link.connected

    def connect(self) -> None:
        """Make sure there is a connection.

        Raises:
            BusUnavailable: there is none to be had now.
        """
        with self._lock:
            if self._closed:
                raise BusUnavailable("the publisher is closed")
            if self._session is not None:
                return
            self._session = self._open()
            self._thread = threading.Thread(target=self._read, args=(self._session,), name=self._name, daemon=True)
            self._thread.start()

    def _open(self) -> Session:
        link = Link(self._url)
        try:
            return Session(link)
        except BusUnavailable:
            link.close()
            raise

    def send(
        self, messages: Sequence[Outgoing], accepted: Sequence[Settled | None], settled: Sequence[Settled | None]
    ) -> None:
        """Write messages and return at once; each is settled later, with an error when the connection breaks.

        Raises:
            BusUnavailable: there is no connection, or it broke while writing. What was written before is settled
                with an error too; callbacks of messages that were not written are not called.
        """
        session = self._session
        if session is None:
            raise BusUnavailable("not connected to the broker")
        with session.link.held():
            for message, on_accepted, on_settled in zip(messages, accepted, settled, strict=True):
                session.publish(Pending(message, on_accepted, on_settled))

    def close(self) -> None:
        """Hang up. What is in flight is settled with an error."""
        with self._lock:
            self._closed = True
            session, thread = self._session, self._thread
        if session is not None and thread is not None:
            session.link.wake()
            if thread is not threading.current_thread():
                thread.join(timeout=10)

    def _read(self, session: Session) -> None:
        reason = BusUnavailable("the publisher was closed before the broker confirmed")
        try:
            while not self._closed:
                session.turn(timeout_s=1.0)
        except BusUnavailable as error:
            logger.warning("publisher: lost the broker: %s", error)
            reason = BusUnavailable(f"the connection broke before the broker confirmed: {error}")
        finally:
            self._session = None
            session.link.close()
            session.abandon(reason)


def _name(message: Outgoing) -> str:
    where = f"queue {message.routing_key!r}" if message.exchange == "" else f"key {message.routing_key!r}"
    return f"message {message.message_id} to {where}"
