"""Services of the tests, as a process that can be killed at a chosen point, once.

``python -m tests.support.service_process DATABASE_URL AMQP_URL ROLE STEPS KILL_AT MARK``: ROLE is planner, worker or
both; MARK is a file that is there once the kill has happened.
"""

import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from longstride.contracts.envelope import Envelope
from longstride.messaging import outbox, relay
from longstride.messaging.backbone import Backbone
from longstride.messaging.consumer import Consumer
from longstride.messaging.delivery import Delivery
from longstride.messaging.dispatch import Dispatcher
from longstride.messaging.handling import DeliveryInfo, Handler
from longstride.messaging.lease import HeldLease
from longstride.messaging.part import Part
from longstride.messaging.service import ServiceRuntime
from longstride.messaging.startup_checks import check_broker
from longstride.messaging.work import Answer, Worker, WorkHandler
from longstride.storage.outbox import OutboxMessage
from longstride.storage.unit_of_work import UnitOfWork
from tests.support.pocket_planner import PocketPlanner, answer

POINTS = {
    "planner": ("delivered", "uncommitted", "committed", "published"),
    "worker": ("unclaimed", "claimed", "worked", "answered", "told"),
}
"""Where a process can be killed: between any two things that others can see."""


class Killer:
    """Kills this process at one point, the third time that it gets there, once."""

    def __init__(self, point: str, mark: Path) -> None:
        self._point = point
        self._mark = mark
        self._times = 0

    def at(self, point: str) -> None:
        if point != self._point or self._mark.exists():
            return
        self._times += 1
        if self._times == 3:
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def guarded_handler(killer: Killer) -> Any:
    def layer(handler: Handler) -> Handler:
        def handle(envelope: Envelope, message: Any, uow: UnitOfWork, delivery: DeliveryInfo) -> None:
            killer.at("delivered")
            handler(envelope, message, uow, delivery)
            uow.flush()
            killer.at("uncommitted")

        return handle

    return layer


def guarded_work(killer: Killer) -> Any:
    def layer(handler: WorkHandler) -> WorkHandler:
        def work(envelope: Envelope, message: Any, held: HeldLease) -> Answer | None:
            killer.at("claimed")
            done = handler(envelope, message, held)
            killer.at("worked")
            return done

        return work

    return layer


def guard_relay(backbone: Backbone, killer: Killer, before: str, after: str) -> None:
    hand_over = backbone.relay.hand_over

    def guarded(row: OutboxMessage) -> None:
        killer.at(before)
        hand_over(row)
        killer.at(after)

    backbone.relay.hand_over = guarded  # type: ignore[method-assign]


def execute(_envelope: Envelope, message: Any, held: HeldLease) -> Answer | None:
    if held.lost.wait(float(os.environ.get("WORK_S", "0"))):
        return None
    return Answer(answer(message))


def parts(backbone: Backbone, role: str, steps: int, killer: Killer) -> list[Part]:
    found: list[Part] = list(backbone.housekeeping(lambda _message: False, reap_every_s=0.2))
    if role in ("planner", "both"):
        handlers = PocketPlanner(backbone.outbox, "generate", steps).handlers()
        layers = [guarded_handler(killer)]
        dispatcher = Dispatcher("planner", handlers, backbone.database, backbone.outbox, middleware=layers)
        guard_relay(backbone, killer, "committed", "published")
        found.append(Consumer(backbone.bus, "longstride.planner", dispatcher))
    if role in ("worker", "both"):
        handlers_of_work = {"generate": execute}
        layer = (guarded_work(killer),)
        worker = Worker(handlers_of_work, backbone.leases, backbone.database, middleware=layer)
        guard_relay(backbone, killer, "answered", "told")

        def take(delivery: Delivery) -> None:
            killer.at("unclaimed")
            worker(delivery)

        found.append(Consumer(backbone.bus, "longstride.generate.fast", take))
    if os.environ.get("BREAK"):
        found.append(_Breaks())
    return found


class _Breaks:
    """A part that cannot go on after a while."""

    name = "fragile part"
    busy = 0

    def __init__(self) -> None:
        self._at = time.monotonic() + 0.5

    @property
    def failure(self) -> BaseException | None:
        return RuntimeError("broken") if time.monotonic() > self._at else None

    def start(self) -> None: ...

    def drain(self) -> None: ...

    def stop(self, timeout_s: float) -> None: ...


def main() -> int:
    database_url, amqp_url, role, steps, kill_at, mark = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(process)d %(threadName)s %(message)s")
    outbox.HOLD_S, relay.RESEND_AFTER_S = 2.0, 3.0  # long enough for each other, short enough for a test
    backbone = Backbone(role, database_url, amqp_url, lease_ttl_s=3, heartbeat_s=0.5)
    if amqp_url.startswith("memory"):
        backbone.succeed()
    check_broker(backbone.bus, say=lambda text: print(text, file=sys.stderr))
    drain_s = float(os.environ.get("DRAIN_S", "10"))
    runtime = ServiceRuntime(backbone, parts(backbone, role, int(steps), Killer(kill_at, Path(mark))), drain_s=drain_s)
    print("ready", flush=True)
    return runtime.run()


if __name__ == "__main__":
    sys.exit(main())
