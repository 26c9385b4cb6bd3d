"""What differs between two states, as people and programs read it; and states as folders and archives."""

import gzip
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import zstandard

from longstride.client.errors import ClientError, NotFound, UsageProblem
from longstride.client.step_state import StepState
from longstride.client.workspace_diff import Difference, differences
from longstride.client.workspace_export import export, leads_outside
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import snapshot
from longstride.sandbox.volumes import DirectoryVolumes
from longstride.sandbox.workspace import Workspaces
from longstride.storage.memory import MemoryArtifacts
from tests.support.trees import tree

LIMITS = SandboxLimits(disk_mb=16, files=500)
State = Callable[[Callable[[Path], object]], StepState]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    """One step after the other."""
    artifacts = MemoryArtifacts()
    workspaces = Workspaces(artifacts, DirectoryVolumes(tmp_path / "volumes"))
    refs = [None]

    def step(edit: Callable[[Path], object]) -> StepState:
        with workspaces.open("task", refs[-1], limits=LIMITS) as workspace:
            edit(workspace.volume.path)
            refs.append(workspace.commit("s"))
        return StepState(len(refs) - 1, snapshot.load(artifacts, refs[-1]), artifacts)

    yield step
    workspaces.close()


def told(before: StepState, after: StepState) -> dict[str, Difference]:
    return {each.path: each for each in differences(before, after)}


def test_a_changed_text_is_a_unified_diff(state: State) -> None:
    one = state(lambda root: (root / "f").write_text("a\nb\nc\n"))
    other = state(lambda root: (root / "f").write_text("a\nB\nc\nd"))
    (found,) = differences(one, other)
    assert (found.path, found.kind, found.added, found.removed) == ("f", "changed", 2, 1)
    assert "".join(found.lines or ()) == ("@@ -1,3 +1,4 @@\n a\n-b\n+B\n c\n+d\n\\ No newline at end of file\n")


def test_every_kind_of_change_is_told_and_times_are_not(state: State) -> None:
    def before(root: Path) -> None:
        for name in ("same", "touched", "moded", "gone", "turned"):
            (root / name).write_text(f"{name}\n")
        (root / "link").symlink_to("same")
        (root / "binary").write_bytes(b"\x00\x01")
        (root / "folder").mkdir()

    def after(root: Path) -> None:
        os.utime(root / "touched", ns=(0, 0))
        (root / "moded").chmod(0o700)
        (root / "gone").unlink()
        (root / "turned").unlink()
        (root / "turned").mkdir()
        (root / "link").unlink()
        (root / "link").symlink_to("moded")
        (root / "binary").write_bytes(b"\x00\x01\x02")
        (root / "folder").chmod(0o700)
        (root / "new").write_text("one\ntwo\n")

    one, other = state(before), state(after)
    found = told(one, other)
    assert {path: (each.kind, each.added, each.removed) for path, each in found.items()} == {
        "binary": ("changed", 0, 0),
        "folder": ("changed", 0, 0),
        "gone": ("removed", 0, 1),
        "link": ("changed", 0, 0),
        "moded": ("changed", 0, 0),
        "new": ("added", 2, 0),
        "turned": ("changed", 0, 1),
    }
    assert found["binary"].lines is None
    assert found["moded"].lines == ()
    assert found["binary"].document() == {
        "path": "binary",
        "change": "changed",
        "before": {
            "type": "file",
            "mode": "644",
            "size": 2,
            "sha256": "b413f47d13ee2fe6c845b2ee141af81de858df4ec549a58b7970bb96645bc8d2",
        },
        "after": {
            "type": "file",
            "mode": "644",
            "size": 3,
            "sha256": "ae4b3280e56e2faf83f414a6e3dabe9d5fbe18976544c05fed121accb85b53fc",
        },
        "added": None,
        "removed": None,
        "diff": None,
    }
    assert list(differences(other, other)) == []
    back = told(other, one)
    assert {path: (each.kind, each.added, each.removed) for path, each in back.items()}["new"] == ("removed", 0, 2)


@pytest.mark.parametrize("data", [b"x" * (1 << 20) + b"y", b"\n" * 20_001, b"\xff\xfe", b"a\x00b"])
def test_what_is_no_text_or_too_large_is_told_by_size(state: State, data: bytes) -> None:
    one = state(lambda root: (root / "f").write_text("text\n"))
    (found,) = differences(one, state(lambda root: (root / "f").write_bytes(data)))
    assert found.lines is None


def fill(root: Path) -> None:
    (root / "src/deep").mkdir(parents=True)
    (root / "src/deep/run.sh").write_text("#!/bin/sh\n")
    (root / "src/deep/run.sh").chmod(0o755)
    (root / "same").write_text("#!/bin/sh\n")
    (root / "src/closed").mkdir()
    (root / "src/closed").chmod(0o500)
    (root / "src/up").symlink_to("../same")
    (root / "data.bin").write_bytes(os.urandom(5000))
    os.utime(root / "data.bin", ns=(0, 1_600_000_000_123_456_789))
    with (root / os.fsdecode(b"\xff name")).open("wb") as file:
        file.write(b"x")
    (root / "evil").symlink_to("/etc/passwd")
    (root / "src/evil").symlink_to("../../elsewhere")


def test_an_exported_folder_is_the_workspace_without_ways_out(state: State, tmp_path: Path) -> None:
    made = state(fill)
    expected: dict[str, object] = {}
    state(lambda root: expected.update(tree(root)))
    assert export(made, tmp_path / "out/there") == ["evil", "src/evil"]
    found = tree(tmp_path / "out/there")
    assert found == {path: entry for path, entry in expected.items() if path not in ("evil", "src/evil")}


@pytest.mark.parametrize("name", ["out.tar.zst", "out.tar", "out.tar.gz", "out.TGZ"])
def test_an_exported_archive_is_the_same(state: State, tmp_path: Path, name: str) -> None:
    made = state(fill)
    assert export(made, tmp_path / name) == ["evil", "src/evil"]
    assert export(made, tmp_path / f"again-{name}") == ["evil", "src/evil"]
    data = (tmp_path / name).read_bytes()
    assert data == (tmp_path / f"again-{name}").read_bytes(), "equal states are equal archives"
    plain = zstandard.ZstdDecompressor().stream_reader(data).read() if name.endswith(".zst") else data
    if plain.startswith(b"\x1f\x8b"):
        assert plain[3:8] == bytes(5), "no name and no time in gzip's head (RFC 1952)"
        plain = gzip.decompress(plain)
    with tarfile.open(fileobj=BytesIO(plain)) as archive:
        archive.extractall(tmp_path / "from-archive", filter="data")
    export(made, tmp_path / "folder")
    kept = {path: entry[1:] for path, entry in tree(tmp_path / "folder").items() if isinstance(entry, tuple)}
    assert {p: e[1:] for p, e in tree(tmp_path / "from-archive").items() if isinstance(e, tuple)}.keys() == kept.keys()
    assert (tmp_path / "from-archive/src/up").readlink() == Path("../same")
    assert (tmp_path / "from-archive/data.bin").read_bytes() == (tmp_path / "folder/data.bin").read_bytes()


def test_an_exported_zip_is_the_same(state: State, tmp_path: Path) -> None:
    def text(root: Path) -> None:
        fill(root)
        (root / os.fsdecode(b"\xff name")).rename(root / "é name")

    made = state(text)
    for name in ("out.zip", "again.zip"):
        assert export(made, tmp_path / name) == ["evil", "src/evil"]
    assert (tmp_path / "out.zip").read_bytes() == (tmp_path / "again.zip").read_bytes()
    export(made, tmp_path / "folder")
    unpacked = subprocess.run(
        [sys.executable, "-m", "zipfile", "-t", tmp_path / "out.zip"], capture_output=True, text=True, check=True
    )
    assert unpacked.stdout == "Done testing\n"
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        found = {entry.filename.rstrip("/"): (entry, archive.read(entry)) for entry in archive.infolist()}
    paths = {path.relative_to(tmp_path / "folder").as_posix(): path for path in (tmp_path / "folder").rglob("*")}
    assert found.keys() == paths.keys()
    for name, path in paths.items():
        entry, data = found[name]
        status = path.lstat()
        is_link, is_file = path.is_symlink(), path.is_file() and not path.is_symlink()
        assert stat.S_IFMT(entry.external_attr >> 16) == stat.S_IFMT(status.st_mode)
        assert data == (os.fsencode(path.readlink()) if is_link else path.read_bytes() if is_file else b"")
        if not is_link:
            assert stat.S_IMODE(entry.external_attr >> 16) == stat.S_IMODE(status.st_mode)
    # 1600000000 is 2020-09-13 12:26:40 UTC.
    assert found["data.bin"][0].date_time == (2020, 9, 13, 12, 26, 40)


def at_ns(made: StepState, mtime_ns: int) -> StepState:
    """The state with this time for all its files: not every file system of a test takes every time."""
    manifest = made.snapshot.manifest
    files = {path: replace(entry, mtime_ns=mtime_ns) for path, entry in manifest.files.items()}
    return replace(made, snapshot=replace(made.snapshot, manifest=replace(manifest, files=files)))


ODD_TIMES = {
    -(1 << 63): (1980, 1, 1, 0, 0, 0),
    -62_135_596_801: (1980, 1, 1, 0, 0, 0),
    -1: (1980, 1, 1, 0, 0, 0),
    0: (1980, 1, 1, 0, 0, 0),
    315_532_800: (1980, 1, 1, 0, 0, 0),
    4_354_819_199: (2107, 12, 31, 23, 59, 58),
    9_999_999_999: (2107, 12, 31, 23, 59, 58),
    253_402_300_800: (2107, 12, 31, 23, 59, 58),
    300_000_000_000: (2107, 12, 31, 23, 59, 58),
    (1 << 63) - 1: (2107, 12, 31, 23, 59, 58),
}
"""Seconds that ``utimensat`` takes (64 bits), and what zip tells of them; the years 0 and 10000 are no datetime's."""


@pytest.mark.parametrize(("seconds", "told"), ODD_TIMES.items())
def test_times_that_zip_cannot_tell_are_its_nearest(
    state: State, tmp_path: Path, seconds: int, told: tuple[int, ...]
) -> None:
    made = at_ns(state(lambda root: (root / "f").write_text("x")), seconds * 10**9 + 1)
    export(made, tmp_path / "out.zip")
    assert zipfile.ZipFile(tmp_path / "out.zip").infolist()[0].date_time == told


@pytest.mark.parametrize("seconds", ODD_TIMES)
@pytest.mark.parametrize("name", ["out.tar", "out.tar.gz", "out.tar.zst", "out"])
def test_no_time_that_a_file_can_have_stops_an_export(state: State, tmp_path: Path, name: str, seconds: int) -> None:
    made = at_ns(state(lambda root: (root / "f").write_text("x")), seconds * 10**9)
    assert export(made, tmp_path / name) == []
    if name == "out.tar":
        with tarfile.open(tmp_path / name) as archive:
            assert archive.getmember("f").mtime == pytest.approx(seconds)
    if name == "out":
        assert (tmp_path / "out/f").read_text() == "x"


def test_a_name_that_zip_cannot_hold_is_refused(state: State, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=r"'\\udcff name' is not UTF-8, .*: name a \.tar\.gz instead"):
        export(state(fill), tmp_path / "out.zip")
    assert not (tmp_path / "out.zip").exists()


@pytest.mark.parametrize("name", ["x.7z", "x.rar", "x.tar.bz2", "x.tar.xz", "X.TXZ", "x.gz", "x.zst"])
def test_an_archive_of_another_kind_is_no_folder(state: State, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageProblem, match=f"'{name}': archives are made as .zip, .tar, .tar.gz, .tgz, .tar.zst"):
        export(state(fill), tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["out", "v1.2", "out.d", ".zipped", "zip", "tar"])
def test_any_other_name_is_a_folder(state: State, tmp_path: Path, name: str) -> None:
    export(state(fill), tmp_path / name)
    assert (tmp_path / name / "data.bin").is_file()


@pytest.mark.parametrize(
    ("path", "target", "outside"),
    [
        ("a", "b", False),
        ("a", "b/c", False),
        ("d/a", "../b", False),
        ("d/e/a", "../../b", False),
        ("d/a", "..", False),
        ("a", "/etc", True),
        ("a", "..", True),
        ("a", "../a", True),
        ("d/a", "../../b", True),
        ("a", "link/..", True),
        ("d/a", "../link/../../x", True),
        ("a", "./b", False),
    ],
)
def test_a_link_that_could_lead_outside_is_known(path: str, target: str, outside: bool) -> None:
    assert leads_outside(path, target) is outside


def test_what_exists_is_not_written_over(state: State, tmp_path: Path) -> None:
    made = state(fill)
    (tmp_path / "there").mkdir()
    (tmp_path / "dangling").symlink_to("/nonexistent/x")
    for name in ("there", "dangling"):
        with pytest.raises(UsageProblem, match="exists already"):
            export(made, tmp_path / name)


@pytest.mark.parametrize("name", ["out", "out.tar.zst", "out.tar.gz", "out.tar"])
def test_nothing_is_left_of_what_could_not_be_read(state: State, tmp_path: Path, name: str) -> None:
    made = state(fill)
    assert isinstance(made.store, MemoryArtifacts)
    for stored in list(made.store.list("s/pack/")):
        made.store.delete(stored.key)
    with pytest.raises(NotFound, match="no artifact lies under s/pack/"):
        export(made, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_place_that_cannot_be_written_is_a_sentence(state: State, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClientError, match=r"cannot be written: Not a directory"):
        export(state(fill), tmp_path / "file/out")
