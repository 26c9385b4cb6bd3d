"""Carries jobs out in one process: leased commands, and idempotent jobs that a timer brings back."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from longstride.contracts.envelope import Envelope, MessageError, decode
from longstride.messaging.address import JOB_QUEUES
from longstride.messaging.backbone import Backbone
from longstride.messaging.come_back import COME_BACK_S, GivenUp, coming_back
from longstride.messaging.dead_letters import keep
from longstride.messaging.work import Worker
from longstride.storage.retry import retrying

logger = logging.getLogger(__name__)

PlainJob = Callable[[Envelope, Any], object]
"""``job(envelope, message)``: idempotent; commits its own results."""


class JobRunner:
    """The ``Runner`` of a job worker."""

    def __init__(
        self,
        backbone: Backbone,
        worker: Worker,
        plain: Mapping[str, PlainJob],
        *,
        owns: bool = True,
        come_back_s: float = COME_BACK_S,
    ) -> None:
        """
        Args:
            backbone: of this process.
            worker: for the commands that have attempts.
            plain: the jobs that have none, by name.
            owns: whether the backbone starts and ends with this runner (a forked child), or is the host's (embedded).
            come_back_s: when a plain job is sent again whose process died.
        """
        self._backbone = backbone
        self._worker = worker
        self._plain = plain
        self._owns = owns
        self._come_back_s = come_back_s

    def start(self) -> None:
        """Start the backbone's threads, and have the connection to the broker ready."""
        if self._owns:
            for part in self._backbone.essentials():
                part.start()

    def hand_back(self) -> None:
        """Release the leases of the running commands. Plain jobs run on, and are sent again when they are killed."""
        self._backbone.leases.release_all()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End them."""
        self._worker.stop()
        if self._owns:
            for part in reversed(self._backbone.essentials()):
                part.stop(timeout_s)
            self._backbone.close()

    def run(self, job: str, wire: str) -> None:
        """Carry one job out; what cannot be understood becomes a dead letter."""
        try:
            envelope = decode(wire.encode())
            if envelope.type != job:
                raise MessageError(f"a {envelope.type} message cannot be the argument of the job {job}")
        except MessageError as error:
            self._bury(job, wire, str(error))
            return
        if job in self._plain:
            self._run_plain(self._plain[job], envelope)
        else:
            self._worker.carry_out(envelope, acknowledge=lambda: None)

    def _run_plain(self, job: PlainJob, envelope: Envelope) -> None:
        try:
            with coming_back(self._backbone.database, envelope, self._backbone.service, self._come_back_s):
                job(envelope, envelope.message())
        except GivenUp as error:
            logger.error("%s", error)
        except Exception:
            logger.exception("%s %s failed; it is tried again later", envelope.type, envelope.message_id)

    def _bury(self, job: str, wire: str, reason: str) -> None:
        logger.warning("dead letter from %s: %s", JOB_QUEUES[job], reason)
        retrying(self._backbone.database, lambda uow: keep(uow, JOB_QUEUES[job], wire.encode(), reason, {}))
