"""The training ledger: which update trained on which trajectory, once a policy."""

from collections.abc import Sequence

from longstride.storage.transaction import Transaction

_CLAIM = """
    INSERT INTO training_ledger (policy, task_id, batch_id)
    SELECT %(policy)s, task_id, %(batch_id)s FROM unnest(%(task_ids)s::text[]) AS t(task_id) ORDER BY task_id
    ON CONFLICT DO NOTHING"""
_HELD = "SELECT task_id FROM training_ledger WHERE policy = %s AND batch_id = %s AND task_id = ANY(%s) ORDER BY task_id"
_PUBLISHED = "UPDATE training_ledger SET policy_version = %s WHERE policy = %s AND batch_id = %s"
_RELEASE = "DELETE FROM training_ledger WHERE policy = %s AND batch_id = %s AND policy_version IS NULL"
_REFUSE = "UPDATE training_ledger SET refused = %s WHERE policy = %s AND batch_id = %s AND policy_version IS NULL"


class TrainingLedger:
    """The ``training_ledger`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def claim(self, policy: str, task_ids: Sequence[str], batch_id: str) -> list[str]:
        """Take trajectories for a batch; returns those of ``task_ids`` that are this batch's, sorted.

        Trajectories of other batches stay theirs. A batch that is tried again after a crash gets its own once more.
        """
        values = {"policy": policy, "task_ids": list(task_ids), "batch_id": batch_id}
        self._transaction.later(_CLAIM, values)
        return self._transaction.values(_HELD, (policy, batch_id, list(task_ids)))

    def running(self, policy: str) -> str | None:
        """The batch whose update has not published yet."""
        sql = """
            SELECT batch_id FROM training_ledger WHERE policy = %s AND policy_version IS NULL AND refused IS NULL LIMIT 1"""
        batch_id: str | None = self._transaction.value(sql, (policy,))
        return batch_id

    def trained(self, policy: str, task_ids: Sequence[str]) -> set[str]:
        """Those of ``task_ids`` that some batch of ``policy`` holds."""
        sql = "SELECT task_id FROM training_ledger WHERE policy = %s AND task_id = ANY(%s)"
        return set(self._transaction.values(sql, (policy, list(task_ids))))

    def published(self, policy: str, batch_id: str, policy_version: int) -> None:
        """The batch's update made this version."""
        self._transaction.later(_PUBLISHED, (policy_version, policy, batch_id))

    def release(self, policy: str, batch_id: str) -> int:
        """Give back the trajectories of a batch whose update never published; returns how many."""
        return self._transaction.count(_RELEASE, (policy, batch_id))

    def refuse(self, policy: str, batch_id: str, why: str) -> None:
        """The batch cannot be trained on: it is over, and its trajectories are not offered again."""
        self._transaction.later(_REFUSE, (why, policy, batch_id))

    def trained_into(self, policy: str, policy_version: int) -> list[str]:
        """The trajectories behind a version, sorted."""
        sql = "SELECT task_id FROM training_ledger WHERE policy = %s AND policy_version = %s ORDER BY task_id"
        return self._transaction.values(sql, (policy, policy_version))
