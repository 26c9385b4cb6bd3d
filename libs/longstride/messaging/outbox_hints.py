"""Wakes the relay when another process has added to the outbox, e.g. a command line beside an embedded stack."""

from longstride.messaging.loop import Loop
from longstride.messaging.relay import OutboxRelay
from longstride.storage.database import Database
from longstride.storage.listener import Listener
from longstride.storage.outbox import CHANNEL


class OutboxHints(Loop):
    """Listens on PostgreSQL's NOTIFY. Without it the relay's own polling finds the rows, a little later."""

    def __init__(self, database: Database, relay: OutboxRelay) -> None:
        # The pause between waits is for a database that is away, when waiting fails at once.
        super().__init__("outbox hints", self._listen, every_s=0.05)
        self._relay = relay
        self._listener = Listener(database, CHANNEL)

    def _listen(self) -> None:
        if self._listener.wait(0.5):
            self._relay.wake()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End, and hang up."""
        super().stop(timeout_s)
        self._listener.close()
