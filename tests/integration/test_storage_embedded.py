"""A private PostgreSQL in a folder: it starts, joins, stops, survives kills, and says what is in its way."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from longstride.storage import embedded
from longstride.storage.embedded import EmbeddedPostgres
from longstride.storage.errors import CannotEmbed
from tests.support.eventually import eventually

OWNER = """
import sys, time
from longstride.storage.embedded import EmbeddedPostgres
print(EmbeddedPostgres(sys.argv[1]).start(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def empty_folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "postgres"
    yield folder
    assert servers(folder) == []


@pytest.fixture(scope="module")
def started_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "postgres"
    EmbeddedPostgres(folder).__enter__().stop()
    return folder


@pytest.fixture
def folder(empty_folder: Path, started_before: Path) -> Path:
    """A copy of a folder that a server has run in: making data anew takes seconds."""
    shutil.copytree(started_before, empty_folder, ignore=shutil.ignore_patterns("socket"))
    return empty_folder


def servers(folder: Path) -> list[psutil.Process]:
    """Every process of a server in ``folder``."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if str(folder / "data") in command and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def ask(url: str, sql: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(sql).fetchone()  # type: ignore[arg-type]
        return row and row[0]


def keep(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS value")


def test_it_starts_keeps_its_data_and_leaves_nothing_running(empty_folder: Path) -> None:
    folder = empty_folder
    server = EmbeddedPostgres(folder)
    url = server.start()
    assert server.owned
    keep(url)
    server.stop()
    assert servers(folder) == []
    with EmbeddedPostgres(folder) as again:
        assert ask(again.url, "SELECT value FROM kept") == 42


def test_it_listens_on_no_port_and_is_small(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        assert ask(server.url, "SHOW listen_addresses") == ""
        assert ask(server.url, "SHOW jit") == "off"
        assert ask(server.url, "SELECT current_setting('max_connections')::int") == 60
        assert all(not process.net_connections("inet") for process in servers(folder))
        everything = [child for process in servers(folder) for child in (process, *process.children(recursive=True))]
        assert sum(process.memory_info().rss - process.memory_info().shared for process in everything) < 60 * 2**20


def test_a_second_start_joins_and_its_stop_leaves_the_first_alone(folder: Path) -> None:
    with EmbeddedPostgres(folder) as first:
        second = EmbeddedPostgres(folder)
        assert second.start() == first.url
        assert not second.owned
        second.stop()
        assert ask(first.url, "SELECT 1") == 1


def test_starting_twice_is_starting_once(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        assert server.start() == server.url
        assert len(servers(folder)) == 1
        server.stop()
        server.stop()


def test_many_starts_at_once_make_one_server(empty_folder: Path) -> None:
    several = [EmbeddedPostgres(empty_folder) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        urls = list(pool.map(lambda each: each.start(), several))
    assert len(set(urls)) == 1
    assert sorted(each.owned for each in several) == [False, False, False, True]
    assert ask(urls[0], "SELECT 1") == 1
    for each in several:
        each.stop()


@contextmanager
def owner(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process whose server runs; killed in the end if it still lives."""
    with subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("postgresql://")
            yield process
        finally:
            process.kill()


def test_a_killed_owner_takes_its_server_along_and_the_data_survives(folder: Path) -> None:
    with owner(folder) as process:
        url = EmbeddedPostgres(folder).start()
        keep(url)
        process.send_signal(signal.SIGKILL)
    eventually(lambda: servers(folder) == [])
    with EmbeddedPostgres(folder) as server:
        assert server.owned
        assert ask(server.url, "SELECT value FROM kept") == 42


def test_a_joiner_takes_over_from_an_owner_that_dies_before_it_is_ready(folder: Path) -> None:
    with owner(folder) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with EmbeddedPostgres(folder) as server:
            assert server.owned
            assert ask(server.url, "SELECT 1") == 1


def test_a_killed_server_starts_again_over_its_stale_pid_file(folder: Path) -> None:
    server = EmbeddedPostgres(folder)
    server.start()
    (postmaster,) = servers(folder)
    children = postmaster.children(recursive=True)
    postmaster.kill()
    eventually(lambda: not any(child.is_running() for child in children))
    assert (folder / "data" / "postmaster.pid").exists()
    server.stop()
    with EmbeddedPostgres(folder) as again:
        assert ask(again.url, "SELECT 1") == 1


def test_a_pid_file_that_names_somebody_else_harms_nobody(folder: Path) -> None:
    (folder / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n{folder / 'data'}\n")
    with EmbeddedPostgres(folder) as server:
        assert ask(server.url, "SELECT 1") == 1


def test_a_folder_with_a_long_path_gets_a_short_socket(tmp_path: Path, started_before: Path) -> None:
    folder = tmp_path / ("long" * 30) / "postgres"
    shutil.copytree(started_before, folder, ignore=shutil.ignore_patterns("socket"))
    with EmbeddedPostgres(folder) as server:
        assert ask(server.url, "SELECT 1") == 1
        socket_folder = embedded._socket_folder(folder)
        assert socket_folder.stat().st_mode & 0o777 == 0o700
    assert not socket_folder.exists(), "what lies outside the server's folder would outlive it"


def test_a_socket_folder_that_somebody_else_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder that is somebody else's")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    monkeypatch.setattr(embedded, "_socket_folder", lambda _: theirs)
    with pytest.raises(CannotEmbed, match="theirs belongs to somebody else"):
        EmbeddedPostgres(tmp_path / "postgres").start()


def test_a_file_in_the_way_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotEmbed, match=r"file/postgres cannot be made: .*; choose another"):
        EmbeddedPostgres(tmp_path / "file" / "postgres").start()


def test_data_of_another_version_is_refused(folder: Path) -> None:
    (folder / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(CannotEmbed, match=r"is PostgreSQL 9's, and postgres \(PostgreSQL\) \d+.* is installed"):
        EmbeddedPostgres(folder).start()


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    (folder / "data" / "postgresql.conf").write_text("nonsense here\n")
    with pytest.raises(CannotEmbed, match=r"ended with exit code (?s:.*)nonsense"):
        EmbeddedPostgres(folder).start()


def test_where_namespaces_are_not_allowed_root_runs_it_as_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user runs it as itself")
    monkeypatch.setattr(embedded, "_namespaces_work", lambda: False)
    folder = Path(tempfile.gettempdir()) / f"longstride-test-{os.getpid()}"
    try:
        with EmbeddedPostgres(folder) as server:
            assert ask(server.url, "SELECT 1") == 1
            (postmaster,) = servers(folder)
            assert postmaster.uids().real == embedded.NOBODY
        with EmbeddedPostgres(folder) as again:
            assert ask(again.url, "SELECT 1") == 1
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(CannotEmbed, match=r"user nobody cannot reach .*closed/postgres: run as an ordinary user"):
        EmbeddedPostgres(closed / "postgres").start()
