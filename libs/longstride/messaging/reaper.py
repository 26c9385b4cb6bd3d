"""The reaper: brings back what died on the way. It runs in every service, and any number of them agree by row locks."""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from longstride.contracts.envelope import Envelope, seal
from longstride.contracts.ids import new_id
from longstride.contracts.model import Contract
from longstride.contracts.topology import TRACKS
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.events import ActionExecuted, Generated
from longstride.messaging.address import JOB_QUEUES
from longstride.messaging.backoff import delay_s
from longstride.messaging.bus import Bus
from longstride.messaging.errors import BusUnavailable
from longstride.messaging.lease import Leases
from longstride.messaging.loop import Loop
from longstride.messaging.outbox import Outbox
from longstride.messaging.queue_depth import QueueDepth
from longstride.storage.attempts import OverdueAttempt
from longstride.storage.database import Database
from longstride.storage.unit_of_work import UnitOfWork

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 4
SILENCE_S = 10.0
"""How long a command or an answer may be silent while its queue is empty, before it is sent again."""
LONG_SILENCE_S = 900.0
"""The same, whatever waits in its queue."""
VANISHED_S = 2.5
"""A process that has hung up and been silent for so long is dead."""
STEADY_S = 5.0
"""Nobody's death is concluded from hung-up connections until our own has lasted so long: it may have been the server."""
STALE_S = 120.0
"""After so long without a heartbeat a process is dead, whatever its connection looks like."""
PRUNE_EVERY_S = 300.0
KEEP = timedelta(days=3)
"""How long the inbox remembers: longer than any message can be under way."""
BATCH = 100


class Reaper(Loop):
    """Watches the open attempts.

    - A lease that ran out: the command goes out again as the next attempt; after ``max_attempts`` its answer is made
      here, with ``error`` set, so that the planner ends the task. A command that is ``unsafe`` to repeat is answered
      with ``needs_review`` instead.
    - A command that nobody claimed, or an answer that the planner has not taken: sent again, under the same id. That is
      done soon when its queue is empty, so that it cannot be in there, and late in any case; a long queue is thus not
      made longer.
    - A process that died: its leases run out at once.
    - What the inbox need not remember any more.
    """

    def __init__(
        self,
        database: Database,
        outbox: Outbox,
        bus: Bus,
        leases: Leases,
        *,
        unsafe: Callable[[Contract], bool],
        max_attempts: int = MAX_ATTEMPTS,
        silence_s: float = SILENCE_S,
        every_s: float = 1.0,
    ) -> None:
        """
        Args:
            database: whose attempts.
            outbox: for what is sent again.
            bus: to look into the queues.
            leases: of this process, for how long it has been in touch with the database.
            unsafe: whether a command, an ``ExecuteAction``, must not be run a second time.
            max_attempts: of one phase of a step.
            silence_s: see ``SILENCE_S``.
            every_s: how often to look.
        """
        super().__init__("reaper", self._step, every_s)
        self._database = database
        self._outbox = outbox
        self._leases = leases
        self._unsafe = unsafe
        self._max_attempts = max_attempts
        self._silence_s = silence_s
        self._next_prune = time.monotonic() + PRUNE_EVERY_S
        commands = [f"longstride.generate.{track}" for track in TRACKS] + [JOB_QUEUES["execute_action"]]
        self._command_depths = [QueueDepth(bus, queue) for queue in commands]
        self._answer_depths = [QueueDepth(bus, "longstride.planner")]

    def stop(self, timeout_s: float = 10.0) -> None:
        """End after what is under way."""
        super().stop(timeout_s)
        for depth in (*self._command_depths, *self._answer_depths):
            depth.close()

    def _step(self) -> None:
        self._bury_the_dead()
        self.reap(LONG_SILENCE_S, LONG_SILENCE_S)
        if self._somebody_is_silent():
            self.reap(
                self._silence_s if _empty(self._command_depths) else LONG_SILENCE_S,
                self._silence_s if _empty(self._answer_depths) else LONG_SILENCE_S,
            )
        if time.monotonic() >= self._next_prune:
            self._next_prune = time.monotonic() + PRUNE_EVERY_S
            self._prune()

    def reap(self, unclaimed_s: float, unsettled_s: float) -> int:
        """Deal with what is overdue; returns how much that was."""
        with self._database.begin() as uow:
            overdue = uow.attempts.expired(BATCH, unclaimed_s, unsettled_s)
            for attempt in overdue:
                self._deal_with(uow, attempt)
        return len(overdue)

    def _somebody_is_silent(self) -> bool:
        with self._database.begin(durable=False) as uow:
            return bool(uow.attempts.expired(1, self._silence_s, self._silence_s))

    def _deal_with(self, uow: UnitOfWork, attempt: OverdueAttempt) -> None:
        name = f"{attempt.phase} of step {attempt.step} of {attempt.task_id}"
        try:
            HOW[attempt.status](self, uow, attempt, name)
        except ValueError as error:
            self._give_up(uow, attempt, name, error)

    def _send_command(self, uow: UnitOfWork, attempt: OverdueAttempt, name: str) -> None:
        command = Envelope.model_validate(attempt.command)
        logger.warning("nobody has claimed %s: its command is sent again", name)
        uow.attempts.touch(attempt)
        self._outbox.post(uow, command)

    def _send_answer(self, uow: UnitOfWork, attempt: OverdueAttempt, name: str) -> None:
        answer = Envelope.model_validate(attempt.answer)
        logger.warning("the planner has not taken the answer to %s: it is sent again", name)
        uow.attempts.touch(attempt)
        self._outbox.post(uow, answer)

    def _next_attempt(self, uow: UnitOfWork, attempt: OverdueAttempt, name: str) -> None:
        uow.attempts.lose(attempt)
        command = Envelope.model_validate(attempt.command)
        message = command.message()
        if isinstance(message, ExecuteAction) and self._unsafe(message):
            logger.error("%s was interrupted and must not be repeated unseen: a person decides", name)
            self._answer(uow, command, ActionExecuted(step=attempt.step, needs_review=True))
        elif attempt.attempt >= self._max_attempts:
            logger.error("%s has failed %d times: given up", name, attempt.attempt)
            self._answer(uow, command, _failed(attempt, f"FAILED_POISON: {attempt.attempt} workers in a row {FATE}"))
        else:
            logger.warning("attempt %d at %s died with %s", attempt.attempt, name, attempt.owner)
            self._dispatch(uow, attempt, command)

    def _give_up(self, uow: UnitOfWork, attempt: OverdueAttempt, name: str, error: ValueError) -> None:
        """The stored command or answer is of a version that this build does not know: nobody here can go on with it."""
        logger.error("%s cannot be read, so it has failed: %s", name, error)
        uow.attempts.lose(attempt)
        reason = f"what was stored for it cannot be read by this build: {error}"[:2000]
        head = uow.tasks.head(attempt.task_id, lock=False)
        assert head is not None, "an attempt goes with its task"
        about = {"task_id": head.id, "session_id": head.session_id, "tenant": head.tenant}
        self._outbox.post(uow, seal(_failed(attempt, reason), **about, attempt=attempt.attempt))

    def _dispatch(self, uow: UnitOfWork, attempt: OverdueAttempt, command: Envelope) -> None:
        number = attempt.attempt + 1
        again = command.model_copy(
            update={"message_id": new_id("msg"), "attempt": number, "occurred_at": datetime.now(UTC)}
        )
        wire = again.encode().decode()
        uow.attempts.dispatch(attempt.task_id, attempt.step, attempt.phase, number, again.message_id, wire)
        wait_s = delay_s(number - 3, first_s=1.0, limit_s=self._silence_s / 2) if number > 2 else 0.0
        self._outbox.post(uow, again, datetime.now(UTC) + timedelta(seconds=wait_s) if wait_s else None)

    def _answer(self, uow: UnitOfWork, command: Envelope, message: Contract) -> None:
        self._outbox.post(uow, command.follow(message, attempt=command.attempt))

    def _bury_the_dead(self) -> None:
        with self._database.begin(durable=False) as uow:
            dead = uow.workers.stale(STALE_S)
            if self._leases.steady_s > STEADY_S:
                dead += uow.workers.vanished(VANISHED_S)
            for worker in dead:
                forfeited = uow.attempts.forfeit(worker.incarnation)
                logger.warning("%s %s is dead; it held %d leases", worker.service, worker.incarnation, forfeited)
                uow.workers.retire(worker.incarnation)

    def _prune(self) -> None:
        with self._database.begin(durable=False) as uow:
            uow.inbox.prune(KEEP)
            uow.delivery_failures.prune(KEEP)


HOW: Mapping[str, Callable[[Reaper, UnitOfWork, OverdueAttempt, str], None]] = {
    "leased": Reaper._next_attempt,
    "dispatched": Reaper._send_command,
    "answered": Reaper._send_answer,
}
"""What is done about a silent attempt, by its status."""

FATE = "died, hung or failed while carrying it out"


def _failed(attempt: OverdueAttempt, reason: str) -> Contract:
    """The answer to a command that nobody will carry out."""
    if attempt.phase == "generate":
        return Generated(
            step=attempt.step, text="", error=reason, policy=str(_body(attempt).get("policy") or "unknown")
        )
    return ActionExecuted(step=attempt.step, error=reason)


def _body(attempt: OverdueAttempt) -> Mapping[str, Any]:
    body = attempt.command.get("body")
    return body if isinstance(body, Mapping) else {}


def _empty(depths: list[QueueDepth]) -> bool:
    try:
        return all(depth() == 0 for depth in depths)
    except BusUnavailable:
        return False
