"""New versions in service: heard on a queue of one's own, and read from PostgreSQL whenever that queue was gone."""

import logging

from longstride.contracts.envelope import MessageError, decode
from longstride.contracts.v1.events import PolicyPublished
from longstride.messaging.delivery import Delivery
from longstride.policies.base import PolicyUnavailable
from longstride.policies.registry import PolicyRegistry
from longstride.storage.database import Database
from longstride.storage.policies import PolicyVersion
from services.model_worker.handlers import ModelWorker

logger = logging.getLogger(__name__)


class VersionListener:
    """Puts published versions into service; ``listener(delivery)`` is a ``Consumer``'s handle."""

    def __init__(self, worker: ModelWorker, policies: PolicyRegistry, database: Database) -> None:
        self._worker = worker
        self._policies = policies
        self._database = database

    def __call__(self, delivery: Delivery) -> None:
        """Serve the version that an event names. The queue is this process's own: there is nobody to leave a bad message to."""
        try:
            message = decode(delivery.body).message()
        except MessageError:
            logger.exception("a message on %s cannot be read", delivery.queue)
            return
        if isinstance(message, PolicyPublished):
            self._serve(message)

    def stop(self) -> None:
        """Nothing waits here."""

    def catch_up(self) -> None:
        """Serve the latest version, whatever events were missed."""
        with self._database.begin() as uow:
            latest = uow.policies.latest("builtin")
        if latest is not None and latest.version > self._policies.current:
            self._serve(_event(latest))

    def _serve(self, event: PolicyPublished) -> None:
        """A version that cannot be served is an error for people; the one before goes on serving."""
        try:
            self._worker.policy_published(event)
        except (PolicyUnavailable, ValueError):
            logger.exception("%s@%d is not served", event.policy, event.policy_version)
        else:
            logger.info("%s@%d is served", event.policy, event.policy_version)


def _event(version: PolicyVersion) -> PolicyPublished:
    return PolicyPublished(
        policy=version.name,
        policy_version=version.version,
        parent_version=version.parent_version,
        manifest=version.manifest,
        batch_id=version.batch_id,
    )
