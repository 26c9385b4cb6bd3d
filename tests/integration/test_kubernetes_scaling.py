"""From a backlog to a number of workers: the triggers that ship, asked of a real broker and a real database."""

from collections.abc import Iterator, Mapping

import pika
import psycopg
import pytest

from longstride.storage.database import Database
from tests.support.keda import Ask, replicas, scaled
from tests.support.messaging_fixtures import *  # noqa: F403
from tests.support.messaging_fixtures import prepare
from tests.support.tasks import insert


class Backlog:
    """Fills what the triggers look at, and asks for it as KEDA's scalers do: a passive declaration, and a query."""

    def __init__(self, amqp_url: str, database_url: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._database_url = database_url
        self._database = Database(database_url)
        self._steps = 0
        self.task_id = insert(self._database, status="running")

    def wait(self, queue: str, messages: int) -> None:
        """Messages that nobody takes."""
        for number in range(messages):
            self._channel.basic_publish("", queue, f"message {number}".encode())

    def dispatch(self, phase: str, count: int, *, leased: int = 0, answered: int = 0) -> None:
        """Attempts; some of them taken by a worker, some of those answered."""
        for number in range(count):
            self._steps += 1
            message = f"msg_{self._steps}"
            with self._database.begin() as uow:
                uow.attempts.dispatch(self.task_id, self._steps, phase, 1, message, "{}")
            if number < leased:
                with self._database.begin() as uow:
                    lease = uow.attempts.claim(message, "worker", 3600.0)
                if number < answered:
                    with self._database.begin() as uow:
                        assert uow.attempts.answer(lease, {"text": "done"})

    def length(self, metadata: Mapping[str, str]) -> float:
        """``rabbitmq`` over AMQP: messages that are ready."""
        return float(self._channel.queue_declare(metadata["queueName"], passive=True).method.message_count)

    def query(self, metadata: Mapping[str, str]) -> float:
        """``postgresql``: one number."""
        with psycopg.connect(self._database_url) as connection:
            (row,) = connection.execute(metadata["query"]).fetchall()
        return float(row[0])

    def workers(self, name: str) -> int:
        """What KEDA would ask for."""
        ask: dict[str, Ask] = {"rabbitmq": self.length, "postgresql": self.query}
        return replicas(scaled(name), ask)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()
        self._database.close()


@pytest.fixture
def backlog(amqp_url: str, database_url: str) -> Iterator[Backlog]:
    prepare(amqp_url)
    made = Backlog(amqp_url, database_url)
    yield made
    made.close()


@pytest.mark.parametrize(("waiting", "workers"), [(0, 1), (1, 1), (4, 1), (5, 2), (37, 10), (119, 30), (500, 30)])
def test_executors_follow_what_waits_between_floor_and_ceiling(backlog: Backlog, waiting: int, workers: int) -> None:
    """Four at a time each: 37 / 4 = 9.25, so ten; never more than 30."""
    backlog.wait("longstride.execute", waiting)
    assert backlog.workers("tool-executor") == workers


@pytest.mark.parametrize(("fast", "deep", "workers"), [(0, 0, 1), (9, 0, 3), (0, 13, 4), (9, 13, 4), (90, 0, 8)])
def test_engines_follow_the_longer_of_their_queues(backlog: Backlog, fast: int, deep: int, workers: int) -> None:
    backlog.wait("longstride.generate.fast", fast)
    backlog.wait("longstride.generate.deep", deep)
    assert backlog.workers("model-worker") == workers


def test_what_runs_keeps_its_workers_when_the_queue_is_empty(backlog: Backlog) -> None:
    """23 dispatched, 3 of them answered: 20 are open, whether a worker has them or not."""
    backlog.dispatch("execute", 23, leased=15, answered=3)
    assert backlog.workers("tool-executor") == 5
    assert backlog.workers("model-worker") == 1, "they are another phase's"


def test_the_larger_of_what_waits_and_what_is_open_counts(backlog: Backlog) -> None:
    backlog.dispatch("execute", 8, leased=8)
    backlog.wait("longstride.execute", 41)
    assert backlog.workers("tool-executor") == 11
