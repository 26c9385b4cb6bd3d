"""What every artifact store does: in memory, on disk, and behind the S3 API of a server nobody here wrote."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.storage.artifacts import ArtifactStore
from longstride.storage.disk import DiskArtifacts
from longstride.storage.errors import ArtifactCorrupt, ArtifactMissing
from longstride.storage.memory import MemoryArtifacts
from tests.support.servers import Servers

HELLO_SHA256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # printf hello | sha256sum


@pytest.fixture(params=["memory", "disk", pytest.param("s3", marks=pytest.mark.integration)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ArtifactStore]:
    if request.param == "memory":
        yield MemoryArtifacts()
    elif request.param == "disk":
        yield DiskArtifacts(tmp_path / "artifacts")
    else:
        yield from _in_a_bucket(request.getfixturevalue("servers"), request.getfixturevalue("bucket"))


def _in_a_bucket(servers: Servers, bucket: str) -> Iterator[ArtifactStore]:
    from longstride.storage.minio_artifacts import MinioArtifacts

    store = MinioArtifacts(servers.s3_endpoint, servers.access_key, servers.secret_key, bucket)
    yield store
    for found in store.list():
        store.delete(found.key)


def test_a_key_is_session_kind_and_hash(store: ArtifactStore) -> None:
    ref = store.put(b"hello", session="ses_1", kind="output", media_type="text/plain")
    assert ref == ArtifactRef(key=f"ses_1/output/{HELLO_SHA256}", sha256=HELLO_SHA256, size=5, media_type="text/plain")
    assert store.get(ref) == b"hello"
    assert store.exists(ref)


@pytest.mark.parametrize("data", [b"", b"\x00\xff" * 10, os.urandom(200_000), os.urandom(6 * 1024 * 1024)])
def test_bytes_come_back_as_they_were(store: ArtifactStore, data: bytes) -> None:
    assert store.get(store.put(data, session="s", kind="blob")) == data


def test_the_same_bytes_are_one_object(store: ArtifactStore) -> None:
    first = store.put(b"same", session="s", kind="blob")
    assert store.put(b"same", session="s", kind="blob") == first
    assert [found.key for found in store.list()] == [first.key]


def test_what_was_never_put_is_missing(store: ArtifactStore) -> None:
    nothing = ArtifactRef(key=f"s/blob/{HELLO_SHA256}", sha256=HELLO_SHA256, size=5)
    assert not store.exists(nothing)
    with pytest.raises(ArtifactMissing, match=HELLO_SHA256):
        store.get(nothing)


def test_a_folder_of_objects_is_no_object(store: ArtifactStore) -> None:
    ref = store.put(b"hello", session="s", kind="blob")
    folder = ref.model_copy(update={"key": "s/blob"})
    assert not store.exists(folder)
    with pytest.raises(ArtifactMissing):
        store.get(folder)
    below = ref.model_copy(update={"key": f"{ref.key}/more"})
    assert not store.exists(below)
    with pytest.raises(ArtifactMissing):
        store.get(below)


@pytest.mark.parametrize("update", [{"sha256": "0" * 64}, {"size": 4}, {"size": 6}])
def test_other_bytes_than_the_reference_says_are_corrupt(store: ArtifactStore, update: dict[str, object]) -> None:
    ref = store.put(b"hello", session="s", kind="blob").model_copy(update=update)
    with pytest.raises(ArtifactCorrupt, match=ref.key):
        store.get(ref)


@pytest.mark.parametrize("key", ["../outside", "s/../../outside", "s//blob", "/etc/passwd", "s/./x", "s/blob/"])
def test_a_key_never_leads_out_of_the_store(store: ArtifactStore, tmp_path: Path, key: str) -> None:
    (tmp_path / "outside").write_bytes(b"hello")
    ref = ArtifactRef(key=key, sha256=HELLO_SHA256, size=5)
    with pytest.raises(ArtifactMissing):
        store.get(ref)


@pytest.mark.parametrize(("session", "kind"), [("", "k"), ("s", ""), ("..", "k"), ("s", "."), ("a/b", "k"), ("s", "ä")])
def test_a_session_and_a_kind_are_one_plain_name(store: ArtifactStore, session: str, kind: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be part of an artifact's key"):
        store.put(b"", session=session, kind=kind)


def test_lists_by_prefix(store: ArtifactStore) -> None:
    placed = [("a", "x"), ("a", "x.y"), ("a", "x-y"), ("ab", "x"), ("b", "x")]
    keys = {store.put(b"1", session=session, kind=kind).key for session, kind in placed}
    for prefix in ("", "a/", "a", "a/x/", "a/x", "a/x/6b", "nothing/"):
        assert sorted(found.key for found in store.list(prefix)) == sorted(k for k in keys if k.startswith(prefix))


def test_a_listing_says_size_and_time(store: ArtifactStore) -> None:
    store.put(b"hello", session="s", kind="blob")
    (found,) = store.list()
    assert found.size == 5
    assert abs(found.modified_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_an_empty_store_lists_nothing(store: ArtifactStore) -> None:
    assert list(store.list()) == []


def test_a_deleted_object_is_gone_and_may_come_back(store: ArtifactStore) -> None:
    ref = store.put(b"hello", session="s", kind="blob")
    store.delete(ref.key)
    store.delete(ref.key)
    assert not store.exists(ref)
    assert store.get(store.put(b"hello", session="s", kind="blob")) == b"hello"


def test_a_check_makes_the_store_ready_again_and_again(store: ArtifactStore) -> None:
    store.check()
    store.check()
    assert list(store.list()) == []


def test_many_threads_put_the_same_and_different_objects(store: ArtifactStore) -> None:
    failures: list[BaseException] = []

    def work(mine: int) -> None:
        try:
            for number in range(5):
                store.put(f"shared {number}".encode(), session="s", kind="blob")
                store.put(f"{mine} {number}".encode(), session="s", kind="blob")
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [Thread(target=work, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(store.list())) == 5 + 4 * 5
