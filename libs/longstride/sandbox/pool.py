"""Sandboxes that wait, above any backend: a call takes one instead of making one, and nobody uses it a second time.

A thread of the pool makes them (``--die-with-parent`` follows it) and takes away those that demand no longer explains.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import (
    NEVER,
    Cancellation,
    Capabilities,
    Command,
    Dialogue,
    Execution,
    Sandbox,
    SandboxBackend,
    Spec,
    Volumes,
    run_once,
)
from longstride.sandbox.demand import Bounds, Demand
from longstride.sandbox.errors import SandboxFailed

logger = logging.getLogger(__name__)

Source = Literal["warm", "cold"]
"""Whether the sandbox waited for the call, or the call for it."""
PATIENCE_S = (0.2, 10.0)
"""Shortest and longest pause after a sandbox could not be made."""


@dataclass(frozen=True, slots=True)
class Level:
    """A pool's size."""

    ready: int
    """Sandboxes that wait."""
    used: int
    """Sandboxes that work."""
    target: int
    """How many should wait."""


class Watcher(Protocol):
    """Is told what the pool does; its calls must not block."""

    def acquired(self, source: Source, seconds: float) -> None:
        """A call got its sandbox, after so long."""
        ...

    def level(self, level: Level) -> None:
        """The pool changed."""
        ...


class Unwatched:
    """Nobody counts."""

    def acquired(self, source: Source, seconds: float) -> None:
        """Nothing."""

    def level(self, level: Level) -> None:
        """Nothing."""


Model = SandboxLimits | None
"""What sandboxes that may stand in for each other have in common: the limits, where they are fixed."""


@dataclass
class Shelf:
    """Sandboxes of one model."""

    spec: Spec
    demand: Demand
    floor: int
    ready: deque[Sandbox] = field(default_factory=deque)

    @property
    def target(self) -> int:
        """How many should wait."""
        return max(self.floor, self.demand.peak())


class Pool:
    """A backend whose ``create`` seldom waits. Where the backend cannot make sandboxes beforehand, it is the backend alone."""

    def __init__(self, backend: SandboxBackend, bounds: Bounds = Bounds(), watcher: Watcher | None = None) -> None:
        """
        Args:
            backend: makes the sandboxes; closed with the pool.
            bounds: how many wait.
            watcher: for metrics.
        """
        self._backend = backend
        self._bounds = bounds
        self._watcher = watcher or Unwatched()
        self._capabilities = backend.capabilities()
        self._shelves: dict[Model, Shelf] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._pause_s = 0.0
        self._shelf(Spec(SandboxLimits()), bounds.floor)
        self._keeper = threading.Thread(target=self._keep, name="sandbox-pool", daemon=True)
        if self._capabilities.prewarm:
            self._keeper.start()

    @property
    def volumes(self) -> Volumes:
        """The backend's."""
        return self._backend.volumes

    @property
    def level(self) -> Level:
        """Its size now."""
        with self._changed:
            return self._level()

    def capabilities(self) -> Capabilities:
        """The backend's."""
        return self._capabilities

    def create(self, spec: Spec) -> "PooledSandbox":
        """One that waits, else a new one; in either case the pool makes another for the next call."""
        self._capabilities.admit(spec)
        if isinstance(spec.network, PooledSandbox):
            spec = replace(spec, network=spec.network.inner)
        started = time.monotonic()
        shelf, sandbox = self._take(spec)
        try:
            made = sandbox or self._backend.create(spec)
        except BaseException:
            self._gave_back(shelf)
            raise
        self._watcher.acquired("warm" if sandbox else "cold", time.monotonic() - started)
        return PooledSandbox(made, lambda: self._gave_back(shelf))

    def run(self, command: Command, cancelled: Cancellation = NEVER, dialogue: Dialogue | None = None) -> Execution:
        """Take, run, destroy."""
        return run_once(self.create, command, cancelled, dialogue)

    def reap(self) -> list[str]:
        """The backend's."""
        return self._backend.reap()

    def close(self) -> None:
        """Destroy what waits, then close the backend. No call may be under way."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._keeper.is_alive():
            self._keeper.join()
        for shelf in self._shelves.values():
            while shelf.ready:
                shelf.ready.popleft().destroy()
        self._backend.close()

    def _take(self, spec: Spec) -> tuple[Shelf, Sandbox | None]:
        """The first that is still alive."""
        dead = []
        with self._changed:
            shelf = self._shelf(spec, 0)
            shelf.demand.took()
            while shelf.ready and not shelf.ready[0].alive:
                dead.append(shelf.ready.popleft())
            # Nobody knew of the links and folders, or of a network to share, when the ones that wait were made.
            plain = not (spec.links or spec.folders) and spec.network is None
            sandbox = shelf.ready.popleft() if shelf.ready and plain else None
            self._tell()
        for broken in dead:
            logger.warning("a waiting sandbox had died")
            self._remove(broken)
        return shelf, sandbox

    def _gave_back(self, shelf: Shelf) -> None:
        with self._changed:
            shelf.demand.gave_back()
            self._tell()

    def _shelf(self, spec: Spec, floor: int) -> Shelf:
        model = spec.limits if self._capabilities.fixed_limits else None
        if model not in self._shelves:
            plain = Spec(spec.limits, spec.isolation)
            self._shelves[model] = Shelf(plain, Demand(self._bounds.idle_s), floor)
        return self._shelves[model]

    def _keep(self) -> None:
        """Make, or take away, one at a time until the pool is closed."""
        while (todo := self._wait_for_work()) is not None:
            todo()

    def _wait_for_work(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._closing:
                if work := self._next():
                    return work
                self._changed.wait(self._until_something_changes())
                self._tell(quietly=True)
        return None

    def _next(self) -> Callable[[], None] | None:
        """What is not wanted makes room first."""
        for model, shelf in list(self._shelves.items()):
            if len(shelf.ready) > min(shelf.target, self._bounds.ceiling):
                surplus = shelf.ready.pop()
                self._tell(quietly=True)
                return lambda: self._remove(surplus)
            if shelf.target == 0 and not shelf.ready:
                del self._shelves[model]
        for shelf in self._shelves.values():
            if len(shelf.ready) < shelf.target and self._ready() < self._bounds.ceiling:
                return lambda: self._add(shelf)
        return None

    def _add(self, shelf: Shelf) -> None:
        try:
            sandbox = self._backend.create(shelf.spec)
        except SandboxFailed as error:
            shortest, longest = PATIENCE_S
            self._pause_s = min(longest, max(shortest, 2 * self._pause_s))
            logger.warning("no sandbox could be made to wait, again in %g s: %s", self._pause_s, error)
            self._rest()
            return
        self._pause_s = 0.0
        with self._changed:
            shelf.ready.append(sandbox)
            self._tell(quietly=True)

    def _remove(self, sandbox: Sandbox) -> None:
        try:
            sandbox.destroy()
        except SandboxFailed as error:
            logger.error("a sandbox that nobody used could not be removed: %s", error)

    def _rest(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, self._pause_s)

    def _until_something_changes(self) -> float | None:
        times = [shelf.demand.changes_in() for shelf in self._shelves.values()]
        return min((seconds + 0.01 for seconds in times if seconds is not None), default=None)

    def _ready(self) -> int:
        return sum(len(shelf.ready) for shelf in self._shelves.values())

    def _level(self) -> Level:
        target = min(self._bounds.ceiling, sum(shelf.target for shelf in self._shelves.values()))
        return Level(self._ready(), sum(shelf.demand.used for shelf in self._shelves.values()), target)

    def _tell(self, *, quietly: bool = False) -> None:
        if not quietly:
            self._changed.notify_all()
        self._watcher.level(self._level())


class PooledSandbox:
    """A sandbox that the pool counts as used until it is destroyed."""

    def __init__(self, sandbox: Sandbox, gave_back: Callable[[], None]) -> None:
        self.inner = sandbox
        self._gave_back = gave_back
        self._guard = threading.Lock()
        self._used = True
        self.put, self.exec, self.collect = sandbox.put, sandbox.exec, sandbox.collect
        self.pause, self.resume, self.stats = sandbox.pause, sandbox.resume, sandbox.stats
        self.terminate = sandbox.terminate

    @property
    def alive(self) -> bool:
        """Whether it still waits, or works."""
        return self.inner.alive

    def destroy(self) -> None:
        """For good: it does not go back."""
        with self._guard:
            used, self._used = self._used, False
        try:
            self.inner.destroy()
        finally:
            if used:
                self._gave_back()
