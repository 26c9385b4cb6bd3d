"""One connection to RabbitMQ with a reply queue of its own: the only place that touches pika."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pika
from pika import exceptions as amqp

from longstride.client.errors import BrokerRefused, Unreachable, Unroutable, UsageProblem
from longstride.contracts.envelope import Envelope
from longstride.contracts.topology import EXCHANGE, routing_key

HEARTBEAT_S = 60
BLOCKED_S = 30.0
"""How long a broker that is out of memory or disk may hold a publish back."""
PERSISTENT = 2
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 2.0

_REFUSED = (amqp.ProbableAuthenticationError, amqp.AuthenticationError, amqp.ProbableAccessDeniedError)
_LOST = (amqp.AMQPConnectionError, amqp.ChannelWrongStateError, amqp.ChannelClosedByBroker, OSError)


class ConnectionLost(Exception):
    """The connection broke; what was being done may or may not have arrived."""


class Broker:
    """Publishes with confirms and ``mandatory``, and reads its own exclusive queue. For one thread.

    The queue's name is the broker's choice and changes with each connection, because an exclusive name stays locked for
    as long as the broker has not noticed that its old connection is dead.
    """

    def __init__(self, url: str, on_reply: Callable[[str, bytes], None], say: Callable[[str], None]) -> None:
        """``on_reply`` gets correlation id and body; ``say`` gets a sentence when there is something to wait for."""
        self._parameters = parameters(url)
        self._where = f"RabbitMQ at {self._parameters.host}:{self._parameters.port}"
        self._on_reply, self._say = on_reply, say
        self._connection: Any = None
        self._channel: Any = None
        self.reply_to = ""
        """The name of the reply queue."""

    @property
    def connected(self) -> bool:
        """As far as is known."""
        return self._channel is not None and self._channel.is_open

    @property
    def product(self) -> str:
        """What answers there, e.g. ``RabbitMQ 3.10.8 at localhost:5672``."""
        properties = self._connection._impl.server_properties
        found = " ".join(_told(properties.get(name)) for name in ("product", "version"))
        return f"{found} at {self._parameters.host}:{self._parameters.port}"

    def connect(self, patience_s: float) -> None:
        """Connect, trying again for ``patience_s`` seconds.

        Raises:
            Unreachable: nobody answers there, or the broker does not let us in.
        """
        self.close()
        deadline, wait_s, told = time.monotonic() + patience_s, FIRST_WAIT_S, False
        while True:
            try:
                return self._open()
            except _REFUSED as error:
                raise Unreachable(f"{self._where} refuses user {self._user!r}: {_text(error)}") from error
            except _LOST as error:
                if time.monotonic() + wait_s > deadline:
                    raise Unreachable(f"{self._where} does not answer: {_text(error)}. Is it running?") from error
                if not told:
                    self._say(f"waiting for {self._where}")
                told = True
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    @property
    def _user(self) -> str:
        return str(getattr(self._parameters.credentials, "username", "?"))

    def _open(self) -> None:
        self._connection = pika.BlockingConnection(self._parameters)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self.reply_to = self._channel.queue_declare("", exclusive=True).method.queue
        self._channel.basic_consume(self.reply_to, self._received, auto_ack=True, exclusive=True)

    def _received(self, _channel: Any, _method: Any, properties: Any, body: bytes) -> None:
        self._on_reply(properties.correlation_id or "", body)

    def publish(self, envelope: Envelope, correlation_id: str | None = None) -> None:
        """Returns when the broker has the message on a queue. With ``correlation_id`` answers come to the reply queue.

        Raises:
            ConnectionLost: before the broker confirmed; publish again, under the same message id.
            Unroutable: no queue is bound for its type.
            BrokerRefused: the broker said no.
        """
        properties = pika.BasicProperties(
            content_type="application/json",
            delivery_mode=PERSISTENT,
            message_id=envelope.message_id,
            type=envelope.type,
            correlation_id=correlation_id,
            reply_to=self.reply_to if correlation_id else None,
        )
        wire = envelope.encode()
        with self._errors(envelope.type):
            self._channel.basic_publish(EXCHANGE, routing_key(envelope.type), wire, properties, mandatory=True)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except amqp.UnroutableError as error:
            raise Unroutable(f"{self._where} has no queue for {what}: no planner has started there yet") from error
        except amqp.NackError as error:
            raise BrokerRefused(f"{self._where} did not take {what}: its queue is full or has no leader") from error
        except amqp.ConnectionBlockedTimeout as error:
            raise BrokerRefused(f"{self._where} takes no messages: it is out of memory or disk") from error
        except amqp.ChannelClosedByBroker as error:
            if error.reply_code != 404:
                raise ConnectionLost(_text(error)) from error
            raise Unroutable(f"{self._where} has no exchange {EXCHANGE!r}: no planner has started there yet") from error
        except _LOST as error:
            raise ConnectionLost(_text(error)) from error

    def pump(self, seconds: float) -> None:
        """Handle what arrives, for ``seconds`` or until something did.

        Raises:
            ConnectionLost: answers on their way to this queue are lost with it.
        """
        with self._errors("replies"):
            self._connection.process_data_events(time_limit=seconds)
            if not self._channel.is_open:
                raise ConnectionLost("the channel was closed")

    def close(self) -> None:
        """Give the reply queue up."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None and connection.is_open:
            with suppress(*_LOST):  # closing what is gone
                connection.close()


def parameters(url: str) -> pika.URLParameters:
    """pika's form of an AMQP URL.

    Raises:
        UsageProblem: it is not one.
    """
    try:
        if urlsplit(url).scheme not in ("amqp", "amqps"):
            raise ValueError("its scheme is not amqp or amqps")
        found = pika.URLParameters(url)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageProblem(
            f"not an AMQP URL ({error}); expected amqp://user:password@host:5672/%2F in LONGSTRIDE_AMQP_URL"
        ) from error
    found.heartbeat = HEARTBEAT_S
    found.blocked_connection_timeout = BLOCKED_S
    found.connection_attempts = 1
    return found


def _told(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _text(error: BaseException) -> str:
    """pika's connection errors often hold only another error, or nothing: the innermost one speaks."""
    inner = getattr(error, "exception", None) or (error.args[0] if error.args else None)
    if isinstance(inner, BaseException):
        return _text(inner)
    return str(error).strip() or type(error).__name__
