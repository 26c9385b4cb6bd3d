"""Reading and writing a workspace's files from the host's side."""

import os
import shutil
import subprocess
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.files import FileRefused, WorkspaceFiles, relative
from longstride.sandbox.volumes import DirectoryVolumes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    return DirectoryVolumes(tmp_path / "v").create(SandboxLimits()).path


@pytest.fixture
def files(tmp_path: Path, folder: Path) -> WorkspaceFiles:
    volumes = DirectoryVolumes(tmp_path / "v")
    return WorkspaceFiles(replace(volumes.create(SandboxLimits()), path=folder))


def test_a_file_is_written_and_read_with_the_directories_it_needs(files: WorkspaceFiles, folder: Path) -> None:
    assert files.write("a/b/c.txt", b"hello") == 5
    assert files.write("/workspace/a/b/c.txt", b" world", append=True) == 11
    assert (folder / "a/b/c.txt").read_bytes() == b"hello world"
    assert files.read("./a/b/c.txt", 5).data == b"hello"
    assert files.read("a/b/c.txt", 100).size == 11
    files.write("a/b/c.txt", b"new")
    assert files.read("a/b/c.txt", 100).data == b"new", "nothing of the old text is left"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../secret", "without \\.\\."),
        ("a/../../secret", "without \\.\\."),
        ("/etc/passwd", "only files under /workspace"),
        ("/workspace", "names the workspace itself"),
        ("", "names the workspace itself"),
        ("a\x00b", "inside /workspace"),
        ("missing", "no such file"),
        ("folder", "not a regular file|it is a directory"),
        ("fifo", "not a regular file"),
        ("out", "leads out"),
        ("up/secret", "leads out"),
        ("loop", "circle"),
        ("x" * 300, "too long"),
        ("file/below", "not a directory"),
    ],
)
@pytest.mark.parametrize("action", ["read", "write"])
def test_what_is_not_a_file_of_the_workspace_is_refused(
    files: WorkspaceFiles, folder: Path, path: str, why: str, action: str
) -> None:
    (folder / "folder").mkdir()
    (folder / "file").touch()
    os.mkfifo(folder / "fifo")
    (folder / "out").symlink_to(folder.parents[1] / "secret")
    (folder / "up").symlink_to("../..")
    (folder / "loop").symlink_to("loop")
    if (action, path) == ("write", "missing"):
        files.write(path, b"made")
        return
    with pytest.raises(FileRefused, match=why):
        files.read(path, 10) if action == "read" else files.write(path, b"x")
    assert (folder.parents[1] / "secret").read_text() == "secret"


@pytest.mark.parametrize("path", ["n" * 256 + "/file", "a/" + "n" * 256, "n" * 256])
def test_a_name_that_no_file_can_have_is_refused(files: WorkspaceFiles, path: str) -> None:
    for attempt in (lambda: files.write(path, b"x"), lambda: files.read(path, 1), lambda: files.remove(path)):
        with pytest.raises(FileRefused, match="the name is too long"):
            attempt()


def test_a_program_that_runs_is_not_written_over(files: WorkspaceFiles, folder: Path) -> None:
    shutil.copy("/bin/sleep", folder / "server")
    with subprocess.Popen([folder / "server", "60"]) as running:
        with pytest.raises(FileRefused, match="server: a program is running from it: stop that first"):
            files.write("server", b"x")
        running.kill()


def test_a_folder_that_comes_and_goes_is_refused_in_words_or_written(files: WorkspaceFiles, folder: Path) -> None:
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            for change in (folder.joinpath("d").mkdir, folder.joinpath("d").rmdir):
                with suppress(OSError):
                    change()

    mover = threading.Thread(target=come_and_go)
    mover.start()
    try:
        for _ in range(500):
            with suppress(FileRefused):
                files.write("d/e", b"x")
                files.remove("d/e")
    finally:
        done.set()
        mover.join()


def test_a_link_inside_is_followed(files: WorkspaceFiles, folder: Path) -> None:
    (folder / "real").write_text("here")
    (folder / "link").symlink_to("real")
    assert files.read("link", 10).data == b"here"


@pytest.mark.parametrize(
    ("path", "expected"), [("a", "a"), ("./a//b/", "a/b"), ("/workspace/a", "a"), ("-rf", "-rf"), ("a/./b", "a/b")]
)
def test_paths_have_one_form(path: str, expected: str) -> None:
    assert relative(path) == expected
