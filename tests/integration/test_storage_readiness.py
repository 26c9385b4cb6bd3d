"""Stores that are away at the start, or go away in between."""

import threading
import time
from pathlib import Path

import psycopg
import pytest

from longstride.storage import migrations, readiness
from longstride.storage.database import Database
from longstride.storage.disk import DiskArtifacts
from longstride.storage.embedded import EmbeddedPostgres
from longstride.storage.errors import DatabaseUnavailable, SchemaMismatch, StorageUnavailable
from longstride.storage.listener import listen
from longstride.storage.outbox import CHANNEL
from tests.support.tasks import insert


def test_a_database_that_suits_is_not_waited_for(database_url: str) -> None:
    said: list[str] = []
    database = Database(database_url)
    readiness.wait_for_database(database, 0.0, said.append)
    database.close()
    assert said == []


def test_a_schema_that_does_not_suit_is_not_waited_for(empty_database_url: str) -> None:
    database = Database(empty_database_url)
    began = time.monotonic()
    with pytest.raises(SchemaMismatch, match="run the migrations first"):
        readiness.wait_for_database(database, 60.0, pytest.fail)
    database.close()
    assert time.monotonic() - began < 30


def test_a_database_that_never_comes_is_given_up_with_a_sentence() -> None:
    said: list[str] = []
    database = Database("postgresql://postgres@127.0.0.1:1/nothing")
    with pytest.raises(DatabaseUnavailable, match="gave up on PostgreSQL after 1 s: PostgreSQL cannot be reached"):
        readiness.wait_for_database(database, 1.0, said.append)
    assert len(said) == 1
    assert said[0].startswith("waiting up to 1 s for PostgreSQL: ")


def test_an_artifact_store_is_waited_for(tmp_path: Path) -> None:
    in_the_way = tmp_path / "artifacts"
    in_the_way.write_text("")
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        in_the_way.unlink()

    readiness.wait_for_artifacts(DiskArtifacts(in_the_way), 30.0, say)
    assert len(said) == 1
    in_the_way.joinpath(".unfinished").rmdir()
    in_the_way.rmdir()
    in_the_way.write_text("")
    with pytest.raises(StorageUnavailable, match="gave up on the artifact store after 0 s"):
        readiness.wait_for_artifacts(DiskArtifacts(in_the_way), 0.0, said.append)


def test_a_pool_survives_the_servers_restarts(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres")
    database = Database(server.start())
    said: list[str] = []
    migrations.upgrade(server.url)
    tasks = [insert(database)]
    server.stop()
    with pytest.raises(DatabaseUnavailable):
        insert(database)
    waiting = threading.Thread(target=readiness.wait_for_database, args=(database, 60.0, said.append))
    waiting.start()
    while not said:
        time.sleep(0.01)
    server.start()
    waiting.join()
    tasks.append(insert(database))
    with database.begin() as uow:
        assert [head.id for head in uow.tasks.list()] == tasks[::-1]
    database.close()
    server.stop()


def test_a_listener_hears_what_others_commit(database_url: str) -> None:
    database = Database(database_url)
    with listen(database, CHANNEL) as listener:
        assert listener.wait(0.0)  # it has just connected: something may have been missed
        assert not listener.wait(0.0)
        with database.begin() as uow:
            uow.outbox.add("{}", "msg_1", "kombu", "generated")
            assert not listener.wait(0.05)
        assert listener.wait(10.0)
        assert not listener.wait(0.0)
    database.close()


def test_a_listener_that_was_cut_off_connects_again_and_wakes(database_url: str) -> None:
    database = Database(database_url)
    with listen(database, CHANNEL) as listener:
        assert listener.wait(0.0)
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall()
        assert not listener.wait(10.0)
        assert listener.wait(10.0)
    database.close()


def test_a_listener_without_a_server_waits_all_the_same() -> None:
    database = Database("postgresql://postgres@127.0.0.1:1/nothing")
    began = time.monotonic()
    with listen(database, CHANNEL) as listener:
        assert not listener.wait(0.2)
    assert time.monotonic() - began >= 0.2
