"""A workspace's states: equal ones are one object, and a restored one is the one that was committed."""

# Names are bytes here, and descriptors are opened: pathlib knows neither.
# ruff: noqa: PTH118, PTH123

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import snapshot
from longstride.sandbox.base import Volume
from longstride.sandbox.errors import InputUnusable, WorkspaceCorrupt, WorkspaceUnusable
from longstride.sandbox.volumes import DirectoryVolumes
from longstride.sandbox.workspace import Workspaces
from longstride.storage.errors import ArtifactMissing
from longstride.storage.memory import MemoryArtifacts
from tests.support.trees import tree

LIMITS = SandboxLimits(disk_mb=1, files=200)


class CountingArtifacts(MemoryArtifacts):
    """Remembers which keys were put, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[str] = []

    def put(self, data: bytes, *, session: str, kind: str, media_type: str = "application/octet-stream") -> ArtifactRef:
        ref = super().put(data, session=session, kind=kind, media_type=media_type)
        self.puts.append(ref.key)
        return ref


@pytest.fixture
def artifacts() -> CountingArtifacts:
    return CountingArtifacts()


@pytest.fixture
def workspaces(tmp_path: Path, artifacts: CountingArtifacts) -> Iterator[Workspaces]:
    made = Workspaces(artifacts, DirectoryVolumes(tmp_path / "volumes"))
    yield made
    made.close()


def fill(path: Path) -> None:
    (path / "src/deep").mkdir(parents=True)
    (path / "src/deep/program.sh").write_text("#!/bin/sh\n")
    (path / "src/deep/program.sh").chmod(0o755)
    (path / "src").chmod(0o750)
    (path / "empty").mkdir()
    (path / "nothing").write_bytes(b"")
    (path / "binary").write_bytes(bytes(range(256)) * 10)
    os.utime(path / "binary", ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    (path / "link").symlink_to("src/deep")
    (path / "outside").symlink_to("/usr/bin/python3")
    (path / "new\nline ünd").write_text("odd")
    with open(os.path.join(os.fsencode(path), b"\xff\xfe"), "wb") as file:
        file.write(b"not utf-8")


def test_a_restored_workspace_is_the_committed_one(workspaces: Workspaces) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        fill(workspace.volume.path)
        before = tree(workspace.volume.path)
        ref = workspace.commit("s")
    workspaces.forget("t")
    with workspaces.open("t", ref, limits=LIMITS) as again:
        assert tree(again.volume.path) == before
        assert len(before) == 10


def test_the_same_state_is_the_same_reference_and_nothing_is_written(
    workspaces: Workspaces, artifacts: CountingArtifacts
) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        fill(workspace.volume.path)
        ref = workspace.commit("s")
    written = len(artifacts.puts)
    with workspaces.open("t", ref, limits=LIMITS) as workspace:
        (workspace.volume.path / "temporary").write_text("x")
        (workspace.volume.path / "temporary").unlink()
        assert workspace.commit("s") == ref
    workspaces.forget("t")
    with workspaces.open("t", ref, limits=LIMITS) as workspace:
        assert workspace.commit("s") == ref, "after a restore, too"
    assert len(artifacts.puts) == written


def test_two_tasks_in_the_same_state_share_a_manifest(workspaces: Workspaces) -> None:
    inputs = [InputFile(path="a/table.csv", text="x,y\n1,2\n")]
    refs = []
    for task in ("one", "two"):
        with workspaces.open(task, None, inputs, LIMITS) as workspace:
            refs.append(workspace.commit("s"))
    assert refs[0] == refs[1]


def test_only_what_changed_is_written(workspaces: Workspaces, artifacts: CountingArtifacts) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        for number in range(50):
            (workspace.volume.path / f"f{number}").write_text(str(number))
        ref = workspace.commit("s")
    artifacts.puts.clear()
    with workspaces.open("t", ref, limits=LIMITS) as workspace:
        (workspace.volume.path / "f7").write_text("changed")
        changed = workspace.commit("s")
    assert [key.split("/")[1] for key in artifacts.puts] == ["pack", "workspace"], "content first"
    assert artifacts.puts[-1] == changed.key


def test_equal_files_are_stored_once(workspaces: Workspaces, artifacts: CountingArtifacts) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        for number in range(20):
            (workspace.volume.path / f"f{number}").write_text("same")
        ref = workspace.commit("s")
    (pack,) = snapshot.load(artifacts, ref).packs
    assert [held.size for held in pack.holds] == [4]


def test_the_live_directory_is_used_only_where_it_is_the_state_asked_for(workspaces: Workspaces) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        (workspace.volume.path / "f").write_text("one")
        first, live = workspace.commit("s"), workspace.volume.path
    with workspaces.open("t", first, limits=LIMITS) as workspace:
        assert workspace.volume.path == live, "no restore"
        (workspace.volume.path / "f").write_text("two")
        workspace.commit("s")
    with workspaces.open("t", first, limits=LIMITS) as workspace:
        assert (workspace.volume.path / "f").read_text() == "one", "the second state was never committed by the planner"


def test_a_discarded_workspace_leaves_nothing(workspaces: Workspaces) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        (workspace.volume.path / "f").write_text("one")
        ref = workspace.commit("s")
    with workspaces.open("t", ref, limits=LIMITS) as workspace:
        (workspace.volume.path / "f").write_text("dirt")
        dirty = workspace.volume.path
    assert not dirty.exists()
    with workspaces.open("t", ref, limits=LIMITS) as workspace:
        assert (workspace.volume.path / "f").read_text() == "one"


def test_a_released_workspace_stays_as_it_was(workspaces: Workspaces, artifacts: CountingArtifacts) -> None:
    inputs = [InputFile(path="a", text="1")]
    with workspaces.open("t", None, inputs, LIMITS) as workspace:
        live = workspace.volume.path
        assert workspace.release() is None
    with workspaces.open("t", None, inputs, LIMITS) as workspace:
        assert workspace.volume.path == live
    assert artifacts.puts == []


def test_another_session_gets_objects_of_its_own(workspaces: Workspaces, artifacts: CountingArtifacts) -> None:
    """Artifacts are kept and dropped by session: a fork must not hang on the session it came from."""
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        (workspace.volume.path / "f").write_text("one")
        ref = workspace.commit("first")
    with workspaces.open("fork", ref, limits=LIMITS) as workspace:
        forked = workspace.commit("second")
    for stored in list(artifacts.list("first/")):
        artifacts.delete(stored.key)
    workspaces.close()
    with workspaces.open("fork", forked, limits=LIMITS) as workspace:
        assert (workspace.volume.path / "f").read_text() == "one"


def test_a_rewrite_in_the_same_instant_is_noticed(workspaces: Workspaces) -> None:
    """Same size, same times, right after the commit: only the content tells."""
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        (workspace.volume.path / "f").write_text("one")
        ref = workspace.commit("s")
    with workspaces.open("t", ref, limits=LIMITS) as workspace:
        path = workspace.volume.path / "f"
        times = path.stat()
        path.write_text("two")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        changed = workspace.commit("s")
    assert changed != ref


def test_what_cannot_be_kept_is_named_and_the_next_open_is_without_it(workspaces: Workspaces) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace, socket.socket(socket.AF_UNIX) as server:
        os.mkfifo(workspace.volume.path / "pipe")
        server.bind(str(workspace.volume.path / "sock"))
        (workspace.volume.path / "f").write_text("kept")
        ref, live = workspace.commit("s"), workspace.volume.path
    assert workspace.left_out == ("pipe (FIFO)", "sock (socket)")
    assert not live.exists(), "it is not exactly the state"
    with workspaces.open("t", ref, limits=LIMITS) as workspace:
        assert list(tree(workspace.volume.path)) == ["f"]


def test_hard_links_become_files_of_their_own(workspaces: Workspaces) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        (workspace.volume.path / "a").write_text("shared")
        os.link(workspace.volume.path / "a", workspace.volume.path / "b")
        ref = workspace.commit("s")
    with workspaces.open("t", ref, limits=LIMITS) as workspace:
        (workspace.volume.path / "a").write_text("changed")
        assert (workspace.volume.path / "b").read_text() == "shared"


def many_files(path: Path) -> None:
    for number in range(LIMITS.files + 1):
        (path / f"f{number}").touch()


def deep(path: Path) -> None:
    for _ in range(70):
        path /= "d"
        path.mkdir()


def holes(path: Path) -> None:
    with (path / "sparse").open("wb") as file:
        file.truncate(1 << 40)


def large(path: Path) -> None:
    (path / "large").write_bytes(bytes(2 << 20))


@pytest.mark.parametrize(
    ("arrange", "why"),
    [(many_files, "files=200"), (deep, "64 deep"), (holes, "disk_mb=1, holes counted"), (large, "disk_mb=1")],
)
def test_a_workspace_beyond_its_caps_is_refused_with_a_sentence(workspaces: Workspaces, arrange, why: str) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        arrange(workspace.volume.path)
        with pytest.raises(WorkspaceUnusable, match=why):
            workspace.commit("s")
    assert not workspace.volume.path.exists()


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ([InputFile(path="big", text="x" * (2 << 20))], r"input 'big' \(2097152 bytes\) does not fit"),
        ([InputFile(path="a", text="1"), InputFile(path="a/b", text="2")], "input 'a'"),
        ([InputFile(path="a", text="1"), InputFile(path="a", text="2")], "input 'a'.*File exists"),
        ([InputFile(path="é" * 200, text="2")], "too long"),
        (
            [InputFile(path="gone", ref=ArtifactRef(key="s/input/" + "0" * 64, sha256="0" * 64, size=3))],
            "input 'gone' is not in the artifact store",
        ),
        (
            [InputFile(path="huge", ref=ArtifactRef(key="s/input/" + "0" * 64, sha256="0" * 64, size=1 << 40))],
            "does not fit",
        ),
    ],
    ids=["large", "file-and-directory", "twice", "long", "missing", "huge"],
)
def test_an_unusable_input_is_refused_with_a_sentence(workspaces: Workspaces, tmp_path: Path, inputs, why: str) -> None:
    with pytest.raises(InputUnusable, match=why):
        workspaces.open("t", None, inputs, LIMITS)
    assert list((tmp_path / "volumes").iterdir()) == []


def test_an_altered_input_is_refused(workspaces: Workspaces, artifacts: CountingArtifacts) -> None:
    ref = artifacts.put(b"abc", session="s", kind="input")
    wrong = ref.model_copy(update={"size": 2})
    with pytest.raises(InputUnusable, match="is not what was stored"):
        workspaces.open("t", None, [InputFile(path="a", ref=wrong)], LIMITS)


def test_inputs_lie_where_they_are_named(workspaces: Workspaces, artifacts: CountingArtifacts) -> None:
    ref = artifacts.put(b"\x00binary", session="s", kind="input")
    inputs = [InputFile(path="d/e/f.bin", ref=ref), InputFile(path="t.txt", text="tëxt")]
    with workspaces.open("t", None, inputs, LIMITS) as workspace:
        assert (workspace.volume.path / "d/e/f.bin").read_bytes() == b"\x00binary"
        assert (workspace.volume.path / "t.txt").read_text() == "tëxt"


def test_a_lost_state_is_the_stores_error(workspaces: Workspaces, artifacts: CountingArtifacts) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        (workspace.volume.path / "f").write_text("one")
        ref = workspace.commit("s")
    workspaces.forget("t")
    artifacts.delete(snapshot.load(artifacts, ref).objects[0].key)
    with pytest.raises(ArtifactMissing):
        workspaces.open("t", ref, limits=LIMITS)


def test_a_state_larger_than_the_limits_is_refused(workspaces: Workspaces) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        (workspace.volume.path / "f").write_bytes(bytes(900 << 10))
        (workspace.volume.path / "g").write_bytes(bytes(100 << 10))
        ref = workspace.commit("s")
    workspaces.forget("t")
    tighter = LIMITS.model_copy(update={"files": 16, "disk_mb": 1})
    with workspaces.open("t", ref, limits=tighter):
        pass
    with pytest.raises(WorkspaceUnusable, match="2 entries"):
        workspaces.open("t", ref, limits=LIMITS.model_construct(**{**LIMITS.model_dump(), "files": 1}))


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[]",
        b'{"version":2,"files":{},"links":{},"dirs":{}}',
        b'{"version":1,"files":{},"links":{"../up":"x"},"dirs":{}}',
        b'{"version":1,"files":{},"links":{},"dirs":{"/etc":448}}',
        b'{"version":1,"files":{"a//b":{"mode":1,"size":1,"mtime_ns":1,"sha256":"x"}},"links":{},"dirs":{}}',
        b'{"version":1,"files":{"a":{"size":1}},"links":{},"dirs":{}}',
    ],
)
def test_a_manifest_is_checked_before_it_is_believed(
    workspaces: Workspaces, artifacts: CountingArtifacts, body: bytes
) -> None:
    ref = artifacts.put(body, session="s", kind="workspace")
    with pytest.raises(WorkspaceCorrupt):
        workspaces.open("t", ref, limits=LIMITS)


def test_nothing_is_written_through_a_link_of_the_manifest(
    workspaces: Workspaces, artifacts: CountingArtifacts, tmp_path: Path
) -> None:
    """A manifest that has both a link and a file below it was never made by us."""
    blob = artifacts.put(b"escaped", session="s", kind="blob")
    entry = {"mode": 0o644, "size": 7, "mtime_ns": 0, "sha256": blob.sha256}
    crafted = {"version": 1, "files": {"l/escaped": entry}, "links": {"l": str(tmp_path)}, "dirs": {}}
    ref = artifacts.put(json.dumps(crafted).encode(), session="s", kind="workspace")
    with pytest.raises(OSError, match="No such file"):
        workspaces.open("t", ref, limits=LIMITS)
    assert not (tmp_path / "escaped").exists()


def test_the_collector_of_orphans_is_told_what_a_manifest_holds(
    workspaces: Workspaces, artifacts: CountingArtifacts
) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        fill(workspace.volume.path)
        ref = workspace.commit("s")
    held = {r.key for r in snapshot.load(artifacts, ref).objects}
    assert held | {ref.key} == {stored.key for stored in artifacts.list("s/")}


def test_the_cache_is_bounded_by_number_and_bytes(tmp_path: Path, artifacts: CountingArtifacts) -> None:
    workspaces = Workspaces(artifacts, DirectoryVolumes(tmp_path / "v"), max_live=3, max_live_bytes=5000)
    live: list[Volume] = []
    for number in range(6):
        with workspaces.open(f"t{number}", None, limits=LIMITS) as workspace:
            (workspace.volume.path / "f").write_bytes(bytes(1000))
            workspace.commit("s")
            live.append(workspace.volume)
    assert [volume.path.exists() for volume in live] == [False, False, False, True, True, True]
    with workspaces.open("large", None, limits=LIMITS) as workspace:
        (workspace.volume.path / "f").write_bytes(bytes(4500))
        workspace.commit("s")
    assert len(list((tmp_path / "v").iterdir())) == 1
    workspaces.close()
    assert list((tmp_path / "v").iterdir()) == []


def test_a_copy_is_the_same_and_harms_nothing(workspaces: Workspaces) -> None:
    with workspaces.open("t", None, limits=LIMITS) as workspace:
        fill(workspace.volume.path)
        before = tree(workspace.volume.path)
        with workspace.copy() as copy:
            assert tree(copy.volume.path) == before
            (copy.volume.path / "binary").unlink()
        assert not copy.volume.path.exists()
        assert tree(workspace.volume.path) == before
