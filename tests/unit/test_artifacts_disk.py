"""Artifacts on disk when the disk is full, broken, shared, or its writer is killed."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.storage.artifacts import REFRESH_AFTER
from longstride.storage.disk import DiskArtifacts
from longstride.storage.errors import StorageFull, StorageUnavailable

WRITER = """
import os, sys
from longstride.storage.disk import DiskArtifacts
store = DiskArtifacts(sys.argv[1])
while True:
    store.put(os.urandom(16 * 1024 * 1024), session="s", kind="blob")
"""


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Writes beyond ``size`` fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_full_disk_is_said_so_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    store = DiskArtifacts(tmp_path / "artifacts")
    kept = store.put(b"before", session="s", kind="blob")
    with (
        no_file_larger_than(4096),
        pytest.raises(StorageFull, match=r"artifacts is full, cannot write s/blob/.*: free some"),
    ):
        store.put(b"x" * 100_000, session="s", kind="blob")
    assert [path.name for path in files(tmp_path)] == [kept.sha256]
    assert store.put(b"x" * 100_000, session="s", kind="blob").size == 100_000


@pytest.mark.parametrize("act", ["put", "get", "exists", "list", "delete", "check"])
def test_a_folder_that_is_no_folder_is_said_so(tmp_path: Path, act: str) -> None:
    (tmp_path / "artifacts").write_text("in the way")
    store = DiskArtifacts(tmp_path / "artifacts")
    ref = ArtifactRef(key="s/blob/" + "0" * 64, sha256="0" * 64, size=0)
    acts = {
        "put": lambda: store.put(b"", session="s", kind="blob"),
        "check": store.check,
    }
    if act in acts:
        with pytest.raises(StorageUnavailable, match="artifacts does not work"):
            acts[act]()
    else:  # nothing lies there, whatever the reason
        assert not store.exists(ref)
        assert list(store.list()) == []
        store.delete(ref.key)


def test_a_link_that_leads_in_circles_is_a_broken_store(tmp_path: Path) -> None:
    store = DiskArtifacts(tmp_path)
    ref = store.put(b"hello", session="s", kind="blob")
    path = tmp_path / ref.key
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(StorageUnavailable, match=f"cannot read {ref.key}"):
        store.get(ref)


def test_objects_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    store = DiskArtifacts(tmp_path / "artifacts")
    ref = store.put(b"hello", session="s", kind="blob")
    modes = {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "artifacts", tmp_path / "artifacts" / ref.key)}
    assert modes == {"0o700", "0o600"}


def age(path: Path, by: timedelta) -> None:
    moment = (datetime.now(UTC) - by).timestamp()
    os.utime(path, (moment, moment))


def test_an_old_object_that_is_put_again_is_young_again(tmp_path: Path) -> None:
    """Else the orphan collector could take it from under the transaction that is about to refer to it."""
    store = DiskArtifacts(tmp_path)
    ref = store.put(b"hello", session="s", kind="blob")
    age(tmp_path / ref.key, 2 * REFRESH_AFTER)
    store.put(b"hello", session="s", kind="blob")
    (found,) = store.list()
    assert datetime.now(UTC) - found.modified_at < timedelta(minutes=1)


def test_a_file_of_another_size_is_written_anew(tmp_path: Path) -> None:
    store = DiskArtifacts(tmp_path)
    ref = store.put(b"hello", session="s", kind="blob")
    (tmp_path / ref.key).write_bytes(b"hel")
    assert store.get(store.put(b"hello", session="s", kind="blob")) == b"hello"


def test_a_killed_writer_leaves_whole_objects_only(tmp_path: Path) -> None:
    store = DiskArtifacts(tmp_path)
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
        unfinished = tmp_path / ".unfinished"
        deadline = time.monotonic() + 30
        while not unfinished.exists() or not any(path.stat().st_size for path in unfinished.iterdir()):
            assert time.monotonic() < deadline, "the writer never wrote"
            time.sleep(0.001)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        for found in store.list():
            store.get(ArtifactRef(key=found.key, sha256=found.key.rsplit("/", 1)[1], size=found.size))


def test_what_killed_writers_left_is_swept_once_it_is_old(tmp_path: Path) -> None:
    store = DiskArtifacts(tmp_path)
    store.check()
    old, fresh = tmp_path / ".unfinished" / "old", tmp_path / ".unfinished" / "fresh"
    for path in (old, fresh):
        path.write_bytes(b"half")
    age(old, timedelta(days=2))
    store.check()
    assert [path.exists() for path in (old, fresh)] == [False, True]
    assert list(store.list()) == []
