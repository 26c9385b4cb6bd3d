"""What a transaction promises is sent after its commit: once or more, never not at all."""

import json
from contextlib import ExitStack, suppress
from typing import Any
from uuid import uuid4

import pytest

from longstride.contracts.envelope import Envelope, seal
from longstride.contracts.v1.commands import CancelTask, Generate, RecordFeedback, SubmitTask
from longstride.messaging import relay as relay_module
from longstride.messaging.address import Address
from longstride.messaging.backbone import Backbone
from longstride.messaging.memory_broker import MemoryBroker
from longstride.messaging.outbox import Outbox
from longstride.messaging.outbox_hints import OutboxHints
from longstride.storage.database import Database
from tests.support.eventually import eventually
from tests.support.inbox_of import InboxOf
from tests.support.messaging_fixtures import *  # noqa: F403
from tests.support.messaging_fixtures import prepare, start_backbone, start_consumer, start_part
from tests.support.pocket_planner import PocketPlanner


def feedback(score: float = 1.0) -> Envelope:
    return seal(RecordFeedback(score=score), task_id="task_1")


def rows(backbone: Backbone) -> int:
    with backbone.database.engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM outbox").scalar_one())


def errors(backbone: Backbone) -> list[tuple[int, str]]:
    with backbone.database.engine.connect() as connection:
        return [tuple(row) for row in connection.exec_driver_sql("SELECT tries, error FROM outbox")]


def test_a_committed_message_arrives_and_its_row_goes(backbone: Backbone, consume: Any) -> None:
    inbox = InboxOf()
    consume("longstride.telemetry", inbox)
    envelope = feedback()
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, envelope)
    eventually(lambda: inbox.bodies == [envelope.encode().decode()])
    assert inbox.deliveries[0].message_id == envelope.message_id
    eventually(lambda: rows(backbone) == 0)
    eventually(lambda: backbone.relay.in_flight == 0)


def test_a_rolled_back_message_was_never_there(backbone: Backbone, consume: Any) -> None:
    inbox = InboxOf()
    consume("longstride.telemetry", inbox)
    with suppress(ZeroDivisionError), backbone.database.begin() as uow:
        backbone.outbox.post(uow, feedback(0.1))
        raise ZeroDivisionError
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, kept := feedback(0.2))
    eventually(lambda: inbox.bodies)
    assert inbox.bodies == [kept.encode().decode()]


@pytest.mark.parametrize(
    ("envelope", "queue"),
    [
        (seal(SubmitTask(instruction="x"), task_id="t"), "longstride.planner"),
        (seal(CancelTask(), task_id="t"), "longstride.planner"),
        (seal(PocketPlanner(Outbox(), "generate", 1).command(1), task_id="t"), "longstride.generate.fast"),
    ],
)
def test_the_flow_says_where_a_message_goes(backbone: Backbone, consume: Any, envelope: Envelope, queue: str) -> None:
    inbox = InboxOf()
    consume(queue, inbox)
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, envelope)
    eventually(lambda: inbox.bodies == [envelope.encode().decode()])


def test_a_job_goes_to_its_queue_in_celerys_protocol(backbone: Backbone, consume: Any) -> None:
    inbox = InboxOf()
    consume("longstride.execute", inbox)
    envelope = seal(PocketPlanner(Outbox(), "execute", 1).command(1), task_id="t")
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, envelope)
    (delivery,) = eventually(lambda: inbox.deliveries)
    # https://docs.celeryq.dev/en/stable/internals/protocol.html#version-2
    args, kwargs, embed = json.loads(delivery.body)
    assert (args, kwargs) == ([envelope.encode().decode()], {})
    assert set(embed) == {"callbacks", "errbacks", "chain", "chord"}
    assert {"lang": "py", "task": "execute_action", "id": envelope.message_id}.items() <= delivery.headers.items()
    assert delivery.correlation_id == envelope.message_id


def test_a_message_without_a_queue_waits_for_one(
    backbone: Backbone, consume: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = f"test.{uuid4().hex}"
    with backbone.database.begin() as uow:
        backbone.outbox.post_wire(uow, "{}", "msg-1", Address("queue", queue))
    eventually(lambda: errors(backbone) and errors(backbone)[0][0] >= 1)
    assert queue in errors(backbone)[0][1]
    from tests.support.broker_semantics import declare

    declare(backbone.bus, queue)
    inbox = InboxOf()
    consume(queue, inbox)
    eventually(lambda: inbox.bodies == ["{}"])
    eventually(lambda: rows(backbone) == 0)


def test_a_row_that_nobody_can_send_stops_no_other(backbone: Backbone, consume: Any) -> None:
    inbox = InboxOf()
    consume("longstride.telemetry", inbox)
    with backbone.database.begin() as uow:
        uow.outbox.add("{}", "msg-1", "pigeon", "nowhere")  # e.g. by a newer build
    eventually(lambda: errors(backbone) and errors(backbone)[0][0] >= 1)
    assert "pigeon" in errors(backbone)[0][1]
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, feedback())
    eventually(lambda: inbox.bodies)
    assert backbone.relay.failure is None


def test_whoever_watches_and_breaks_keeps_no_row_from_being_settled(
    backbone: Backbone, consume: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("message_id")

    inbox = InboxOf()
    consume("longstride.telemetry", inbox)
    backbone.relay.on_settled = broken
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, first := feedback(0.1))
    eventually(lambda: rows(backbone) == 0)
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, second := feedback(0.2))
    eventually(lambda: rows(backbone) == 0)
    eventually(lambda: inbox.bodies == [envelope.encode().decode() for envelope in (first, second)])
    assert backbone.relay.failure is None
    assert f"what watches publications broke at message {first.message_id}" in caplog.text


def test_a_reply_queue_that_is_gone_is_given_up(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relay_module, "REPLY_TRIES", 2)
    with backbone.database.begin() as uow:
        backbone.outbox.reply(uow, feedback(), "client.gone", "c-1")
    eventually(lambda: "dropped: queue 'client.gone' is gone" in caplog.text)
    assert backbone.relay.counts.dropped_replies == 1
    assert rows(backbone) == 0


def test_a_row_of_another_process_is_found(backbone: Backbone, consume: Any) -> None:
    inbox = InboxOf()
    consume("longstride.telemetry", inbox)
    with backbone.database.begin() as uow:
        Outbox().post(uow, feedback())
    eventually(lambda: inbox.bodies)
    eventually(lambda: rows(backbone) == 0)


def test_a_hint_makes_that_quick(
    database_url: str, broker_url: str, running: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = start_backbone(running, database_url, broker_url)
    monkeypatch.setattr(backbone.relay, "_poll_s", 3600.0)
    monkeypatch.setattr(backbone.relay, "_every_s", 3600.0)
    hints = start_part(running, OutboxHints(backbone.database, backbone.relay))
    inbox = InboxOf()
    start_consumer(running, backbone, "longstride.telemetry", inbox)
    eventually(lambda: hints._listener._connection is not None)
    stranger = Database(database_url)
    running.callback(stranger.close)
    with stranger.begin() as uow:
        Outbox().post(uow, feedback())
    eventually(lambda: inbox.bodies)


def test_two_relays_send_a_row_once(database_url: str, broker_url: str, running: ExitStack) -> None:
    first = start_backbone(running, database_url, broker_url)
    start_backbone(running, database_url, broker_url)
    inbox = InboxOf()
    start_consumer(running, first, "longstride.telemetry", inbox, slots=2)
    for _ in range(5):
        with first.database.begin() as uow:
            for _ in range(100):
                Outbox().post(uow, feedback())
    eventually(lambda: len(inbox.bodies) >= 500 and rows(first) == 0)
    assert len(inbox.bodies) == 500


def test_a_commit_while_the_broker_is_away_is_sent_later(
    database_url: str, running: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"away-{uuid4().hex}"
    backbone = start_backbone(running, database_url, f"memory://{name}")
    MemoryBroker.named(name).hang_up()
    eventually(lambda: not backbone.bus.connected)
    monkeypatch.setattr(backbone.bus, "connect", lambda: None)  # the network is still broken
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, feedback())
    assert rows(backbone) == 1
    monkeypatch.undo()
    prepare(f"memory://{name}")
    inbox = InboxOf()
    start_consumer(running, backbone, "longstride.telemetry", inbox)
    eventually(lambda: inbox.bodies)
    eventually(lambda: rows(backbone) == 0)


def test_what_died_with_an_embedded_process_is_sent_by_the_next(database_url: str, running: ExitStack) -> None:
    name = f"dies-{uuid4().hex}"
    prepare(f"memory://{name}")
    with ExitStack() as first_life:
        backbone = start_backbone(first_life, database_url, f"memory://{name}")
        with backbone.database.begin() as uow:
            backbone.outbox.post(uow, feedback())
        eventually(lambda: backbone.relay.counts.sent == 1)
        MemoryBroker.forget(name)  # kill -9: the queue and the unconsumed message are gone
    prepare(f"memory://{name}")
    second = start_backbone(running, database_url, f"memory://{name}", succeeds=True)
    assert rows(second) == 1
    inbox = InboxOf()
    start_consumer(running, second, "longstride.telemetry", inbox)
    eventually(lambda: inbox.bodies)
    eventually(lambda: rows(second) == 0)


def test_a_restarted_broker_gets_what_it_missed(
    database_url: str, amqp_url: str, stack: Any, running: ExitStack
) -> None:
    prepare(amqp_url)
    backbone = start_backbone(running, database_url, amqp_url)
    inbox = InboxOf()
    start_consumer(running, backbone, "longstride.telemetry", inbox)
    sent = []
    for number in range(60):
        if number == 20:
            stack.restart("rabbitmq", kill=True)
        with backbone.database.begin() as uow:
            backbone.outbox.post(uow, envelope := feedback(number / 100))
        sent.append(envelope.encode().decode())
    eventually(lambda: set(inbox.bodies) == set(sent))
    eventually(lambda: rows(backbone) == 0)


def test_generate_is_a_message_that_names_its_track() -> None:
    from longstride.messaging.address import address_of

    command = PocketPlanner(Outbox(), "generate", 1).command(1)
    assert isinstance(command, Generate)
    assert address_of(seal(command.model_copy(update={"track": "deep"}))) == Address("kombu", "generate.deep")
