"""Attempts: the leases under which a worker's result may commit, once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg.types.json import Jsonb

from longstride.storage.adaptation import storable_json
from longstride.storage.columns import columns
from longstride.storage.transaction import Transaction

Phase = Literal["generate", "execute"]
OVERCOME_S = 15
"""Seconds for which a worker's last failed try tells what it waits for: longer than it pauses between two."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lease:
    """This worker may carry the command out, and answer while nobody else has claimed it."""

    task_id: str
    step: int
    phase: Phase
    attempt: int
    owner: str
    """The incarnation of the process that holds it."""
    generation: int
    """The fencing number; above 1, somebody held this attempt before and released it."""
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Answered:
    """The command was carried out before; its recorded answer counts."""

    answer: Json


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody else holds the lease, or held it and the reaper has not been by yet."""

    owner: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Gone:
    """Nobody wants this answer any more: the attempt is lost, settled or unknown."""

    status: str | None
    """``None`` when it is unknown."""


Claim = Lease | Answered | Held | Gone


@dataclass(frozen=True, slots=True)
class OverdueAttempt:
    """An open attempt that has been silent for too long, locked for the reaper."""

    task_id: str
    step: int
    phase: Phase
    attempt: int
    status: Literal["dispatched", "leased", "answered"]
    """``leased``: its worker died or hangs. ``dispatched``: its command may be lost. ``answered``: its answer may be."""
    message_id: str
    owner: str | None
    generation: int
    command: Json
    answer: Json | None


@dataclass(frozen=True, slots=True)
class Hindrance:
    """What a worker waits for."""

    reason: str
    at: datetime
    """When it last tried."""


_DISPATCH = """
    INSERT INTO attempts (task_id, step, phase, attempt, status, message_id, command)
    VALUES (%s, %s, %s, %s, 'dispatched', %s, %s::jsonb)"""
_DISPATCH_LEASED = """
    INSERT INTO attempts (task_id, step, phase, attempt, status, message_id, command,
        owner, generation, leased_at, lease_expires_at)
    VALUES (%s, %s, %s, %s, 'leased', %s, %s::jsonb, %s, 1, clock_timestamp(), clock_timestamp() + make_interval(secs => %s))
    RETURNING task_id, step, phase, attempt, owner, generation, lease_expires_at"""
_LAST = "SELECT coalesce(max(attempt), 0) FROM attempts WHERE task_id = %s AND step = %s AND phase = %s"
_CLAIM = """
    UPDATE attempts SET status = 'leased', owner = %(owner)s, generation = generation + 1, hindrance = NULL,
        leased_at = clock_timestamp(), lease_expires_at = clock_timestamp() + make_interval(secs => %(ttl_s)s)
    WHERE message_id = %(message_id)s AND status = 'dispatched'
    RETURNING task_id, step, phase, attempt, owner, generation, lease_expires_at"""
_LOOK = "SELECT status, owner, lease_expires_at, answer FROM attempts WHERE message_id = %s"
_MINE = """
    task_id = %(task_id)s AND step = %(step)s AND phase = %(phase)s AND attempt = %(attempt)s
    AND status = 'leased' AND owner = %(owner)s AND generation = %(generation)s"""
_HINDER = f"UPDATE attempts SET hindrance = %(reason)s, hindered_at = clock_timestamp() WHERE {_MINE}"
_HINDRANCE = """
    SELECT hindrance, hindered_at FROM attempts
    WHERE task_id = %s AND status = 'leased' AND hindrance IS NOT NULL
      AND hindered_at > clock_timestamp() - make_interval(secs => %s)
    ORDER BY hindered_at DESC LIMIT 1"""
_RENEW = f"""
    UPDATE attempts SET lease_expires_at = clock_timestamp() + make_interval(secs => %(ttl_s)s) WHERE {_MINE}"""
_RENEW_ALL = """
    UPDATE attempts a SET lease_expires_at = clock_timestamp() + make_interval(secs => %(ttl_s)s)
    FROM unnest(%(task_id)s::text[], %(step)s::int[], %(phase)s::text[], %(attempt)s::int[], %(owner)s::text[],
                %(generation)s::int[]) AS l (task_id, step, phase, attempt, owner, generation)
    WHERE (a.task_id, a.step, a.phase, a.attempt) = (l.task_id, l.step, l.phase, l.attempt)
        AND a.status = 'leased' AND a.owner = l.owner AND a.generation = l.generation
    RETURNING a.task_id, a.step, a.phase, a.attempt"""
_ANSWER = f"UPDATE attempts SET status = 'answered', answer = %(answer)s, answered_at = clock_timestamp() WHERE {_MINE}"
_SETTLE_MINE = f"UPDATE attempts SET status = 'settled', command = NULL, answer = NULL WHERE {_MINE} RETURNING TRUE"
_RELEASE = f"""
    UPDATE attempts SET status = 'dispatched', owner = NULL, lease_expires_at = NULL, dispatched_at = clock_timestamp()
    WHERE {_MINE} RETURNING command"""
_OPEN = "status IN ('dispatched', 'leased', 'answered')"
_SETTLE = f"""
    UPDATE attempts SET status = CASE status WHEN 'answered' THEN 'settled' ELSE 'lost' END, command = NULL, answer = NULL
    WHERE task_id = %s AND step = %s AND phase = %s AND {_OPEN}"""
_ABANDON = f"UPDATE attempts SET status = 'lost', command = NULL, answer = NULL WHERE task_id = %s AND {_OPEN}"
_KEY = "task_id = %s AND step = %s AND phase = %s AND attempt = %s"
_LOSE = f"UPDATE attempts SET status = 'lost', command = NULL, answer = NULL WHERE {_KEY} AND {_OPEN}"
_TOUCH = f"UPDATE attempts SET dispatched_at = clock_timestamp(), answered_at = clock_timestamp() WHERE {_KEY}"
_FORFEIT = "UPDATE attempts SET lease_expires_at = clock_timestamp() WHERE status = 'leased' AND owner = %s"
_FORFEIT_COMMAND = """
    UPDATE attempts SET lease_expires_at = CASE status WHEN 'leased' THEN clock_timestamp() END,
        dispatched_at = CASE status WHEN 'dispatched' THEN 'epoch' ELSE dispatched_at END
    WHERE message_id = %s AND status IN ('dispatched', 'leased')"""
_EXPIRED = f"""
    SELECT {columns(OverdueAttempt)} FROM attempts
    WHERE (status = 'leased' AND lease_expires_at <= clock_timestamp())
       OR (status = 'dispatched' AND dispatched_at <= clock_timestamp() - make_interval(secs => %(unclaimed_grace_s)s))
       OR (status = 'answered' AND answered_at <= clock_timestamp() - make_interval(secs => %(unsettled_grace_s)s))
    ORDER BY dispatched_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED"""


class Attempts:
    """The ``attempts`` table. Leases are judged by one clock, the database's."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._closed: set[tuple[str, int, str]] = set()

    def dispatch(self, task_id: str, step: int, phase: Phase, attempt: int, message_id: str, command: str) -> None:
        """Record that a command goes out; ``command`` is its encoded envelope.

        Raises:
            AlreadyExists: this attempt, or one of this message, was dispatched; at the latest at the commit.
        """
        self._transaction.later(_DISPATCH, (task_id, step, phase, attempt, message_id, storable_json(command)))

    def dispatch_leased(
        self,
        task_id: str,
        step: int,
        phase: Phase,
        attempt: int,
        message_id: str,
        command: str,
        owner: str,
        ttl_s: float,
    ) -> Callable[[], Lease]:
        """``dispatch`` and ``take`` at once, for a worker in the process ``owner``; the lease comes with the commit.

        Raises:
            AlreadyExists: as ``dispatch`` does.
        """
        row = (task_id, step, phase, attempt, message_id, storable_json(command), owner, ttl_s)
        lease = self._transaction.promise(Lease, _DISPATCH_LEASED, row)

        def granted() -> Lease:
            found = lease()
            assert found is not None, "an INSERT that did not fail returns its row"
            return found

        return granted

    def last(self, task_id: str, step: int, phase: Phase) -> int:
        """The number of the latest attempt; 0 when there was none."""
        number: int = self._transaction.value(_LAST, (task_id, step, phase))
        return number

    def open(self, task_id: str, phase: Phase) -> str | None:
        """The status of the attempt in flight; ``None``: nothing is."""
        sql = f"SELECT status FROM attempts WHERE task_id = %s AND phase = %s AND {_OPEN} LIMIT 1"
        status: str | None = self._transaction.value(sql, (task_id, phase))
        return status

    def claim(self, message_id: str, owner: str, ttl_s: float) -> Claim:
        """Take the lease of the command ``message_id`` for ``owner``, or learn why not.

        An expired lease is not taken over here but by the reaper, as the next attempt: it alone knows whether the
        action may be run again.
        """
        lease = self.take(message_id, owner, ttl_s)()
        return lease or self._transaction.row(_refusal, _LOOK, (message_id,)) or Gone(None)

    def take(self, message_id: str, owner: str, ttl_s: float) -> Callable[[], Lease | None]:
        """``claim``, without waiting yet: the lease, if it is to be had, comes with the commit."""
        return self._transaction.promise(Lease, _CLAIM, {"message_id": message_id, "owner": owner, "ttl_s": ttl_s})

    def renew(self, lease: Lease, ttl_s: float) -> bool:
        """Prolong the lease from now on; ``False``: it was lost, kill the work."""
        return self._transaction.count(_RENEW, {**_identity(lease), "ttl_s": ttl_s}) == 1

    def renew_all(self, leases: Sequence[Lease], ttl_s: float) -> list[bool]:
        """``renew`` for each, in one statement: a heartbeat must not wait for as many answers as there are leases."""
        if not leases:
            return []
        mine = [_identity(lease) for lease in leases]
        params = {name: [lease[name] for lease in mine] for name in mine[0]}
        kept = set(self._transaction.rows(lambda *key: key, _RENEW_ALL, {**params, "ttl_s": ttl_s}))
        return [(lease.task_id, lease.step, lease.phase, lease.attempt) in kept for lease in leases]

    def answer(self, lease: Lease, answer: Json) -> bool:
        """Record the answer's envelope; ``False``: fenced, throw the answer away."""
        return self._transaction.count(_ANSWER, {**_identity(lease), "answer": Jsonb(answer)}) == 1

    def settle_mine(self, lease: Lease) -> Callable[[], bool]:
        """Close the attempt in the transaction that makes something of its answer, which is thus never recorded.

        The result is waited for when it is asked for. ``False``: fenced, throw the answer away.
        """
        self._closed.add((lease.task_id, lease.step, lease.phase))
        settled = self._transaction.promise(bool, _SETTLE_MINE, _identity(lease))
        return lambda: settled() is not None

    def hinder(self, lease: Lease, reason: str) -> None:
        """Note what keeps this worker from going on."""
        self._transaction.later(_HINDER, {**_identity(lease), "reason": reason})

    def hindrance(self, task_id: str) -> Hindrance | None:
        """What the task's worker waits for, as it last said; ``None``: nothing that is known.

        It says so at each try, a few seconds apart: what is older has been overcome.
        """
        return self._transaction.row(Hindrance, _HINDRANCE, (task_id, OVERCOME_S))

    def release(self, lease: Lease) -> Json | None:
        """Give the lease back unused, for another to take at once; returns the command to publish again.

        ``None``: the lease was lost already.
        """
        command: Json | None = self._transaction.value(_RELEASE, _identity(lease))
        return command

    def settle(self, task_id: str, step: int, phase: Phase) -> None:
        """The planner has the answer: close every attempt of this phase and drop what it carried."""
        if (task_id, step, phase) in self._closed:
            return  # ``settle_mine`` did; those before it were lost when it was dispatched
        self._transaction.later(_SETTLE, (task_id, step, phase))

    def abandon(self, task_id: str) -> None:
        """Lose every open attempt of a task; its workers notice at their next heartbeat."""
        self._transaction.later(_ABANDON, (task_id,))

    def expired(self, limit: int, unclaimed_grace_s: float, unsettled_grace_s: float) -> list[OverdueAttempt]:
        """Lock the attempts that need the reaper, passing over those another reaper holds.

        Args:
            limit: at most so many.
            unclaimed_grace_s: a dispatched command may wait so long before it is thought lost.
            unsettled_grace_s: an answer may wait so long for the planner before it is thought lost.
        """
        grace = {"limit": limit, "unclaimed_grace_s": unclaimed_grace_s, "unsettled_grace_s": unsettled_grace_s}
        return self._transaction.rows(OverdueAttempt, _EXPIRED, grace)

    def lose(self, attempt: OverdueAttempt) -> None:
        """Fence its owner off for good; a new attempt, or an answer that says why there is none, must follow."""
        self._transaction.later(_LOSE, _key(attempt))

    def touch(self, attempt: OverdueAttempt) -> None:
        """Its command or answer is being published again: start its grace afresh."""
        self._transaction.later(_TOUCH, _key(attempt))

    def forfeit(self, owner: str) -> int:
        """Let the leases of a process that is known to be dead expire now; returns how many there were."""
        return self._transaction.count(_FORFEIT, (owner,))

    def forfeit_command(self, message_id: str) -> bool:
        """Whoever carried this command out is known to have failed: the reaper need not wait. ``False``: it is closed."""
        return self._transaction.count(_FORFEIT_COMMAND, (message_id,)) == 1


def _identity(lease: Lease) -> Json:
    return {
        "task_id": lease.task_id,
        "step": lease.step,
        "phase": lease.phase,
        "attempt": lease.attempt,
        "owner": lease.owner,
        "generation": lease.generation,
    }


def _key(attempt: OverdueAttempt) -> tuple[str, int, str, int]:
    return attempt.task_id, attempt.step, attempt.phase, attempt.attempt


def _refusal(status: str, owner: str | None, expires_at: datetime | None, answer: Json | None) -> Claim:
    if status == "answered" and answer is not None:
        return Answered(answer)
    if status == "leased" and owner is not None and expires_at is not None:
        return Held(owner, expires_at)
    return Gone(status)
