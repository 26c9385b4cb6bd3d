"""kombu's AMQP transport with two changes: per-consumer QoS, and a connection that many threads can share."""

import os
import select
import socket
from collections.abc import Callable
from typing import Any

from amqp.connection import NEGOTIATE_CAPABILITIES
from kombu.transport import pyamqp

ANSWER_TIMEOUT_S = 10
"""A broker that reads or answers nothing for so long counts as gone."""


FAREWELL_TIMEOUT_S = 1


class AmqpConnection(pyamqp.Connection):
    """An AMQP connection that one thread waits on while others write; ``Link`` holds the lock around both."""

    negotiate_capabilities = {k: v for k, v in NEGOTIATE_CAPABILITIES.items() if k != "connection.blocked"}
    """With ``connection.blocked`` py-amqp reads from the socket in every publish, whichever thread that is on."""

    waits_for_confirm = True
    """A publish is accepted when the broker confirms it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waker: int | None = None

    def share(self) -> None:
        """Make the connection ready for ``await_traffic`` and ``wake``."""
        self._waker = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.transport.sock.settimeout(ANSWER_TIMEOUT_S)

    def await_traffic(self, timeout_s: float) -> bool:
        """Wait, without the lock, until there is something to read or somebody calls ``wake``."""
        sock = self._socket()
        if _buffered(sock):
            return True
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        assert self._waker is not None
        poll.register(self._waker, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(timeout_s * 1000)}
        if self._waker in ready:
            os.eventfd_read(self._waker)
        return bool(ready - {self._waker})

    def read_traffic(self) -> None:
        """Handle all that has arrived."""
        while True:
            try:
                self.drain_events(timeout=0)
            except TimeoutError:
                return

    def wake(self) -> None:
        """Make ``await_traffic`` return."""
        if self._waker is not None:
            os.eventfd_write(self._waker, 1)

    def farewell(self) -> None:
        """Close, and wait a moment for the broker's answer, and for TLS's own."""
        self.transport.sock.settimeout(FAREWELL_TIMEOUT_S)
        self.close()

    def discard(self) -> None:
        """Close without a word to the broker, and without raising. The waiting thread calls it."""
        if self.connected:
            self.transport.sock.settimeout(0)  # TLS would wait for the other side's goodbye
        self.collect()
        waker, self._waker = self._waker, None
        if waker is not None:
            os.close(waker)

    def _socket(self) -> socket.socket:
        if not self.connected:
            raise ConnectionResetError("the connection to the broker is closed")
        sock: socket.socket = self.transport.sock
        return sock


def _buffered(sock: socket.socket) -> bool:
    pending: Callable[[], int] | None = getattr(sock, "pending", None)
    return pending is not None and pending() > 0


class Transport(pyamqp.Transport):
    """AMQP, for ``kombu.Connection(transport=…)`` and Celery's ``broker_transport``."""

    Connection = AmqpConnection

    def qos_semantics_matches_spec(self, connection: Any) -> bool:
        """Quorum queues refuse the global QoS that kombu asks for on RabbitMQ 3."""
        return True
