"""A service as a process: it starts when its broker suits, drains when told to, and dies when it cannot go on."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from longstride.contracts.ids import new_id
from longstride.messaging import startup_checks
from longstride.messaging.backbone import Backbone
from longstride.messaging.bus import Bus
from longstride.messaging.consumer import Consumer
from longstride.messaging.errors import BusUnavailable, UnsuitableBroker
from longstride.messaging.loop import Loop
from longstride.messaging.outgoing import to_queue
from longstride.messaging.service import ServiceRuntime
from longstride.messaging.startup_checks import check_broker
from longstride.messaging.watchdog import Stuck, Watchdog
from tests.support.broker_semantics import declare
from tests.support.eventually import eventually
from tests.support.forks import Forked
from tests.support.inbox_of import InboxOf
from tests.support.messaging_fixtures import *  # noqa: F403
from tests.support.messaging_fixtures import prepare, start_backbone, start_consumer, start_part
from tests.support.pocket_planner import ended, history, submission


@pytest.fixture
def service(database_url: str, amqp_url: str, running: ExitStack, tmp_path: Path) -> Callable[..., Any]:
    """Start a service of the tests as a process."""
    prepare(amqp_url)

    def start(role: str, steps: int = 3, **environment: str) -> Forked:
        output = tmp_path / f"{new_id(role)}.log"
        arguments = (database_url, amqp_url, role, str(steps), "never", str(tmp_path / "mark"))
        process = Forked(
            "tests.support.service_process", *arguments, output=output, environment={**os.environ, **environment}
        )
        running.callback(process.wait, 30)
        running.callback(process.kill)
        eventually(lambda: "ready\n" in output.read_text())
        return process

    return start


def submit(backbone: Backbone) -> str:
    envelope = submission()
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, envelope)
    return str(envelope.task_id)


def leased(backbone: Backbone) -> int:
    with backbone.database.engine.connect() as connection:
        query = "SELECT count(*) FROM attempts WHERE status = 'leased'"
        return int(connection.exec_driver_sql(query).scalar_one())


@pytest.fixture
def client(database_url: str, amqp_url: str, running: ExitStack) -> Backbone:
    return start_backbone(running, database_url, amqp_url)


def test_sigterm_finishes_what_runs_and_ends_well(service: Any, client: Backbone) -> None:
    service("planner")
    worker = service("worker", WORK_S="1.5")
    task = submit(client)
    eventually(lambda: leased(client))
    worker.terminate()
    assert worker.wait(60) == 0
    with client.database.engine.connect() as connection:
        query = "SELECT status FROM attempts WHERE step = 1"
        assert connection.exec_driver_sql(query).scalar_one() in ("answered", "settled")
    service("worker")
    eventually(lambda: ended(client.database, task))


def test_sigterm_hands_long_work_to_another_at_once(service: Any, client: Backbone) -> None:
    service("planner", steps=1)
    leaving = service("worker", WORK_S="600", DRAIN_S="3")
    task = submit(client)
    eventually(lambda: leased(client))
    begun = time.monotonic()
    leaving.terminate()
    assert leaving.wait(60) == 0
    assert time.monotonic() - begun < 8, "long before its work is done"
    service("worker")
    eventually(lambda: ended(client.database, task))
    with client.database.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT attempt, generation FROM attempts").all() == [(1, 2)]
    assert len(history(client.database, task)) == 2


def test_a_part_that_cannot_go_on_ends_the_process_with_a_failure(service: Any) -> None:
    process = service("worker", BREAK="1")
    assert process.wait(60) == 1


def test_asked_twice_it_ends_at_once(service: Any, client: Backbone) -> None:
    service("planner")
    worker = service("worker", WORK_S="600", DRAIN_S="600")
    submit(client)
    eventually(lambda: leased(client))
    worker.terminate()
    eventually(lambda: worker.poll() is not None or worker.send_signal(signal.SIGTERM))
    assert worker.returncode == 128 + signal.SIGTERM


def test_no_part_outlives_the_runtime(backbone: Backbone, running: ExitStack) -> None:
    ticks: list[int] = []
    parts = [Consumer(backbone.bus, "longstride.telemetry", lambda _d: None), Loop("t", lambda: ticks.append(1), 0.01)]
    own = Backbone("own", backbone.database.url.render_as_string(False), backbone.bus.url, heartbeat_s=0.2)
    runtime = ServiceRuntime(own, parts, drain_s=3)
    runtime.start()
    eventually(lambda: ticks)
    assert runtime.failed() is None
    runtime.stop()
    seen = len(ticks)
    later = time.monotonic() + 0.2
    eventually(lambda: time.monotonic() > later)
    assert len(ticks) == seen
    assert not own.bus.connected


def test_an_error_that_a_loop_does_not_know_is_its_end(backbone: Backbone) -> None:
    def step() -> None:
        raise LookupError("a bug")

    loop = Loop("fragile", step, 0.01)
    loop.start()
    assert isinstance(eventually(lambda: loop.failure), LookupError)


# --- the watchdog -----------------------------------------------------------------------------------------------------


def test_a_backlog_that_nobody_touches_is_a_failure(backbone: Backbone, running: ExitStack) -> None:
    queue = declare(backbone.bus)
    consumer = start_consumer(running, backbone, queue, InboxOf())
    watchdog = start_part(running, Watchdog(backbone.bus, [consumer], patience_s=0.6))
    subscriptions = consumer._subscriptions
    assert subscriptions is not None
    with subscriptions._link.held():  # what a bug, or a broker that forgot us, looks like
        subscriptions._channel.basic_cancel("slot 1", nowait=True)
    assert backbone.bus.publish_all([to_queue(b"x", queue, "msg-1")]) == [None]
    failure = eventually(lambda: watchdog.failure)
    assert isinstance(failure, Stuck)
    assert queue in str(failure)


def test_busy_hands_and_empty_queues_are_no_failure(backbone: Backbone, running: ExitStack) -> None:
    import threading

    busy_queue, empty_queue, go = declare(backbone.bus), declare(backbone.bus), threading.Event()
    running.callback(go.set)
    inbox = InboxOf(lambda _d: go.wait(60))
    busy = start_consumer(running, backbone, busy_queue, inbox)
    idle = start_consumer(running, backbone, empty_queue, InboxOf())
    watchdog = start_part(running, Watchdog(backbone.bus, [busy, idle], patience_s=0.3))
    backbone.bus.publish_all([to_queue(b"x", busy_queue, f"msg-{i}") for i in range(3)])
    later = time.monotonic() + 1.5
    eventually(lambda: time.monotonic() > later)
    assert watchdog.failure is None
    go.set()


# --- start-up checks --------------------------------------------------------------------------------------------------


def test_a_suitable_broker_is_declared(amqp_url: str) -> None:
    check_broker(Bus(amqp_url))


def test_a_broker_that_is_not_there_is_waited_for_and_given_up_with_a_sentence() -> None:
    said: list[str] = []
    with pytest.raises(BusUnavailable, match=r"gave up after 1 s: .*127\.0\.0\.1:1.*LONGSTRIDE_AMQP_URL"):
        check_broker(Bus("amqp://user:secret@127.0.0.1:1/"), wait_s=1, say=said.append)
    assert said
    assert all(text.startswith("waiting for the broker at amqp://127.0.0.1:1/: ") for text in said)


def test_an_old_broker_is_refused_with_both_versions(amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup_checks, "MINIMUM_RABBITMQ", (99, 1))
    with pytest.raises(UnsuitableBroker, match=r"RabbitMQ \d+\.\d+.* is too old: 99\.1 or newer"):
        check_broker(Bus(amqp_url))


def test_a_wrong_password_says_so(amqp_url: str) -> None:
    user, _, host = amqp_url.partition("@")
    with pytest.raises(BusUnavailable, match=r"ACCESS_REFUSED|refused|403"):
        check_broker(Bus(f"{user}-wrong@{host}"), wait_s=0.1)


def test_only_known_brokers_are_understood() -> None:
    with pytest.raises(ValueError, match="must start with amqp"):
        Bus("redis://localhost").connect()
