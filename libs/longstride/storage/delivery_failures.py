"""Our own count of how often a message could not be handled, since a broker's cannot be relied on."""

from datetime import timedelta

from longstride.storage.transaction import Transaction

_COUNT = """
    INSERT INTO delivery_failures AS d (consumer, message_id, failures, error) VALUES (%s, %s, 1, %s)
    ON CONFLICT (consumer, message_id)
        DO UPDATE SET failures = d.failures + 1, error = excluded.error, failed_at = now()
    RETURNING failures"""


class DeliveryFailures:
    """The ``delivery_failures`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def count(self, consumer: str, message_id: str, error: str) -> int:
        """Note a failure; returns how many there are now."""
        failures: int = self._transaction.value(_COUNT, (consumer, message_id, error))
        return failures

    def forget(self, consumer: str, message_id: str) -> None:
        """It was handled, or buried."""
        self._transaction.later(
            "DELETE FROM delivery_failures WHERE consumer = %s AND message_id = %s", (consumer, message_id)
        )

    def prune(self, older_than: timedelta) -> int:
        """Forget old failures; returns how many."""
        return self._transaction.count("DELETE FROM delivery_failures WHERE failed_at < now() - %s", (older_than,))
