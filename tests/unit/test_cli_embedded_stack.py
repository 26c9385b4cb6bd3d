"""Starting, joining and stopping an embedded stack. A small process stands in for it and keeps its side of the contract."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from longstride.client import embedded_stack
from longstride.client.embedded_stack import EmbeddedStack
from longstride.client.errors import ClientError, Unreachable
from tests.support.eventually import eventually
from tests.support.small_stack import STACK

TELLS_ITS_PID = ("sh", "-c", 'echo $$; exec "$@"', "sh", sys.executable, "-c", STACK)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[EmbeddedStack]:
    stack = EmbeddedStack(tmp_path, command=(sys.executable, "-c", STACK))
    yield stack
    stack.down()


def silent(_: str) -> None:
    pass


def test_up_starts_it_and_down_stops_it(stack: EmbeddedStack, tmp_path: Path) -> None:
    said: list[str] = []
    running = stack.up(said.append)
    assert said == [f"starting the embedded stack in {tmp_path}"]
    assert running.artifacts == tmp_path / "artifacts"
    assert stack.running() == running
    assert stack.down() == running
    assert stack.running() is None
    assert stack.down() is None


def test_up_again_finds_the_one_that_runs(stack: EmbeddedStack) -> None:
    first = stack.up(silent)
    said: list[str] = []
    assert stack.up(said.append) == first
    assert said == []


def test_two_starts_at_once_end_up_with_the_same_stack(
    stack: EmbeddedStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW", "0.7")
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(stack.up(silent))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len({running.pid for running in found}) == 1
    assert (tmp_path / "starts").read_text() == "x"


def test_a_start_that_fails_shows_the_end_of_the_log(stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(
        Unreachable, match=r"(?s)ended with exit code 1\. The end of .*stack\.log:\n  .*\n  no room .*\n  free"
    ):
        stack.up(silent)


def test_a_start_that_takes_too_long_is_given_up(stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW", "30")
    with pytest.raises(Unreachable, match="not ready in time"):
        stack.up(silent, timeout_s=0.5)


def test_a_start_that_takes_its_time_says_what_it_does(
    stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLOW", "30")
    monkeypatch.setattr(embedded_stack, "NEWS_S", 0.0)
    monkeypatch.setattr(embedded_stack, "MORE_NEWS_S", 0.2)
    said: list[str] = []
    with pytest.raises(Unreachable):
        stack.up(said.append, timeout_s=5)
    assert said[0] == f"starting the embedded stack in {tmp_path}"
    news = [re.fullmatch(r"still starting after \d s: (.*)", sentence) for sentence in said[1:]]
    assert {found[1] for found in news if found} <= {"loading its programs", "laying bricks"}
    assert all(news)
    assert said[-1].endswith("laying bricks")


def test_what_an_earlier_stack_said_is_not_what_this_one_does(
    stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its programs are loaded for so long that it says nothing of its own."""
    stack.log.write_text("longstride: laying the last stone of an earlier house\nlongstride: stopped\n")
    silent_stack = EmbeddedStack(stack.home, command=(sys.executable, "-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(embedded_stack, "NEWS_S", 0.0)
    monkeypatch.setattr(embedded_stack, "MORE_NEWS_S", 0.1)
    said: list[str] = []
    with pytest.raises(Unreachable) as caught:
        silent_stack.up(said.append, timeout_s=0.5)
    assert len(said) > 1
    assert all(sentence.endswith(": loading its programs") for sentence in said[1:]), said
    assert "earlier house" not in str(caught.value)


@pytest.mark.parametrize(
    ("ran_before", "free_mb", "told"),
    [
        (
            False,
            127,
            "127 MiB are free on its disk, and a first start needs 128 MiB; free some, or set LONGSTRIDE_HOME",
        ),
        (False, 128, None),
        (True, 31, "31 MiB are free on its disk, and a start needs 32 MiB; free some, or set LONGSTRIDE_HOME"),
        (True, 32, None),
    ],
)
def test_a_disk_without_room_is_told_at_once(
    stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch, ran_before: bool, free_mb: int, told: str | None
) -> None:
    if ran_before:
        (stack.home / "postgres/data").mkdir(parents=True)
        (stack.home / "postgres/data/PG_VERSION").write_text("18\n")
    usage = shutil.disk_usage(stack.home)._replace(free=free_mb * 1024**2 + 1024**2 - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: usage)
    said: list[str] = []
    if told is None:
        assert stack.up(said.append)
        return
    with pytest.raises(ClientError, match=told):
        stack.up(said.append)
    assert (said, stack.log.exists()) == ([], False)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system has no /proc")
def test_a_file_system_without_a_size_is_not_full() -> None:
    with pytest.raises(ClientError, match=r"/proc/longstride cannot hold an embedded stack: (?!0 MiB)"):
        EmbeddedStack(Path("/proc/longstride"), command=(sys.executable, "-c", STACK)).up(silent)


def test_a_home_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    stack = EmbeddedStack(tmp_path / "new/home", command=(sys.executable, "-c", STACK))
    stack.up(silent)
    stack.down()
    assert (tmp_path / "new/home/starts").read_text() == "x"


def test_who_does_not_wait_for_a_start_is_told_that_it_goes_on(
    stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW", "1")
    said: list[str] = []
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        stack.up(said.append)
    timer.join()
    assert said[1:] == ["the stack goes on starting; `longstride down` ends it"]
    stack.up(silent)


def test_what_a_dead_stack_left_behind_is_ignored(stack: EmbeddedStack) -> None:
    dead = stack.up(silent)
    os.kill(dead.pid, signal.SIGKILL)
    eventually(lambda: stack.running() is None)
    assert (stack.home / "stack.json").exists()
    again = stack.up(silent)
    assert again.pid != dead.pid


def test_a_pid_that_another_process_got_is_not_a_stack(stack: EmbeddedStack) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        stack.up(silent)
        stack.down()
        left = json.loads((stack.home / "stack.json").read_text())
        (stack.home / "stack.json").write_text(json.dumps({**left, "pid": other.pid}))
        assert stack.running() is None
    finally:
        other.kill()
        other.wait()


def test_a_broken_stack_json_says_what_to_do(stack: EmbeddedStack) -> None:
    (stack.home / "stack.json").write_text("{")
    with pytest.raises(
        ClientError, match=r"stack\.json cannot be read .*: `longstride down` ends the stack that wrote it"
    ):
        stack.running()
    assert stack.down() is None
    assert stack.running() is None


@pytest.mark.parametrize("damage", ["broken", "removed"])
def test_a_stack_whose_stack_json_is_damaged_can_be_ended(stack: EmbeddedStack, damage: str) -> None:
    live = stack.up(silent)
    if damage == "broken":
        (stack.home / "stack.json").write_text("{bad")
    else:
        (stack.home / "stack.json").unlink()
        with pytest.raises(Unreachable, match=f"pid {live.pid} holds the folder, and `longstride down` ends it"):
            stack.up(silent, timeout_s=1)
    ended = stack.down()
    assert ended is not None
    assert ended.pid == live.pid
    assert stack.up(silent).pid != live.pid


@pytest.mark.parametrize("starts", [1, 3])
def test_a_start_whose_starter_was_killed_while_it_loads_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: int
) -> None:
    loaded = tmp_path / "loaded"
    monkeypatch.setenv("LOADED", str(loaded))
    program = (
        "from pathlib import Path; from longstride.client.embedded_stack import EmbeddedStack;"
        f"EmbeddedStack(Path({str(tmp_path)!r}), command={TELLS_ITS_PID!r}).up(print)"
    )
    starters = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(starts)]
    stack = EmbeddedStack(tmp_path)
    pids = eventually(lambda: _pids(stack.log) if len(_pids(stack.log)) == starts else [])
    for starter in starters:
        starter.kill()
        starter.wait()
    with pytest.raises(ClientError, match=r"a stack is being started in .* and does not come up"):
        stack.down(timeout_s=0.1)
    loaded.touch()
    ended = stack.down()
    assert ended is not None
    assert ended.pid in pids
    assert not [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def _pids(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines() if line.isdecimal()] if log.exists() else []


def test_a_stack_outlives_the_program_that_started_it(stack: EmbeddedStack, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from longstride.client.embedded_stack import EmbeddedStack;"
        f"EmbeddedStack(Path({str(tmp_path)!r}), command=(sys.executable, '-c', {STACK!r})).up(print)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert stack.running() is not None
