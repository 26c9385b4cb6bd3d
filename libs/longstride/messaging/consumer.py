"""Taking messages off a queue: one thread reads, as many handle as there are slots."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from longstride.messaging.backoff import Backoff
from longstride.messaging.bus import Bus
from longstride.messaging.delivery import Delivery
from longstride.messaging.errors import BusUnavailable
from longstride.messaging.progress import Progress
from longstride.messaging.slot import Slot
from longstride.messaging.source import Source
from longstride.messaging.subscriptions import Subscriptions
from longstride.storage.errors import StorageError

logger = logging.getLogger(__name__)

Handle = Callable[[Delivery], object]
HOLD_S = 5.0
"""A delivery whose handler has acknowledged it and works on is taken off its queue after so long, before its end."""
PAUSE_S = 0.2
"""After a handler let an error escape."""


def nothing() -> None:
    """The default of a callback."""


class Consumer:
    """Hands each delivery to ``handle`` on one of ``slots`` threads, and takes it off its queue when that returns.

    The connection belongs to a reading thread, so no handler can delay its heartbeats; when it breaks, it is opened
    again, for ever, and what was not taken off is delivered again. No message is taken that no slot is free for: each
    slot has a subscription of its own with a prefetch of one. A handler with long work under a lease acknowledges its
    delivery (``Delivery.acknowledge``); when it has run for ``hold_s``, its slot's subscription is ended, *then* the
    message is taken off, and the subscription is taken up again when the slot is free.

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
        on_connect: Callable[[], object] = nothing,
        on_drain: Callable[[], object] = nothing,
        hold_s: float = HOLD_S,
    ) -> None:
        """
        Args:
            bus: where the queue is.
            source: the queue.
            handle: what to do with a delivery; an error that escapes it has the message delivered again.
            slots: handlers at a time.
            on_connect: called on the reading thread after each connect; a ``StorageError`` makes it connect anew.
            on_drain: called when no more is to be taken, so that a handler need not wait for an outage to end.
            hold_s: see above.

        Raises:
            ValueError: fewer than one slot.
        """
        if slots < 1:
            raise ValueError(f"slots must be at least 1, not {slots}")
        self._bus = bus
        self._source = Source(source) if isinstance(source, str) else source
        self._handle = handle
        self._on_connect = on_connect
        self._on_drain = on_drain
        self._hold_s = hold_s
        self.name = self._source.queue
        self.progress = Progress(slots)
        self.failure: BaseException | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._slots = {slot.tag: slot for slot in (Slot(f"slot {i + 1}", self._lock) for i in range(slots))}
        self._subscriptions: Subscriptions | None = None
        self._draining = False
        self._closing = False
        self._connected = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def busy(self) -> int:
        """Handlers at work."""
        return self.progress.busy

    def start(self) -> None:
        """Start the threads; the first connection is made by them."""
        self._start_thread(f"{self.name} reader", self._read)
        for slot in self._slots.values():
            self._start_thread(f"{self.name} {slot.tag}", partial(self._work, slot))

    def wait_connected(self, timeout_s: float) -> bool:
        """Wait until messages can arrive."""
        return self._connected.wait(timeout_s)

    def drain(self) -> None:
        """Take no more; what no handler has started goes back to the queue."""
        with self._lock:
            self._draining = True
            if self._subscriptions is not None:
                self._subscriptions.pause(self._slots.values())
            for slot in self._slots.values():
                self._give_back(slot.clear())
                slot.wake()
        self._on_drain()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Drain, let the handlers finish, hang up. What is not finished in time is delivered again."""
        deadline = time.monotonic() + timeout_s
        self.drain()
        with self._changed:
            if not self._changed.wait_for(lambda: self.progress.busy == 0, timeout_s):
                logger.error("%s: %d handlers did not finish in %.1f s", self.name, self.progress.busy, timeout_s)
        self.close()
        for thread in self._threads:
            thread.join(max(0.2, deadline - time.monotonic()))

    def close(self) -> None:
        """Hang up now; messages that were not taken off go back to the queue."""
        with self._changed:
            self._draining = self._closing = True
            self._changed.notify_all()
            for slot in self._slots.values():
                slot.wake()
            if self._subscriptions is not None:
                self._subscriptions.wake()

    # --- the reading thread ---

    def _read(self) -> None:
        backoff = Backoff()
        while not self._closing:
            try:
                subscriptions = Subscriptions(self._bus.link(), self._source)
            except BusUnavailable as error:
                self._pause(backoff, f"cannot consume: {error}")
                continue
            try:
                self._follow(subscriptions, backoff)
            except (BusUnavailable, StorageError) as error:
                self._pause(backoff, f"connects again: {error}")
            finally:
                self._disconnect(subscriptions)

    def _follow(self, subscriptions: Subscriptions, backoff: Backoff) -> None:
        with self._lock:
            self._subscriptions = subscriptions
            self._resume(self._slots.values())
        self._on_connect()
        self._connected.set()
        backoff.reset()
        while not self._closing:
            self._arrived(subscriptions.turn(min(1.0, self._hold_s)))
            self._take_off_long_ones()

    def _arrived(self, deliveries: Sequence[Delivery]) -> None:
        with self._lock:
            for delivery in deliveries:
                slot = self._slots[delivery.consumer_tag]
                self.progress.moved()
                if slot.subscribed:
                    slot.put(delivery)
                else:  # it was under way when the slot was paused
                    self._give_back(delivery)

    def _take_off_long_ones(self) -> None:
        for slot in self._slots.values():
            with self._lock:
                delivery = slot.long_acknowledged(self._hold_s)
                if delivery is not None and self._subscriptions is not None:
                    self._subscriptions.pause([slot])
                    delivery.take_off()

    def _pause(self, backoff: Backoff, why: str) -> None:
        if not self._closing:
            logger.warning("%s: %s", self.name, why)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, backoff.next())

    def _disconnect(self, subscriptions: Subscriptions) -> None:
        with self._lock:
            self._connected.clear()
            self._subscriptions = None
            for slot in self._slots.values():
                slot.disconnected()
        subscriptions.close()

    # --- the slots' threads ---

    def _work(self, slot: Slot) -> None:
        while not self._draining:
            with self._lock:
                delivery = slot.take() if not self._draining else None
                if delivery is None:
                    continue
                self.progress.started()
            self._deal_with(delivery)
            with self._changed:
                slot.finish()
                self.progress.finished()
                self._resume([slot])
                self._changed.notify_all()

    def _deal_with(self, delivery: Delivery) -> None:
        try:
            self._handle(delivery)
        except Exception:
            logger.exception("%s: the handler let an error escape; the message is delivered again", self.name)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, PAUSE_S)
            delivery.requeue()
        delivery.take_off()

    def _resume(self, slots: Iterable[Slot]) -> None:
        """Subscribe those that are free."""
        if self._subscriptions is not None and not self._draining:
            self._subscriptions.resume(slot for slot in slots if slot.free)

    def _give_back(self, delivery: Delivery | None) -> None:
        if delivery is not None:
            delivery.requeue()

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
