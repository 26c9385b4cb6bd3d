"""Transactions: whole or not at all, failures by name, and connections that survive the server's restarts."""

# ruff: noqa: PT012 - what must fail is a whole unit of work
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from longstride.storage.database import Database
from longstride.storage.database import database_url as parse
from longstride.storage.errors import (
    AlreadyExists,
    Contention,
    DatabaseUnavailable,
    StorageError,
    VersionConflict,
)
from longstride.storage.retry import retrying
from longstride.storage.unit_of_work import UnitOfWork
from tests.support.tasks import a_head, insert


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


def test_a_clean_exit_commits(database: Database) -> None:
    task_id = insert(database)
    with database.begin() as uow:
        assert uow.tasks.head(task_id) is not None


@pytest.mark.parametrize("durable", [True, False])
def test_an_exception_rolls_back_and_is_the_one_that_is_seen(database: Database, durable: bool) -> None:
    head = a_head()
    with pytest.raises(KeyError, match="mine"), database.begin(durable=durable) as uow:
        uow.tasks.insert(head)
        raise KeyError("mine")
    with database.begin() as uow:
        assert uow.tasks.head(head.id) is None


def test_an_exception_hides_the_failure_of_a_queued_statement(database: Database) -> None:
    head = a_head(id=insert(database))
    with pytest.raises(KeyError, match="mine"), database.begin() as uow:
        uow.tasks.insert(head)
        raise KeyError("mine")


def test_a_transaction_that_is_not_durable_still_commits(database: Database) -> None:
    with database.begin(durable=False) as uow:
        uow.workers.beat("host-1", "planner")
    with database.begin() as uow:
        assert [worker.incarnation for worker in uow.workers.all()] == ["host-1"]


def test_only_the_transaction_itself_is_not_durable(database: Database) -> None:
    for durable, expected in ((False, "off"), (True, "on")):
        with database.begin(durable=durable) as uow:
            assert uow._transaction.value("SHOW synchronous_commit") == expected


def test_callbacks_run_after_the_commit_in_order(database: Database) -> None:
    head, seen = a_head(), []
    with database.begin() as uow:
        uow.tasks.insert(head)
        uow.after_commit(lambda: seen.append(("first", _is_there(database, head.id))))
        uow.after_commit(lambda: seen.append(("second", True)))
        assert seen == []
    assert seen == [("first", True), ("second", True)]


def _is_there(database: Database, task_id: str) -> bool:
    with database.begin() as uow:
        return uow.tasks.head(task_id, lock=False) is not None


def test_callbacks_do_not_run_after_a_rollback(database: Database) -> None:
    seen: list[str] = []
    with pytest.raises(KeyError), database.begin() as uow:
        uow.after_commit(lambda: seen.append("called"))
        raise KeyError
    assert seen == []


def test_a_queued_conflict_shows_at_the_commit_and_nothing_is_kept(database: Database) -> None:
    head = a_head(id=insert(database))
    with pytest.raises(AlreadyExists, match="tasks_pkey"), database.begin() as uow:
        uow.workers.beat("host-1", "planner")
        uow.tasks.insert(head)
    with database.begin() as uow:
        assert uow.workers.all() == []


def test_a_queued_conflict_shows_at_a_flush(database: Database) -> None:
    head = a_head(id=insert(database))
    with pytest.raises(AlreadyExists), database.begin() as uow:
        uow.tasks.insert(head)
        with pytest.raises(AlreadyExists, match="tasks_pkey"):
            uow.flush()


def test_the_connection_is_usable_after_every_kind_of_failure(database_url: str) -> None:
    database = Database(database_url, pool_size=1, max_overflow=0)
    head = a_head(id=insert(database))
    for _ in range(3):
        with pytest.raises(AlreadyExists), database.begin() as uow:
            uow.tasks.insert(head)
            uow.tasks.insert(head)
            uow.workers.beat("host-1", "planner")
        with pytest.raises(AlreadyExists), database.begin() as uow:
            uow.tasks.insert(head)
            uow.tasks.list()
        assert _is_there(database, head.id)
    database.close()


def test_text_that_postgresql_cannot_hold_is_made_storable(database: Database) -> None:
    task_id = insert(database, instruction="a\x00b\ud800c")
    with database.begin() as uow:
        uow.events.append(task_id, 0, [("x", {"text": "a\x00b\ud800c", "literal": "\\u0000", "fine": "ä€😀"})])
    with database.begin() as uow:
        head, (event,) = uow.tasks.head(task_id), uow.events.read(task_id)
        assert head is not None
        assert head.instruction == "a\ufffdb\ufffdc"
        assert event.payload == {"text": "a\ufffdb\ufffdc", "literal": "\\u0000", "fine": "ä€😀"}


def test_a_number_that_json_cannot_hold_is_refused(database: Database) -> None:
    task_id = insert(database)
    with pytest.raises(ValueError, match="JSON compliant"), database.begin() as uow:
        uow.events.append(task_id, 0, [("x", {"value": float("nan")})])


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://localhost/x", "sqlite://"])
def test_a_url_that_is_not_postgresqls_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"must be PostgreSQL|expected postgresql://"):
        Database(url)


def test_a_bad_url_is_not_repeated_with_its_password() -> None:
    with pytest.raises(ValueError, match="not one; expected") as caught:
        parse("postgresql:/user:secret@host")
    assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_is_unavailable() -> None:
    database = Database("postgresql://postgres@127.0.0.1:1/nothing")
    with pytest.raises(DatabaseUnavailable, match="PostgreSQL cannot be reached"), database.begin():
        pass
    database.close()


def test_an_exhausted_pool_says_so(database_url: str) -> None:
    database = Database(database_url, pool_size=1, max_overflow=0, pool_timeout_s=0.05)
    with (
        database.begin(),
        pytest.raises(DatabaseUnavailable, match="no database connection became free"),
        database.begin(),
    ):
        pass
    database.close()


def hang_up(database_url: str) -> None:
    """What a restart does to every client: the server closes their connections."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()


def test_idle_connections_that_the_server_closed_are_replaced_unseen(database: Database, database_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: insert(database), range(8)))
    hang_up(database_url)
    for _ in range(8):
        insert(database)


def test_a_connection_lost_in_the_middle_is_unavailable_and_the_next_transaction_works(
    database: Database, database_url: str
) -> None:
    head = a_head()
    with pytest.raises(DatabaseUnavailable), database.begin() as uow:
        uow.tasks.insert(head)
        hang_up(database_url)
        uow.tasks.head(head.id)
    assert not _is_there(database, head.id)


def test_a_connection_lost_before_the_commit_does_not_commit(database: Database, database_url: str) -> None:
    head = a_head()
    with pytest.raises(DatabaseUnavailable), database.begin() as uow:
        uow.tasks.insert(head)
        uow.flush()
        hang_up(database_url)
    assert not _is_there(database, head.id)


def test_retrying_starts_again_after_a_lost_connection(database: Database, database_url: str) -> None:
    tries = []

    def work(uow: UnitOfWork) -> str:
        tries.append(1)
        head = a_head()
        uow.tasks.insert(head)
        if len(tries) == 1:
            hang_up(database_url)
        return head.id

    assert _is_there(database, retrying(database, work))
    assert len(tries) == 2


def test_retrying_gives_up_after_its_attempts(database: Database) -> None:
    tries = []

    def work(uow: UnitOfWork) -> None:
        tries.append(1)
        raise VersionConflict

    with pytest.raises(VersionConflict, match="Somebody else wrote this task"):
        retrying(database, work, attempts=3)
    assert len(tries) == 3


def test_retrying_does_not_repeat_what_cannot_be_helped(database: Database) -> None:
    tries = []

    def work(uow: UnitOfWork) -> None:
        tries.append(1)
        raise StorageError("for good")

    with pytest.raises(StorageError, match="for good"):
        retrying(database, work)
    assert len(tries) == 1


def test_of_two_deadlocked_transactions_one_is_told_and_the_other_commits(database: Database) -> None:
    first, second = insert(database), insert(database)
    both_hold_one = threading.Barrier(2)

    def lock(order: tuple[str, str]) -> str:
        try:
            with database.begin() as uow:
                uow.tasks.head(order[0])
                both_hold_one.wait(10)
                uow.tasks.head(order[1])
            return "committed"
        except Contention:
            return "told"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lock, [(first, second), (second, first)])) == ["committed", "told"]


def test_many_threads_share_a_database(database: Database) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: insert(database), range(40)))
    with database.begin() as uow:
        assert {head.id for head in uow.tasks.list(limit=100)} == set(ids)


def test_errors_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(VersionConflict("task t is at version 3, not 2")))
    assert (type(error), str(error), error.retryable) == (VersionConflict, "task t is at version 3, not 2", True)
