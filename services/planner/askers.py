"""Askers: the reply queues that hear how a task ended. Whoever submits it again joins them; nobody is forgotten for another.

The latest has its columns in the task's head, and those before it share one: a planner of an earlier build, which knows of one asker
alone, can run beside this one.
"""

from dataclasses import replace
from typing import NamedTuple

from longstride.messaging.handling import DeliveryInfo
from longstride.storage.tasks import TaskHead

ASKERS_AT_MOST = 32
"""A client that loses its connection asks again from a new queue, for as long as the task runs: the oldest are let go."""


class Asker(NamedTuple):
    """Where an outcome goes, and under which name it is expected there."""

    reply_to: str
    correlation_id: str | None


def askers(head: TaskHead) -> list[Asker]:
    """Who wants the outcome; who asked last comes first."""
    latest = [Asker(head.reply_to, head.correlation_id)] if head.reply_to else []
    return latest + [Asker(*earlier) for earlier in head.earlier_askers or ()]  # type: ignore[arg-type]


def asked_by(head: TaskHead, delivery: DeliveryInfo) -> TaskHead:
    """The head once the sender of ``delivery``, which names a reply queue, wants the outcome too."""
    assert delivery.reply_to is not None
    new = Asker(delivery.reply_to, delivery.correlation_id)
    earlier = [list(asker) for asker in askers(head) if asker != new]
    kept = earlier[: ASKERS_AT_MOST - 1] or None
    return replace(head, reply_to=new.reply_to, correlation_id=new.correlation_id, earlier_askers=kept)
