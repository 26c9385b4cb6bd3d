"""The client's side of AMQP against a real RabbitMQ, with a stand-in for the planner."""

import getpass
import json
import time
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from longstride.client.sdk import (
    CancelTask,
    Client,
    NoAnswer,
    SubmitTask,
    TaskAccepted,
    TaskRefused,
    Unreachable,
    Unroutable,
    UsageProblem,
)
from longstride.contracts.envelope import Envelope, MessageError
from longstride.contracts.v1.events import TaskRejected
from tests.support.command_line import longstride
from tests.support.cuttable import Cuttable
from tests.support.eventually import eventually
from tests.support.servers import Servers, virtual_host
from tests.support.standin_planner import DONE, StandinPlanner, declare

TASK = SubmitTask(instruction="Count to three.")


def test_a_task_is_accepted_and_its_outcome_comes_back(amqp_url: str) -> None:
    with StandinPlanner(amqp_url) as planner, Client(amqp_url) as client:
        handle = client.submit(TASK, tenant="acme", session_id="session_7")
        assert handle.accepted() == TaskAccepted()
        assert handle.outcome(timeout_s=60) == DONE
    (request,) = planner.seen
    assert (request.task_id, request.session_id, request.tenant) == (handle.task_id, "session_7", "acme")
    assert request.message() == TASK


def test_several_tasks_of_one_client_get_their_own_outcomes(amqp_url: str) -> None:
    with (
        StandinPlanner(amqp_url, lambda e: [DONE.model_copy(update={"answer": e.body["instruction"]})]),
        Client(amqp_url) as client,
    ):
        handles = [client.submit(SubmitTask(instruction=f"task {i}")) for i in range(5)]
        assert [h.outcome(10).answer for h in reversed(handles)] == [f"task {i}" for i in (4, 3, 2, 1, 0)]


def test_a_refused_task_says_why(amqp_url: str) -> None:
    with StandinPlanner(amqp_url, lambda _: [TaskRejected(reason="no such fork")]), Client(amqp_url) as client:
        handle = client.submit(TASK)
        with pytest.raises(TaskRefused, match="no such fork"):
            handle.accepted()


def test_a_repeated_idempotency_key_names_the_first_task(amqp_url: str) -> None:
    def known(request: Envelope) -> list[Envelope]:
        return [request.follow(TaskAccepted(duplicate=True), task_id="task_first")]

    with StandinPlanner(amqp_url, known) as planner, Client(amqp_url) as client:
        handle = client.submit(TASK)
        assert handle.accepted() == TaskAccepted(duplicate=True)
        assert handle.task_id == "task_first" != planner.seen[0].task_id


def test_a_task_that_was_asked_for_again_is_no_duplicate_of_itself(amqp_url: str) -> None:
    with StandinPlanner(amqp_url, lambda _: [TaskAccepted(duplicate=True)]), Client(amqp_url) as client:
        assert client.submit(TASK).accepted() == TaskAccepted(duplicate=False)


def test_without_a_planner_queue_the_message_comes_back_as_an_error(servers: Servers) -> None:
    with virtual_host(servers) as url, Client(url) as client:
        with pytest.raises(Unroutable, match=r"no exchange 'longstride'"):
            client.submit(TASK)
        with pytest.raises(Unroutable):
            client.send(CancelTask(), "task_1")


def test_a_message_that_no_queue_takes_comes_back_as_an_error(servers: Servers) -> None:
    import pika

    with virtual_host(servers) as url, Client(url) as client:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            connection.channel().exchange_declare("longstride", "topic", durable=True)
        with pytest.raises(Unroutable, match="has no queue for submit_task"):
            client.submit(TASK)


def test_an_answer_that_does_not_come_is_an_error_and_can_be_waited_for_again(amqp_url: str) -> None:
    declare(amqp_url)
    with Client(amqp_url) as client:
        handle = client.submit(TASK)
        with pytest.raises(NoAnswer, match="is on its queue"):
            handle.accepted(timeout_s=0.2)
        with StandinPlanner(amqp_url):
            assert handle.outcome(timeout_s=60) == DONE


def test_commands_arrive_with_their_task(amqp_url: str) -> None:
    with StandinPlanner(amqp_url) as planner, Client(amqp_url) as client:
        message_id = client.send(CancelTask(reason="enough"), "task_1", tenant="acme")
        eventually(lambda: bool(planner.seen))
    (request,) = planner.seen
    assert (request.message_id, request.type, request.task_id, request.tenant) == (
        message_id,
        "cancel_task",
        "task_1",
        "acme",
    )
    assert request.body["by"] == getpass.getuser()


@pytest.fixture
def network(amqp_url: str) -> Iterator[Cuttable]:
    """What lies between client and broker."""
    where = urlsplit(amqp_url)
    with Cuttable(where.hostname or "", where.port or 0) as relay:
        yield relay


def through(network: Cuttable, amqp_url: str) -> str:
    where = urlsplit(amqp_url)
    return urlunsplit(where._replace(netloc=f"{where.username}:{where.password}@127.0.0.1:{network.port}"))


def test_a_lost_connection_is_made_again_and_the_outcome_asked_for_again(amqp_url: str, network: Cuttable) -> None:
    with Client(through(network, amqp_url)) as client:
        with StandinPlanner(amqp_url, lambda _: [TaskAccepted()]):
            handle = client.submit(TASK)
            assert handle.accepted() == TaskAccepted()
        assert network.cut() == 1
        with StandinPlanner(amqp_url) as planner:
            assert handle.outcome(timeout_s=60) == DONE
    again = planner.seen[-1]
    assert again.task_id == handle.task_id
    assert again.message() == TASK


def test_publishing_survives_a_lost_connection(amqp_url: str, network: Cuttable) -> None:
    with StandinPlanner(amqp_url) as planner, Client(through(network, amqp_url)) as client:
        assert network.cut() == 1
        handle = client.submit(TASK)
        assert handle.outcome(timeout_s=60) == DONE
    assert {request.task_id for request in planner.seen} == {handle.task_id}


def test_a_wrong_password_is_not_waited_for(servers: Servers) -> None:
    parts = urlsplit(servers.amqp_url)
    wrong = urlunsplit(parts._replace(netloc=f"{parts.username}:wrong@{parts.hostname}:{parts.port}"))
    started = time.monotonic()
    with pytest.raises(Unreachable, match="refuses user"):
        Client(wrong, patience_s=30)
    assert time.monotonic() - started < 10


def test_a_broker_that_is_away_is_waited_for_and_then_given_up_with_a_sentence() -> None:
    said: list[str] = []
    with pytest.raises(Unreachable, match=r"RabbitMQ at 127\.0\.0\.1:9 does not answer: .*refused"):
        Client("amqp://guest:guest@127.0.0.1:9/%2F", patience_s=0.5, say=said.append)
    assert said == ["waiting for RabbitMQ at 127.0.0.1:9"]


def test_a_task_that_cannot_be_carried_out_is_not_published(amqp_url: str) -> None:
    with StandinPlanner(amqp_url) as planner, Client(amqp_url) as client:
        with pytest.raises(UsageProblem, match=r"there is no tool 'fly'; the tools are shell, .*, recall"):
            client.submit(SubmitTask(instruction="x", tools=("shell", "fly")))
        client.submit(TASK).outcome(10)
    assert [request.message() for request in planner.seen] == [TASK]


def test_a_task_that_is_too_large_for_a_message_is_not_published(amqp_url: str) -> None:
    big = SubmitTask(instruction="x", inputs=[{"path": "big.txt", "text": "y" * 70_000}])
    with StandinPlanner(amqp_url) as planner, Client(amqp_url) as client:
        with pytest.raises(MessageError, match="at most 65536"):
            client.submit(big)
        client.submit(TASK).outcome(10)
    assert [request.message() for request in planner.seen] == [TASK]


@pytest.mark.parametrize(("options", "tenant"), [((), "default"), (("--tenant", "acme"), "acme")])
@pytest.mark.parametrize("command", [["cancel"], ["pause"], ["resume"], ["message", "Hurry."]], ids=lambda c: c[0])
def test_where_no_database_can_be_read_the_command_line_sends_for_the_tenant_that_is_told(
    amqp_url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    options: tuple[str, ...],
    tenant: str,
) -> None:
    monkeypatch.delenv("LONGSTRIDE_DATABASE_URL", raising=False)
    monkeypatch.setenv("LONGSTRIDE_AMQP_URL", amqp_url)
    name, *rest = command
    with StandinPlanner(amqp_url) as planner:
        code, out, err = longstride(capsys, name, "task_1", *rest, *options, "--json")
        eventually(lambda: planner.seen)
    assert (code, "LONGSTRIDE_DATABASE_URL" in err) == (0, True)
    (seen,) = planner.seen
    assert (seen.type, seen.task_id, seen.tenant) == (f"{name}_task", "task_1", tenant)
    assert json.loads(out) == {"task_id": "task_1", "status": None, "sent": seen.body}
