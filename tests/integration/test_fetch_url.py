"""Pages of local servers, fetched from inside real sandboxes through the call's proxy.

The servers listen on loopback, which the tests open by argument; names come from a resolver of theirs.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_network
from pathlib import Path

import pytest

from longstride.contracts.v1.egress import Egress, EgressRule
from longstride.contracts.v1.events import ActionExecuted
from longstride.sandbox.egress.addresses import Addresses
from longstride.sandbox.egress.gate import Gates
from longstride.sandbox.egress.proxy import World
from tests.support.http_server import listening
from tests.support.sandboxes import SMALL, Arena, arena
from tests.support.tls_front import TlsFront

HOST, ELSEWHERE = "pages.example.com", "other.example.com"
PAGE = (
    "<html><head><title>Prices</title><script>var a = '<p>hidden</p>'</script></head><body><h1>Prices</h1>"
    "<p>Tea:  4&nbsp;&euro;. <a href='/more?x=1'>More</a></p></body></html>"
)
PICTURE = bytes(range(256)) * 8


class Pages(BaseHTTPRequestHandler):
    """Each path is an answer of its own kind."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        name = self.path.strip("/").partition("?")[0] or "page"
        getattr(self, f"say_{name}", self.say_nothing_found)()

    do_HEAD = do_GET

    def say_page(self) -> None:
        self.answer(PAGE.encode(), "text/html; charset=utf-8")

    def say_latin(self) -> None:
        self.answer("Köln".encode("latin-1"), "text/plain; charset=iso-8859-1")

    def say_picture(self) -> None:
        self.answer(PICTURE, "image/png")

    def say_large(self) -> None:
        self.answer(b"x" * 200_000, "text/plain")

    def say_endless(self) -> None:
        """No length: it ends where the connection does."""
        self.close_connection = True
        self.start("text/plain")
        self.wfile.write(b"y" * 200_000)

    def say_bomb(self) -> None:
        self.answer(gzip.compress(bytes(50 << 20)), "text/plain", **{"Content-Encoding": "gzip"})

    def say_packed(self) -> None:
        self.answer(gzip.compress(b"unpacked"), "text/plain", **{"Content-Encoding": "gzip"})

    def say_broken(self) -> None:
        self.close_connection = True
        self.start("text/plain", **{"Content-Length": "100"})
        self.wfile.write(b"half")

    def say_moved(self) -> None:
        self.answer(b"", status=302, Location="/page")

    def say_away(self) -> None:
        self.answer(b"", status=302, Location=f"http://{ELSEWHERE}:{self.server.server_address[1]}/page")

    def say_circle(self) -> None:
        self.answer(b"", status=302, Location="/circle")

    def say_file(self) -> None:
        self.answer(b"", status=302, Location="file:///etc/passwd")

    def say_nothing_found(self) -> None:
        self.answer(b"no such page", "text/plain", status=404)

    def answer(self, body: bytes, kind: str | None = None, *, status: int = 200, **headers: str) -> None:
        self.start(kind, status=status, **{"Content-Length": str(len(body)), **headers})
        if self.command == "GET":
            self.wfile.write(body)

    def start(self, kind: str | None = None, *, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**({"Content-Type": kind} if kind else {}), **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@dataclass
class Net:
    """A sandboxed network of one host, by HTTP and by two kinds of TLS."""

    box: Arena
    plain: int
    trusted: int
    untrusted: int

    @property
    def egress(self) -> Egress:
        return Egress(rules=(EgressRule(host=HOST, ports=(self.plain, self.trusted, self.untrusted, 9)),))

    def fetch(self, url: str, egress: Egress | None = None, **arguments: object) -> ActionExecuted:
        rules = egress or self.egress
        tools = ("fetch_url", "shell")
        return self.box.act("fetch_url", tools=tools, egress=rules, limits=LIMITS, url=url, **arguments)

    def page(self, name: str = "page") -> str:
        return f"http://{HOST}:{self.plain}/{name}"


LIMITS = SMALL.model_copy(update={"disk_mb": 1})


@pytest.fixture(scope="module", params=("bubblewrap", "runc"))
def net(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    folder = tmp_path_factory.mktemp("certificates")
    other = folder / "other"
    other.mkdir()
    with (
        listening(Pages) as port,
        TlsFront("127.0.0.1", port, folder, HOST) as good,
        TlsFront("127.0.0.1", port, other, HOST) as bad,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("SSL_CERT_FILE", str(good.certificate))
        world = World(addresses=Addresses([ip_network("127.0.0.0/8")]), resolve=lambda host, port: ["127.0.0.1"])
        with arena(name=request.param, gates=Gates(world)) as box:
            yield Net(box, port, good.port, bad.port)


def seen(executed: ActionExecuted) -> tuple[str, str]:
    assert executed.observation is not None
    return executed.observation.status, executed.observation.text


def test_a_page_reads_as_text_and_is_in_the_record(net: Net) -> None:
    got = net.fetch(net.page())
    assert seen(got) == (
        "ok",
        f"200 OK {net.page()}\ntext/html; charset=utf-8, {len(PAGE)} bytes\n\n"
        f"# Prices\n\nTea: 4\xa0€. More (http://{HOST}:{net.plain}/more?x=1)",
    )
    assert got.traffic is not None
    assert [(c.host, c.port, c.verdict) for c in got.traffic.connections] == [(HOST, net.plain, "allowed")]
    assert got.traffic.received > len(PAGE)


def test_tls_with_an_authority_of_the_operators(net: Net) -> None:
    status, text = seen(net.fetch(f"https://{HOST}:{net.trusted}/page"))
    assert (status, text.splitlines()[0]) == ("ok", f"200 OK https://{HOST}:{net.trusted}/page")
    assert "# Prices" in text


def test_a_server_that_nobody_vouches_for(net: Net) -> None:
    url = f"https://{HOST}:{net.untrusted}/page"
    assert seen(net.fetch(url)) == (
        "failed",
        f"not fetched: the certificate that the server shows for {url} is not to be trusted: self-signed certificate",
    )


def test_other_programs_trust_the_same(net: Net) -> None:
    command = f"curl -sS https://{HOST}:{net.trusted}/page | head -c 6"
    told = net.box.act("shell", tools=("shell",), egress=net.egress, command=command)
    assert seen(told) == ("ok", "<html>\n")


def test_what_is_no_tls_at_all(net: Net) -> None:
    url = f"https://{HOST}:{net.plain}/page"
    status, text = seen(net.fetch(url))
    assert (status, text.startswith(f"not fetched: TLS with the server of {url} failed: ")) == ("failed", True)


def test_only_the_head(net: Net) -> None:
    status, text = seen(net.fetch(net.page("large"), method="HEAD", max_bytes=10))
    assert (status, text) == ("ok", f"200 OK {net.page('large')}\ntext/plain, 200000 bytes")


def test_each_hop_is_judged(net: Net) -> None:
    assert seen(net.fetch(net.page("moved")))[1].startswith(f"200 OK {net.page()}\n")
    away = net.fetch(net.page("away"))
    assert seen(away) == (
        "denied",
        f"not fetched: {ELSEWHERE}:{net.plain} is not on this task's allow-list, which is "
        f"{HOST}:{net.plain},{net.trusted},{net.untrusted},9",
    )
    assert away.traffic is not None
    assert [c.verdict for c in away.traffic.connections] == ["allowed", "refused"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("circle", "{url} leads in a circle, or through more than 10 redirects"),
        ("file", "{url} leads to file:///etc/passwd, which is neither http nor https"),
        ("broken", "the answer of {url} broke off: 96 bytes are missing"),
    ],
)
def test_what_leads_nowhere(net: Net, name: str, why: str) -> None:
    assert seen(net.fetch(net.page(name))) == ("failed", "not fetched: " + why.format(url=net.page(name)))


def test_a_page_that_is_not_there(net: Net) -> None:
    got = net.fetch(net.page("nowhere"), path="page.txt")
    assert seen(got) == (
        "failed",
        f"404 Not Found {net.page('nowhere')}\ntext/plain, 12 bytes\n\nno such page",
    )
    assert not saved(net, got, "page.txt")


def saved(net: Net, got: ActionExecuted, name: str) -> str:
    """Size and digest as a next step sees them."""
    told = net.box.act("shell", workspace=got.workspace, command=f"[ -e {name} ] && sha256sum {name}; ls -A")
    assert told.observation is not None
    return told.observation.text if name in told.observation.text else ""


def test_bytes_are_saved_as_they_are_and_not_shown(net: Net) -> None:
    assert seen(net.fetch(net.page("picture")))[1].endswith("The body is not text; give a path to save it.")
    got = net.fetch(net.page("picture"), path="/workspace/in/a picture.png")
    assert seen(got) == (
        "ok",
        f"200 OK {net.page('picture')}\nimage/png, 2048 bytes, saved as in/a picture.png",
    )
    told = net.box.act("shell", workspace=got.workspace, command="sha256sum 'in/a picture.png'; ls -A in")
    # printf of the 256 bytes, eight times, through sha256sum(1)
    assert seen(told)[1].split() == [SHA256_OF_PICTURE, "in/a", "picture.png", "a", "picture.png"]


SHA256_OF_PICTURE = "10fc3c51a152e90e5b90319b601d92ccf37290ef53c35ff92507687d8a911a08"


def test_text_of_another_encoding_and_packed_text(net: Net) -> None:
    assert seen(net.fetch(net.page("latin")))[1].endswith("\n\nKöln")
    assert seen(net.fetch(net.page("packed")))[1].endswith("8 bytes\n\nunpacked")


@pytest.mark.parametrize("name", ["large", "endless", "bomb"])
@pytest.mark.parametrize("path", [None, "kept.txt"])
def test_a_body_that_is_too_large(net: Net, name: str, path: str | None) -> None:
    got = net.fetch(net.page(name), max_bytes=100_000, **({"path": path} if path else {}))
    status, text = seen(got)
    assert status == "failed"
    assert text.startswith("not fetched: the body has ")
    assert text.endswith(": ask for a larger max_bytes, or for less")
    assert not saved(net, got, "kept.txt")


def test_a_workspace_that_is_full(net: Net) -> None:
    got = net.fetch(net.page("bomb"), max_bytes=100 << 20, path="kept.txt")
    assert seen(got) == ("limit", "not fetched: the workspace has no room for it")
    assert got.observation is not None
    assert got.observation.limit == "disk_mb=1"
    assert not saved(net, got, "kept.txt")


def test_a_path_through_a_link_that_leads_out(net: Net) -> None:
    before = net.box.act("shell", command="ln -s /tmp out")
    got = net.box.act(
        "fetch_url",
        tools=("fetch_url",),
        egress=net.egress,
        workspace=before.workspace,
        url=net.page(),
        path="out/page.html",
    )
    assert seen(got) == (
        "failed",
        "not fetched: it cannot be saved as out/page.html: a link on the path leads out of the workspace",
    )


def test_the_volume_of_a_call_holds(net: Net) -> None:
    rules = net.egress.model_copy(update={"max_mbytes": 1, "kbytes_per_s": 1_000_000})
    got = net.fetch(net.page("large"), egress=rules, path="a")
    assert seen(got)[0] == "ok"
    told = net.fetch(f"http://{HOST}:{net.plain}/large", egress=rules, path="../a")
    assert seen(told)[0] == "invalid"


def test_a_server_that_is_not_there(net: Net) -> None:
    status, text = seen(net.fetch(f"http://{HOST}:9/"))
    assert status == "failed"
    assert text == f"not fetched: {HOST}:9 cannot be connected to at 127.0.0.1: Connect call failed ('127.0.0.1', 9)"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_sandboxs_own_address_goes_to_the_proxy_too(net: Net, host: str) -> None:
    status, text = seen(net.fetch(f"http://{host}:{net.plain}/"))
    assert (status, text.startswith(f"not fetched: {host}:{net.plain} is not on this task's allow-list")) == (
        "denied",
        True,
    )


def test_a_task_without_a_network(net: Net) -> None:
    told = net.box.act("fetch_url", tools=("fetch_url",), url=net.page())
    assert seen(told) == (
        "denied",
        "nothing was fetched: this task has no network. It reaches the hosts that it was submitted with (--allow-host HOST)",
    )
    assert told.traffic is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (
            "pages.example.com",
            "'pages.example.com' is not a URL that can be fetched: give http://HOST/… or https://HOST/…",
        ),
        (
            "ftp://a.example/x",
            "'ftp://a.example/x' is not a URL that can be fetched: give http://HOST/… or https://HOST/…",
        ),
        ("http://a.example:99999/", "'http://a.example:99999/' is not a URL: Port out of range 0-65535"),
        ("http://me:word@a.example/", "a URL that can be fetched names no user and no password"),
        (
            "http://münchen.example/",
            "'münchen.example' is not a host: give a name in ASCII (xn--… for others) or an IPv4 address",
        ),
    ],
)
def test_what_is_no_url(net: Net, url: str, why: str) -> None:
    assert seen(net.fetch(url)) == ("invalid", why)


def test_certificates_of_the_host_where_the_operator_names_none(tmp_path: Path, monkeypatch) -> None:
    from longstride.sandbox import certificates

    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert certificates.bundle().count(b"BEGIN CERTIFICATE") > 20
