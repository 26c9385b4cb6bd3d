"""Bringing back a job that has no lease: a timer sends it again unless its process keeps putting that off."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from longstride.contracts.envelope import Envelope
from longstride.messaging.address import address_of
from longstride.messaging.dead_letters import keep
from longstride.messaging.loop import Loop
from longstride.storage.database import Database
from longstride.storage.unit_of_work import UnitOfWork

logger = logging.getLogger(__name__)

COME_BACK_S = 15.0
"""Seconds after a job's process died at which it is sent again."""
MAX_TRIES = 4


class GivenUp(RuntimeError):
    """The job has died too often; it is a dead letter now."""


@contextmanager
def coming_back(database: Database, envelope: Envelope, service: str, ttl_s: float = COME_BACK_S) -> Iterator[None]:
    """While the block runs, the job is sure to be sent again ``ttl_s`` after this process dies; after it, not any more.

    The job must be idempotent: a hang that lasts longer than ``ttl_s`` has it run twice at a time. A block that raises
    is sent again too, until it has been tried ``MAX_TRIES`` times.

    Raises:
        GivenUp: it has been tried too often. It was put among the dead letters.
        StorageError: the database cannot be reached.
    """
    key = f"job:{envelope.message_id}"

    def put_off(uow: UnitOfWork) -> None:
        address = address_of(envelope)
        due = datetime.now(UTC) + timedelta(seconds=ttl_s)
        uow.timers.set(key, due, address.carrier, address.routing_key, envelope.encode().decode())

    _begin(database, envelope, service, key, put_off)
    lock = threading.Lock()
    over = threading.Event()

    def beat() -> None:
        with lock:
            if not over.is_set():
                with database.begin(durable=False) as uow:
                    put_off(uow)

    heartbeat = Loop(f"{key} heartbeat", beat, ttl_s / 5, retry_limit_s=ttl_s / 5)
    heartbeat.start()
    try:
        yield
        with lock:
            over.set()
        with database.begin() as uow:
            uow.timers.remove(key)
            uow.delivery_failures.forget(service, envelope.message_id)
    finally:
        heartbeat.stop(ttl_s)


def _begin(
    database: Database, envelope: Envelope, service: str, key: str, put_off: Callable[[UnitOfWork], None]
) -> None:
    with database.begin() as uow:
        tries = uow.delivery_failures.count(service, envelope.message_id, "started and not finished")
        if tries <= MAX_TRIES:
            put_off(uow)
            return
        uow.timers.remove(key)
        uow.delivery_failures.forget(service, envelope.message_id)
        body = envelope.encode()
        keep(uow, address_of(envelope).routing_key, body, f"FAILED_POISON: died or failed {MAX_TRIES} times", {})
    raise GivenUp(f"{envelope.type} {envelope.message_id} was tried {MAX_TRIES} times")
