"""Commands whose worker lives in the planner's own process: leased as they are dispatched, answered in the next transition.

The broker is not asked: a step that takes four messages and six transactions through queues takes two transactions. What
guards it is the same, the attempt's row and its lease: when this process dies, the reaper of its next life makes the command
the next attempt, which goes through the queue as ever.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from longstride.contracts.envelope import Envelope
from longstride.contracts.model import Contract
from longstride.messaging.address import destination
from longstride.messaging.commands import Commands
from longstride.messaging.lease import AttemptKey, HeldLease, Leases
from longstride.messaging.work import Settle, Worker
from longstride.storage.unit_of_work import UnitOfWork

logger = logging.getLogger(__name__)


class Lane:
    """Threads that carry out the commands of one queue, first come first served. A ``Part``."""

    def __init__(self, queue: str, worker: Worker, settle: Settle, slots: int) -> None:
        """
        Args:
            queue: whose commands.
            worker: carries them out.
            settle: takes their answers.
            slots: commands at a time.
        """
        self.name = f"{queue}, colocated"
        self.queue = queue
        self.failure: BaseException | None = None
        self.busy = 0
        self._worker = worker
        self._settle = settle
        self._waiting: deque[HeldLease] = deque()
        self._draining = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, name=f"{self.name} {i + 1}", daemon=True) for i in range(slots)
        ]

    @property
    def open(self) -> bool:
        """Whether it takes commands."""
        return not self._draining

    def put(self, held: HeldLease) -> None:
        """Carry it out when a thread is free. Meanwhile the heartbeat keeps its lease."""
        with self._changed:
            self._waiting.append(held)
            self._changed.notify()

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def drain(self) -> None:
        """Begin nothing more; the leases of what waits are released with the others of this process."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()
        self._worker.stop()

    def stop(self, timeout_s: float) -> None:
        """Let what runs finish."""
        self.drain()
        with self._changed:
            self._changed.wait_for(lambda: self.busy == 0, timeout_s)

    def _run(self) -> None:
        try:
            while (held := self._take()) is not None:
                try:
                    self._worker.carry_out_here(held, self._settle)
                finally:
                    self._done()
        except BaseException as error:
            self.failure = error
            logger.critical("%s: ended by an error that it does not know", self.name, exc_info=True)

    def _take(self) -> HeldLease | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._draining)
            if self._draining:
                return None
            self.busy += 1
            return self._waiting.popleft()

    def _done(self) -> None:
        with self._changed:
            self.busy -= 1
            self._changed.notify_all()


class ColocatedCommands:
    """``Commands`` that take a lane of this process where there is one, and the queue where there is none.

    A command that must not be repeated unseen goes through its queue: there it may wait without a lease, and a crash
    before it has begun needs no person to decide.
    """

    def __init__(self, leases: Leases, queued: Commands, unsafe: Callable[[Contract], bool]) -> None:
        """
        Args:
            leases: of this process.
            queued: the way through the broker.
            unsafe: whether a command must not be run a second time.
        """
        self._leases = leases
        self._queued = queued
        self._unsafe = unsafe
        self._lanes: dict[str, Lane] = {}

    def open(self, lanes: Iterable[Lane]) -> None:
        """Use these from now on."""
        self._lanes.update((lane.queue, lane) for lane in lanes)

    def dispatch(self, uow: UnitOfWork, key: AttemptKey, envelope: Envelope) -> None:
        """Lease it to this process, or promise the message."""
        lane = self._lanes.get(destination(envelope))
        if lane is None or not lane.open or self._unsafe(envelope.message()):
            self._queued.dispatch(uow, key, envelope)
        else:
            self._leases.dispatch(uow, key, envelope, lane.put)
