"""Policies: the versions that were published."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from longstride.contracts.artifact import ArtifactRef
from longstride.storage.artifact_rows import ArtifactRows
from longstride.storage.errors import VersionConflict
from longstride.storage.transaction import Transaction


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """See ``tables.PolicyRow``."""

    name: str
    version: int
    manifest: ArtifactRef
    parent_version: int | None = None
    batch_id: str | None = None
    """The batch that it was trained on."""
    metrics: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    """Set by the database."""


_NAMES = "name, version, manifest, parent_version, batch_id, metrics"
_PUBLISH = f"INSERT INTO policies ({_NAMES}) VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING TRUE"
_SELECT = f"SELECT {_NAMES}, created_at FROM policies"


class Policies:
    """The ``policies`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def publish(self, policy: PolicyVersion) -> bool:
        """Publish a version, and keep its manifest from the orphan collector; ``False``: the version of this batch, or this very version, is there already.

        Raises:
            VersionConflict: the version exists with another manifest or batch.
        """
        p = policy
        manifest = Jsonb(p.manifest.model_dump(mode="json"))
        row = (p.name, p.version, manifest, p.parent_version, p.batch_id, Jsonb(p.metrics))
        if self._transaction.value(_PUBLISH, row):
            session = p.manifest.key.split("/", 1)[0]
            ArtifactRows(self._transaction).add(p.manifest, session_id=session, kind="policy")
            return True
        if p.batch_id is not None and self.by_batch(p.batch_id) is not None:
            return False
        there = self.get(p.name, p.version)
        if there is None or (there.manifest, there.batch_id) != (p.manifest, p.batch_id):
            raise VersionConflict(f"version {p.version} of policy {p.name!r} is already published and is another one")
        return False

    def latest(self, name: str) -> PolicyVersion | None:
        """The highest version of ``name``."""
        return self._transaction.row(_version, f"{_SELECT} WHERE name = %s ORDER BY version DESC LIMIT 1", (name,))

    def get(self, name: str, version: int) -> PolicyVersion | None:
        """One version."""
        return self._transaction.row(_version, f"{_SELECT} WHERE name = %s AND version = %s", (name, version))

    def by_batch(self, batch_id: str) -> PolicyVersion | None:
        """The version that was trained on a batch."""
        return self._transaction.row(_version, f"{_SELECT} WHERE batch_id = %s", (batch_id,))

    def list(self, name: str | None = None) -> "list[PolicyVersion]":
        """All versions, of ``name`` or of every policy."""
        sql = f"{_SELECT} WHERE %(name)s::text IS NULL OR name = %(name)s ORDER BY name, version"
        return self._transaction.rows(_version, sql, {"name": name})


def _version(
    name: str,
    version: int,
    manifest: dict[str, Any],
    parent_version: int | None,
    batch_id: str | None,
    metrics: dict[str, Any],
    created_at: datetime,
) -> PolicyVersion:
    where = ArtifactRef.model_validate(manifest)
    return PolicyVersion(name, version, where, parent_version, batch_id, metrics, created_at)
