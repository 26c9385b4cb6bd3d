"""Nothing outside a directory is reached, whatever lies in it."""

# Names are bytes here, and descriptors are opened: pathlib knows neither.
# ruff: noqa: PTH118

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from longstride.sandbox import beneath
from longstride.sandbox.beneath import open_beneath, walk

NO_PEER = r"\[Errno 6\]"
"""ENXIO."""


@pytest.fixture(params=["openat2", "walking"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A directory beside a secret, with and without openat2 in the kernel."""
    if request.param == "walking":
        monkeypatch.setattr(beneath, "_openat2", lambda *_: None)
    (tmp_path / "secret").write_text("secret")
    inside = tmp_path / "inside"
    (inside / "a/b").mkdir(parents=True)
    (inside / "a/b/file").write_text("content")
    (inside / "up").symlink_to("../secret")
    (inside / "absolute").symlink_to(tmp_path / "secret")
    (inside / "directory").symlink_to("..")
    (inside / "loop").symlink_to("loop")
    os.mkfifo(inside / "fifo")
    descriptor = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def content(root: int, path: str, **options: bool) -> bytes:
    with os.fdopen(open_beneath(root, path, **options), "rb") as file:
        return file.read()


def test_a_file_inside_is_read(root: int) -> None:
    assert content(root, "a/b/file") == b"content"


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "up", "absolute", "directory/secret", "a/../../secret", "loop"]
)
def test_no_path_and_no_link_leads_out(root: int, path: str, links: bool) -> None:
    with pytest.raises(OSError, match=r"\[Errno (18|20|40)\]"):  # EXDEV, ENOTDIR, ELOOP
        content(root, path, links=links)


def test_a_fifo_does_not_hang(root: int) -> None:
    assert content(root, "fifo") == b""
    with pytest.raises(OSError, match=NO_PEER):
        open_beneath(root, "fifo", os.O_WRONLY)


def test_links_inside_are_followed_when_they_may_be(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("here")
    (tmp_path / "link").symlink_to("target")
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    assert content(descriptor, "link", links=True) == b"here"
    os.close(descriptor)


def test_a_walk_sees_everything_once_and_parents_first(root: int) -> None:
    found = [entry.path for entry in walk(root, 10)]
    assert found == ["a", "absolute", "directory", "fifo", "loop", "up", "a/b", "a/b/file"]


def test_a_walk_follows_no_link(root: int) -> None:
    assert not [entry.path for entry in walk(root, 10) if entry.path.startswith(("directory/", "up/"))]


def test_a_walk_stops_at_its_depth(tmp_path: Path) -> None:
    (tmp_path / "1/2/3/4").mkdir(parents=True)
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert [entry.path for entry in walk(descriptor, 5)][-1] == "1/2/3/4"
        with pytest.raises(OSError, match="nested more than 3 deep"):
            list(walk(descriptor, 3))
    finally:
        os.close(descriptor)


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    names = [b"new\nline", b"\xff\xfe", "ümlaut".encode(), b"-rf", b" "]
    for name in names:
        os.close(os.open(os.path.join(os.fsencode(tmp_path), name), os.O_CREAT | os.O_WRONLY, 0o600))
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    found = [os.fsencode(entry.path) for entry in walk(descriptor, 5)]
    os.close(descriptor)
    assert found == sorted(names)


def test_a_socket_is_not_opened(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
        with pytest.raises(OSError, match=NO_PEER):
            open_beneath(descriptor, "s")
        os.close(descriptor)
