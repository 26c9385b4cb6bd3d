"""The egress proxy on real sockets: a client on its unix socket, servers on loopback, which the tests open by argument."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

import pytest

from longstride.contracts.v1.egress import Connection, Egress, EgressRule
from longstride.sandbox.base import Execution
from longstride.sandbox.egress.addresses import Addresses
from longstride.sandbox.egress.gate import Gate, Gates
from longstride.sandbox.egress.inside import SOCKET
from longstride.sandbox.egress.proxy import Bounds, World
from tests.support.eventually import eventually

HOST = "server.example.com"
ENDED = Execution("ok", 0, b"", b"")
FAILED = Execution("failed", 1, b"", b"")
LOOPBACK = Addresses([ip_network("127.0.0.0/8")])


class Server:
    """Hands each connection to ``behave`` and keeps what it read."""

    def __init__(self, behave: Callable[["Server", socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._behave = behave
        self.port: int = self._listener.getsockname()[1]
        self.heard: list[bytes] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._handle, args=(connection,)))
            self._threads[-1].start()

    def _handle(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(20)
            self._behave(self, connection)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), "the proxy never let go of its server"


def read_all(connection: socket.socket) -> bytes:
    data = b""
    try:
        while part := connection.recv(1 << 16):
            data += part
    except ConnectionError:
        pass
    return data


def echo(server: Server, connection: socket.socket) -> None:
    """Everything back, to the end."""
    try:
        while part := connection.recv(1 << 16):
            server.heard.append(part)
            connection.sendall(part)
    except ConnectionError:
        pass


def web(server: Server, connection: socket.socket) -> None:
    """One answer to the first head and body that come, then what else comes is kept, too."""
    connection.settimeout(2)
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    connection.shutdown(socket.SHUT_WR)
    server.heard.append(data + read_all(connection))


def silent(server: Server, connection: socket.socket) -> None:
    """Says nothing until the other side goes."""
    server.heard.append(read_all(connection))


def flood(server: Server, connection: socket.socket) -> None:
    """Bytes without end."""
    with suppress(OSError):
        while True:
            connection.sendall(b"x" * 65536)


def descriptors() -> int:
    """Open files of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@dataclass
class Site:
    folder: Path
    gate: Gate
    server: Server

    @contextmanager
    def client(self) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(str(self.folder / SOCKET))
            yield client

    def say(self, request: bytes) -> bytes:
        """All of the answer."""
        with self.client() as client:
            with suppress(BrokenPipeError):
                client.sendall(request)
            return read_all(client)

    def tunnel(self, client: socket.socket, host: str = HOST, port: int | None = None) -> bytes:
        """The answer's head."""
        client.sendall(f"CONNECT {host}:{port or self.server.port} HTTP/1.0\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            part = client.recv(1)
            assert part, head
            head += part
        return head

    def heard(self) -> bytes:
        """All that the server read."""
        self.gate.close()
        self.server.close()
        return b"".join(self.server.heard)

    def records(self) -> tuple[Connection, ...]:
        return self.gate.account(ENDED).connections

    @property
    def record(self) -> Connection:
        (one,) = self.records()
        return one


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    with ExitStack() as stack:

        def make(
            behave: Callable[[Server, socket.socket], None] = web,
            resolve: Callable[[str, int], Sequence[str]] = lambda host, port: ["127.0.0.1"],
            addresses: Addresses = LOOPBACK,
            rules: Sequence[EgressRule] = (),
            bounds: Bounds = Bounds(),
            world: dict[str, object] | None = None,
            **egress: int,
        ) -> Site:
            server = Server(behave)
            stack.callback(server.close)
            ports = (server.port, 1)
            rules = rules or (EgressRule(host=HOST, ports=ports), EgressRule(host="127.0.0.1", ports=ports))
            task = Egress(rules=tuple(rules), **egress)
            outside = World(addresses=addresses, resolve=resolve, bounds=bounds, **(world or {}))
            gate = stack.enter_context(Gates(outside).open(task, tmp_path, None))
            assert isinstance(gate, Gate)
            return Site(tmp_path, gate, server)

        yield make


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# -- what is allowed ---------------------------------------------------------------------------------------------------


def test_a_tunnel_carries_bytes_both_ways_and_both_ends(site) -> None:
    here = site(echo)
    with here.client() as client:
        assert here.tunnel(client).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"x" * 300_000)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"x" * 300_000
    one = here.record
    assert (one.host, one.port, one.address, one.verdict) == (HOST, here.server.port, "127.0.0.1", "allowed")
    assert (one.sent, one.received) == (300_000, 300_000)
    assert one.why == f"rule {HOST}:{here.server.port},1"
    assert one.started_at <= one.ended_at


def test_what_a_client_sends_before_the_tunnel_is_there_is_not_lost(site) -> None:
    here = site(echo)
    with here.client() as client:
        client.sendall(f"CONNECT {HOST}:{here.server.port} HTTP/1.0\r\n\r\nearly".encode())
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).endswith(b"\r\n\r\nearly")


def test_a_plain_request_goes_on_in_origin_form_without_what_was_the_proxys(site) -> None:
    here = site()
    port = here.server.port
    answer = here.say(
        f"POST http://{HOST.upper()}:{port}/a/b?c=d HTTP/1.1\r\nHost: {HOST}:{port}\r\nX-Kept: 1\r\nX-Hop: 2\r\n"
        "Connection: keep-alive, X-Hop\r\nProxy-Authorization: Basic abc\r\nProxy-Connection: keep-alive\r\n"
        "Content-Length: 4\r\n\r\nbody".encode()
    )
    assert answer.endswith(b"\r\n\r\nhello")
    head, _, body = here.heard().partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /a/b?c=d HTTP/1.1",
        f"Host: {HOST}:{port}".encode(),
        b"X-Kept: 1",
        b"Content-Length: 4",
        b"Connection: close",
    ]
    assert body == b"body"
    assert here.record.verdict == "allowed"


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_host_that_is_not_listed_is_not_even_looked_up(site) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"]

    here = site(resolve=resolve)
    answer = here.say(b"CONNECT secret.evil.example.net:443 HTTP/1.0\r\n\r\n")
    assert status(answer) == 403
    assert b"secret.evil.example.net:443 is not on this task's allow-list" in answer.split(b"\r\n")[0]
    assert asked == [], "a name is a message, too"
    one = here.record
    assert (one.verdict, one.host, one.port, one.address, one.sent) == (
        "refused",
        "secret.evil.example.net",
        443,
        None,
        0,
    )


def test_a_port_that_is_not_listed(site) -> None:
    assert status(site().say(f"CONNECT {HOST}:22 HTTP/1.0\r\n\r\n".encode())) == 403


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00:ec2::254", "100.64.0.1"]
)
def test_a_listed_name_that_leads_inside(site, address: str) -> None:
    here = site(resolve=lambda host, port: [address], addresses=Addresses())
    answer = here.say(f"CONNECT {HOST}:{here.server.port} HTTP/1.0\r\n\r\n".encode())
    assert status(answer) == 403
    assert f"is at {address}".encode() in answer
    assert here.record.verdict == "refused"
    assert here.heard() == b""


def test_a_listed_address_that_is_inside(site) -> None:
    here = site(addresses=Addresses())
    assert status(here.say(f"CONNECT 127.0.0.1:{here.server.port} HTTP/1.0\r\n\r\n".encode())) == 403


def test_a_name_with_a_good_and_a_bad_address_is_refused(site) -> None:
    here = site(resolve=lambda host, port: ["127.0.0.1", "10.0.0.1"])
    assert status(here.say(f"CONNECT {HOST}:{here.server.port} HTTP/1.0\r\n\r\n".encode())) == 403


def test_a_name_that_changes_between_the_look_and_the_leap(site) -> None:
    """DNS rebinding: were the name resolved a second time, the second answer would be reached."""
    answers = iter([["127.0.0.1"], ["127.0.0.2"]])
    here = site(resolve=lambda host, port: next(answers), addresses=Addresses([ip_network("127.0.0.1/32")]))
    request = f"GET http://{HOST}:{here.server.port}/ HTTP/1.1\r\nHost: {HOST}:{here.server.port}\r\n\r\n".encode()
    assert status(here.say(request)) == 200
    assert status(here.say(request)) == 403
    first, second = here.records()
    assert (first.address, first.verdict) == ("127.0.0.1", "allowed")
    assert (second.address, second.verdict) == (None, "refused")


def test_a_name_that_does_not_resolve(site) -> None:
    def resolve(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    here = site(resolve=resolve)
    answer = here.say(f"CONNECT {HOST}:{here.server.port} HTTP/1.0\r\n\r\n".encode())
    assert status(answer) == 502
    assert (here.record.verdict, "has no address" in here.record.why) == ("failed", True)


def test_a_resolver_that_hangs_holds_nothing_up(site) -> None:
    release = threading.Event()

    def resolve(host: str, port: int) -> Sequence[str]:
        release.wait(20)
        return []

    here = site(resolve=resolve, bounds=Bounds(resolve_s=0.05))
    assert status(here.say(f"CONNECT {HOST}:{here.server.port} HTTP/1.0\r\n\r\n".encode())) == 502
    assert here.record.why == f"{HOST} has no address: no answer within 0.05 s"
    release.set()


def test_a_server_that_is_not_there(site) -> None:
    here = site()
    answer = here.say(f"CONNECT {HOST}:1 HTTP/1.0\r\n\r\n".encode())
    assert status(answer) == 502
    assert (here.record.verdict, here.record.address) == ("failed", "127.0.0.1")


# -- requests that two readers could read in two ways -------------------------------------------------------------------

ABSOLUTE = f"GET http://{HOST}:PORT/ HTTP/1.1\r\nHost: {HOST}:PORT\r\n"


@pytest.mark.parametrize(
    "request_text",
    [
        f"GET http://{HOST}:PORT/ HTTP/1.1\r\nHost: other.example.com\r\n\r\n",
        f"GET http://{HOST}:PORT/ HTTP/1.1\r\nHost: {HOST}:PORT\r\nHost: other.example.com\r\n\r\n",
        f"GET http://{HOST}:PORT/ HTTP/1.1\r\nHost: {HOST}:1\r\n\r\n",
        f"GET http://{HOST}:PORT/ HTTP/1.1\r\n\r\n",
        f"GET http://{HOST}:PORT/ HTTP/1.0\r\nHost: {HOST}:PORT\r\n\r\n",
        f"GET http://user@{HOST}:PORT/ HTTP/1.1\r\nHost: {HOST}:PORT\r\n\r\n",
        f"GET https://{HOST}:PORT/ HTTP/1.1\r\nHost: {HOST}:PORT\r\n\r\n",
        f"GET ftp://{HOST}:PORT/ HTTP/1.1\r\nHost: {HOST}:PORT\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: {HOST}:PORT\r\n\r\n",
        f"GET //{HOST}:PORT/ HTTP/1.1\r\nHost: {HOST}:PORT\r\n\r\n",
        f"GET http://[::1]:PORT/ HTTP/1.1\r\nHost: {HOST}:PORT\r\n\r\n",
        f"GET http://[/ HTTP/1.1\r\nHost: {HOST}:PORT\r\n\r\n",
        f"GET http://{HOST}:PORT/#x HTTP/1.1\r\nHost: {HOST}:PORT\r\n\r\n",
        f"GET http://{HOST}:/ HTTP/1.1\r\nHost: {HOST}:PORT\r\n\r\n",
        f"GET http://{HOST}:99999/ HTTP/1.1\r\nHost: {HOST}:99999\r\n\r\n",
        ABSOLUTE + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ABSOLUTE + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
        ABSOLUTE + "Content-Length: 4, 5\r\n\r\nbody",
        ABSOLUTE + "Content-Length: +4\r\n\r\nbody",
        ABSOLUTE + "Content-Length: 0x4\r\n\r\nbody",
        ABSOLUTE + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ABSOLUTE + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        ABSOLUTE + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        ABSOLUTE + "Bad Name: 1\r\n\r\n",
        ABSOLUTE + "X: a\x00b\r\n\r\n",
        ABSOLUTE + " X: folded first\r\nno colon\r\n\r\n",
        f"CONNECT {HOST} HTTP/1.0\r\n\r\n",
        f"CONNECT {HOST}:0 HTTP/1.0\r\n\r\n",
        f"CONNECT user@{HOST}:PORT HTTP/1.0\r\n\r\n",
        f"CONNECT http://{HOST}:PORT/ HTTP/1.0\r\n\r\n",
        f"CONNECT {HOST}:PORT HTTP/1.1\r\nHost: other.example.com:PORT\r\n\r\n",
        f"CONNECT {HOST}:PORT@evil.example.net:443 HTTP/1.0\r\n\r\n",
        f"CONNECT {HOST}%00.evil.example.net:PORT HTTP/1.0\r\n\r\n",
        "CONNECT 127.1:PORT HTTP/1.0\r\n\r\n",
        "CONNECT 2130706433:PORT HTTP/1.0\r\n\r\n",
        "CONNECT [::1]:PORT HTTP/1.0\r\n\r\n",
        f"CONNECT {HOST}:PORT HTTP/2.0\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        "\x05\x01\x00\r\n\r\n",
    ],
)
def test_no_request_has_two_meanings(site, request_text: str) -> None:
    here = site()
    answer = here.say(request_text.replace("PORT", str(here.server.port)).encode("latin-1"))
    assert status(answer) in (400, 501, 505)
    assert here.record.verdict == "refused"
    assert here.heard() == b""


def test_a_second_request_behind_the_first_goes_nowhere(site) -> None:
    here = site()
    port = here.server.port
    first = f"POST http://{HOST}:{port}/ HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Length: 3\r\n\r\nabc"
    second = f"GET http://{HOST}:{port}/second HTTP/1.1\r\nHost: other.example.com\r\n\r\n"
    answer = here.say((first + second).encode())
    assert answer.count(b"HTTP/1.1") == 1
    heard = here.heard()
    assert heard.endswith(b"\r\n\r\nabc")
    assert b"second" not in heard


def test_a_chunked_body_is_written_anew(site) -> None:
    """Chunk extensions and trailers, which readers differ about, do not reach the server."""
    here = site()
    port = here.server.port
    here.say(
        f"POST http://{HOST}:{port}/ HTTP/1.1\r\nHost: {HOST}:{port}\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3;x=y\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\nGET /second HTTP/1.1\r\n\r\n".encode()
    )
    assert here.heard().partition(b"\r\n\r\n")[2] == b"3\r\nabc\r\n0\r\n\r\n"


# -- too much, too long ------------------------------------------------------------------------------------------------


def test_a_head_that_never_ends(site) -> None:
    here = site(bounds=Bounds(head_s=0.2))
    with here.client() as client:
        client.sendall(b"CONNECT ")
        assert status(read_all(client)) == 408


def test_a_head_that_comes_letter_by_letter_gets_no_more_time(site) -> None:
    here = site(bounds=Bounds(head_s=0.3))
    with here.client() as client:
        done = threading.Event()

        def drip() -> None:
            try:
                while not done.wait(0.02):
                    client.sendall(b"X")
            except OSError:
                pass

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert status(read_all(client)) == 408
        done.set()
        dripping.join()
    assert here.record.why == "the request's head was not complete within 0.3 s"


@pytest.mark.parametrize(
    "head",
    [
        b"GET http://x/" + b"a" * 70_000,
        b"GET http://x/ HTTP/1.1\r\n" + b"A: b\r\n" * 9000,
        b"GET http://x/ HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 6000 + b"\r\n",
        b"GET http://x/ HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 40_000 + b"\r\n\r\n",
    ],
)
def test_a_head_without_end_in_size(site, head: bytes) -> None:
    assert status(site().say(head)) in (400, 431)


def test_silence_is_cut(site) -> None:
    here = site(silent, bounds=Bounds(idle_s=0.1))
    with here.client() as client:
        here.tunnel(client)
        client.sendall(b"hello")
        assert read_all(client) == b""
    assert here.record.why.endswith("; cut after 0.1 s of silence")
    assert here.record.sent == 5


def test_a_connection_has_a_last_moment_however_busy_it_is(site) -> None:
    def chatter(server: Server, connection: socket.socket) -> None:
        try:
            while True:
                connection.sendall(b"tick")
        except OSError:
            pass

    here = site(chatter, bounds=Bounds(total_s=0.2), kbytes_per_s=10)
    with here.client() as client:
        here.tunnel(client)
        assert len(read_all(client)) > 0
    assert here.record.why.endswith("; cut after 0.2 s")


def test_too_many_at_once(site) -> None:
    here = site(silent, bounds=Bounds(at_once=2))
    with here.client() as one, here.client() as two:
        here.tunnel(one)
        here.tunnel(two)
        assert status(here.say(f"CONNECT {HOST}:{here.server.port} HTTP/1.0\r\n\r\n".encode())) == 503
    assert [record.verdict for record in here.records()] == ["allowed", "allowed", "refused"]


def test_too_many_in_all(site) -> None:
    here = site(bounds=Bounds(in_all=2, recorded=3))
    request = f"GET http://{HOST}:{here.server.port}/ HTTP/1.1\r\nHost: {HOST}:{here.server.port}\r\n\r\n".encode()
    assert [status(here.say(request)) for _ in range(3)] == [200, 200, 403]
    assert here.say(request) == b"", "one more than can be recorded is not heard"

    def nobody_answers() -> bool:
        with suppress(ConnectionError):
            here.say(request)
            return False
        return True

    eventually(nobody_answers)
    assert len(here.records()) == 3


@pytest.mark.parametrize("behave", [flood, silent], ids=lambda behave: behave.__name__)
def test_a_side_that_takes_nothing_keeps_no_descriptor_of_ours(site, behave) -> None:
    """Neither a client that asks and does not read, nor a server: the process has few, and serves other tasks."""
    here = site(behave, bounds=Bounds(idle_s=0.2, hang_up_s=0.2))
    before = descriptors()
    with here.client() as one, here.client() as two:
        for client in (one, two):
            here.tunnel(client)
            client.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    client.send(b"x" * 65536)
        eventually(lambda: len(here.gate._proxy.ledger.entries) == 2 and not here.gate._proxy.ledger.under_way)
        here.server.close()
        eventually(lambda: descriptors() <= before + 2)


class World1:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@pytest.mark.parametrize("way", ["out", "in"])
def test_bandwidth_each_way(site, way: str) -> None:
    """600 KiB at 100 KiB/s, of which a quarter of a second's worth goes at once: at least 5.75 s of the injected clock."""
    size, time = 600 * 1024, World1()

    def flood(server: Server, connection: socket.socket) -> None:
        connection.sendall(bytes(size))

    here = site(silent if way == "out" else flood, world={"clock": time.clock, "sleep": time.sleep}, kbytes_per_s=100)
    with here.client() as client:
        here.tunnel(client)
        if way == "out":
            client.sendall(bytes(size))
        client.shutdown(socket.SHUT_WR)
        received = len(read_all(client))
    one = here.record
    assert (one.sent, one.received) == ((size, 0) if way == "out" else (0, size))
    assert received == one.received
    assert time.now >= 5.75 - 1e-6


def test_the_cap_cuts_and_is_named(site) -> None:
    here = site(echo, max_mbytes=1, kbytes_per_s=1_000_000)
    with here.client() as client:
        here.tunnel(client)
        sender = threading.Thread(target=_send_until_refused, args=(client, bytes(3 << 20)))
        sender.start()
        received = len(read_all(client))
        sender.join()
    assert received <= 1 << 20
    answer = here.say(f"CONNECT {HOST}:{here.server.port} HTTP/1.0\r\n\r\n".encode())
    assert (status(answer), b"has moved the 1 MiB" in answer) == (403, True)
    end = here.gate.account(FAILED)
    assert (end.status, end.limit) == ("limit", "egress.max_mbytes=1")
    assert "cut at the 1 MiB that the call may move" in end.connections[0].why
    assert (1 << 20) - (1 << 16) <= end.connections[0].sent <= 1 << 20


@pytest.mark.parametrize("way", ["sent", "received"])
def test_what_is_left_of_a_budget_is_moved_to_the_last_byte(site, way: str) -> None:
    """The other way is as free as ever."""
    here = site(echo, kbytes_per_s=1_000_000, **{f"{way}_bytes": 300_001})
    with here.client() as client:
        here.tunnel(client)
        sender = threading.Thread(target=_send_until_refused, args=(client, bytes(1 << 20)))
        sender.start()
        read_all(client)
        sender.join()
    end = here.gate.account(FAILED)
    assert getattr(end.connections[0], way) == 300_001
    assert (end.status, end.limit) == ("limit", f"egress.{way}_bytes=300001")
    assert "cut at the 0.286 MiB that the call may move" in end.connections[0].why


def _send_until_refused(client: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        client.sendall(data)


def test_the_cap_of_a_command_that_ended_well_is_no_failure(site) -> None:
    here = site()
    assert here.gate.account(ENDED).status == "ok"


# -- the end of the call -----------------------------------------------------------------------------------------------


def test_closing_cuts_what_is_under_way_and_records_it(site) -> None:
    here = site(silent)
    with here.client() as client, here.client() as mute:
        here.tunnel(client)
        client.sendall(b"abc")
        mute.sendall(b"CONN")
        end = here.gate.account(ENDED)
        assert read_all(client) == b""
    allowed = next(one for one in end.connections if one.verdict == "allowed")
    assert allowed.why.endswith("; the call ended")
    assert not [thread for thread in threading.enumerate() if thread.name == "egress-proxy"]


def filled_tunnel(here: Site, client: socket.socket) -> None:
    here.tunnel(client)
    fill(client)


def filled_request(here: Site, client: socket.socket) -> None:
    client.sendall(f"POST http://{HOST}:{here.server.port}/ HTTP/1.1\r\nHost: {HOST}\r\n".encode())
    client.sendall(b"Content-Length: 1000000000\r\n\r\n")
    fill(client)


def client_that_is_gone(here: Site, client: socket.socket) -> None:
    """Nothing more comes from it, and the server takes nothing: the proxy waits for that side alone."""
    filled_tunnel(here, client)
    client.close()


def fill(client: socket.socket) -> None:
    """Until nothing is taken any more."""
    client.settimeout(0.5)
    with suppress(TimeoutError):
        while True:
            client.send(b"x" * 65536)


@pytest.mark.parametrize("behave", [flood, "deaf"], ids=["who floods", "who reads nothing"])
@pytest.mark.parametrize("ask", [filled_tunnel, filled_request, client_that_is_gone], ids=lambda ask: ask.__name__)
def test_the_end_of_a_call_waits_for_nobody(site, ask, behave) -> None:
    """Neither for a server nor for a client, however long they would be given otherwise."""
    over = threading.Event()

    def deaf(_server: Server, _connection: socket.socket) -> None:
        over.wait()

    here = site(deaf if behave == "deaf" else behave, bounds=Bounds(hang_up_s=3600, idle_s=3600))
    try:
        with here.client() as client:
            ask(here, client)
            closing = threading.Thread(target=here.gate.close, daemon=True)
            closing.start()
            eventually(lambda: not closing.is_alive())
        assert here.record.verdict == "allowed"
        assert not here.gate._proxy.ledger.under_way
    finally:
        over.set()


def test_nothing_is_answered_after_the_end(site) -> None:
    here = site()
    here.gate.close()
    with pytest.raises(ConnectionRefusedError), here.client():
        pass


def test_without_egress_there_is_no_socket(tmp_path: Path) -> None:
    with Gates().open(None, tmp_path, None) as gate:
        assert list(tmp_path.iterdir()) == []
        assert gate.account(ENDED) is ENDED


def test_a_long_path_is_no_hindrance(tmp_path: Path) -> None:
    """A unix socket's address has 107 bytes."""
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    folder.mkdir(parents=True)
    egress = Egress(rules=(EgressRule(host=HOST),))
    with Gates().open(egress, folder, None):
        assert (folder / SOCKET).is_socket()
        assert (folder / SOCKET).stat().st_mode & 0o777 == 0o600
