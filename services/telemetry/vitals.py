"""What no single message tells: how much waits, and how much has died."""

from longstride.messaging.loop import Loop
from longstride.observability.metrics import Metrics
from longstride.storage.database import Database

EVERY_S = 5.0


class Vitals(Loop):
    """Reads the backlog of the outbox and the number of dead letters into metrics."""

    def __init__(self, database: Database, metrics: Metrics) -> None:
        super().__init__("vitals", self._read, EVERY_S)
        self._database = database
        self._metrics = metrics

    def _read(self) -> None:
        with self._database.begin(durable=False) as uow:
            backlog, dead = uow.outbox.backlog(), uow.dead_letters.waiting()
        self._metrics.outbox(backlog.count, backlog.oldest_age_s)
        self._metrics.dead_letters(dead)
