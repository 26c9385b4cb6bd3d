"""What a client asks the proxy for, read strictly. h11 does the grammar; what two readers could take for two things is refused."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

from longstride.contracts.v1.egress import host_name

HTTP_PORT, HTTPS_PORT = 80, 443
AUTHORITY = re.compile(rb"(?P<host>[^:@/?#\[\]\s]+)(?::(?P<port>[0-9]{1,5}))?")
HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"host"),
        *(b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"),
    }
)
"""Meant for the proxy alone (RFC 9110 7.6.1), or made anew."""


class Refusal(Exception):
    """The connection ends here; the client is told why."""

    def __init__(self, status: int, why: str, *, failed: bool = False) -> None:
        """
        Args:
            status: of HTTP.
            why: one sentence.
            failed: it was allowed, and the network let it down.
        """
        super().__init__(why)
        self.status = status
        self.failed = failed


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request wants to go."""

    host: str
    port: int
    onward: h11.Request | None
    """What the server is sent; ``None`` for a tunnel."""


def target(request: h11.Request) -> Target:
    """The one place that a request names.

    Raises:
        Refusal: it names none, or two, or is no request to a proxy.
    """
    wanted = _tunnel(request) if request.method == b"CONNECT" else _plain(request)
    _agree(request, wanted)
    return wanted


def _tunnel(request: h11.Request) -> Target:
    """urllib asks for tunnels in HTTP/1.0."""
    if request.http_version not in (b"1.0", b"1.1"):
        raise Refusal(505, "only HTTP/1.1 goes through this proxy")
    host, port = _authority(request.target, None)
    return Target(host, port, None)


def _plain(request: h11.Request) -> Target:
    if request.http_version != b"1.1":
        raise Refusal(505, "only HTTP/1.1 goes through this proxy")
    try:
        uri = urlsplit(request.target)
    except ValueError as error:
        raise Refusal(400, "the request names no URI") from error
    if uri.scheme.lower() != b"http" or not uri.netloc or uri.fragment:
        raise Refusal(400, "ask a proxy for http://host/path, or CONNECT host:port for anything else")
    framings = {name for name, _ in request.headers} & {b"content-length", b"transfer-encoding"}
    if len(framings) > 1:
        raise Refusal(400, "the length of the body is given twice, as Content-Length and as Transfer-Encoding")
    host, port = _authority(uri.netloc, HTTP_PORT)
    path = (uri.path or b"/") + (b"?" + uri.query if uri.query else b"")
    return Target(host, port, h11.Request(method=request.method, target=path, headers=_onward(request, host, port)))


def _onward(request: h11.Request, host: str, port: int) -> list[tuple[bytes, bytes]]:
    """One request a connection, with the host that was judged."""
    named = {
        word.strip().lower() for name, value in request.headers if name == b"connection" for word in value.split(b",")
    }
    framing = {b"content-length", b"transfer-encoding"}
    dropped = HOP_BY_HOP | (named - framing)
    where = host if port == HTTP_PORT else f"{host}:{port}"
    kept = [(name, value) for name, value in request.headers.raw_items() if name.lower() not in dropped]
    return [(b"Host", where.encode()), *kept, (b"Connection", b"close")]


def _agree(request: h11.Request, wanted: Target) -> None:
    """A second name in Host would be the one that the server believes."""
    hosts = [value for name, value in request.headers if name == b"host"]
    if wanted.onward is not None and not hosts:
        raise Refusal(400, "the header Host is missing")
    for value in hosts:
        host, port = _authority(value, wanted.port)
        if (host, port) != (wanted.host, wanted.port):
            raise Refusal(400, f"the header Host names {host}:{port}, and the request {wanted.host}:{wanted.port}")


def _authority(text: bytes, default: int | None) -> tuple[str, int]:
    found = AUTHORITY.fullmatch(text)
    if not found:
        raise Refusal(400, "the request must name its server as host:port, without user or brackets")
    port = int(found["port"]) if found["port"] else default
    if port is None or not 0 < port < 65_536:
        raise Refusal(400, "the request must name a port from 1 to 65535")
    try:
        return host_name(found["host"].decode("ascii", "replace")), port
    except ValueError as error:
        raise Refusal(400, str(error)) from error
