"""One connection to the broker that many threads use: one waits on it, any may write."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from amqp.exceptions import AMQPError
from kombu.connection import Connection
from kombu.exceptions import KombuError

from longstride.messaging import amqp_transport, memory_transport
from longstride.messaging.errors import BusUnavailable

CONNECT_TIMEOUT_S = 5
HEARTBEAT_S = 20
LOST = (OSError, AMQPError, KombuError)
"""What a broken connection or a refused method raises, in either transport."""


def transport_of(url: str) -> Any:
    """The transport class for a broker URL.

    Raises:
        ValueError: neither ``amqp://``, ``amqps://`` nor ``memory://``.
    """
    scheme = url.partition("://")[0]
    match scheme:
        case "amqp" | "amqps":
            return amqp_transport.Transport
        case "memory":
            return memory_transport.Transport
    raise ValueError(f"the broker URL must start with amqp://, amqps:// or memory://, not {scheme!r}://")


def tls_of(url: str) -> dict[str, str | None] | bool:
    """kombu's TLS options: the certificate must be for the host of the URL, by an authority that the system trusts.

    ``SSL_CERT_FILE`` names an authority of one's own.
    """
    return {"server_hostname": urlsplit(url).hostname} if url.startswith("amqps://") else False


def shown(url: str) -> str:
    """``url`` without its password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class Link:
    """A connection to the broker that any thread may use while it holds it; one thread calls ``turn``."""

    def __init__(self, url: str) -> None:
        """Connect.

        Raises:
            BusUnavailable: the broker cannot be reached, or refuses the login.
        """
        connection = Connection(  # type: ignore[no-untyped-call]
            url,
            transport=transport_of(url),
            ssl=tls_of(url),
            connect_timeout=CONNECT_TIMEOUT_S,
            heartbeat=HEARTBEAT_S,
        )
        # From here on kombu's Connection is out of the way: its properties reconnect behind one's back.
        self._transport = connection.transport
        try:
            self._wire = self._transport.establish_connection()
        except LOST as error:
            raise BusUnavailable(f"the broker at {shown(url)} cannot be reached: {error}") from error
        self._wire.share()
        self._lock = threading.RLock()
        self._next_heartbeat = 0.0
        self._broken: BusUnavailable | None = None

    @property
    def waits_for_confirm(self) -> bool:
        """Whether a publish is accepted by its confirm (RabbitMQ), or at once (in memory)."""
        return bool(self._wire.waits_for_confirm)

    @property
    def server_version(self) -> tuple[int, ...] | None:
        """RabbitMQ's version; ``None`` in memory."""
        properties = getattr(self._wire, "server_properties", None)
        if properties is None:
            return None
        version = str(properties.get("version", "0"))
        return tuple(int(part) for part in version.split("-")[0].split("+")[0].split(".") if part.isdigit())

    @property
    def connected(self) -> bool:
        """Whether it was when last used."""
        return self._broken is None and bool(self._wire.connected)

    def channel(self) -> Any:
        """Open a channel; its methods are called inside ``held()``.

        Raises:
            BusUnavailable: the connection broke.
        """
        with self.held():
            return self._transport.create_channel(self._wire)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other threads off.

        Raises:
            BusUnavailable: the connection broke, or the broker refused what was asked.
        """
        with self._lock:
            try:
                yield
            except LOST as error:
                raise self._break(f"{type(error).__name__}: {error}") from error
            except (AttributeError, TypeError) as error:
                # py-amqp's fields turn None under the hands of a method that is running when the connection breaks.
                if self._wire.connected:
                    raise
                raise self._break("the connection to the broker broke") from error

    def _break(self, reason: str) -> BusUnavailable:
        # A half-written frame or a closed channel cannot be mended: whoever turns must give the link up.
        self._broken = BusUnavailable(reason)
        self._wire.wake()
        return self._broken

    def turn(self, timeout_s: float) -> None:
        """Wait for traffic and handle it; keep heartbeats going. Callbacks run here, with the connection held.

        Raises:
            BusUnavailable: the connection broke.
        """
        try:
            arrived = self._wire.await_traffic(timeout_s)
        except LOST as error:
            raise BusUnavailable(f"{type(error).__name__}: {error}") from error
        with self.held():
            if self._broken is not None:
                raise self._broken
            if arrived:
                self._wire.read_traffic()
            if time.monotonic() >= self._next_heartbeat:
                self._next_heartbeat = time.monotonic() + 1.0
                self._transport.heartbeat_check(self._wire, rate=2)

    def wake(self) -> None:
        """Make ``turn`` return soon."""
        with self._lock:
            self._wire.wake()

    def close(self) -> None:
        """Say goodbye to the broker where it still listens. Only the thread that calls ``turn`` may do this."""
        with self._lock:
            try:
                if self.connected:
                    self._wire.farewell()
            except (*LOST, AttributeError, TypeError):
                pass
            finally:
                self._wire.discard()
