"""The proxy of one call: it judges each connection, resolves its name once, and connects to the address that it judged.

CONNECT for anything, absolute ``http://`` URIs for plain HTTP, one request a connection. The code in the sandbox is the client.
"""

import asyncio
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import h11

from longstride.contracts.v1.egress import Egress
from longstride.sandbox.egress.addresses import Addresses
from longstride.sandbox.egress.allowlist import not_listed, rule_for
from longstride.sandbox.egress.flow import Flow, FlowExhausted, flow
from longstride.sandbox.egress.ledger import Entry, Ledger
from longstride.sandbox.egress.request import Refusal, Target, target
from longstride.sandbox.egress.served import NO_SITES, Answer, Caller, Served, Sites, Unserved

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
REASON = 200
UNPRINTABLE = re.compile(r"[^\x20-\x7e]")

Resolve = Callable[[str, int], Sequence[str]]
"""(host, port) → addresses, the best first. Blocks; raises OSError."""


def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """The host's own resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one call may ask of the proxy."""

    at_once: int = 32
    """Connections."""
    in_all: int = 1000
    """Connections; those after it are refused."""
    recorded: int = 4000
    """Connections; those after it are closed unheard, so that the record stays whole."""
    head_bytes: int = 16 * 1024
    head_s: float = 10.0
    """Seconds for a whole request head."""
    resolve_s: float = 10.0
    connect_s: float = 10.0
    addresses: int = 4
    """Addresses of a name that are tried."""
    idle_s: float = 60.0
    """Seconds in which nothing moves either way."""
    total_s: float = 3600.0
    """Seconds of one connection."""
    hang_up_s: float = 10.0
    """Seconds for the other side to take what is left for it; then it is dropped, so that nobody keeps a descriptor of this process."""


@dataclass(frozen=True, slots=True)
class World:
    """What a proxy needs from outside. Tests give their own."""

    addresses: Addresses = field(default_factory=Addresses)
    resolve: Resolve = resolve_by_system
    bounds: Bounds = field(default_factory=Bounds)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """All connections of one call. Lives in one event loop."""

    def __init__(self, egress: Egress, world: World, resolvers: Executor, sites: Sites = NO_SITES) -> None:
        """
        Args:
            egress: what the task allows.
            world: what is outside.
            resolvers: threads in which names are resolved, and ``sites`` asked.
            sites: hosts that are answered here.
        """
        self._egress = egress
        self._world = world
        self._resolvers = resolvers
        self._sites = sites
        self.ended = threading.Event()
        """Set when nobody waits for answers any more."""
        self.full = asyncio.Event()
        """Set when nobody is heard any more: to answer the door would be work without end."""
        self.ledger = Ledger(world.now)
        self.outward = flow(egress.kbytes_per_s, egress.max_mbytes, world.clock, egress.sent_bytes)
        self.inward = flow(egress.kbytes_per_s, egress.max_mbytes, world.clock, egress.received_bytes)

    @property
    def exhausted(self) -> Flow | None:
        """The direction in which the call has moved all it may."""
        return next((way for way in (self.outward, self.inward) if way.exhausted), None)

    @property
    def limit(self) -> str | None:
        """What held that direction, e.g. ``egress.max_mbytes=64``."""
        spent = self.exhausted
        if spent is None:
            return None
        if spent.cap == self._egress.max_mbytes << 20:
            return f"egress.max_mbytes={self._egress.max_mbytes}"
        return f"egress.{'sent' if spent is self.outward else 'received'}_bytes={spent.cap}"

    def held_back(self, ran_s: float) -> bool:
        """Whether a call that is stopped now, after ``ran_s`` seconds, is one whose transfers the rate held back."""
        return self.outward.hold.explains(ran_s) or self.inward.hold.explains(ran_s)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end. What becomes of it is in the ledger."""
        if len(self.ledger.entries) >= self._world.bounds.recorded:
            self.full.set()
            writer.transport.abort()
            return
        entry = self.ledger.open()
        try:
            async with _hung_up(writer, self._world.bounds.hang_up_s):
                await self._answer(entry, (reader, writer))
        except asyncio.CancelledError:
            entry.cut("the call ended")
        finally:
            self.ledger.close(entry)

    async def _answer(self, entry: Entry, client: Streams) -> None:
        """Carry it, or say in one sentence why not."""
        try:
            await self._carry(entry, client)
        except Refusal as refusal:
            entry.verdict, entry.why = ("failed" if refusal.failed else "refused"), str(refusal)
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._world.bounds.head_s):
                    await _say(client[1], refusal)

    async def _carry(self, entry: Entry, client: Streams) -> None:
        self._require_room()
        conversation = h11.Connection(h11.SERVER, max_incomplete_event_size=self._world.bounds.head_bytes)
        request = await self._head(conversation, client[0])
        wanted = target(request)
        entry.host, entry.port = wanted.host, wanted.port
        rule = rule_for(self._egress, wanted.host, wanted.port)
        if rule is None:
            raise Refusal(403, not_listed(self._egress, wanted.host, wanted.port))
        if site := self._sites.get(wanted.host):
            await self._serve(entry, wanted, client, site)
            return
        addresses = await self._resolve(wanted)
        server = await self._connect(entry, addresses, wanted.port)
        entry.verdict, entry.why = "allowed", f"rule {rule}"
        transfer = Transfer(entry, self._world, self.outward, self.inward)
        async with _hung_up(server[1], self._world.bounds.hang_up_s):
            if wanted.onward is None:
                await self._bounded(transfer, transfer.tunnel(conversation.trailing_data[0], client, server))
            else:
                await self._bounded(transfer, transfer.request(conversation, wanted.onward, client, server))

    async def _serve(self, entry: Entry, wanted: Target, client: Streams, site: Served) -> None:
        """What the host's own side has of it.

        Raises:
            Refusal: nothing.
        """
        if wanted.onward is None or wanted.onward.method not in (b"GET", b"HEAD"):
            raise Refusal(405, f"{wanted.host} is asked with GET or HEAD, by http:// alone")
        path, whole = wanted.onward.target.decode("ascii"), wanted.onward.method == b"GET"
        caller = Caller(self.ended, self.inward.charge)
        ask = partial(site.answer, path, caller, whole=whole)
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._resolvers, ask)
        except Unserved as error:
            raise Refusal(error.status, str(error), failed=True) from error
        finally:
            entry.received = caller.fetched
        entry.verdict, entry.why = "allowed", answer.told
        transfer = Transfer(entry, self._world, self.outward, self.inward, paid=caller.fetched)
        with answer.body:
            await self._bounded(transfer, transfer.answer(answer, client[1], whole=whole))

    def _require_room(self) -> None:
        bounds, ledger = self._world.bounds, self.ledger
        if spent := self.exhausted:
            raise Refusal(403, f"this call has moved the {_mebibytes(spent)} that it may move")
        if ledger.under_way > bounds.at_once:
            raise Refusal(503, f"more than {bounds.at_once} connections at once")
        if len(ledger.entries) > bounds.in_all:
            raise Refusal(403, f"this call has made the {bounds.in_all} connections that it may make")

    async def _head(self, conversation: h11.Connection, reader: asyncio.StreamReader) -> h11.Request:
        """The request, within its time and size."""
        try:
            async with asyncio.timeout(self._world.bounds.head_s):
                while (event := conversation.next_event()) is h11.NEED_DATA:
                    conversation.receive_data(await reader.read(self._world.bounds.head_bytes))
        except TimeoutError as error:
            raise Refusal(408, f"the request's head was not complete within {self._world.bounds.head_s:g} s") from error
        except h11.RemoteProtocolError as error:
            raise Refusal(error.error_status_hint, f"not a request that this proxy reads: {error}") from error
        except OSError as error:
            raise Refusal(400, "the client hung up before it had asked for anything") from error
        if not isinstance(event, h11.Request):
            raise Refusal(400, "the client hung up before it had asked for anything")
        return event

    async def _resolve(self, wanted: Target) -> Sequence[str]:
        """Once; every address must be one that may be reached, for a name that mixes them is up to something.

        Raises:
            Refusal: it has no address, or one that may not be reached.
        """
        loop, bounds = asyncio.get_running_loop(), self._world.bounds
        lookup = loop.run_in_executor(self._resolvers, self._world.resolve, wanted.host, wanted.port)
        try:
            async with asyncio.timeout(bounds.resolve_s):
                addresses = list(dict.fromkeys(await lookup))
        except (OSError, UnicodeError) as error:
            why = f"no answer within {bounds.resolve_s:g} s" if isinstance(error, TimeoutError) else error
            raise Refusal(502, f"{wanted.host} has no address: {why}", failed=True) from error
        if not addresses:
            raise Refusal(502, f"{wanted.host} has no address", failed=True)
        for address in addresses:
            if reason := self._world.addresses.refusal(address):
                raise Refusal(403, f"{wanted.host} is at {reason}: sandboxes never reach such addresses")
        return addresses[: bounds.addresses]

    async def _connect(self, entry: Entry, addresses: Sequence[str], port: int) -> Streams:
        said = ""
        for address in addresses:
            entry.address = address
            try:
                async with asyncio.timeout(self._world.bounds.connect_s):
                    return await asyncio.open_connection(address, port)
            except OSError as error:
                said = f"no answer within {self._world.bounds.connect_s:g} s"
                if not isinstance(error, TimeoutError):
                    said = error.strerror or str(error)
        raise Refusal(502, f"{entry.host}:{port} cannot be connected to at {entry.address}: {said}", failed=True)

    async def _bounded(self, transfer: "Transfer", work: Coroutine[Any, Any, None]) -> None:
        """Bytes both ways until both sides are done, or a bound cuts them."""
        bounds, entry = self._world.bounds, transfer.entry
        try:
            async with asyncio.timeout(bounds.total_s) as total, asyncio.timeout(bounds.idle_s) as transfer.idle:
                await work
        except TimeoutError as error:
            silent = f"cut after {bounds.idle_s:g} s of silence" if transfer.idle.expired() else f"broken: {error}"
            entry.cut(f"cut after {bounds.total_s:g} s" if total.expired() else silent)
        except FlowExhausted:
            assert self.exhausted, "one of the two ways has ended the exchange"
            entry.cut(f"cut at the {_mebibytes(self.exhausted)} that the call may move")
        except h11.ProtocolError as error:
            entry.cut(f"cut: the request's body is not well-formed: {error}")
        except OSError as error:
            entry.cut(f"broken: {error.strerror or error}")


@dataclass
class Transfer:
    """The bytes of one connection."""

    entry: Entry
    world: World
    outward: Flow
    inward: Flow
    paid: int = 0
    """Bytes to the sandbox that were charged when they were fetched."""
    idle: asyncio.Timeout = field(init=False)

    async def tunnel(self, early: bytes, client: Streams, server: Streams) -> None:
        """Everything, as it comes.

        Args:
            early: what the client sent before it was told that the tunnel is there.
        """
        client[1].write(ESTABLISHED)
        await client[1].drain()
        upload = asyncio.ensure_future(self._upload(early, client[0], server[1]))
        download = asyncio.ensure_future(self._download(server[0], client[1]))
        async with _ended(upload, download):
            await asyncio.gather(upload, download)

    async def request(
        self, conversation: h11.Connection, onward: h11.Request, client: Streams, server: Streams
    ) -> None:
        """One request and its body, of the length it was declared with; and the answer, until the server closes."""
        upload = asyncio.ensure_future(self._upload_request(conversation, onward, client[0], server[1]))
        download = asyncio.ensure_future(self._download(server[0], client[1]))
        async with _ended(upload, download):
            await asyncio.wait((upload, download), return_when=asyncio.FIRST_COMPLETED)
            if upload.done():
                upload.result()
            await download

    async def answer(self, answer: Answer, writer: asyncio.StreamWriter, *, whole: bool) -> None:
        """What was found on this side; ``whole``: not the head alone."""
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: {answer.media_type}\r\nContent-Length: {answer.size}\r\n"
            "Connection: close\r\n\r\n"
        )
        data = head.encode("ascii")
        while data:
            await self._receive(data, writer)
            data = answer.body.read(self.inward.chunk) if whole else b""
        self.entry.complete = True
        writer.write_eof()

    async def _upload(self, early: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = early or await reader.read(self.outward.chunk)
        while data:
            await self._send(data, writer)
            data = await reader.read(self.outward.chunk)
        writer.write_eof()

    async def _download(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(self.inward.chunk):
            await self._receive(data, writer)
        self.entry.complete = True
        writer.write_eof()

    async def _upload_request(
        self,
        conversation: h11.Connection,
        onward: h11.Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Parsed and written anew: what follows the body goes nowhere."""
        server = h11.Connection(h11.CLIENT)
        await self._send(server.send(onward) or b"", writer)
        while not isinstance(event := conversation.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                conversation.receive_data(await reader.read(self.outward.chunk))
            elif isinstance(event, h11.Data):
                await self._send(server.send(event) or b"", writer)
        if last := server.send(h11.EndOfMessage()):
            await self._send(last, writer)

    async def _receive(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        paid = min(self.paid, len(data))
        allowed = data[: paid + self.inward.room]
        self.paid -= paid
        await self._pace(self.inward, len(allowed) - paid)
        self.entry.received += len(allowed) - paid
        writer.write(allowed)
        await writer.drain()
        if len(allowed) < len(data):
            self.inward.stop()

    async def _send(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        allowed = data[: self.outward.room]
        await self._pace(self.outward, len(allowed))
        self.entry.sent += len(allowed)
        writer.write(allowed)
        await writer.drain()
        if len(allowed) < len(data):
            self.outward.stop()

    async def _pace(self, direction: Flow, amount: int) -> None:
        """Something moved: the silence is over, and as fast as this it may not go on."""
        wait_s = direction.take(amount)
        self.idle.reschedule(asyncio.get_running_loop().time() + self.world.bounds.idle_s + wait_s)
        if wait_s:
            await self.world.sleep(wait_s)


@asynccontextmanager
async def _hung_up(writer: asyncio.StreamWriter, seconds: float) -> AsyncIterator[None]:
    """It takes what is left for it, and is closed; once the call has ended, nobody waits for that."""
    try:
        yield
        await _hang_up(writer, seconds)
    finally:
        writer.transport.abort()


async def _hang_up(writer: asyncio.StreamWriter, seconds: float) -> None:
    writer.close()
    with suppress(OSError):  # gone already, or too slow
        async with asyncio.timeout(seconds):
            await writer.wait_closed()


@asynccontextmanager
async def _ended(*tasks: asyncio.Future[None]) -> AsyncIterator[None]:
    """None of them outlives this."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _mebibytes(spent: Flow) -> str:
    return f"{spent.cap / 2**20:.3g} MiB"


async def _say(writer: asyncio.StreamWriter, refusal: Refusal) -> None:
    """The sentence is the reason phrase, too: of a tunnel that was refused, clients show nothing else."""
    sentence = UNPRINTABLE.sub("?", str(refusal))
    body = sentence + "\n"
    head = (
        f"HTTP/1.1 {refusal.status} {sentence[:REASON]}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write((head + body).encode("ascii"))
    await writer.drain()
    writer.write_eof()
