"""The bus: publish and be told whether the broker has it. Works the same over RabbitMQ and in memory."""

import threading
from collections.abc import Callable, Sequence

from longstride.messaging import declaration
from longstride.messaging.errors import BusUnavailable, MessagingError
from longstride.messaging.link import Link
from longstride.messaging.outgoing import Outgoing, to_exchange, to_queue
from longstride.messaging.publisher import Publisher, Settled

CONFIRM_TIMEOUT_S = 10.0


class Bus:
    """A broker, by its URL. Safe to share between threads; a forked child needs its own."""

    def __init__(self, url: str, *, confirm_timeout_s: float = CONFIRM_TIMEOUT_S) -> None:
        """Nothing is connected yet.

        Args:
            url: ``amqp://user:password@host:port/vhost``, ``amqps://…``, or ``memory://name`` for a broker in this
                process; each name is another broker.
            confirm_timeout_s: seconds to wait for the broker's confirm.
        """
        self.url = url
        self._confirm_timeout_s = confirm_timeout_s
        self._publisher = Publisher(url)

    @property
    def keeps_messages(self) -> bool:
        """Whether a confirmed message outlives this process: yes on RabbitMQ, no in memory."""
        return not self.url.startswith("memory://")

    @property
    def connected(self) -> bool:
        """Whether ``send`` can write at once."""
        return self._publisher.connected

    def connect(self) -> None:
        """Make sure messages can be sent.

        Raises:
            BusUnavailable: the broker cannot be reached.
        """
        self._publisher.connect()

    def link(self) -> Link:
        """A connection of the caller's own.

        Raises:
            BusUnavailable: the broker cannot be reached.
        """
        return Link(self.url)

    def declare(self) -> None:
        """Declare every exchange, queue and binding of the flow.

        Raises:
            UnsuitableBroker: one exists with other properties.
            BusUnavailable: the broker cannot be reached.
        """
        link = self.link()
        try:
            declaration.declare(link)
        finally:
            link.close()

    def publish(self, wire: bytes, routing_key: str, message_id: str) -> None:
        """Publish to the topic exchange and wait until the broker has it.

        Raises:
            Unroutable: no queue wants it.
            Refused: the queue is full.
            BusUnavailable: not known to have arrived.
        """
        self._publish_one(to_exchange(wire, routing_key, message_id))

    def publish_reply(self, queue: str, wire: bytes, message_id: str, correlation_id: str | None = None) -> None:
        """Publish to one queue. Errors as ``publish``: a queue that is gone is ``Unroutable``."""
        self._publish_one(to_queue(wire, queue, message_id, correlation_id))

    def publish_all(self, messages: Sequence[Outgoing]) -> list[MessagingError | None]:
        """Publish many and wait once; the result says for each what went wrong, ``None`` where nothing did.

        Raises:
            BusUnavailable: the broker cannot be reached, or some were not confirmed in time.
        """
        self.connect()
        batch = _Batch(len(messages))
        self._publisher.send(
            messages, accepted=[batch.slot(i) for i in range(len(messages))], settled=[None] * len(messages)
        )
        return batch.wait(self._confirm_timeout_s)

    def send(self, messages: Sequence[Outgoing], settled: Sequence[Settled]) -> None:
        """Write messages and return; each of ``settled`` is called once its message may be forgotten or went wrong.

        On RabbitMQ that is the broker's confirm, in memory the consumer's acknowledgement.

        Raises:
            BusUnavailable: there is no connection now; it is not waited for.
        """
        self._publisher.send(messages, accepted=[None] * len(messages), settled=settled)

    def close(self) -> None:
        """Hang up."""
        self._publisher.close()

    def _publish_one(self, message: Outgoing) -> None:
        (error,) = self.publish_all([message])
        if error is not None:
            raise error


class _Batch:
    """Collects the broker's answers to messages that were published together."""

    def __init__(self, size: int) -> None:
        self._answers: list[MessagingError | None] = [None] * size
        self._open = size
        self._lock = threading.Lock()
        self._all = threading.Event()
        if size == 0:
            self._all.set()

    def slot(self, index: int) -> Callable[[MessagingError | None], None]:
        def answer(error: MessagingError | None) -> None:
            with self._lock:
                self._answers[index] = error
                self._open -= 1
                if self._open == 0:
                    self._all.set()

        return answer

    def wait(self, timeout_s: float) -> list[MessagingError | None]:
        if not self._all.wait(timeout_s):
            raise BusUnavailable(
                f"the broker did not confirm {self._open} of {len(self._answers)} messages in {timeout_s:g} s"
            )
        return self._answers
