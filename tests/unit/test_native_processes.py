"""The supervisor's parts, with `sleep` and `sh` in the place of the servers."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from infra.native import control, lock
from infra.native.addresses import Addresses
from infra.native.errors import StackError
from infra.native.private import password, write_private
from infra.native.running import Running
from infra.native.server import Command, tail
from infra.native.stack import Stack
from tests.support.eventually import eventually

ROOT = Path(__file__).parents[2]


class Shell:
    """A server that is a shell script."""

    name = "shell"
    stop_signal = signal.SIGTERM
    stop_seconds = 0.5

    def __init__(self, folder: Path, script: str, *helpers: str) -> None:
        self.log = folder / "log"
        self.litter = [folder / "litter"]
        self._scripts = [*helpers, script]

    def prepare(self) -> None:
        """Nothing to prepare."""

    def commands(self) -> list[Command]:
        return [Command(["sh", "-c", script], log=self.log) for script in self._scripts]

    def ready(self) -> bool:
        return "ready" in self.log.read_text()


def started(server: Shell) -> Running:
    running = Running(server)
    while not server.ready():
        time.sleep(0.01)
    return running


def end(running: Running, by: signal.Signals | None = None) -> None:
    running.ask_to_end(by)
    running.wait_for_end()


def test_a_server_is_stopped_by_its_own_signal(tmp_path: Path) -> None:
    running = started(Shell(tmp_path, "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done"))
    assert running.exit_code is None
    end(running)
    assert running.exit_code == 5


def test_one_that_ignores_its_signal_is_killed(tmp_path: Path) -> None:
    running = started(Shell(tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.01; done"))
    end(running)
    assert running.exit_code == -signal.SIGKILL


def test_helpers_end_with_their_server_and_litter_is_removed(tmp_path: Path) -> None:
    running = started(Shell(tmp_path, "echo ready; exec sleep 60", "exec sleep 60"))
    (tmp_path / "litter").touch()
    helper = psutil.Process(running.pids()[0])
    end(running, by=signal.SIGKILL)
    assert not helper.is_running()
    assert not (tmp_path / "litter").exists()


def test_it_starts_again_and_appends_to_its_log(tmp_path: Path) -> None:
    running = started(Shell(tmp_path, "echo ready $$; exec sleep 60"))
    first = running.pids()
    end(running)
    running.start()
    while running.server.log.read_text().count("ready") < 2:
        time.sleep(0.01)
    assert running.pids() != first
    end(running)


def test_only_an_end_that_nobody_asked_for_is_logged(tmp_path: Path) -> None:
    said: list[str] = []
    running = Running(Shell(tmp_path, "exit 3"))
    pid = running.pids()[-1]
    running.took_end(pid, said.append)
    assert said == [f"shell: process {pid} ended by itself with exit code 3"]
    running.start()
    running.ask_to_end(None)
    running.took_end(running.pids()[-1], said.append)
    assert len(said) == 1


def test_the_tail_of_a_long_log_is_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\n" + "x" * 10_000 + "\nlast\n")
    assert tail(log).endswith("last\n")
    assert len(tail(log)) < 5000


def test_a_command_sees_nothing_of_the_callers_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_CALLER", "1")
    Command(["env"], {"GIVEN": "2"}, tmp_path / "log").start().wait()
    names = {line.split("=")[0] for line in (tmp_path / "log").read_text().splitlines()}
    assert names <= {"GIVEN", "PATH", "LANG", "PWD"}
    assert "GIVEN" in names


def test_a_command_dies_with_the_process_that_started_it() -> None:
    script = """
import os, signal
from infra.native.server import Command
print(Command(["sleep", "60"]).start().pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    eventually(lambda: _ended(int(done.stdout)))


def _ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_private_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    file.chmod(0o644)
    write_private(file, "after")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after", 0o600)
    assert list(tmp_path.iterdir()) == [file]


def test_a_password_is_random_once_and_then_stays(tmp_path: Path) -> None:
    first = password(tmp_path, "one")
    assert len(first) == 40
    assert first == password(tmp_path, "one")
    assert first != password(tmp_path, "two")


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 0.05)
    assert not lock.held(tmp_path)
    with lock.hold(tmp_path):
        assert lock.held(tmp_path)
        with pytest.raises(StackError, match="another stack runs in"):
            lock.hold(tmp_path)
    assert not lock.held(tmp_path)


def test_a_request_goes_over_a_socket_whose_path_is_too_long_for_an_address(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with control.listen(folder) as listener:
        child = os.fork()
        if child == 0:
            os._exit(0 if control.ask(folder, "status", name="postgres") == {"pid": 1} else 1)
        connection, request = control.receive(listener)
        with connection:
            control.reply(connection, value={"pid": 1})
        assert request == {"do": "status", "name": "postgres"}
        assert os.waitpid(child, 0)[1] == 0


def test_a_request_to_nobody_says_how_to_start_a_stack(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"no stack runs in .*: start one with `python -m infra.native up`"):
        control.ask(tmp_path, "status")
    with pytest.raises(StackError, match="no stack runs in"):
        Stack(tmp_path).addresses()


def test_stopping_what_does_not_run_is_no_error(tmp_path: Path) -> None:
    Stack(tmp_path).stop()


def test_addresses_survive_their_file(tmp_path: Path) -> None:
    fields = dict.fromkeys(Addresses.__dataclass_fields__, "value") | {"folder": str(tmp_path)}
    addresses = Addresses(**fields)
    addresses.save()
    assert Addresses.load(tmp_path) == addresses
    assert (tmp_path / "addresses.json").stat().st_mode & 0o777 == 0o600
    assert set(addresses.environment()) >= {"LONGSTRIDE_AMQP_URL", "LONGSTRIDE_DATABASE_URL", "LONGSTRIDE_S3_ENDPOINT"}


def around(script: str) -> list[str]:
    """A process that runs `script` as `run` does, but without a stack."""
    call = f"import sys; from infra.native.__main__ import _with_environment as f; sys.exit(f({['sh', '-c', script]}, {{'NAME': 'value'}}))"
    return [sys.executable, "-c", call]


@pytest.mark.parametrize(("script", "code"), [('test "$NAME" = value && exit 7', 7), ("kill -9 $$", 128 + 9)])
def test_run_passes_on_variables_and_the_exit_code(script: str, code: int) -> None:
    assert subprocess.run(around(script), cwd=ROOT).returncode == code


def test_run_passes_on_a_termination_and_waits_for_its_outcome() -> None:
    script = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"
    with subprocess.Popen(around(script), cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
    assert process.returncode == 3
