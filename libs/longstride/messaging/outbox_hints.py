"""Wakes the relay when another process has added to the outbox, e.g. a command line beside an embedded stack."""

from longstride.messaging.loop import Loop
from longstride.messaging.relay import OutboxRelay
from longstride.storage.errors import DatabaseUnavailable
from longstride.storage.listener import OutboxListener


class OutboxHints(Loop):
    """Listens on PostgreSQL's NOTIFY. Without it the relay's own polling finds the rows, a little later."""

    def __init__(self, database_url: str, relay: OutboxRelay) -> None:
        super().__init__("outbox hints", self._listen, every_s=0.0)
        self._url = database_url
        self._relay = relay
        self._listener: OutboxListener | None = None

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = OutboxListener(self._url)
            self._relay.wake()
        try:
            if self._listener.wait(0.5):
                self._relay.wake()
        except DatabaseUnavailable:
            self._hang_up()
            raise

    def _hang_up(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End, and hang up."""
        super().stop(timeout_s)
        self._hang_up()
