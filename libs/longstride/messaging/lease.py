"""Leases: the right to carry a command out, kept by a heartbeat, lost without argument."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from longstride.contracts.envelope import Envelope
from longstride.messaging.loop import Loop
from longstride.messaging.outbox import Outbox
from longstride.storage.attempts import Answered, Claim, Gone, Held, Lease, Phase
from longstride.storage.database import Database
from longstride.storage.errors import StorageError
from longstride.storage.presence import Presence
from longstride.storage.retry import retrying
from longstride.storage.unit_of_work import UnitOfWork

logger = logging.getLogger(__name__)

TTL_S = 30.0
"""Seconds after the last heartbeat at which a worker counts as hung. Its death is noticed sooner; see ``Presence``."""
HEARTBEAT_S = 1.0


class AttemptKey(NamedTuple):
    """Which try of what."""

    task_id: str
    step: int
    phase: Phase
    attempt: int


class HeldLease:
    """A command that this process carries out at the moment."""

    def __init__(self, envelope: Envelope, lease: Lease, outbox: Outbox, expires: float) -> None:
        self.envelope = envelope
        self.lease = lease
        self.lost = threading.Event()
        """Set when nobody wants the result any more (cancelled, superseded), or when the lease ran out because the
        database could not be reached. Kill the work: its result could not be committed."""
        self.answered = False
        self._expires = expires
        """Monotonic seconds."""
        self._outbox = outbox

    def answer(self, uow: UnitOfWork, answer: Envelope) -> bool:
        """Commit the answer, and with it the message that carries it, under this lease.

        ``False``: fenced off; nothing was written, throw the result away.
        """
        if not uow.attempts.answer(self.lease, answer.model_dump(mode="json", exclude_none=True)):
            self.lost.set()
            return False
        self._outbox.post(uow, answer)
        uow.after_commit(self._note_answered)
        return True

    def settle(self, uow: UnitOfWork) -> Callable[[], bool]:
        """Close the attempt under this lease, in the transaction of whoever takes the answer.

        ``False``, once it is asked for: fenced off; throw the result away.
        """
        settled = uow.attempts.settle_mine(self.lease)

        def mine() -> bool:
            if not settled():
                self.lost.set()
                return False
            uow.after_commit(self._note_answered)
            return True

        return mine

    def renewed(self, expires: float) -> None:
        """The heartbeat got through."""
        self._expires = expires

    def seconds_left(self) -> float:
        """Until the lease runs out, as far as this process knows."""
        return self._expires - time.monotonic()

    def _note_answered(self) -> None:
        self.answered = True


class Leases:
    """The leases that this process holds, and the two threads that look after them.

    One thread renews all of them in one statement, over a connection of its own, so that neither a step nor a full
    connection pool delays it. The other one only watches the clock: a database that hangs must not keep a step from
    learning that its lease ran out. Leases are judged by the database's clock; this process counts from *before* each
    renewal, so it never believes in a lease longer than the database does.

    A step that keeps Python's interpreter lock can delay any thread, so ``ttl_s`` is generous: it is there for hangs. A
    process that dies is given away by its ``Presence``, which the step cannot delay.
    """

    def __init__(
        self,
        database: Database,
        heartbeat_database: Database,
        outbox: Outbox,
        owner: str,
        service: str,
        *,
        ttl_s: float = TTL_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        """
        Args:
            database: for claims and answers.
            heartbeat_database: another pool to the same database, of one connection, with short time-outs.
            outbox: where answers go.
            owner: this process's incarnation.
            service: its service, for the ``workers`` table.
            ttl_s: how long a lease lives after a heartbeat.
            heartbeat_s: between heartbeats; at most a third of ``ttl_s``.

        Raises:
            ValueError: a single late heartbeat would lose the lease.
        """
        if heartbeat_s * 3 > ttl_s:
            raise ValueError(f"heartbeat_s ({heartbeat_s:g}) must be at most a third of ttl_s ({ttl_s:g})")
        self.owner = owner
        self._service = service
        self._database = database
        self._heartbeat_database = heartbeat_database
        self._outbox = outbox
        self._presence = Presence(heartbeat_database, owner)
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._held: dict[str, HeldLease] = {}
        self._heartbeat = Loop("lease heartbeat", self._beat, heartbeat_s, retry_limit_s=heartbeat_s / 2)
        self._expiry = Loop("lease expiry", self._expire, heartbeat_s / 2)

    @property
    def failure(self) -> BaseException | None:
        """Why a thread of it ended, where one did."""
        return self._heartbeat.failure or self._expiry.failure

    name = "leases"

    @property
    def busy(self) -> int:
        """How many leases this process holds."""
        return self.held

    def drain(self) -> None:
        """Nothing: leases end with the work that they are for."""

    @property
    def steady_s(self) -> float:
        """For how long this process has been in unbroken touch with the database."""
        return self._presence.steady_s()

    @property
    def held(self) -> int:
        """How many leases this process holds."""
        return len(self._held)

    def start(self) -> None:
        """Start the threads."""
        self._heartbeat.start()
        self._expiry.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Give back what is still held, say goodbye, end."""
        self.release_all()
        self._heartbeat.stop(timeout_s)
        self._expiry.stop(timeout_s)
        self._presence.end()
        try:
            with self._database.begin(durable=False) as uow:
                uow.workers.retire(self.owner)
        except StorageError as error:
            logger.warning("could not retire %s: %s", self.owner, error)

    @contextmanager
    def hold(self, envelope: Envelope, *, durable: bool = False) -> Iterator[HeldLease | None]:
        """Claim a command, keep the lease while the block runs, let go at its end.

        ``None``: this command is not for us. It was answered (the recorded answer is sent again), somebody else holds
        it, or nobody wants it any more: acknowledge the message and forget it.

        A block that ends without an answer has failed: the lease runs out at once, and the reaper decides what comes
        next. ``durable`` makes the claim survive a crash of the database server: for tools that must not run twice.

        Raises:
            StorageError: the database cannot be reached.
        """
        before = time.monotonic()
        claim = self._claim(envelope, durable)
        if not isinstance(claim, Lease):
            _explain(envelope, claim)
            yield None
            return
        with self.ending(self._keep(envelope, claim, before)) as held:
            yield held

    def dispatch(
        self, uow: UnitOfWork, key: AttemptKey, envelope: Envelope, taken: Callable[[HeldLease], object]
    ) -> None:
        """Dispatch a command to this process itself: ``taken`` gets its lease after the commit, to be used in ``ending``."""
        before = time.monotonic()
        wire = envelope.encode().decode()
        lease = uow.attempts.dispatch_leased(*key, envelope.message_id, wire, self.owner, self._ttl_s)

        def take() -> None:
            taken(self._keep(envelope, lease(), before))

        uow.after_commit(take)

    @contextmanager
    def ending(self, held: HeldLease) -> Iterator[HeldLease]:
        """Let go of a lease at the block's end, as ``hold`` does."""
        try:
            yield held
        finally:
            with self._lock:
                mine = self._held.pop(held.envelope.message_id, None) is held
            if mine and not held.answered and not held.lost.is_set():
                self._forfeit(held)

    def _keep(self, envelope: Envelope, lease: Lease, before: float) -> HeldLease:
        """Have the heartbeat renew it."""
        held = HeldLease(envelope, lease, self._outbox, before + self._ttl_s)
        with self._lock:
            self._held[envelope.message_id] = held
        return held

    def release_all(self) -> int:
        """Hand every command back for another worker to take now; its work here is lost. Returns how many."""
        with self._lock:
            held, self._held = list(self._held.values()), {}
        for lease in held:
            lease.lost.set()
            self._release(lease)
        return len(held)

    def _claim(self, envelope: Envelope, durable: bool) -> Claim:
        def claim(uow: UnitOfWork) -> Claim:
            claim = uow.attempts.claim(envelope.message_id, self.owner, self._ttl_s)
            if isinstance(claim, Answered):
                self._outbox.post(uow, Envelope.model_validate(claim.answer))
            return claim

        take = retrying(
            self._database, lambda uow: uow.attempts.take(envelope.message_id, self.owner, self._ttl_s), durable=durable
        )
        return take() or retrying(self._database, claim, durable=durable)

    def _forfeit(self, held: HeldLease) -> None:
        try:
            with self._database.begin(durable=False) as uow:
                uow.attempts.forfeit_command(held.envelope.message_id)
        except StorageError as error:
            logger.warning("the lease of %s runs out by itself: %s", held.envelope.message_id, error)

    def _release(self, held: HeldLease) -> None:
        try:
            with self._database.begin() as uow:
                if uow.attempts.release(held.lease) is not None:
                    self._outbox.post(uow, held.envelope)
        except StorageError as error:
            logger.warning("the lease of %s runs out by itself: %s", held.envelope.message_id, error)

    def _beat(self) -> None:
        """Renew every lease, and say that this process is alive."""
        with self._lock:
            held = list(self._held.values())
        before = time.monotonic()
        self._presence.keep()
        with self._heartbeat_database.begin(durable=False) as uow:
            uow.workers.beat(self.owner, self._service)
            kept = uow.attempts.renew_all([lease.lease for lease in held], self._ttl_s)
        for lease, renewed in zip(held, kept, strict=True):
            if renewed:
                lease.renewed(before + self._ttl_s)
            elif not lease.answered:
                logger.info("lease of %s lost: cancelled or superseded", lease.envelope.message_id)
                lease.lost.set()

    def _expire(self) -> None:
        """Tell steps whose lease ran out because no heartbeat got through."""
        with self._lock:
            overdue = [lease for lease in self._held.values() if lease.seconds_left() <= 0 and not lease.lost.is_set()]
        for lease in overdue:
            logger.error("lease of %s ran out: the database could not be reached in time", lease.envelope.message_id)
            lease.lost.set()


def _explain(envelope: Envelope, claim: Claim) -> None:
    match claim:
        case Answered():
            logger.info("%s was answered before; the answer is sent again", envelope.message_id)
        case Held(owner=owner):
            logger.info("%s is held by %s; nothing to do", envelope.message_id, owner)
        case Gone(status=status):
            logger.info("%s is %s; nothing to do", envelope.message_id, status or "unknown")
