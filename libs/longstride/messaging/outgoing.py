"""A message on its way to the broker."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from longstride.contracts.topology import EXCHANGE

JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What the broker is given. Always persistent and mandatory: a message without a queue comes back."""

    body: bytes
    routing_key: str
    message_id: str
    exchange: str = EXCHANGE
    """``""`` is the default exchange: ``routing_key`` names a queue."""
    type: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    content_type: str = JSON_TYPE


def to_exchange(wire: bytes, routing_key: str, message_id: str) -> Outgoing:
    """To whichever queues are bound to the topic exchange."""
    return Outgoing(wire, routing_key, message_id)


def to_queue(
    wire: bytes, queue: str, message_id: str, correlation_id: str | None = None, reply_to: str | None = None
) -> Outgoing:
    """To one queue: a reply, or a message that is handled again."""
    return Outgoing(wire, queue, message_id, exchange="", correlation_id=correlation_id, reply_to=reply_to)


def to_job_queue(wire: bytes, queue: str, message_id: str, job: str) -> Outgoing:
    """To a Celery worker, in version 2 of Celery's message protocol: the envelope is the job's one argument.

    https://docs.celeryq.dev/en/stable/internals/protocol.html#version-2
    """
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    headers = {
        "lang": "py",
        "task": job,
        "id": message_id,
        "root_id": message_id,
        "parent_id": None,
        "group": None,
        "retries": 0,
        "eta": None,
        "expires": None,
        "timelimit": [None, None],
        "argsrepr": message_id,
        "kwargsrepr": "{}",
        "origin": "longstride",
        "ignore_result": True,
    }
    body = json.dumps([[wire.decode()], {}, embed]).encode()
    return Outgoing(body, queue, message_id, exchange="", type=job, correlation_id=message_id, headers=headers)
