import json
import random
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from infra.native import ports as module
from infra.native.errors import StackError
from infra.native.ports import Ports, recorded


def free(block: range) -> bool:
    with ExitStack() as sockets:
        try:
            for port in block:
                sockets.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            return False
    return True


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> range:
    """Few ports to choose from, so that collisions are certain rather than rare; below those that stacks choose."""
    blocks = (range(start, start + 10) for start in random.sample(range(10000, 20000, 10), 100))
    block = next(block for block in blocks if free(block))
    monkeypatch.setattr(module, "RANGE", block)
    monkeypatch.setattr(module, "CANDIDATES", len(block))
    return block


def test_ports_are_distinct_and_below_the_ephemeral_range(tmp_path: Path) -> None:
    with Ports(tmp_path, tuple("abcdefgh")) as ports:
        chosen = ports.numbers
    assert len(set(chosen.values())) == 8
    assert all(20000 <= port < 32768 for port in chosen.values())


def test_two_stacks_never_share_a_port_before_any_server_listens(tmp_path: Path, narrow: range) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with Ports(tmp_path / "one", tuple("abcde")) as one, Ports(tmp_path / "two", tuple("abcde")) as two:
        assert sorted([*one.numbers.values(), *two.numbers.values()]) == list(narrow)


def test_nothing_free_is_an_error_that_says_so(tmp_path: Path, narrow: range) -> None:
    with pytest.raises(
        StackError, match=f"none of 10 TCP ports tried between {narrow.start} and {narrow.stop} is free"
    ):
        Ports(tmp_path, tuple("abcdefghijk"))


def test_a_port_that_somebody_listens_on_is_left_alone(tmp_path: Path, narrow: range) -> None:
    with socket.create_server(("127.0.0.1", narrow[5])), Ports(tmp_path, tuple("abcdefghi")) as ports:
        assert narrow[5] not in ports.numbers.values()


def test_the_same_folder_has_the_same_ports_again(tmp_path: Path) -> None:
    with Ports(tmp_path, ("a", "b")) as first:
        pass
    with Ports(tmp_path, ("a", "b")) as second:
        assert second.numbers == first.numbers == recorded(tmp_path)


def test_a_recorded_port_that_is_taken_meanwhile_is_replaced(tmp_path: Path, narrow: range) -> None:
    (tmp_path / "ports.json").write_text(json.dumps({"a": narrow[5]}))
    with socket.create_server(("127.0.0.1", narrow[5])), Ports(tmp_path, ("a",)) as ports:
        assert ports.numbers["a"] != narrow[5]


def test_a_reservation_ends_with_its_process_however_it_dies(tmp_path: Path, narrow: range) -> None:
    script = f"""
import os, pathlib, signal
from infra.native import ports as module
module.RANGE, module.CANDIDATES = {narrow!r}, 10
module.Ports(pathlib.Path({str(tmp_path)!r}), tuple("abcdefghij"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2]).returncode == -9
    with Ports(tmp_path, tuple("abcdefghij")) as ports:
        assert len(ports.numbers) == 10
