"""The job ``sweep``: objects that nothing refers to, spans that are old, and audit entries past their tenant's retention.
Idempotent: a removal is checked when it is made."""

import logging
from datetime import timedelta

from longstride.contracts.envelope import Envelope
from longstride.contracts.most import clipped
from longstride.contracts.v1.commands import Sweep
from longstride.messaging.job_runner import PlainJob
from longstride.storage.artifacts import ArtifactStore
from longstride.storage.database import Database
from longstride.storage.orphans import collect_orphans

logger = logging.getLogger(__name__)


class Sweeper:
    """Removes what nobody can want any more."""

    def __init__(self, database: Database, artifacts: ArtifactStore) -> None:
        self._database = database
        self._artifacts = artifacts

    def sweep(self, envelope: Envelope, message: Sweep) -> None:
        """One sweep, whole."""
        wanted = clipped(message)
        collected = collect_orphans(self._artifacts, self._database, timedelta(seconds=wanted.orphans_after_s))
        with self._database.begin() as uow:
            spans = uow.spans.prune(timedelta(seconds=wanted.keep_spans_s))
        logger.info("swept: %s, %d spans, %d audit entries", collected, spans, self._sweep_audit())

    def _sweep_audit(self) -> int:
        """What retention removes. Each chain's head is logged: noted where whoever changes the database has no hand."""
        with self._database.begin() as uow:
            tenants = uow.audit.tenants()
        swept = 0
        for tenant in tenants:
            while removed := self._sweep_tenant(tenant):
                swept += removed
        return swept

    def _sweep_tenant(self, tenant: str) -> int:
        with self._database.begin() as uow:
            removed = uow.audit.sweep(tenant)
            head = uow.audit.head(tenant)
        if head and not removed:
            logger.info("the audit's head", extra={"tenant": tenant, "seq": head.seq, "sha256": head.sha256})
        return removed


def jobs(sweeper: Sweeper) -> dict[str, PlainJob]:
    """The sweeper's row of the flow."""
    return {"sweep": sweeper.sweep}
