"""The operator's package index over HTTP. It is reached wherever it is; other hosts that it names only where anybody may go."""

import ssl
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

import httpcore

from longstride.sandbox.egress.addresses import Addresses
from longstride.sandbox.egress.proxy import Resolve, resolve_by_system
from longstride.sandbox.egress.served import Caller, Unserved

TIMEOUT = {"connect": 10.0, "read": 30.0, "write": 10.0, "pool": 10.0}
"""Seconds."""
HOPS = 5
MOVED = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer whose body has not been read."""

    status: int
    media_type: str
    url: str
    """After redirects."""
    chunks: Iterable[bytes]


class NoAddress(ValueError):
    """Where the index sends to cannot be."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What must agree for two addresses to be of one server."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> "Origin":
        """Of an address.

        Raises:
            NoAddress: it is none that can be asked.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
            host.encode("idna")
        except ValueError as error:
            raise NoAddress(f"{url[:100]!r} ({error})") from error
        if not url.isascii() or not url.isprintable() or " " in url or not host:
            raise NoAddress(repr(url[:100]))
        return cls(parts.scheme, host, port)


class _Judged(httpcore.SyncBackend):
    """Connects to the address that was judged: a name is resolved once."""

    def __init__(self, addresses: Addresses, resolve: Resolve) -> None:
        self._addresses, self._resolve = addresses, resolve

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            found = self._resolve(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} has no address: {error.strerror}") from error
        if not found:
            raise httpcore.ConnectError(f"{host} has no address")
        for address in found:
            if why := self._addresses.refusal(address):
                raise Unserved(
                    403, f"the package index sends to {host}, which is at {why}: only the index itself may be there"
                )
        return super().connect_tcp(found[0], port, timeout, local_address, socket_options)


@dataclass
class Upstream:
    """May be asked from many threads."""

    index: str
    """Where its projects are, without a ``/`` at the end; a user and a password are sent to it alone."""
    addresses: Addresses = field(default_factory=Addresses)
    """Which places other than the index may be reached."""
    resolve: Resolve = resolve_by_system
    context: Callable[[], ssl.SSLContext] = ssl.create_default_context

    def __post_init__(self) -> None:
        parts = urlsplit(self.index)
        self._headers = {"User-Agent": "longstride/1", "Accept-Encoding": "identity"}
        self._login: dict[str, str] = {}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._login = {"Authorization": f"Basic {b64encode(login).decode()}"}
        netloc = parts.netloc.rpartition("@")[2]
        self.index = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))
        self._origin = Origin.of(self.index)
        tls = self.context()
        self._own = httpcore.ConnectionPool(ssl_context=tls)
        self._others = httpcore.ConnectionPool(ssl_context=tls, network_backend=_Judged(self.addresses, self.resolve))

    def close(self) -> None:
        """Hang up."""
        self._own.close()
        self._others.close()

    @contextmanager
    def get(self, url: str, caller: Caller, accept: str = "*/*") -> Iterator[Fetched]:
        """Ask for an address that the index gave.

        Args:
            url: of the index, or one that its page names.
            caller: told of each byte that comes.
            accept: media types.

        Raises:
            Unserved: there is no answer; or, while it is read, it ends early.
        """
        try:
            with self._answer(url, accept) as (address, answer):
                kind = _header(answer, b"content-type")
                yield Fetched(answer.status, kind, address, _counted(caller, answer.iter_stream()))
        except NoAddress as error:
            raise Unserved(502, f"the package index names an address that is none: {error}") from error
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            why = str(error) or type(error).__name__
            raise Unserved(502, f"the package index does not answer at {_place(url)}: {why}") from error

    @contextmanager
    def _answer(self, url: str, accept: str) -> Iterator[tuple[str, httpcore.Response]]:
        """After redirects. Once they have left the index they do not come back into it: an address of its own that somebody
        else chose may be anything."""
        own = True
        for _ in range(HOPS + 1):
            own = own and Origin.of(url) == self._origin
            if not own and Origin.of(url) == self._origin:
                raise Unserved(502, f"the package index sends away, and is sent back to at {_place(url)}")
            pool, login = (self._own, self._login) if own else (self._others, {})
            headers = {**self._headers, **login, "Accept": accept}
            with pool.stream("GET", url, headers=list(headers.items()), extensions={"timeout": TIMEOUT}) as answer:
                if answer.status not in MOVED:
                    yield url, answer
                    return
                url = _joined(url, _header(answer, b"location"))
            if Origin.of(url).scheme not in ("http", "https"):
                raise Unserved(502, f"the package index sends to {_place(url)}, which is neither http nor https")
        raise Unserved(502, f"the package index sends through more than {HOPS} redirects")


def _counted(caller: Caller, chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        caller.took(len(chunk))
        yield chunk


def _header(answer: httpcore.Response, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in answer.headers if key.lower() == name), "")


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise NoAddress(f"{location[:100]!r} ({error})") from error


def _place(url: str) -> str:
    """Scheme, host and port: a path may carry a signature."""
    origin = Origin.of(url)
    return f"{origin.scheme}://{origin.host}:{origin.port}"
