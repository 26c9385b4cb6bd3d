"""Taking messages off a queue: one thread reads, as many handle as there are slots."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from longstride.contracts.ids import new_id
from longstride.contracts.topology import EXCHANGE
from longstride.messaging.backoff import Backoff
from longstride.messaging.bus import Bus
from longstride.messaging.delivery import Delivery
from longstride.messaging.errors import BusUnavailable
from longstride.messaging.link import Link
from longstride.messaging.progress import Progress

logger = logging.getLogger(__name__)

Handle = Callable[[Delivery], object]
HOLD_S = 2.0
"""How long a message may wait here for a free slot before it goes back, to whoever is free elsewhere."""


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


class Consumer:
    """Hands each delivery to ``handle`` on one of ``slots`` threads, and acknowledges it when that returns.

    A handler that wants the message off the queue before its work is done (under a lease) acknowledges the delivery
    itself. The connection belongs to a reading thread, so no handler can delay its heartbeats; when it breaks, it is
    opened again, for ever, and what was not acknowledged is delivered again. At most ``slots`` deliveries are
    unacknowledged at a time. When all slots are busy with acknowledged work, further messages wait here ``HOLD_S`` at
    the most; then they go back and the subscription pauses until a slot is free.

    Order: a queue's messages are *started* in order with one slot and one consumer, until one is delivered again.
    Nothing else is promised; handlers must not rely on order.
    """

    def __init__(
        self,
        bus: Bus,
        source: Source | str,
        handle: Handle,
        *,
        slots: int = 1,
        on_connect: Callable[[], object] | None = None,
        hold_s: float = HOLD_S,
    ) -> None:
        self._bus = bus
        self._source = Source(source) if isinstance(source, str) else source
        self._handle = handle
        self._slots = slots
        self._on_connect = on_connect
        self._hold_s = hold_s
        self.name = self._source.queue
        self.progress = Progress(slots)
        self.failure: BaseException | None = None
        self._state = threading.Condition()
        self._waiting: deque[Delivery] = deque()
        self._subscription: _Subscription | None = None
        self._draining = False
        self._closing = False
        self._connected = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads; the first connection is made by them."""
        self._start_thread(f"{self.name} reader", self._read)
        for slot in range(self._slots):
            self._start_thread(f"{self.name} {slot + 1}", self._work)

    def _start_thread(self, name: str, target: Callable[[], None]) -> None:
        def run() -> None:
            try:
                target()
            except BaseException as error:
                self.failure = error
                logger.critical("%s: ended by an error that it does not know", name, exc_info=True)

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait_connected(self, timeout_s: float) -> bool:
        """Wait until messages can arrive."""
        return self._connected.wait(timeout_s)

    @property
    def busy(self) -> int:
        """Handlers at work."""
        return self.progress.busy

    def drain(self) -> None:
        """Take no more; what waits for a slot goes back to the queue."""
        with self._state:
            self._draining = True
            self._give_back()
            if self._subscription is not None:
                self._subscription.pause()
            self._state.notify_all()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Drain, let the handlers finish, hang up. What is not finished in time is delivered again."""
        deadline = time.monotonic() + timeout_s
        self.drain()
        with self._state:
            if not self._state.wait_for(lambda: self.progress.busy == 0, timeout_s):
                logger.error("%s: %d handlers did not finish in %.1f s", self.name, self.progress.busy, timeout_s)
        self.close()
        for thread in self._threads:
            thread.join(max(0.2, deadline - time.monotonic()))

    def close(self) -> None:
        """Hang up now; unacknowledged messages go back to the queue."""
        with self._state:
            self._draining = self._closing = True
            self._state.notify_all()
            if self._subscription is not None:
                self._subscription.link.wake()

    def _read(self) -> None:
        backoff = Backoff()
        while not self._closing:
            try:
                subscription = _Subscription(self._bus.link(), self._source, self._slots)
            except BusUnavailable as error:
                self._pause(backoff, f"cannot consume: {error}")
                continue
            try:
                self._follow(subscription)
            except BusUnavailable as error:
                self._pause(backoff, f"lost the broker: {error}")
            else:
                backoff.reset()
            finally:
                self._forget(subscription)

    def _follow(self, subscription: "_Subscription") -> None:
        with self._state:
            if self._draining:
                return
            self._subscription = subscription
            subscription.resume()
        if self._on_connect is not None:
            self._on_connect()
        self._connected.set()
        while not self._closing:
            self._arrived(subscription, subscription.turn(min(1.0, self._hold_s)))

    def _pause(self, backoff: Backoff, why: str) -> None:
        if not self._closing:
            logger.warning("%s: %s", self.name, why)
            with self._state:
                self._state.wait_for(lambda: self._closing, backoff.next())

    def _forget(self, subscription: "_Subscription") -> None:
        with self._state:
            self._connected.clear()
            self._subscription = None
            self._waiting.clear()
        subscription.link.close()

    def _arrived(self, subscription: "_Subscription", deliveries: Sequence[Delivery]) -> None:
        with self._state:
            for delivery in deliveries:
                self.progress.arrived()
                self._waiting.append(delivery)
                self._state.notify()
            overdue = self._waiting and time.monotonic() - self._waiting[0].arrived_at > self._hold_s
            if overdue:
                subscription.pause()
            if not subscription.active:
                self._give_back()
                self._resume()

    def _resume(self) -> None:
        if self._subscription is not None and self.progress.free and not self._draining:
            self._subscription.resume()

    def _give_back(self) -> None:
        while self._waiting:
            self._waiting.pop().requeue()

    def _work(self) -> None:
        while (delivery := self._next()) is not None:
            try:
                self._handle(delivery)
            except Exception:
                logger.exception("%s: the handler let an error escape; the message is delivered again", self.name)
                delivery.requeue()
            delivery.acknowledge()
            self._finished()

    def _next(self) -> Delivery | None:
        with self._state:
            self._state.wait_for(lambda: self._waiting or self._draining)
            if not self._waiting or self._draining:
                return None
            self.progress.started()
            return self._waiting.popleft()

    def _finished(self) -> None:
        with self._state:
            self.progress.finished()
            self._resume()
            if self.progress.busy == 0:
                self._state.notify_all()


class _Subscription:
    """A consumer on one connection, which can pause."""

    def __init__(self, link: Link, source: Source, prefetch: int) -> None:
        self.link = link
        self.active = False
        self._queue = source.queue
        self._tag = new_id("consumer")
        self._inbox: list[Delivery] = []
        try:
            self._channel = link.channel()
            source.prepare(link, self._channel)
            with link.held():
                self._channel.basic_qos(0, prefetch, False)
        except BusUnavailable:
            link.close()
            raise

    def resume(self) -> None:
        """Take messages, where that was not so already."""
        if not self.active:
            self.active = True
            with suppress(BusUnavailable), self.link.held():  # the reader finds out, and connects again
                self._channel.basic_consume(
                    queue=self._queue, consumer_tag=self._tag, callback=self._on_message, nowait=True
                )

    def pause(self) -> None:
        """Take no more for now."""
        if self.active:
            self.active = False
            with suppress(BusUnavailable), self.link.held():
                self._channel.basic_cancel(self._tag, nowait=True)

    def turn(self, timeout_s: float) -> list[Delivery]:
        """Wait for messages; returns what arrived."""
        self.link.turn(timeout_s)
        inbox, self._inbox = self._inbox, []
        return inbox

    def _on_message(self, raw: Any) -> None:
        # Runs with the link held, so it takes no other lock.
        self._inbox.append(Delivery(self._channel.message_to_python(raw), self._queue, self.link))
