"""kombu's side of the in-process broker: ``memory://stack-id`` for ``kombu.Connection`` and for Celery."""

import queue
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

from amqp.protocol import queue_declare_ok_t
from kombu import message as kombu_message
from kombu.exceptions import ChannelError
from kombu.transport import base

from longstride.contracts.ids import new_id
from longstride.messaging.memory_broker import Content, Letter, MemoryBroker, Queue

Event = Callable[[], object]
Message: Any = kombu_message.Message


class Subscription:
    """One consumer of a channel."""

    def __init__(self, channel: "Channel", queue_name: str, tag: str, no_ack: bool, callback: Callable[[Any], object]):
        self.channel = channel
        self.queue_name = queue_name
        self.tag = tag
        self.no_ack = no_ack
        self.callback = callback
        self.prefetch = channel.prefetch
        self.unacknowledged = 0

    def has_room(self) -> bool:
        """See ``memory_broker.Receiver``."""
        return self.prefetch == 0 or self.unacknowledged < self.prefetch

    def receive(self, source: Queue, letter: Letter) -> None:
        """See ``memory_broker.Receiver``."""
        tag = self.channel.take(source, letter, self)
        self.channel.connection.post(partial(self._deliver, source, letter, tag))

    def _deliver(self, source: Queue, letter: Letter, delivery_tag: int) -> None:
        if not self.channel.closed:
            self.callback(self.channel.message(source, letter, delivery_tag, self.tag))


class Channel(base.StdChannel):
    """An AMQP channel's methods, as kombu, Celery and the bus call them. Safe to use from any thread."""

    Message = kombu_message.Message

    def __init__(self, connection: "MemoryConnection") -> None:
        self.connection = connection
        self.channel_id = connection.next_channel_id()
        self.closed = False
        self.prefetch = 0
        self.no_ack_consumers: Any = set()
        self.events: defaultdict[str, set[Callable[..., object]]] = defaultdict(set)
        self._broker = connection.broker
        self._subscriptions: dict[str, Subscription] = {}
        self._unacknowledged: dict[int, tuple[Queue, Letter, Subscription | None]] = {}
        self._delivery_tags = count(1)
        self._publish_tags: count[int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return not self.closed

    def exchange_declare(self, exchange: str, type: str = "direct", passive: bool = False, **_: Any) -> None:
        """Declare an exchange; durability means nothing in memory."""
        if not passive:
            self._broker.declare_exchange(exchange, type)
        elif exchange not in self._broker.exchanges:
            raise ChannelError(f"NOT_FOUND - no exchange {exchange!r}")

    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> queue_declare_ok_t:
        """Declare a queue, or with ``passive`` look at one."""
        if passive:
            return queue_declare_ok_t(queue, *self._broker.inspect_queue(queue))
        name = queue or new_id("amq.gen")
        owner = self.connection if exclusive else None
        return queue_declare_ok_t(name, *self._broker.declare_queue(name, arguments or {}, owner, auto_delete))

    def queue_bind(self, queue: str, exchange: str = "", routing_key: str = "", **_: Any) -> None:
        """Bind a queue to an exchange; every queue is bound to the default one."""
        if exchange:
            self._broker.bind(queue, exchange, routing_key)

    def queue_unbind(self, queue: str, exchange: str, routing_key: str = "", **_: Any) -> None:
        """Undo ``queue_bind``."""
        self._broker.unbind(queue, exchange, routing_key)

    def queue_purge(self, queue: str, **_: Any) -> int:
        """Drop what waits in a queue."""
        return self._broker.purge(queue)

    def queue_delete(self, queue: str, **_: Any) -> int:
        """Remove a queue."""
        return self._broker.delete(queue)

    def prepare_message(
        self,
        body: Any,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """A message in the form that ``basic_publish`` takes."""
        return {
            "body": body.encode() if isinstance(body, str) else bytes(body),
            "content_type": content_type,
            "content_encoding": content_encoding,
            "headers": dict(headers or {}),
            "properties": dict(properties or {}, priority=priority),
        }

    def confirm_select(self, nowait: bool = False) -> None:
        """Number what is published from now on, and confirm it through ``events["basic_ack"]``."""
        self._publish_tags = count(1)

    def basic_publish(
        self, message: Mapping[str, Any], exchange: str = "", routing_key: str = "", mandatory: bool = False, **_: Any
    ) -> None:
        """Publish. A return or a refusal is reported before this returns, a confirm through the connection's events."""
        self._check_open()
        content = Content(exchange=exchange, routing_key=routing_key, **message)
        tag = next(self._publish_tags) if self._publish_tags else None
        routed = self._broker.publish(content, partial(self._confirm, "basic_ack", tag))
        if routed == 0 and mandatory:
            self._return(content)
        if routed == 0:
            self._confirm("basic_ack", tag)
        elif routed < 0:
            self._refuse(tag)

    def _confirm(self, event: str, tag: int | None) -> None:
        for listener in tuple(self.events[event]) if tag is not None else ():
            self.connection.post(partial(listener, tag, False))

    def _refuse(self, tag: int | None) -> None:
        for listener in tuple(self.events["basic_nack"]) if tag is not None else ():
            listener(tag, False)
        self.connection.wake()

    def _return(self, content: Content) -> None:
        error = ChannelError(f"NO_ROUTE - no queue for {content.routing_key!r} of exchange {content.exchange!r}")
        message = Message(content.body, properties=dict(content.properties), headers=dict(content.headers))
        for listener in tuple(self.events["basic_return"]):
            listener(error, content.exchange, content.routing_key, message)

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, a_global: bool = False, **_: Any) -> None:
        """The prefetch limit of consumers that start from now on."""
        self.prefetch = prefetch_count

    def basic_consume(
        self,
        queue: str,
        no_ack: bool = False,
        callback: Callable[[Any], object] | None = None,
        consumer_tag: str | None = None,
        **_: Any,
    ) -> str:
        """Have messages delivered by whoever drains the connection."""
        self._check_open()
        assert callback is not None
        tag = consumer_tag or new_id("ctag")
        subscription = Subscription(self, queue, tag, no_ack, callback)
        self._broker.subscribe(queue, subscription, self.connection)
        self._subscriptions[tag] = subscription
        return tag

    def basic_cancel(self, consumer_tag: str, **_: Any) -> None:
        """End a consumer; what it holds stays unacknowledged."""
        subscription = self._subscriptions.pop(consumer_tag, None)
        if subscription is not None:
            self._broker.unsubscribe(subscription.queue_name, subscription)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """Take one message, or ``None``."""
        with self._broker.lock:
            found = self._broker.get(queue)
            if found is None:
                return None
            source, letter = found
            return self.message(source, letter, self.take(source, letter, None, no_ack), "")

    def basic_ack(self, delivery_tag: int, multiple: bool = False, **_: Any) -> None:
        """Acknowledge one delivery, or all up to it."""
        with self._broker.lock:
            for queue_, letter in self._release(delivery_tag, multiple):
                self._broker.acknowledge(queue_, letter)

    def basic_reject(self, delivery_tag: int, requeue: bool = False, **_: Any) -> None:
        """Give one delivery back, or to the dead letters."""
        with self._broker.lock:
            for queue_, letter in self._release(delivery_tag, multiple=False):
                if requeue:
                    self._broker.requeue(queue_, [letter])
                else:
                    self._broker.bury(queue_, letter, "rejected")

    def basic_recover(self, requeue: bool = True, **_: Any) -> None:
        """Give everything back."""
        with self._broker.lock:
            self._give_back()

    def take(self, source: Queue, letter: Letter, by: Subscription | None, no_ack: bool = False) -> int:
        """Note a delivery; returns its tag."""
        tag = next(self._delivery_tags)
        if no_ack or (by is not None and by.no_ack):
            letter.receipt.done()
            return tag
        self._unacknowledged[tag] = (source, letter, by)
        if by is not None:
            by.unacknowledged += 1
        return tag

    def message(self, source: Queue, letter: Letter, delivery_tag: int, consumer_tag: str) -> Any:
        """A delivery as kombu's message."""
        content = letter.content
        headers = dict(content.headers)
        if letter.failures:
            headers["x-delivery-count"] = letter.failures
        return Message(
            content.body,
            delivery_tag,
            content.content_type,
            content.content_encoding,
            {
                "consumer_tag": consumer_tag,
                "delivery_tag": delivery_tag,
                "redelivered": letter.failures > 0,
                "exchange": content.exchange,
                "routing_key": content.routing_key,
            },
            dict(content.properties),
            headers,
            channel=self,
        )

    def message_to_python(self, raw_message: Any) -> Any:
        """Deliveries are messages already."""
        return raw_message

    def close(self) -> None:
        """End the channel; what was not acknowledged goes back to its queues."""
        with self._broker.lock:
            if self.closed:
                return
            self.closed = True
            for tag in tuple(self._subscriptions):
                self.basic_cancel(tag)
            self._give_back()
        self.connection.channels.pop(self.channel_id, None)

    def _release(self, delivery_tag: int, multiple: bool) -> list[tuple[Queue, Letter]]:
        tags = [tag for tag in self._unacknowledged if tag <= delivery_tag] if multiple else [delivery_tag]
        released = []
        for tag in tags:
            if tag not in self._unacknowledged:
                raise ChannelError(f"PRECONDITION_FAILED - unknown delivery tag {tag}")
            source, letter, by = self._unacknowledged.pop(tag)
            if by is not None:
                by.unacknowledged -= 1
            released.append((source, letter))
        return released

    def _give_back(self) -> None:
        held: dict[str, tuple[Queue, list[Letter]]] = {}
        for source, letter, by in self._unacknowledged.values():
            held.setdefault(source.name, (source, []))[1].append(letter)
            if by is not None:
                by.unacknowledged -= 1
        self._unacknowledged.clear()
        for source, letters in held.values():
            self._broker.requeue(source, letters)

    def _check_open(self) -> None:
        if self.closed:
            raise ConnectionResetError("the channel is closed")


class MemoryConnection:
    """One connection to a ``MemoryBroker``: what happens on it is kept in order until somebody drains it."""

    waits_for_confirm = False
    """A publish is accepted as soon as it is queued; its confirm comes when it has been consumed."""

    def __init__(self, broker: MemoryBroker, client: Any) -> None:
        self.broker = broker
        self.client = client
        self.connected = True
        self.channels: dict[int, Channel] = {}
        self._channel_ids = count(1)
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._arrived: deque[Event] = deque()
        broker.connections.add(self)

    def next_channel_id(self) -> int:
        """1, 2, 3 …"""
        return next(self._channel_ids)

    def channel(self) -> Channel:
        """Open a channel."""
        channel = Channel(self)
        self.channels[channel.channel_id] = channel
        return channel

    def post(self, event: Event) -> None:
        """Have ``event`` called by the thread that drains."""
        self._events.put(event)

    def share(self) -> None:
        """Ready from the start; see ``AmqpConnection.share``."""

    def await_traffic(self, timeout_s: float) -> bool:
        """Wait until something happens or somebody calls ``wake``."""
        if not self._arrived:
            self._fetch(timeout_s)
        return bool(self._arrived)

    def read_traffic(self) -> None:
        """Handle all that has happened."""
        while self._arrived or not self._events.empty():
            if self._arrived:
                self._arrived.popleft()()
            else:
                self._fetch(0)

    def drain_events(self, timeout: float | None = None) -> None:
        """Handle one event.

        Raises:
            TimeoutError: nothing happened in ``timeout`` seconds.
        """
        if not self.await_traffic(3600.0 if timeout is None else timeout):
            raise TimeoutError("timed out")
        self._arrived.popleft()()

    def wake(self) -> None:
        """Make ``await_traffic`` return."""
        self._events.put(None)

    def close(self) -> None:
        """End the connection: channels close, exclusive queues go."""
        self.connected = False
        for channel in tuple(self.channels.values()):
            channel.close()
        self.broker.release(self)
        self.broker.connections.discard(self)
        self.wake()

    farewell = discard = close

    def _fetch(self, timeout_s: float) -> None:
        if not self.connected:
            raise ConnectionResetError("the connection to the broker is closed")
        try:
            event = self._events.get(timeout=timeout_s) if timeout_s else self._events.get_nowait()
        except queue.Empty:
            return
        if event is not None:
            self._arrived.append(event)
        elif not self.connected:
            raise ConnectionResetError("the connection to the broker is closed")


class Transport(base.Transport):
    """``memory://name``, for ``kombu.Connection(transport=…)`` and Celery's ``broker_transport``."""

    implements = base.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )
    driver_type = "memory"
    driver_name = "longstride-memory"
    default_port: Any = 0
    connection_errors = (OSError,)
    channel_errors = (ChannelError,)

    def establish_connection(self) -> MemoryConnection:
        """Connect to the broker of the URL's host."""
        return MemoryConnection(MemoryBroker.named(getattr(self.client, "hostname", None) or "localhost"), self.client)

    def create_channel(self, connection: MemoryConnection) -> Channel:
        """Open a channel."""
        return connection.channel()

    def close_channel(self, channel: Channel) -> None:
        """Close one."""
        channel.close()

    def close_connection(self, connection: MemoryConnection) -> None:
        """Close all."""
        connection.close()

    def verify_connection(self, connection: MemoryConnection) -> bool:
        """Whether it is open."""
        return connection.connected

    def drain_events(self, connection: MemoryConnection, timeout: float | None = None, **_: Any) -> None:
        """See ``MemoryConnection.drain_events``."""
        connection.drain_events(timeout)

    def driver_version(self) -> str:
        """No driver."""
        return "N/A"

    def _collect(self, connection: MemoryConnection | None) -> None:
        if connection is not None:
            connection.close()
