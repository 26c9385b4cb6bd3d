"""A broker in this process, with RabbitMQ's semantics: what the embedded stack and the tests run on.

Queues, bindings, prefetch, acknowledgement, redelivery with a limit, dead letters, mandatory messages and exclusive
queues behave as on quorum queues. One thing differs, on purpose: memory dies with the process, so a message is
*confirmed* when its consumers have acknowledged it, not when it was queued. Whoever waits for confirms before
forgetting (the outbox) therefore loses nothing when the process is killed.
"""

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from kombu.exceptions import ChannelError

logger = logging.getLogger(__name__)

ARGUMENTS = frozenset(
    {
        "x-queue-type",
        "x-delivery-limit",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-overflow",
        "x-max-length",
    }
)
"""Queue arguments this broker honours; any other is refused rather than ignored."""


class Owner(Protocol):
    """A connection, as the broker sees it."""

    def close(self) -> None:
        """The broker hangs up, or the connection is given up."""


class Receiver(Protocol):
    """A subscription of a channel to a queue."""

    def has_room(self) -> bool:
        """Whether the prefetch limit leaves room for one more message."""

    def receive(self, queue: "Queue", letter: "Letter") -> None:
        """Take a message; it is unacknowledged from now on."""


class Receipt:
    """Tells a publisher, once, that every copy of its message has been dealt with."""

    def __init__(self, settled: Callable[[], None] | None = None) -> None:
        self._open = 1
        self._settled = settled

    def add(self) -> None:
        """One more copy is about."""
        self._open += 1

    def done(self) -> None:
        """A copy, or the publishing itself, is over."""
        self._open -= 1
        if self._open == 0 and self._settled is not None:
            self._settled()


@dataclass(frozen=True, slots=True)
class Content:
    """What was published."""

    body: bytes
    exchange: str
    routing_key: str
    content_type: str | None
    content_encoding: str | None
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]


@dataclass(slots=True)
class Letter:
    """One copy of a message, in one queue."""

    content: Content
    receipt: Receipt
    failures: int = 0
    """Deliveries that ended without an acknowledgement."""


@dataclass(slots=True)
class Queue:
    """Letters in order, and who takes them."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    owner: Owner | None = None
    """Set for an exclusive queue: it ends with this connection."""
    auto_delete: bool = False
    ready: deque[Letter] = field(default_factory=deque)
    receivers: deque[Receiver] = field(default_factory=deque)

    def full(self) -> bool:
        """Whether ``x-max-length`` leaves no room."""
        limit = self.arguments.get("x-max-length")
        return limit is not None and len(self.ready) >= limit

    def hand_out(self) -> None:
        """Give letters to receivers with room, in turn."""
        while self.ready and (receiver := self._next_receiver()) is not None:
            receiver.receive(self, self.ready.popleft())

    def _next_receiver(self) -> Receiver | None:
        for _ in range(len(self.receivers)):
            self.receivers.rotate(-1)
            if self.receivers[-1].has_room():
                return self.receivers[-1]
        return None


@dataclass(slots=True)
class Exchange:
    """A named set of bindings."""

    type: str
    bindings: list[tuple[str, str]] = field(default_factory=list)
    """(routing key or pattern, queue)."""

    def route(self, routing_key: str) -> list[str]:
        """The queues that want this key, each once."""
        return list(dict.fromkeys(queue for key, queue in self.bindings if self._matches(key, routing_key)))

    def _matches(self, key: str, routing_key: str) -> bool:
        match self.type:
            case "topic":
                return topic_matches(key, routing_key)
            case "direct":
                return key == routing_key
        return True


def topic_matches(pattern: str, routing_key: str) -> bool:
    """AMQP's topic rule: ``*`` is one word, ``#`` any number of them."""
    return _topic(pattern).fullmatch("." + routing_key if routing_key else "") is not None


def _topic(pattern: str, _cache: dict[str, re.Pattern[str]] = {}) -> re.Pattern[str]:  # noqa: B006
    if pattern not in _cache:
        words = {"*": r"\.[^.]+", "#": r"(?:\.[^.]+)*"}
        _cache[pattern] = re.compile("".join(words.get(w, r"\." + re.escape(w)) for w in pattern.split(".")))
    return _cache[pattern]


class MemoryBroker:
    """One broker. Every method takes its lock; receivers are called with it held and only note what they got."""

    _named: ClassVar[dict[str, "MemoryBroker"]] = {}
    _names = threading.Lock()

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self.connections: set[Owner] = set()

    @classmethod
    def named(cls, name: str) -> "MemoryBroker":
        """The broker of ``memory://name``; each name is another broker."""
        with cls._names:
            return cls._named.setdefault(name, cls())

    @classmethod
    def forget(cls, name: str) -> None:
        """What the death of the process does: everything in the broker is gone."""
        with cls._names:
            cls._named.pop(name, None)

    def declare_exchange(self, name: str, type_: str) -> None:
        """Make an exchange, or find the same one there."""
        if type_ not in ("topic", "direct", "fanout"):
            raise ChannelError(f"the memory transport has no exchanges of type {type_!r}")
        with self.lock:
            if self.exchanges.setdefault(name, Exchange(type_)).type != type_:
                raise ChannelError(f"PRECONDITION_FAILED - inequivalent arg 'type' for exchange {name!r}")

    def declare_queue(
        self, name: str, arguments: Mapping[str, Any], owner: Owner | None, auto_delete: bool
    ) -> tuple[int, int]:
        """Make a queue, or find the same one there. Returns its (messages, consumers)."""
        if unknown := set(arguments) - ARGUMENTS:
            raise ChannelError(f"the memory transport does not know the queue arguments {sorted(unknown)}")
        with self.lock:
            queue = self.queues.setdefault(name, Queue(name, dict(arguments), owner, auto_delete))
            if queue.owner is not owner and queue.owner is not None:
                raise ChannelError(f"RESOURCE_LOCKED - exclusive queue {name!r} belongs to another connection")
            for key in queue.arguments.keys() | arguments.keys():
                if queue.arguments.get(key) != arguments.get(key):
                    raise ChannelError(f"PRECONDITION_FAILED - inequivalent arg '{key}' for queue '{name}'")
            return len(queue.ready), len(queue.receivers)

    def inspect_queue(self, name: str) -> tuple[int, int]:
        """(messages, consumers) of a queue that must exist."""
        with self.lock:
            queue = self._queue(name)
            return len(queue.ready), len(queue.receivers)

    def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        """Send what matches ``routing_key`` to ``queue``."""
        with self.lock:
            self._queue(queue)
            if exchange not in self.exchanges:
                raise ChannelError(f"NOT_FOUND - no exchange {exchange!r}")
            if (routing_key, queue) not in self.exchanges[exchange].bindings:
                self.exchanges[exchange].bindings.append((routing_key, queue))

    def unbind(self, queue: str, exchange: str, routing_key: str) -> None:
        """Undo ``bind``."""
        with self.lock:
            if exchange in self.exchanges and (routing_key, queue) in self.exchanges[exchange].bindings:
                self.exchanges[exchange].bindings.remove((routing_key, queue))

    def publish(self, content: Content, settled: Callable[[], None] | None = None) -> int:
        """Put copies into the queues that want it; returns how many, −1 when one of them is full.

        ``settled`` is called once all of them have been dealt with; never when there are none.
        """
        with self.lock:
            queues = self._route(content.exchange, content.routing_key)
            if not queues:
                return 0
            if any(queue.full() for queue in queues):
                return -1
            receipt = Receipt(settled)
            for queue in queues:
                receipt.add()
                queue.ready.append(Letter(content, receipt))
                queue.hand_out()
            receipt.done()
            return len(queues)

    def subscribe(self, name: str, receiver: Receiver, owner: Owner) -> None:
        """Let ``receiver`` take letters of a queue."""
        with self.lock:
            queue = self._queue(name)
            if queue.owner is not None and queue.owner is not owner:
                raise ChannelError(f"RESOURCE_LOCKED - exclusive queue {name!r} belongs to another connection")
            queue.receivers.append(receiver)
            queue.hand_out()

    def unsubscribe(self, name: str, receiver: Receiver) -> None:
        """Stop that; the last one out ends an auto-delete queue."""
        with self.lock:
            queue = self.queues.get(name)
            if queue is None or receiver not in queue.receivers:
                return
            queue.receivers.remove(receiver)
            if queue.auto_delete and not queue.receivers:
                self.delete(name)

    def acknowledge(self, queue: Queue, letter: Letter) -> None:
        """A consumer is done with a letter."""
        with self.lock:
            letter.receipt.done()
            queue.hand_out()

    def requeue(self, queue: Queue, letters: list[Letter]) -> None:
        """A consumer gives letters back, oldest first: to the front, or to the dead letters when too often."""
        with self.lock:
            limit = queue.arguments.get("x-delivery-limit")
            for letter in reversed(letters):
                letter.failures += 1
                if limit is not None and letter.failures > limit:
                    self.bury(queue, letter, "delivery_limit")
                elif self.queues.get(queue.name) is queue:
                    queue.ready.appendleft(letter)
                else:
                    letter.receipt.done()
            queue.hand_out()

    def bury(self, queue: Queue, letter: Letter, reason: str) -> None:
        """Move a letter to the queue's dead-letter exchange; its publisher goes on waiting for it there."""
        with self.lock:
            exchange = queue.arguments.get("x-dead-letter-exchange")
            if exchange is not None:
                self._send_dead(queue, letter, str(exchange), reason)
            letter.receipt.done()
            queue.hand_out()

    def _send_dead(self, queue: Queue, letter: Letter, exchange: str, reason: str) -> None:
        content = letter.content
        key = str(queue.arguments.get("x-dead-letter-routing-key", content.routing_key))
        dead = Content(
            content.body,
            exchange,
            key,
            content.content_type,
            content.content_encoding,
            {**content.headers, **_death(queue.name, content, reason)},
            content.properties,
        )
        targets = self._route(exchange, key)
        for target in targets:
            letter.receipt.add()
            target.ready.append(Letter(dead, letter.receipt))
            target.hand_out()
        if not targets:
            logger.error("a dead letter of queue %s was dropped: nothing is bound to exchange %s", queue.name, exchange)

    def get(self, name: str) -> tuple[Queue, Letter] | None:
        """Take one letter without subscribing."""
        with self.lock:
            queue = self._queue(name)
            return (queue, queue.ready.popleft()) if queue.ready else None

    def purge(self, name: str) -> int:
        """Drop the letters that wait in a queue."""
        with self.lock:
            ready = self._queue(name).ready
            count = len(ready)
            while ready:
                ready.popleft().receipt.done()
            return count

    def delete(self, name: str) -> int:
        """Remove a queue with its letters and bindings."""
        with self.lock:
            if name not in self.queues:
                return 0
            count = self.purge(name)
            del self.queues[name]
            for exchange in self.exchanges.values():
                exchange.bindings = [(key, queue) for key, queue in exchange.bindings if queue != name]
            return count

    def release(self, owner: Owner) -> None:
        """A connection ended: its exclusive queues go with it."""
        with self.lock:
            for name in [queue.name for queue in self.queues.values() if queue.owner is owner]:
                self.delete(name)

    def hang_up(self) -> None:
        """What a restart of a broker does to its clients: connections end, durable queues and letters stay."""
        for connection in tuple(self.connections):
            connection.close()

    def _queue(self, name: str) -> Queue:
        if name not in self.queues:
            raise ChannelError(f"NOT_FOUND - no queue {name!r}")
        return self.queues[name]

    def _route(self, exchange: str, routing_key: str) -> list[Queue]:
        if exchange == "":
            return [self.queues[routing_key]] if routing_key in self.queues else []
        if exchange not in self.exchanges:
            raise ChannelError(f"NOT_FOUND - no exchange {exchange!r}")
        return [self.queues[name] for name in self.exchanges[exchange].route(routing_key)]


def _death(queue: str, content: Content, reason: str) -> dict[str, Any]:
    """The headers RabbitMQ adds to a dead letter."""
    entry = {
        "queue": queue,
        "reason": reason,
        "count": 1,
        "exchange": content.exchange,
        "routing-keys": [content.routing_key],
    }
    return {
        "x-first-death-queue": queue,
        "x-first-death-reason": reason,
        "x-first-death-exchange": content.exchange,
        "x-death": [entry],
    }
