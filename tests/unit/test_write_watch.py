"""On a memory file system times do not tell every change: what is watched instead, against an agent that hides its writes."""

import array
import ctypes
import mmap
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import collect as collecting
from longstride.sandbox import snapshot
from longstride.sandbox import workspace as workspaces_module
from longstride.sandbox.errors import WorkspaceUnusable
from longstride.sandbox.identity import Identities
from longstride.sandbox.scratch import Scratch
from longstride.sandbox.volumes import TmpfsVolumes
from longstride.sandbox.workspace import Workspaces
from longstride.sandbox.write_watch import WriteWatch, frozen
from longstride.storage.memory import MemoryArtifacts
from tests.support.edits import EDITS, apply
from tests.support.eventually import eventually
from tests.support.trees import tree

LIMITS = SandboxLimits(disk_mb=8, files=400)
FILES = 20


class Desk:
    """A workspace of a few files on a watched memory file system, and what was read of it."""

    def __init__(self, scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workspaces = Workspaces(MemoryArtifacts(), TmpfsVolumes(scratch, Identities().draw))
        self.hashed: list[str] = []
        self.walked = 0
        self.ref: ArtifactRef | None = None
        self._watch_reading(monkeypatch)

    def _watch_reading(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hash_file, look_through = collecting._hash, workspaces_module.collect

        def hash_noted(collected, found, secrets):
            self.hashed.append(found.path)
            return hash_file(collected, found, secrets)

        def walk_noted(*arguments):
            self.walked += 1
            return look_through(*arguments)

        monkeypatch.setattr(collecting, "_hash", hash_noted)
        monkeypatch.setattr(workspaces_module, "collect", walk_noted)
        monkeypatch.setattr(workspaces_module, "WATCHED_FILES", FILES)

    def step(self, edit: Callable[[Path], object]) -> list[str]:
        """The files that were read after the edit; what is kept is then what is there."""
        self.hashed.clear()
        with self.workspaces.open("task", self.ref, limits=LIMITS) as workspace:
            edit(workspace.volume.path)
            there = tree(workspace.volume.path)
            self.ref = workspace.commit("s")
        read = sorted(self.hashed)
        twin = Workspaces(self.workspaces._artifacts, self.workspaces._volumes)
        with twin.open("twin", self.ref, limits=LIMITS) as restored:
            assert tree(restored.volume.path) == there
        return read

    def restart(self) -> None:
        self.workspaces.close()


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    folder = Path(mkdtemp(prefix="longstride-test-"))  # pytest's own lets nobody else in
    made = Scratch(folder)
    (made.path / "volumes").mkdir()
    yield made
    made.close()
    shutil.rmtree(folder)


@pytest.fixture
def desk(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(scratch, monkeypatch)
    volume = made.workspaces._volumes.create(LIMITS)
    watch = WriteWatch.start(volume.path)
    if watch is None:
        pytest.skip("fanotify is not to be had here")
    watch.close()
    made.workspaces._volumes.destroy(volume)
    made.step(lambda root: [(root / f"f{n}").write_bytes(bytes(4096)) for n in range(FILES)])
    yield made
    made.restart()


def test_nothing_is_looked_at_where_nothing_happened(desk: Desk) -> None:
    before, walked = desk.ref, desk.walked
    assert desk.step(lambda root: [path.read_bytes() for path in root.iterdir()]) == []
    assert (desk.ref, desk.walked) == (before, walked)


def test_only_what_was_written_is_read_again(desk: Desk) -> None:
    assert desk.step(lambda root: (root / "f3").write_text("new")) == ["f3"]
    assert desk.step(lambda root: (root / "g").write_text("one more")) == ["g"]
    assert desk.step(lambda root: (root / "g").unlink()) == []


def test_after_a_restore_it_is_known_what_is_there(desk: Desk) -> None:
    desk.restart()
    assert desk.step(lambda root: (root / "f3").write_text("new")) == ["f3"]


def through_a_mapping(root: Path) -> None:
    """The times stay as they were."""
    before = (root / "f5").stat()
    with (root / "f5").open("r+b") as file, mmap.mmap(file.fileno(), 4096) as page:
        page[0] += 1
        page[4095] ^= 1
        page.flush()
    assert (root / "f5").stat().st_mtime_ns == before.st_mtime_ns


def with_the_times_set_back(root: Path) -> None:
    before = (root / "f5").stat()
    (root / "f5").write_bytes(bytes(4095) + b"\x01")
    os.utime(root / "f5", ns=(before.st_atime_ns, before.st_mtime_ns))


def by_truncation(root: Path) -> None:
    os.truncate(root / "f5", 1)
    os.truncate(root / "f5", 4096)
    os.truncate(root / "f5", 10)


def by_mode(root: Path) -> None:
    (root / "f5").chmod(0o640)


def by_replacement(root: Path) -> None:
    (root / "fresh").write_bytes(os.urandom(4096))
    os.utime(root / "fresh", ns=(0, (root / "f5").stat().st_mtime_ns))
    (root / "fresh").replace(root / "f5")


def through_an_unnamed_file(root: Path) -> None:
    descriptor = os.open(root, os.O_TMPFILE | os.O_RDWR, 0o644)
    os.write(descriptor, os.urandom(100))
    (root / "f5").unlink()
    folder = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    os.link(str(descriptor), root / "f5", src_dir_fd=folder, follow_symlinks=True)
    os.close(folder)
    os.close(descriptor)


def through_another_mount(root: Path) -> None:
    """As sandboxed code sees it: a bind in a namespace of its own."""
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None)
        libc.unshare(0x00020000)
        libc.mount(b"none", b"/", None, 0x44000, None)
        libc.mount(os.fsencode(root), b"/mnt", None, 4096, None)
        through_a_mapping(Path("/mnt"))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "edit",
    [
        through_a_mapping,
        with_the_times_set_back,
        by_truncation,
        by_mode,
        by_replacement,
        through_an_unnamed_file,
        through_another_mount,
    ],
)
def test_a_change_is_noticed_however_it_is_made(desk: Desk, edit: Callable[[Path], None]) -> None:
    before = desk.ref
    assert desk.step(edit) == ["f5"]
    assert desk.ref != before


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(EDITS, max_size=5), min_size=2, max_size=10))
def test_what_was_touched_leads_to_what_a_walk_finds(desk: Desk, steps: list[list[tuple]]) -> None:
    """After any edits: the very manifest that a collection of everything gives."""
    start = desk.ref
    for edits in steps:
        with desk.workspaces.open("task", desk.ref, limits=LIMITS) as workspace:
            for edit in edits:
                apply(workspace.volume.path, edit)
            whole = collecting.collect(workspace.volume, LIMITS, collecting.Known())
            desk.ref = workspace.commit("s")
            kept = snapshot.load(desk.workspaces._artifacts, desk.ref)
            assert kept.manifest == whole.manifest
            state = desk.workspaces._live["task"][1]
            assert state.laid is not None
            assert (state.laid.count, state.laid.bytes) == (whole.count, whole.bytes)
            assert {**state.laid.folders} == whole.folders
    desk.ref = start


def test_an_exchange_of_two_directories_is_noticed(desk: Desk) -> None:
    def make(root: Path) -> None:
        for name in "ab":
            (root / name).mkdir()
            (root / name / "inner").write_text(name)

    def exchange(root: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.renameat2(-100, os.fsencode(root / "a"), -100, os.fsencode(root / "b"), 2) == 0

    desk.step(make)
    assert desk.step(exchange) == ["a/inner", "b/inner"]


def test_a_limit_holds_for_what_is_new(desk: Desk) -> None:
    with desk.workspaces.open("task", desk.ref, limits=LIMITS) as workspace:
        (workspace.volume.path / "sparse").touch()
        os.truncate(workspace.volume.path / "sparse", 1 << 40)
        with pytest.raises(WorkspaceUnusable, match="disk_mb=8, holes counted"):
            workspace.commit("s")
    with desk.workspaces.open("task", desk.ref, limits=LIMITS) as workspace:
        deep = workspace.volume.path.joinpath(*("d" * 70))
        deep.mkdir(parents=True)
        with pytest.raises(WorkspaceUnusable, match="64 deep"):
            workspace.commit("s")


def test_a_workspace_larger_than_the_cache_is_dropped_after_its_commit(scratch: Scratch) -> None:
    workspaces = Workspaces(MemoryArtifacts(), TmpfsVolumes(scratch, Identities().draw), max_live_bytes=1000)
    with workspaces.open("task", None, limits=LIMITS) as workspace:
        (workspace.volume.path / "f").write_bytes(bytes(2000))
        ref = workspace.commit("s")
    assert not workspace.volume.path.exists()
    with workspaces.open("task", ref, limits=LIMITS) as workspace:
        assert (workspace.volume.path / "f").stat().st_size == 2000


def test_room_that_is_set_aside_for_no_content_is_counted_in_the_cache(scratch: Scratch) -> None:
    workspaces = Workspaces(MemoryArtifacts(), TmpfsVolumes(scratch, Identities().draw), max_live_bytes=3 << 20)
    for number in range(3):
        with workspaces.open(f"task{number}", None, limits=LIMITS) as workspace:
            (workspace.volume.path / "f").touch()
            size = ["fallocate", "--keep-size", "--length", str(2 << 20), workspace.volume.path / "f"]
            subprocess.run(size, check=True)
            workspace.commit("s")
    assert list(workspaces._live) == ["task2"]
    workspaces.close()


def test_a_store_through_the_other_name_of_a_file_is_noticed(desk: Desk) -> None:
    """A second name makes the workspace inexact, so it is laid out anew; the change is kept all the same."""

    def edit(root: Path) -> None:
        os.link(root / "f5", root / "other")
        with (root / "other").open("r+b") as file, mmap.mmap(file.fileno(), 4096) as page:
            page[7] = 7

    assert set(desk.step(edit)) == {"f5", "other"}


def test_a_file_that_waits_in_a_socket_hides_nothing(desk: Desk) -> None:
    """Its last close is still to come, so nothing is known: everything is read."""
    ends = socket.socketpair()

    def edit(root: Path) -> None:
        descriptor = os.open(root / "f5", os.O_RDWR)
        with mmap.mmap(descriptor, 4096) as page:
            page[0] += 1
        ends[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])
        os.close(descriptor)

    before = desk.ref
    assert len(desk.step(edit)) == FILES
    assert desk.ref != before
    for end in ends:
        end.close()
    assert desk.step(lambda root: (root / "f3").write_text("new")) == ["f3", "f5"]


def test_more_than_the_kernel_keeps_is_as_good_as_nothing_known(scratch: Scratch) -> None:
    limits = SandboxLimits(disk_mb=8, files=20_000)
    volumes = TmpfsVolumes(scratch, Identities().draw)
    volume = volumes.create(limits)
    watch = WriteWatch(volume.path)
    kept = int(Path("/proc/sys/fs/fanotify/max_queued_events").read_text())
    if kept >= 20_000:
        pytest.skip(f"this kernel keeps {kept} events")
    for number in range(kept + 1):
        (volume.path / str(number)).touch()
    assert watch.touched() is None
    (volume.path / "7").write_text("x")
    assert watch.touched() == {(volume.path / "7").stat().st_ino}
    watch.close()
    volumes.destroy(volume)


def test_what_was_removed_counts_as_something(scratch: Scratch) -> None:
    volumes = TmpfsVolumes(scratch, Identities().draw)
    volume = volumes.create(LIMITS)
    watch = WriteWatch(volume.path)
    assert watch.touched() == frozenset()
    (volume.path / "passing").touch()
    (volume.path / "passing").unlink()
    assert watch.touched() == {0, volume.path.stat().st_ino}
    watch.close()
    volumes.destroy(volume)


def test_frozen_is_read_only_and_only_for_a_while(scratch: Scratch) -> None:
    volumes = TmpfsVolumes(scratch, Identities().draw)
    volume = volumes.create(LIMITS)
    with frozen(volume.path) as still:
        assert still
        with pytest.raises(OSError, match="Read-only file system"):
            (volume.path / "f").touch()
    with (volume.path / "f").open("w"), frozen(volume.path) as still:
        assert not still
    eventually(lambda: _freezes(volume.path))
    assert os.statvfs(volume.path).f_files == LIMITS.files + 1, "its limits are as they were"
    volumes.destroy(volume)


def _freezes(path: Path) -> bool:
    with frozen(path) as still:
        return still
