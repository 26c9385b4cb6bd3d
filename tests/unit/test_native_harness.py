"""The fixtures every test stands on, in a pytest run of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.servers import VARIABLES, name_of, with_path


def outcome(tmp_path: Path, test: str, **variables: str) -> tuple[int, str]:
    """Exit code and output of pytest over one test in a folder of its own, with no servers in the environment."""
    (tmp_path / "test_sample.py").write_text(test)
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", *VARIABLES)}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, "-rs", "--rootdir", tmp_path, tmp_path / "test_sample.py"],
        cwd=ROOT,
        env=environment | variables,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


NEEDS_A_SERVER = "def test(database_url): pass"


def test_without_servers_a_test_that_needs_one_is_skipped_with_the_reason(tmp_path: Path) -> None:
    code, output = outcome(tmp_path, NEEDS_A_SERVER)
    assert code == 0
    assert "1 skipped" in output
    assert "no servers: LONGSTRIDE_AMQP_URL, LONGSTRIDE_MANAGEMENT_URL" in output


def test_without_servers_it_fails_in_continuous_integration(tmp_path: Path) -> None:
    code, output = outcome(tmp_path, NEEDS_A_SERVER, CI="true")
    assert code == 1
    assert "no servers: LONGSTRIDE_AMQP_URL" in output


@pytest.mark.parametrize(("test", "left"), [
    ("import subprocess\ndef test(): subprocess.Popen(['sleep', '7'])", "(sleep 7)"),
    ("import threading, time\ndef test(): threading.Thread(target=time.sleep, args=(5,), name='lost').start()", "thread lost"),
])  # fmt: skip
def test_what_a_test_leaves_running_fails_it(tmp_path: Path, test: str, left: str) -> None:
    code, output = outcome(tmp_path, test)
    assert code == 1
    assert "left running: " in output
    assert left in output


def test_what_ends_soon_after_the_test_is_forgiven(tmp_path: Path) -> None:
    body = "import threading, time\ndef test(): threading.Thread(target=time.sleep, args=(0.3,)).start()"
    assert outcome(tmp_path, body)[0] == 0


def test_another_database_or_virtual_host_of_a_url() -> None:
    assert with_path("amqp://u:p@127.0.0.1:5672/%2F", "a/b") == "amqp://u:p@127.0.0.1:5672/a%2Fb"
    assert with_path("postgresql://u@h/one?sslmode=disable", "two") == "postgresql://u@h/two?sslmode=disable"
    assert name_of("amqp://u:p@127.0.0.1:5672/%2F") == "/"
