"""The native stack itself: two at once, kill -9 of servers, of the supervisor, and of the process that owns it."""

import io
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pika
import psutil
import psycopg
import pytest
from minio import Minio

from infra.native import Addresses, Stack, StackError
from infra.native.install import missing
from tests.conftest import ROOT, unavailable
from tests.support.eventually import eventually

CLI = [sys.executable, "-m", "infra.native"]
SURVIVOR = "survivor"


def running(process: psutil.Process) -> bool:
    """A zombie counts as ended: when its new parent takes its exit code is not ours to say."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def supervisor(stack: Stack) -> psutil.Process:
    return psutil.Process(stack.status()["postgres"]["pid"]).parent()


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    if missing():
        unavailable(f"missing system packages: {', '.join(missing())} (as root: make system-packages)")


@contextmanager
def throwaway() -> "Iterator[tuple[subprocess.Popen[str], Stack]]":
    """`run` around a command that prints its variables and waits, as a test run would; and its stack."""
    script = "import os, sys; print(os.environ['LONGSTRIDE_STACK'], flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [*CLI, "run", "--", sys.executable, "-c", script],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        yield process, Stack(process.stdout.readline().strip())
        process.kill()


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Stack]]:
    """Two stacks that started at the same time: the first is this process's own."""
    own = Stack(tmp_path_factory.mktemp("a-folder-whose-name-is-too-long-for-the-address-of-a-unix-socket" * 2))
    with ThreadPoolExecutor() as pool:
        started = pool.submit(own.start, discard=True)
        with throwaway() as (_, other):
            started.result()
            yield own, other
    if own.running():
        own.stop()


@pytest.fixture
def own(stacks: tuple[Stack, Stack]) -> Stack:
    """Running, whatever an earlier test did to it."""
    if not stacks[0].running():
        stacks[0].start()
    return stacks[0]


@pytest.fixture(scope="module", autouse=True)
def kept(stacks: tuple[Stack, Stack]) -> None:
    """A message in a quorum queue, a row and an object, written before anything is killed."""
    addresses = stacks[0].addresses()
    with pika.BlockingConnection(pika.URLParameters(addresses.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(SURVIVOR, durable=True, arguments={"x-queue-type": "quorum"})
        channel.basic_publish("", SURVIVOR, b"message", pika.BasicProperties(delivery_mode=2), mandatory=True)
    with psycopg.connect(addresses.database_url) as connection:
        connection.execute("CREATE TABLE survivor AS SELECT 'row' AS content")
    objects(addresses).put_object(
        bucket_name=addresses.bucket, object_name=SURVIVOR, data=io.BytesIO(b"object"), length=6
    )
    # RabbitMQ writes its list of queues to disk seconds later; the messages themselves were there with the confirm.
    flush = [*CLI, "rabbitmqctl", "--folder", str(stacks[0].folder), "--", "eval", "mnesia:sync_log()."]
    assert subprocess.run(flush, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip() == "ok"


def objects(addresses: Addresses) -> Minio:
    return Minio(urlsplit(addresses.s3_endpoint).netloc, addresses.access_key, addresses.secret_key, secure=False)


def message(addresses: Addresses) -> bytes:
    """The kept message, which stays in its queue."""
    return eventually(lambda: _message(addresses))


def _message(addresses: Addresses) -> bytes | None:
    """Asked for once the broker tells of it: a queue that has just been found again has no leader yet, and a get that waits for
    one in vain (541) may still be carried out later, and hold the message for nobody."""
    try:
        with pika.BlockingConnection(pika.URLParameters(addresses.amqp_url)) as connection:
            channel = connection.channel()
            there = channel.queue_declare(SURVIVOR, passive=True).method.message_count
            return channel.basic_get(SURVIVOR)[2] if there else None
    except (pika.exceptions.ConnectionClosedByBroker, pika.exceptions.ChannelClosedByBroker):
        return None


def row(addresses: Addresses) -> str:
    with psycopg.connect(addresses.database_url) as connection:
        return connection.execute("SELECT content FROM survivor").fetchone()[0]


def stored(addresses: Addresses) -> bytes:
    return objects(addresses).get_object(bucket_name=addresses.bucket, object_name=SURVIVOR).data


def test_two_stacks_do_not_meet(stacks: tuple[Stack, Stack]) -> None:
    first, second = (stack.addresses() for stack in stacks)
    assert row(first) == "row"
    with psycopg.connect(second.database_url) as connection:
        assert connection.execute("SELECT to_regclass('survivor')").fetchone() == (None,)
    assert not list(objects(second).list_objects(bucket_name=second.bucket))
    with (
        pika.BlockingConnection(pika.URLParameters(second.amqp_url)) as connection,
        pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"),
    ):
        connection.channel().queue_declare(SURVIVOR, passive=True)


def test_the_secrets_of_one_do_not_open_the_other(stacks: tuple[Stack, Stack]) -> None:
    first, second = (stack.addresses() for stack in stacks)
    port = urlsplit(second.database_url).port
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(first.database_url, port=port)


def test_postgres_has_pgvector(own: Stack) -> None:
    with psycopg.connect(own.addresses().database_url) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        distance = connection.execute("SELECT '[0,0]'::vector <-> '[3,4]'::vector").fetchone()
    assert distance == (5.0,)


def test_the_folder_is_its_owners_alone(own: Stack) -> None:
    assert own.folder.stat().st_mode & 0o077 == 0
    secrets = [*own.folder.glob("secrets/*"), own.folder / "addresses.json", own.folder / "rabbitmq" / "rabbitmq.conf"]
    assert [file for file in secrets if file.stat().st_mode & 0o077] == []


def test_the_servers_logs_are_in_the_folder_and_nowhere_else(own: Stack) -> None:
    pid = own.status()["s3"]["pid"]
    assert eventually(lambda: list((own.folder / "s3").glob(f"weed.*.{pid}")))
    assert not list(Path("/tmp").glob(f"weed.*.{pid}"))


def test_no_secret_is_in_a_command_line(own: Stack) -> None:
    secrets = [file.read_text() for file in (own.folder / "secrets").iterdir()]
    assert len(secrets) == 4
    lines = [" ".join(process.cmdline()) for process in family(supervisor(own))]
    assert [line for line in lines for secret in secrets if secret in line] == []


@pytest.mark.parametrize(("name", "read", "content"), [
    ("rabbitmq", message, b"message"),
    ("postgres", row, "row"),
    ("s3", stored, b"object"),
])  # fmt: skip
def test_a_killed_server_comes_back_with_its_data_on_its_port(
    own: Stack, name: str, read: Callable[[Addresses], object], content: object
) -> None:
    addresses = own.addresses()
    before = own.status()[name]["pid"]
    own.restart(name, kill=True)
    assert own.status()[name]["pid"] != before
    assert own.addresses() == addresses
    assert read(addresses) == content


def test_a_killed_server_stays_dead_until_revived(own: Stack) -> None:
    addresses = own.addresses()
    own.kill("postgres")
    assert own.status()["postgres"]["exit_code"] == -signal.SIGKILL
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(addresses.database_url)
    own.revive("postgres")
    assert row(addresses) == "row"
    with pytest.raises(StackError, match="postgres runs already"):
        own.revive("postgres")


def test_a_server_that_dies_by_itself_is_reported_and_can_be_revived(own: Stack) -> None:
    psutil.Process(own.status()["postgres"]["pid"]).kill()
    eventually(lambda: own.status()["postgres"]["exit_code"] == -signal.SIGKILL)
    assert subprocess.run([*CLI, "status", "--folder", own.folder], cwd=ROOT, capture_output=True).returncode == 1
    assert "postgres: process" in (own.folder / "log" / "supervisor.log").read_text()
    own.revive("postgres")
    assert row(own.addresses()) == "row"


def test_an_unknown_server_is_named(own: Stack) -> None:
    with pytest.raises(StackError, match=r"no server is called 'mysql': there are rabbitmq, s3, postgres"):
        own.restart("mysql")


def test_a_second_start_in_a_folder_is_refused(own: Stack) -> None:
    with pytest.raises(StackError, match=r"runs in .* already"):
        Stack(own.folder).start()


def test_the_death_of_the_owner_takes_everything_with_it() -> None:
    with throwaway() as (owner, stack):
        processes = [*family(supervisor(stack)), *psutil.Process(owner.pid).children()]
        assert len(processes) > 10
        owner.kill()
        eventually(lambda: not any(running(process) for process in processes))
        eventually(lambda: not stack.folder.exists())


def test_the_death_of_the_supervisor_leaves_nothing_and_the_next_start_has_the_data(own: Stack) -> None:
    addresses = own.addresses()
    processes = family(supervisor(own))
    processes[0].kill()
    eventually(lambda: not any(running(process) for process in processes))
    eventually(lambda: not own.running())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", urlsplit(addresses.amqp_url).port or 0))
    assert own.start() == addresses
    assert (message(addresses), row(addresses), stored(addresses)) == (b"message", "row", b"object")
    processes = family(supervisor(own))
    own.stop()
    assert not any(running(process) for process in processes)


def test_a_server_that_cannot_start_is_explained(tmp_path: Path) -> None:
    """The wheel's PostgreSQL refuses a data folder of another major version."""
    data = tmp_path / "postgres" / "data"
    data.mkdir(parents=True, mode=0o700)
    (data / "PG_VERSION").write_text("12\n")
    stack = Stack(tmp_path)
    with pytest.raises(StackError, match=r"postgres ended with exit code 1; the end of (?s:.*)version"):
        stack.start()
    assert not stack.running()
