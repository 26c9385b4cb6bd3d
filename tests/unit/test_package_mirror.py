"""The operator's index as sandboxes may ask it; and the pip that asks."""

import io
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from ipaddress import ip_network
from pathlib import Path

import pytest
from pydantic import ValidationError

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Command, NeverCancelled
from longstride.sandbox.egress.addresses import Addresses
from longstride.sandbox.egress.gate import Gate, Gates
from longstride.sandbox.egress.inside import SOCKET
from longstride.sandbox.egress.served import Caller, Unserved, way_to
from longstride.sandbox.memory import MemorySandbox, Process
from longstride.tools.packages import pip as pip_module
from longstride.tools.packages.cache import PackageCache
from longstride.tools.packages.listing import JSON_TYPE, BadPage, packed, read, unpacked
from longstride.tools.packages.mirror import Mirror
from longstride.tools.packages.upstream import Upstream
from services.tool_executor.settings import ToolExecutorSettings
from tests.support.eventually import eventually
from tests.support.package_index import PackageIndex, served, shop, wheel

WORDING = "wording-1.0-py3-none-any.whl"
WAITING = Caller(NeverCancelled())


@dataclass
class Stand:
    """A mirror before an index."""

    mirror: Mirror
    index: PackageIndex

    def get(self, path: str) -> bytes:
        with self.mirror.answer(path, WAITING).body as body:
            return body.read()

    def file(self, name: str = WORDING, project: str = "wording") -> str:
        files = read(self.get(f"/simple/{project}/"), JSON_TYPE, "http://m/")
        return next(file.url.removeprefix("http://m") for file in files if file.name == name)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[object]:
    with ExitStack() as stack:

        def make(index: PackageIndex, addresses: Addresses = Addresses(), most: int = 1 << 20) -> Stand:
            stack.enter_context(served(index))
            upstream = Upstream(index.url, addresses, lambda host, port: ["127.0.0.1"])
            stack.callback(upstream.close)
            return Stand(Mirror(upstream, PackageCache(tmp_path / "cache", most)), index)

        yield make


def test_a_page_and_its_file_come_once_from_the_index_and_then_from_the_cache(stand) -> None:
    here = stand(shop())
    assert here.get(here.file()) == here.get(here.file()) == here.index.files["wording"][WORDING]
    assert here.index.asked == ["/root/simple/wording/", f"/root/+f/{WORDING}"]


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/",
            "/simple/",
            "/simple/wording",
            "/simple/Wording/",
            "/simple/../wording/",
            "/simple/a/b/",
            "/simple/%2e%2e/",
        ),
        *("/files/wording/x/y", f"/files/wording/{'0' * 64}/../../x", f"/files/wording/{'0' * 64}/a%2fb.whl"),
    ],
)
def test_there_is_nothing_but_projects_and_their_files(stand, path: str) -> None:
    here = stand(shop())
    with pytest.raises(Unserved) as none:
        here.get(path)
    assert none.value.status == 404
    assert set(here.index.asked) <= {"/root/simple/wording/"}


def test_a_file_must_be_one_of_the_page_by_name_and_hash(stand) -> None:
    here = stand(shop())
    place = here.file()
    for other in (
        place.replace(WORDING, "spice-1.0-py3-none-any.whl"),
        place.replace("/wording/", "/spice/"),
        place + ".metadata",
    ):
        with pytest.raises(Unserved, match="the package index has no file "):
            here.get(other)
    assert not [path for path in here.index.asked if "+f" in path]


def test_an_index_that_is_down(stand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    mirror = Mirror(Upstream(f"http://127.0.0.1:{port}/simple"), PackageCache(Path("/nowhere"), 1))
    with pytest.raises(Unserved, match=rf"the package index does not answer at http://127.0.0.1:{port}: .*refused"):
        mirror.answer("/simple/wording/", WAITING)


def test_a_password_is_for_the_index_alone_and_in_no_complaint(stand) -> None:
    here = stand(replace(shop(), login="robot:pass%40word"))
    with pytest.raises(Unserved) as refused:  # the index itself wants %40, and gets what it stands for
        here.get("/simple/wording/")
    assert str(refused.value) == "the package index answers 401 for project 'wording'"
    with served(replace(shop(), login="robot:p@ss")) as index:
        upstream = Upstream(index.url.replace("p@ss", "p%40ss"))
        with upstream.get(f"{upstream.index}/wording/", WAITING) as fetched:
            assert (fetched.status, "p@ss" in fetched.url, "p%40ss" in fetched.url) == (200, False, False)
        upstream.close()


def test_files_on_another_host_where_anybody_may_go(stand) -> None:
    with served(PackageIndex({"x": {WORDING: shop().files["wording"][WORDING]}}, login=None)) as files:
        there = {WORDING: f"http://files.example.com:{files.port}/root/+f/{WORDING}"}
        here = stand(replace(shop(), elsewhere=there), Addresses([ip_network("127.0.0.0/8")]))
        assert here.get(here.file()) == shop().files["wording"][WORDING]
        assert here.index.asked == ["/root/simple/wording/"]


def test_files_on_another_host_that_is_inside(stand) -> None:
    there = {WORDING: f"http://files.example.com:1/{WORDING}"}
    here = stand(replace(shop(), elsewhere=there))
    with pytest.raises(Unserved, match=r"sends to files\.example\.com, which is at 127\.0\.0\.1 is loopback"):
        here.get(here.file())


def test_whoever_the_index_sends_to_cannot_send_back_into_it(stand) -> None:
    with served(PackageIndex({})) as other:
        here = stand(
            replace(shop(), elsewhere={WORDING: f"http://files.example.com:{other.port}/go"}),
            Addresses([ip_network("127.0.0.0/8")]),
        )
        other.redirects = {"/go": f"http://127.0.0.1:{here.index.port}/admin"}
        with pytest.raises(Unserved, match="the package index sends away, and is sent back to"):
            here.get(here.file())
    assert "/admin" not in here.index.asked


def test_redirects_within_the_index(stand) -> None:
    here = stand(replace(shop(), redirects={f"/root/+f/{WORDING}": "/root/+f/spice-1.0-py3-none-any.whl"}))
    with pytest.raises(Unserved, match="is not the file that the index names"):
        here.get(here.file())
    circle = stand(replace(shop(), redirects={"/root/simple/spice/": "/root/simple/spice/"}))
    with pytest.raises(Unserved, match="sends through more than 5 redirects"):
        circle.get("/simple/spice/")


def test_a_call_that_has_ended_downloads_no_further(stand) -> None:
    here = stand(shop())
    place, ended = here.file(), threading.Event()
    ended.set()
    with pytest.raises(Unserved, match="the call has ended"):
        here.mirror.answer(place, Caller(ended))
    assert here.get(place)


def test_a_cache_that_cannot_be_written(stand, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file is in the way")
    here = stand(shop())
    with pytest.raises(Unserved, match="the executor cannot use its cache of packages: "):
        here.get("/simple/wording/")


# -- in the proxy ------------------------------------------------------------------------------------------------------


def ask(folder: Path, request: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(folder / SOCKET))
        client.sendall(request.encode())
        answer = b""
        while part := client.recv(1 << 16):
            answer += part
    return answer


def test_the_proxy_answers_for_the_host_and_records_it(stand, tmp_path: Path) -> None:
    here = stand(shop())
    sites = {"packages.longstride": here.mirror}
    wanted = "GET http://packages.longstride/simple/{}/ HTTP/1.1\r\nHost: packages.longstride\r\n\r\n"
    with Gates().open(way_to(sites), tmp_path, None, sites) as gate:
        assert isinstance(gate, Gate)
        good = ask(tmp_path, wanted.format("wording"))
        head = ask(tmp_path, wanted.format("wording").replace("GET", "HEAD"))
        none = ask(tmp_path, wanted.format("nosuch"))
        post = ask(tmp_path, wanted.format("wording").replace("GET", "POST"))
        tunnel = ask(tmp_path, "CONNECT packages.longstride:80 HTTP/1.0\r\n\r\n")
        other = ask(tmp_path, wanted.format("wording").replace("packages.longstride", "pypi.example"))
        records = gate._proxy.ledger.connections()
    assert good.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.pypi.simple.v1+json\r\n")
    page = good.partition(b"\r\n\r\n")[2]
    assert read(page, JSON_TYPE, "http://m/")[0].name == WORDING
    assert (head.endswith(b"\r\n\r\n"), f"Content-Length: {len(page)}\r\n".encode() in head) == (True, True)
    assert none.startswith(b"HTTP/1.1 404 the package index has no project 'nosuch'\r\n")
    assert post.startswith(b"HTTP/1.1 405 packages.longstride is asked with GET or HEAD, by http:// alone\r\n")
    assert tunnel.startswith(b"HTTP/1.1 405 ")
    assert other.startswith(b"HTTP/1.1 403 pypi.example:80 is not on this task's allow-list")
    assert [record.verdict for record in records] == ["allowed", "allowed", "failed", "refused", "refused", "refused"]
    assert (records[0].received, records[0].why) == (len(good), "package index: the page of wording, from the index")


def test_the_head_of_a_file_fetches_none(stand) -> None:
    here = stand(shop())
    place = here.file()
    with pytest.raises(Unserved, match="is not known before it is fetched: ask for it with GET") as unknown:
        here.mirror.answer(place, WAITING, whole=False)
    assert unknown.value.status == 405
    assert not [path for path in here.index.asked if "+f" in path]
    whole = here.get(place)
    assert here.mirror.answer(place, WAITING, whole=False).size == len(whole)


def test_the_head_of_a_file_has_the_size_that_the_index_names(stand) -> None:
    here = stand(shop())
    place = here.file()
    [file] = unpacked(here.mirror._cache.page(f"{here.mirror._name}.wording"))
    here.mirror._cache.keep_page(f"{here.mirror._name}.wording", packed([replace(file, size=77)]))
    assert here.mirror.answer(place, WAITING, whole=False).size == 77
    assert not [path for path in here.index.asked if "+f" in path]


NOWHERE = [
    "http://host:99999/x",
    "http://[::1/x",
    "http://h\u00f6st/x",
    "http://host/a b",
    "http://host/a\x01b",
    "http:///x",
    f"http://{'a' * 64}.example/x",
]


@pytest.mark.parametrize("address", NOWHERE)
def test_addresses_that_are_none(stand, address: str) -> None:
    """Wherever the index names them: on its page, or as the place to go on to."""
    here = stand(replace(shop(), elsewhere={WORDING: address}))
    with pytest.raises(Unserved):
        here.get(here.file())
    there = stand(replace(shop(), redirects={f"/root/+f/{WORDING}": address.encode().decode("latin-1")}))
    with pytest.raises(Unserved):
        there.get(there.file())


def test_a_page_without_bottom() -> None:
    with pytest.raises(BadPage):
        read(b'{"files":' + b"[" * 100_000, JSON_TYPE, "http://m/")


def test_what_is_fetched_is_paid_for_whether_it_is_taken_or_not(stand, tmp_path: Path) -> None:
    """Whoever hangs up has made the host fetch it all the same; what was paid for is then sent without being paid again."""
    large = wheel("wording", "1.0", f"A = '{'a' * (2 << 20)}'\n")
    here = stand(replace(shop(), files={"wording": {WORDING: large}}), most=8 << 20)
    place, sites = here.file(), {"packages.longstride": here.mirror}
    wanted = f"GET http://packages.longstride{place} HTTP/1.1\r\nHost: packages.longstride\r\n\r\n"
    with Gates().open(way_to(sites), tmp_path, None, sites) as gate:
        assert isinstance(gate, Gate)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / SOCKET))
            client.sendall(wanted.encode())
        eventually(lambda: gate._proxy.ledger.entries and not gate._proxy.ledger.under_way)
        (gone,) = gate._proxy.ledger.connections()
        assert gone.received == len(large)
        answer = ask(tmp_path, wanted)
        again = gate._proxy.ledger.connections()[1]
        assert again.received == len(answer)
        assert gate._proxy.inward.moved == gone.received + again.received


def test_what_is_fetched_and_taken_is_paid_for_once(stand, tmp_path: Path) -> None:
    here = stand(shop())
    place, sites = here.file(), {"packages.longstride": here.mirror}
    with Gates().open(way_to(sites), tmp_path, None, sites) as gate:
        assert isinstance(gate, Gate)
        answer = ask(tmp_path, f"GET http://packages.longstride{place} HTTP/1.1\r\nHost: packages.longstride\r\n\r\n")
        assert gate._proxy.inward.moved == len(answer)
        assert [c.received for c in gate._proxy.ledger.connections()] == [len(answer)]


def test_no_more_is_fetched_than_the_call_may_receive(stand, tmp_path: Path) -> None:
    large = wheel("wording", "1.0", f"A = '{'a' * (2 << 20)}'\n")
    here = stand(replace(shop(), files={"wording": {WORDING: large}}), most=8 << 20)
    place, sites = here.file(), {"packages.longstride": here.mirror}
    wanted = f"GET http://packages.longstride{place} HTTP/1.1\r\nHost: packages.longstride\r\n\r\n"
    with Gates().open(way_to(sites).model_copy(update={"received_bytes": 100_000}), tmp_path, None, sites) as gate:
        assert isinstance(gate, Gate)
        assert ask(tmp_path, wanted).startswith(b"HTTP/1.1 403 this call has received all that it may")
        with suppress(ConnectionError):  # refused before it was heard
            assert ask(tmp_path, wanted).startswith(b"HTTP/1.1 403 ")
        assert gate._proxy.inward.moved == 100_000
        assert sum(c.received for c in gate._proxy.ledger.connections()) == 100_000
        assert gate._proxy.limit == "egress.received_bytes=100000"


def test_the_twin_of_a_sandbox_asks_the_same(stand, tmp_path: Path) -> None:
    here, got = stand(shop()), []

    def program(process: Process) -> int:
        got.extend(process.get("packages.longstride", f"/simple/{name}/") for name in ("wording", "nosuch"))
        got.append(process.get("pypi.example", "/simple/wording/"))
        return 0

    sites, limits = {"packages.longstride": here.mirror}, SandboxLimits()
    backend = MemorySandbox(tmp_path / "volumes", {"ask": program})
    command = Command(("ask",), backend.volumes.create(limits), limits, egress=way_to(sites), sites=sites)
    end = backend.run(command)
    assert (read(got[0], JSON_TYPE, "http://m/")[0].name, got[1:]) == (WORDING, [None, None])
    assert [(c.host, c.verdict) for c in end.connections] == [
        ("packages.longstride", "allowed"),
        ("packages.longstride", "failed"),
        ("pypi.example", "refused"),
    ]


# -- what it is made of --------------------------------------------------------------------------------------------------


def test_a_pip_without_a_wheel_is_packed_from_where_it_is(tmp_path: Path) -> None:
    spec = pip_module.find_spec("pip")
    assert spec
    assert spec.origin
    packed = pip_module._zipped(Path(spec.origin).parent)
    (tmp_path / "pip.whl").write_bytes(packed)
    told = subprocess.run(
        [sys.executable, "-I", tmp_path / "pip.whl/pip", "--version"], capture_output=True, check=True
    )
    assert told.stdout.startswith(b"pip ")
    assert str(tmp_path).encode() in told.stdout


def test_the_pip_of_this_interpreter_is_a_wheel() -> None:
    found = pip_module.pip()
    assert found
    assert "pip/__main__.py" in zipfile.ZipFile(io.BytesIO(found)).namelist()


@pytest.mark.parametrize("index", ["pypi.org/simple", "file:///srv/simple", "https://", "https://x/simple?a=b"])
def test_an_index_must_be_an_address_of_the_web(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGSTRIDE_TOOL_EXECUTOR_PACKAGE_INDEX", index)
    with pytest.raises(ValidationError, match=r"must be http:// or https:// with a host and a path"):
        ToolExecutorSettings()


def test_wheels_of_these_tests_are_wheels() -> None:
    with zipfile.ZipFile(io.BytesIO(wheel("a", "1", "", script="a"))) as archive:
        assert archive.testzip() is None
