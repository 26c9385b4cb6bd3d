"""What a Docker engine is asked for, and how its answers are taken apart; no engine is needed."""

import os
import socket
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("docker", reason="Docker's SDK is not installed")

from longstride.sandbox.backends import make
from longstride.sandbox.base import Owner
from longstride.sandbox.container_process import ContainerProcess
from longstride.sandbox.docker import Container, _mounts, _root_archive
from longstride.sandbox.errors import SandboxUnavailable
from longstride.sandbox.hosted import Site
from longstride.sandbox.rootfs import Shared
from longstride.sandbox.runs import RunFolder


class Engine:
    """The calls that a process makes, answered as recorded from an engine (API 1.41)."""

    def __init__(self, code: int) -> None:
        self.code = code

    def wait(self, container: str) -> dict[str, object]:
        return {"Error": None, "StatusCode": self.code}


def frame(stream: int, data: bytes) -> bytes:
    """As the engine's API documents it for attached containers: type, three zeros, length big-endian, payload."""
    return bytes([stream, 0, 0, 0]) + struct.pack(">I", len(data)) + data


@pytest.fixture
def site(tmp_path: Path) -> tuple[Shared, Site]:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "passwd").write_text("agent:x:1000:1000::/tmp:/bin/sh\n")
    shared = Shared(etc, tmp_path / "empty", tmp_path / "filter")
    folder = RunFolder(tmp_path / "run", mounted=True)
    group = SimpleNamespace(name="ls-1")
    return shared, Site(Owner(7, 7), folder, group, tmp_path / "work", limits=None, links={})  # type: ignore[arg-type]


def test_output_is_taken_apart_across_any_boundaries() -> None:
    here, there = socket.socketpair()
    process = ContainerProcess(Engine(3), "id", SimpleNamespace(_sock=here, close=lambda: None))
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdin is not None
    process.stdin.write(b"script")
    assert there.recv(100) == b"script"
    process.stdin.close()
    assert there.recv(100) == b"", "the direction is closed, and the other is not"
    for byte in frame(1, b"out") + frame(2, b"err" * 3) + frame(1, b"") + frame(1, b"more"):
        there.sendall(bytes([byte]))
    there.close()
    assert process.wait() == process.poll() == 3
    assert process.stdout.read() == b"outmore"
    assert process.stderr.read() == b"errerrerr"
    end = process.end_descriptor()
    assert os.read(end, 1) == b""
    os.close(end)
    process.stdout.close()
    process.stderr.close()
    process.forget()


def test_only_scratch_and_workspace_can_be_written(site: tuple[Shared, Site]) -> None:
    writable = {mount["Target"] for mount in _mounts(*site) if not mount["ReadOnly"]}
    assert writable == {"/dev/shm", "/tmp", "/workspace"}


def test_an_image_is_the_same_bytes_for_the_same_content(site: tuple[Shared, Site]) -> None:
    shared, _ = site
    first = _root_archive(shared)
    assert _root_archive(shared) == first
    (shared.etc / "passwd").write_text("other")
    assert _root_archive(shared) != first


@pytest.mark.parametrize(
    ("host", "why"),
    [("tcp://elsewhere:2376", "another's"), ("unix:///nowhere/docker.sock", "no Docker engine answers")],
)
def test_an_engine_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, host: str, why: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(SandboxUnavailable, match=why):
        make("docker")


def test_a_container_that_has_ended_is_neither_paused_nor_an_error() -> None:
    import docker.errors as errors

    class Ended:
        """As an engine answers (HTTP 409) for a container that does not run."""

        def pause(self, container: str) -> None:
            raise errors.APIError(f"Container {container} is not running")

        def unpause(self, container: str) -> None:
            raise errors.APIError(f"Container {container} is not paused")

    container = Container(Ended(), "ls-1", id="abc")
    assert not container.freeze(True)
    assert not container.freeze(False)


class Notices:
    """What an engine says of a container, one answer after the other; the last one stays."""

    def __init__(self, *states: tuple[int, bool]) -> None:
        self._states = list(states)
        self.asked = 0

    def inspect_container(self, container: str) -> dict[str, object]:
        code, told = self._states[min(self.asked, len(self._states) - 1)]
        self.asked += 1
        return {"State": {"Status": "exited", "ExitCode": code, "OOMKilled": told}}


@pytest.mark.parametrize(
    ("states", "killed", "asked"),
    [
        ([(137, True)], 1, 1),
        ([(137, False), (137, False), (137, True)], 1, 3),
        ([(1, True)], 1, 1),
        ([(0, False), (0, True)], 0, 1),
        ([(1, False), (1, True)], 0, 1),
    ],
    ids=["told at once", "told late", "a child was killed", "ended well", "failed by itself"],
)
def test_a_kill_for_memory_that_is_told_after_the_end_counts(
    states: list[tuple[int, bool]], killed: int, asked: int
) -> None:
    engine = Notices(*states)
    assert Container(engine, "ls-1", "id").out_of_memory() == killed
    assert engine.asked == asked


def test_who_was_killed_for_another_reason_is_not_asked_about_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longstride.sandbox.docker.NOTICE_S", 0.05)
    engine = Notices((137, False))
    assert Container(engine, "ls-1", "id").out_of_memory() == 0
    assert engine.asked > 1
