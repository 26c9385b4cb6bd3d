"""The inbox: which messages a consumer has handled."""

from collections.abc import Callable
from datetime import timedelta

from longstride.storage.transaction import Transaction

_ADD = "INSERT INTO inbox (consumer, message_id) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING TRUE"


class Inbox:
    """The ``inbox`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(self, consumer: str, message_id: str) -> bool:
        """Note a message as handled by this transaction; ``False``: it was before, do nothing.

        A second delivery that arrives meanwhile waits here until this transaction ends.
        """
        return self.note(consumer, message_id)()

    def note(self, consumer: str, message_id: str) -> Callable[[], bool]:
        """``add``, without waiting yet: what is asked next travels along."""
        added = self._transaction.promise(bool, _ADD, (consumer, message_id))
        return lambda: added() is not None

    def prune(self, older_than: timedelta) -> int:
        """Forget what was handled longer ago than any redelivery; returns how many."""
        return self._transaction.count("DELETE FROM inbox WHERE handled_at < now() - %s", (older_than,))
