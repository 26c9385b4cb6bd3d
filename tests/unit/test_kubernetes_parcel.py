"""A workspace on its way between an executor and a pod, and what a hostile pod could send instead."""

import io
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from longstride.sandbox.kubernetes.parcel import MAX_DEPTH, Bounds, Malformed, pack, pack_files, unpack

ROOMY = Bounds(1000, 1 << 20)
SECRET = "of the executor"


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def packed(path: Path) -> bytes:
    with opened(path) as root:
        return b"".join(pack(root))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "outside.txt").write_text(SECRET)
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def laid(data: bytes, target: Path, bounds: Bounds = ROOMY) -> str | None:
    with opened(target) as root:
        return unpack(io.BytesIO(data), root, bounds).over


def lines(*entries: dict[str, Any], end: int | None = None) -> bytes:
    """Entries as a pod could send them; a ``content`` goes after its line."""
    data = b""
    for entry in entries:
        content = entry.pop("content", b"")
        data += json.dumps(entry).encode() + b"\n" + content
    return data + json.dumps({"kind": "end", "entries": len(entries) if end is None else end}).encode() + b"\n"


def a_file(path: str, content: bytes = b"", **changed: Any) -> dict[str, Any]:
    whole = {"kind": "file", "path": path, "mode": 0o644, "size": len(content), "mtime_ns": 1, "content": content}
    return {**whole, **changed}


def test_everything_that_a_workspace_keeps_arrives_to_the_nanosecond(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source"
    (source / "deep/er").mkdir(parents=True)
    (source / "empty").mkdir(mode=0o751)
    (source / "deep/er/run.sh").write_bytes(bytes(range(256)) * 1000)
    (source / "deep/er/run.sh").chmod(0o755)
    os.utime(source / "deep/er/run.sh", ns=(1, 1_700_000_000_123_456_789))
    odd = os.fsdecode(b'\xff\n\\"name')
    (source / odd).write_text("odd")
    (source / "away").symlink_to("/etc/passwd")
    (source / "deep").chmod(0o555)
    assert laid(packed(source), target) is None
    arrived = target / "deep/er/run.sh"
    assert arrived.read_bytes() == bytes(range(256)) * 1000
    assert (arrived.stat().st_mode & 0o777, arrived.stat().st_mtime_ns) == (0o755, 1_700_000_000_123_456_789)
    assert (target / odd).read_text() == "odd"
    assert str((target / "away").readlink()) == "/etc/passwd"
    assert [(target / name).stat().st_mode & 0o777 for name in ("deep", "empty")] == [0o555, 0o751]
    assert packed(target) == packed(source)


def test_what_is_no_file_stays_behind_and_hangs_nobody(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    os.mkfifo(source / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "socket"))
        (source / "file").write_text("kept")
        assert laid(packed(source), target) is None
    assert [path.name for path in target.iterdir()] == ["file"]


def test_a_tree_that_is_too_deep_arrives_as_one_that_is_too_deep(tmp_path: Path, target: Path) -> None:
    inner = tmp_path / "source"
    for _ in range(MAX_DEPTH + 20):
        inner = inner / "d"
    inner.mkdir(parents=True)
    assert laid(packed(tmp_path / "source"), target) is None
    assert (target / "/".join("d" * MAX_DEPTH)).is_dir()
    assert not (target / "/".join("d" * (MAX_DEPTH + 1))).exists()


def test_files_of_a_command_bring_their_directories(target: Path) -> None:
    assert laid(b"".join(pack_files({"checks/a/x.py": b"1", "checks/b": b"2", "answer": b""}, 0o555)), target) is None
    assert (target / "checks/a/x.py").read_bytes() == b"1"
    assert (target / "checks/b").stat().st_mode & 0o777 == 0o555


ESCAPES = (
    "../outside.txt",
    "/etc/cron.d/x",
    "a/../../outside.txt",
    "./outside.txt",
    "a//b",
    "",
    ".",
    "..",
    "nul\0byte",
    "x" * 256,
    "\ud800",
)


@pytest.mark.parametrize("path", ESCAPES)
def test_a_name_that_leads_elsewhere_is_refused(path: str, target: Path) -> None:
    with pytest.raises(Malformed):
        laid(lines({"kind": "dir", "path": "a", "mode": 0o755}, a_file(path, b"owned")), target)
    assert (target.parent / "outside.txt").read_text() == SECRET
    assert [path.name for path in target.rglob("*")] == ["a"]


HOSTILE = {
    "a file behind a link": lines({"kind": "link", "path": "out", "target": ".."}, a_file("out/outside.txt", b"owned")),
    "a file over a link": lines({"kind": "link", "path": "f", "target": "../outside.txt"}, a_file("f", b"owned")),
    "a directory over a link": lines(
        {"kind": "link", "path": "d", "target": ".."}, {"kind": "dir", "path": "d", "mode": 511}
    ),
    "a link over a directory": lines(
        {"kind": "dir", "path": "d", "mode": 511}, {"kind": "link", "path": "d", "target": ".."}
    ),
    "a file twice": lines(a_file("f", b"1"), a_file("f", b"2")),
    "a parent that never came": lines(a_file("a/f")),
    "a file for a parent": lines(a_file("a"), a_file("a/f")),
    "a hard link": lines({"kind": "hard", "path": "h", "target": "/etc/shadow"}),
    "a device": lines({"kind": "device", "path": "sda", "major": 8, "minor": 0}),
    "a negative size": lines(a_file("f", size=-1)),
    "a size that is no number": lines(a_file("f", size="1")),
    "a size that is true": lines(a_file("f", size=True)),
    "a size of a float": lines(a_file("f", size=1e9)),
    "a time before all times": lines(a_file("f", mtime_ns=-1)),
    "a mode beyond modes": lines(a_file("f", mode=1 << 20)),
    "a link to nothing": lines({"kind": "link", "path": "l", "target": ""}),
    "a link with a NUL": lines({"kind": "link", "path": "l", "target": "a\0b"}),
    "an end that counts others": lines(a_file("f"), end=2),
    "no end": lines(a_file("f"))[:-20],
    "an end in the middle of a file": lines(a_file("f", b"1234", size=100))[:90],
    "a line without an end": b"{" * (1 << 20),
    "a tower of brackets": b"[" * 30_000 + b"\n",
    "no JSON": b"\x1f\x8b\x08\x00\n",
    "no entry": b'["kind"]\n',
    "no kind": b"{}\n",
    "a kind that is none": b'{"kind":["end"]}\n',
    "nothing": b"",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_parcel_is_refused_and_touches_nothing_outside(data: bytes, target: Path) -> None:
    with pytest.raises(Malformed):
        laid(data, target)
    assert (target.parent / "outside.txt").read_text() == SECRET
    assert {path.name for path in target.parent.iterdir()} == {"outside.txt", "target"}


def test_privileged_bits_do_not_arrive(target: Path) -> None:
    assert laid(lines(a_file("su", b"#!", mode=0o6755)), target) is None
    assert (target / "su").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    ("data", "bounds", "over"),
    [
        (lines(*(a_file(f"f{n}") for n in range(50))), Bounds(9, 1 << 20), "entries"),
        (lines(a_file("huge", size=1 << 40)), Bounds(9, 1000), "bytes"),
        (lines(*(a_file(f"f{n}", b"x" * 300) for n in range(50))), Bounds(900, 1000), "bytes"),
    ],
)
def test_beyond_a_bound_no_more_is_read_and_a_count_finds_it_exceeded(
    data: bytes, bounds: Bounds, over: str, target: Path
) -> None:
    """Declared sizes count before a byte is read: a bomb costs nothing."""
    assert laid(data, target, bounds) == over
    found = [path.stat() for path in target.iterdir()]
    assert len(found) <= bounds.entries + 1
    assert len(found) > bounds.entries or sum(status.st_size for status in found) > bounds.bytes
    assert sum(status.st_blocks * 512 for status in found) < 64 << 10, "a hole takes no room"
