"""Periodic sweeps: objects that nothing refers to, and spans that are old."""

import logging
from datetime import timedelta

from longstride.messaging.loop import Loop
from longstride.storage.artifacts import ArtifactStore
from longstride.storage.database import Database
from longstride.storage.orphans import collect_orphans

logger = logging.getLogger(__name__)

EVERY_S = 3600.0


class Sweeps(Loop):
    """Removes what nobody can want any more. Several at once agree: each removal is checked again when it is made."""

    def __init__(
        self, database: Database, artifacts: ArtifactStore, orphans_after: timedelta, keep_spans: timedelta
    ) -> None:
        super().__init__("sweeps", self._sweep, EVERY_S)
        self._database = database
        self._artifacts = artifacts
        self._orphans_after = orphans_after
        self._keep_spans = keep_spans

    def _sweep(self) -> None:
        collected = collect_orphans(self._artifacts, self._database, self._orphans_after)
        with self._database.begin() as uow:
            spans = uow.spans.prune(self._keep_spans)
        logger.info("swept: %s, %d spans", collected, spans)
