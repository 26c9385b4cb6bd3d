"""Orphans: what nothing refers to goes, and nothing else ever does."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.storage import orphans
from longstride.storage.database import Database
from longstride.storage.disk import DiskArtifacts
from longstride.storage.memory import MemoryArtifacts
from longstride.storage.orphans import Collected, collect_orphans
from tests.support.tasks import insert


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def store() -> MemoryArtifacts:
    return MemoryArtifacts()


def put(store: MemoryArtifacts, text: str, kind: str = "output", session: str = "ses_1") -> ArtifactRef:
    return store.put(text.encode(), session=session, kind=kind)


def naming(store: MemoryArtifacts, kind: str, *named: ArtifactRef, session: str = "ses_1") -> ArtifactRef:
    """An object that names others by their hash, as manifests do."""
    return put(
        store, json.dumps({"files": {str(n): {"sha256": ref.sha256} for n, ref in enumerate(named)}}), kind, session
    )


def refer(database: Database, *refs: ArtifactRef, session: str = "ses_1") -> None:
    with database.begin() as uow:
        for ref in refs:
            uow.artifacts.add(ref, session_id=session, kind=ref.key.split("/")[1])


def collect(store: MemoryArtifacts, database: Database) -> Collected:
    """With everything old enough."""
    return orphans._collect(store, database, datetime.now(UTC) + timedelta(seconds=1))


def kept(store: MemoryArtifacts, *refs: ArtifactRef) -> list[bool]:
    return [store.exists(ref) for ref in refs]


def test_what_nothing_refers_to_is_deleted(store: MemoryArtifacts, database: Database) -> None:
    orphan, referred = put(store, "orphan"), put(store, "referred")
    refer(database, referred)
    assert collect(store, database) == Collected(deleted=1, deleted_bytes=6)
    assert kept(store, orphan, referred) == [False, True]
    assert collect(store, database) == Collected()


def test_the_same_content_in_another_session_is_another_object(store: MemoryArtifacts, database: Database) -> None:
    mine, yours = put(store, "x"), put(store, "x", session="ses_2")
    refer(database, mine)
    collect(store, database)
    assert kept(store, mine, yours) == [True, False]


def test_what_is_young_is_left_alone(tmp_path: Path, database: Database) -> None:
    store = DiskArtifacts(tmp_path)
    ref = store.put(b"fresh", session="ses_1", kind="output")
    assert collect_orphans(store, database, timedelta(hours=2)) == Collected()
    assert store.exists(ref)


@pytest.mark.parametrize("older_than", [timedelta(0), timedelta(hours=1)])
def test_a_grace_that_is_too_short_is_refused(
    store: MemoryArtifacts, database: Database, older_than: timedelta
) -> None:
    with pytest.raises(ValueError, match="older_than must be at least 2:00:00"):
        collect_orphans(store, database, older_than)


def test_a_manifests_blobs_live_as_long_as_the_manifest(store: MemoryArtifacts, database: Database) -> None:
    blob, other = put(store, "content", "blob"), put(store, "unnamed", "blob")
    manifest = naming(store, "workspace", blob)
    refer(database, manifest)
    assert collect(store, database) == Collected(deleted=1, deleted_bytes=7, adopted=1)
    assert kept(store, manifest, blob, other) == [True, True, False]
    with database.begin() as uow:
        assert uow.artifacts.known([blob.key]) == {blob.key}


def test_names_are_followed_through_any_number_of_objects(store: MemoryArtifacts, database: Database) -> None:
    first = put(store, "first", "context")
    chain = [first]
    for _ in range(4):
        chain.append(naming(store, "context", chain[-1]))
    refer(database, chain[-1])
    assert collect(store, database) == Collected(adopted=4)
    assert all(kept(store, *chain))


def test_an_orphan_keeps_nothing_alive(store: MemoryArtifacts, database: Database) -> None:
    blob = put(store, "content", "blob")
    naming(store, "workspace", blob)
    assert collect(store, database).deleted == 2


def test_what_an_agent_writes_keeps_nothing_alive(store: MemoryArtifacts, database: Database) -> None:
    blob = put(store, "content", "blob")
    output = naming(store, "output", blob)
    refer(database, output)
    assert collect(store, database).deleted == 1
    assert kept(store, blob, output) == [False, True]


def test_a_row_of_another_session_counts_too(store: MemoryArtifacts, database: Database) -> None:
    """A fork's rows are its own session's; the objects are where they were made."""
    blob = put(store, "content", "blob")
    manifest = naming(store, "workspace", blob)
    refer(database, manifest, session="ses_fork")
    collect(store, database)
    assert kept(store, manifest, blob) == [True, True]


def test_what_is_in_flight_is_kept_until_it_has_landed(store: MemoryArtifacts, database: Database) -> None:
    blob = put(store, "content", "blob")
    manifest = naming(store, "workspace", blob)
    promised, scheduled, dead, commanded = (put(store, text) for text in ("outbox", "timer", "dead", "command"))
    task_id = insert(database)
    with database.begin() as uow:
        uow.attempts.dispatch(task_id, 1, "execute", 1, "msg_1", json.dumps({"body": {"workspace": commanded.model_dump()}}))
        lease = uow.attempts.claim("msg_1", "me", 60)
        uow.attempts.answer(lease, {"body": {"workspace": manifest.model_dump()}})  # type: ignore[arg-type]
        row = uow.outbox.add(promised.model_dump_json(), "msg_2", "kombu", "generated")
        uow.timers.set("t", datetime.now(UTC) + timedelta(days=9), "kombu", "submit_task", scheduled.model_dump_json())
        uow.dead_letters.add("planner", "why", dead.model_dump_json().encode(), {})
    everything = (blob, manifest, promised, scheduled, dead, commanded)
    assert collect(store, database) == Collected()
    assert all(kept(store, *everything))
    with database.begin() as uow:
        uow.attempts.settle(task_id, 1, "execute")
        uow.outbox.delete([row])
        uow.timers.remove("t")
    assert collect(store, database).deleted == 5
    assert kept(store, *everything) == [False, False, False, False, True, False]


def test_where_a_manifest_cannot_be_read_nothing_of_its_session_goes(
    store: MemoryArtifacts, database: Database
) -> None:
    blob = put(store, "content", "blob")
    lost = naming(store, "workspace", blob)
    elsewhere = put(store, "orphan", session="ses_2")
    refer(database, lost)
    store.delete(lost.key)
    result = collect(store, database)
    assert (result.deleted, len(result.unreadable)) == (1, 1)
    assert lost.key in result.unreadable[0]
    assert kept(store, blob, elsewhere) == [True, False]


def test_what_was_put_again_meanwhile_is_spared(store: MemoryArtifacts, database: Database) -> None:
    """It was old when the collector listed it, and young when its turn came."""
    orphan = put(store, "orphan")
    before = datetime.now(UTC)

    class PutAgain(MemoryArtifacts):
        def list(self, prefix: str = "") -> "Iterator[orphans.StoredObject]":
            found = list(store.list(prefix))
            if prefix == "ses_1/":
                put(store, "orphan")
            return iter(found)

        def delete(self, key: str) -> None:
            store.delete(key)

    assert orphans._collect(PutAgain(), database, before) == Collected()
    assert store.exists(orphan)


def test_foreign_objects_are_left_alone(tmp_path: Path, database: Database) -> None:
    store = DiskArtifacts(tmp_path)
    for name in ("README.txt", "backup/2026/dump.sql", "s/k/short"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("not ours")
    assert orphans._collect(store, database, datetime.now(UTC) + timedelta(days=1)) == Collected()
    assert len(list(store.list())) == 3
