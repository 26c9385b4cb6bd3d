"""The flow's table, the handlers' tables and the addresses agree; small parts do what they say."""

import sys
import threading
import time

import pytest

from longstride.contracts.envelope import seal
from longstride.contracts.flow import FLOW, rows_for
from longstride.contracts.topology import TRACKS, durable_bindings, job_queues, queue_name
from longstride.contracts.v1 import MESSAGES
from longstride.contracts.v1.commands import CancelTask, RecordFeedback
from longstride.messaging.address import JOB_QUEUES, JOBS, Address, address_of, outgoing
from longstride.messaging.backoff import Backoff, delay_s
from longstride.messaging.errors import BusUnavailable, HandlerTableError, Unroutable
from longstride.messaging.handling import DeliveryInfo, check_handlers, wrapped
from longstride.messaging.link import shown
from longstride.messaging.loop import Loop
from longstride.messaging.memory_broker import topic_matches
from tests.support.eventually import eventually


@pytest.mark.parametrize("message", sorted({row.message for row in FLOW if row.queue != "reply"}))
def test_every_message_of_the_flow_has_an_address_that_reaches_its_queues(message: str) -> None:
    envelope = seal(CancelTask(), task_id="t").model_copy(update={"type": message, "body": {"track": "deep"}})
    address = address_of(envelope)
    rows = [row for row in FLOW if row.message == message and row.queue != "reply"]
    if address.carrier == "celery":
        assert [queue_name(row) for row in rows] == [address.routing_key]
        return
    reached = {queue for queue, key in durable_bindings() if topic_matches(key, address.routing_key)}
    wanted = {queue_name(row, "deep", "me") for row in rows} - {"longstride.engine.me"}
    assert reached == wanted


def test_each_job_has_a_queue_of_its_own() -> None:
    assert set(JOBS) == set(job_queues())
    assert {JOBS[queue]: queue for queue in JOBS} == JOB_QUEUES


def test_each_track_has_a_queue() -> None:
    assert {f"longstride.generate.{track}" for track in TRACKS} <= {queue for queue, _ in durable_bindings()}


@pytest.mark.parametrize("address", [Address("pigeon", "x"), Address("celery", "longstride.planner")])  # type: ignore[arg-type]
def test_an_address_that_leads_nowhere_is_unroutable(address: Address) -> None:
    with pytest.raises(Unroutable, match="no way to carry msg-1"):
        outgoing(address, b"{}", "msg-1")


def test_a_reply_keeps_its_correlation_and_a_retry_whom_to_answer() -> None:
    message = outgoing(Address("queue", "q", "c-1", "back"), b"{}", "msg-1")
    assert (message.exchange, message.routing_key) == ("", "q")
    assert (message.correlation_id, message.reply_to) == ("c-1", "back")


def test_a_table_that_matches_the_flow_is_accepted() -> None:
    check_handlers("telemetry", dict.fromkeys(row.message for row in rows_for("telemetry")))


def test_what_is_missing_and_what_is_too_much_is_named() -> None:
    table = dict.fromkeys(row.message for row in rows_for("telemetry"))
    del table["task_ended"]
    with pytest.raises(HandlerTableError, match=r"telemetry .*no handler for task_ended; no row for fly"):
        check_handlers("telemetry", {**table, "fly": None})


def test_every_type_of_the_flow_is_a_message() -> None:
    assert {row.message for row in FLOW} == set(MESSAGES)


def test_the_first_middleware_is_the_outermost() -> None:
    calls: list[str] = []

    def layer(name: str):  # type: ignore[no-untyped-def]
        def around(handler):  # type: ignore[no-untyped-def]
            def handle(*args: object) -> None:
                calls.append(name)
                handler(*args)

            return handle

        return around

    handler = wrapped(lambda *_: calls.append("handler"), [layer("outer"), layer("inner")])
    handler(seal(RecordFeedback(score=1)), None, None, DeliveryInfo("q"))  # type: ignore[arg-type]
    assert calls == ["outer", "inner", "handler"]


def test_delays_double_up_to_a_limit_and_never_vanish() -> None:
    for tries, ceiling in enumerate([0.1, 0.2, 0.4, 0.8, 1.0, 1.0]):
        delays = [delay_s(tries, first_s=0.1, limit_s=1.0) for _ in range(200)]
        assert ceiling / 2 <= min(delays) <= max(delays) <= ceiling
        assert max(delays) - min(delays) > ceiling / 10, "clients that failed together do not come back together"
    assert delay_s(10_000, 0.1, 7.0) <= 7.0


def test_after_a_success_it_starts_small_again() -> None:
    backoff = Backoff(first_s=0.1, limit_s=60)
    for _ in range(8):
        backoff.next()
    assert backoff.next() > 5
    backoff.reset()
    assert backoff.next() <= 0.1


def test_a_url_is_shown_without_its_password() -> None:
    assert shown("amqp://user:secret@host:5672/vhost") == "amqp://host:5672/vhost"
    assert shown("memory://name") == "memory://name"


def test_a_loop_goes_on_after_what_the_broker_refuses_and_can_be_woken() -> None:
    steps: list[float] = []

    def step() -> None:
        steps.append(time.monotonic())
        if len(steps) < 3:
            raise BusUnavailable("away")

    loop = Loop("test", step, every_s=3600)
    loop.start()
    eventually(lambda: len(steps) == 3)
    assert loop.failure is None
    loop.wake()
    eventually(lambda: len(steps) == 4)
    loop.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "test"]


def test_a_loop_that_was_never_started_can_be_stopped() -> None:
    Loop("test", lambda: None, 1.0).stop()


@pytest.mark.parametrize("module", ["outbox", "dead_letters", "handling", "address", "timers"])
def test_what_the_command_line_needs_loads_no_broker_library(module: str) -> None:
    import subprocess

    code = f"import longstride.messaging.{module}, sys; print({{'kombu', 'amqp', 'celery'}} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
