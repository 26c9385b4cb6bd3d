"""The host's side of one call's way out: a unix socket in the folder that the sandbox sees, and the proxy behind it.

Nothing else of the host's network is in the sandbox: its own network namespace stays empty, and names are resolved here.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from longstride.contracts.v1.egress import Egress
from longstride.sandbox.base import Execution, Owner
from longstride.sandbox.egress.inside import SOCKET
from longstride.sandbox.egress.proxy import Proxy, World
from longstride.sandbox.egress.served import NO_SITES, Sites

BACKLOG = 128
RESOLVERS = 4
"""Names that are looked up at a time."""


class Gate:
    """Open from ``start`` to ``close``. One thread serves all its connections."""

    def __init__(self, egress: Egress, listener: socket.socket, world: World, sites: Sites = NO_SITES) -> None:
        self._egress = egress
        self._listener = listener
        self._resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="egress-resolver")
        self._proxy = Proxy(egress, world, self._resolvers, sites)
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="egress-proxy", daemon=True)

    def start(self) -> None:
        """From now on connections are answered."""
        self._thread.start()

    def close(self) -> None:
        """Cut what is under way. A second call does nothing."""
        self._proxy.ended.set()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    def account(self, execution: Execution) -> Execution:
        """Close, and add to a command's end what went through here."""
        held_back = self._proxy.held_back(execution.usage.wall_ms / 1e3)
        self.close()
        done = replace(execution, connections=self._proxy.ledger.connections())
        if execution.status == "timeout" and held_back:
            rate = f"egress.kbytes_per_s={self._egress.kbytes_per_s}"
            return replace(done, limit=rate, deadline=execution.limit)
        if self._proxy.exhausted and execution.status == "failed" and not execution.killed:
            return replace(done, status="limit", limit=self._proxy.limit)
        return done

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        """The runner cancels the connections that are left, and waits for them."""
        server = await asyncio.start_unix_server(self._proxy.serve, sock=self._listener)
        deaf = asyncio.ensure_future(self._close_when_full(server))
        await self._closing.wait()
        deaf.cancel()
        server.close()

    async def _close_when_full(self, server: asyncio.Server) -> None:
        """Those who connect are turned away by the kernel from then on; what is under way goes on."""
        await self._proxy.full.wait()
        server.close()


class NoGate:
    """For commands without a way out."""

    def account(self, execution: Execution) -> Execution:
        """As it is."""
        return execution


class Gates:
    """Opens gates; a backend has one."""

    def __init__(self, world: World | None = None) -> None:
        self._world = world or World()

    @contextmanager
    def open(
        self, egress: Egress | None, folder: Path, owner: Owner | None, sites: Sites = NO_SITES
    ) -> Iterator[Gate | NoGate]:
        """A gate while the command runs.

        Args:
            egress: what the task allows; ``None``: nothing, and there is no socket.
            folder: shown to the sandbox as ``SUPPORT``; removed by its maker, the socket with it.
            owner: whose processes may connect; ``None``: this process's own ids.
            sites: hosts that the gate answers itself, where the rules name them.
        """
        if egress is None:
            yield NoGate()
            return
        gate = Gate(egress, _listen(folder, owner), self._world, sites)
        gate.start()
        try:
            yield gate
        finally:
            gate.close()


def _listen(folder: Path, owner: Owner | None) -> socket.socket:
    """Bound through the folder's descriptor: a socket's path has 107 bytes at the most."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = f"/proc/self/fd/{directory}/{SOCKET}"
        listener.bind(path)
        os.chmod(path, 0o600)  # noqa: PTH101 - through the descriptor
        if owner:
            os.chown(path, owner.uid, owner.gid)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(directory)
    return listener
