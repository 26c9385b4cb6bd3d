"""amqps: the certificate is checked, host name included, and threads share the connection safely."""

import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from longstride.messaging.bus import Bus
from longstride.messaging.consumer import Consumer
from longstride.messaging.errors import BusUnavailable
from tests.support.broker_semantics import declare
from tests.support.eventually import eventually
from tests.support.inbox_of import InboxOf
from tests.support.tls_front import TlsFront


def through(url: str, front: TlsFront, host: str = "localhost") -> str:
    parts = urlsplit(url)
    credentials = f"{parts.username}:{parts.password}"
    return urlunsplit(parts._replace(scheme="amqps", netloc=f"{credentials}@{host}:{front.port}"))


@pytest.fixture
def front(amqp_url: str, tmp_path: Path) -> Iterator[TlsFront]:
    parts = urlsplit(amqp_url)
    with TlsFront(str(parts.hostname), int(parts.port or 0), tmp_path) as front:
        yield front


def test_many_threads_publish_and_consume_over_tls(
    amqp_url: str, front: TlsFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(front.certificate))
    bus = Bus(through(amqp_url, front))
    bus.declare()
    queue, inbox = declare(bus), InboxOf()
    consumer = Consumer(bus, queue, inbox, slots=3)
    consumer.start()
    threads = [
        threading.Thread(target=lambda: [bus.publish_reply(queue, b"x" * 5000, f"m-{i}") for i in range(20)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: len(inbox.bodies) == 80)
    consumer.stop(5)
    bus.close()


def test_an_unknown_authority_is_refused(amqp_url: str, front: TlsFront) -> None:
    with pytest.raises(BusUnavailable, match="certificate verify failed"):
        Bus(through(amqp_url, front)).connect()


def test_a_certificate_of_another_host_is_refused(
    amqp_url: str, front: TlsFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(front.certificate))
    with pytest.raises(BusUnavailable, match=r"not valid for '127\.0\.0\.1'|doesn't match|mismatch"):
        Bus(through(amqp_url, front, host="127.0.0.1")).connect()
