"""New versions in service: heard on a queue of one's own, and read from PostgreSQL whenever that queue was gone."""

import logging
import threading

from longstride.contracts.envelope import MessageError, decode
from longstride.contracts.v1.events import PolicyPublished
from longstride.messaging.dead_letters import bury
from longstride.messaging.delivery import Delivery
from longstride.messaging.outage import OUTAGES, through_outages
from longstride.observability.metrics import Metrics
from longstride.policies.base import PolicyUnavailable
from longstride.policies.registry import PolicyRegistry
from longstride.storage.database import Database
from longstride.storage.errors import StorageError
from longstride.storage.policies import PolicyVersion
from longstride.storage.retry import retrying
from services.model_worker.handlers import ModelWorker

logger = logging.getLogger(__name__)

REFUSALS = (PolicyUnavailable, ValueError, StorageError)
"""What keeps a version from being served; but for outages, trying again would end the same way."""


class VersionListener:
    """Puts published versions into service; ``listener(delivery)`` is a ``Consumer``'s handle.

    A version that is refused becomes a dead letter, with the reason, and the one before goes on serving.
    """

    def __init__(self, worker: ModelWorker, policies: PolicyRegistry, database: Database, metrics: Metrics) -> None:
        self._worker = worker
        self._policies = policies
        self._database = database
        self._metrics = metrics
        self._stopped = threading.Event()

    def __call__(self, delivery: Delivery) -> None:
        """Serve the version that an event names; when ``stop`` comes during an outage, the event goes back to its queue."""
        if through_outages(lambda: self._settled(delivery), self._stopped, delivery.queue) is None:
            delivery.requeue()

    def stop(self) -> None:
        """Do not wait for outages to end any more."""
        self._stopped.set()

    def catch_up(self) -> None:
        """Serve the latest version that can be, whatever events were missed."""
        with self._database.begin() as uow:
            versions = uow.policies.list("builtin")
        for version in sorted(versions, key=lambda version: version.version, reverse=True):
            if version.version <= self._policies.current or self._refusal(_event(version)) is None:
                return

    def _settled(self, delivery: Delivery) -> bool:
        try:
            reason = self._refusal(_published(delivery))
        except MessageError as error:
            reason = str(error)
        if reason is not None:
            logger.warning("dead letter from %s: %s", delivery.queue, reason)
            retrying(self._database, lambda uow: bury(uow, delivery, reason))
        return True

    def _refusal(self, event: PolicyPublished) -> str | None:
        """Put a version into service; why not, where it is refused."""
        try:
            self._worker.policy_published(event)
        except OUTAGES:
            raise
        except REFUSALS as error:
            logger.exception("%s@%d is not served", event.policy, event.policy_version)
            self._metrics.policy_loaded("refused")
            return f"{event.policy}@{event.policy_version} is not served: {error}"
        logger.info("%s@%d is served", event.policy, event.policy_version)
        self._metrics.policy_loaded("served")
        return None


def _published(delivery: Delivery) -> PolicyPublished:
    message = decode(delivery.body).message()
    if not isinstance(message, PolicyPublished):
        raise MessageError(f"an engine hears of published policies alone, not {type(message).__name__}")
    return message


def _event(version: PolicyVersion) -> PolicyPublished:
    return PolicyPublished(
        policy=version.name,
        policy_version=version.version,
        parent_version=version.parent_version,
        manifest=version.manifest,
        batch_id=version.batch_id,
    )
