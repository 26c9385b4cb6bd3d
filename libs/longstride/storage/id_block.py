"""Ids drawn from a column's sequence ahead of need, so that an insert need not be waited for to know its id."""

from collections import deque

from longstride.storage.transaction import Transaction

SIZE = 64


class IdBlock:
    """Outbox ids that one connection has drawn and not used. A rolled-back draw stays drawn, until the server crashes.

    Such a crash may forget what no durable commit followed, draws included, and give the same ids to others. So a block
    lives no longer than its connection: a durable commit on that covers the draw, too.
    """

    def __init__(self) -> None:
        self._ids: deque[int] = deque()

    def take(self, transaction: Transaction) -> int:
        """The next id; one round trip in ``SIZE``."""
        while True:
            try:
                return self._ids.popleft()
            except IndexError:
                self._ids.extend(
                    transaction.values(
                        "SELECT nextval(pg_get_serial_sequence('outbox', 'id')) FROM generate_series(1, %s)", (SIZE,)
                    )
                )
