"""The builtin version that ships with the package, published like any other, so that updates have a base."""

from datetime import UTC, datetime
from pathlib import Path

from longstride.policies.registry import shipped
from longstride.storage.policies import PolicyVersion
from services.host import Host

RELEASED = datetime(2026, 1, 1, tzinfo=UTC)
"""The manifest's date is part of its content; every deployment must publish the same one."""


def publish_shipped(host: Host) -> None:
    """Make sure that the highest version shipped is published. Any number of processes may do so at once."""
    if versions := shipped():
        version = max(versions)
        host.patiently(lambda: _publish(host, version, versions[version]), "PostgreSQL and the artifact store")


def _publish(host: Host, version: int, weights: Path) -> None:
    from longstride.training.weights import publish

    with host.backbone.database.begin() as uow:
        if uow.policies.get("builtin", version) is not None:
            return
    manifest, ref = publish(weights, artifacts=host.artifacts, policy="builtin", version=version, created_at=RELEASED)
    with host.backbone.database.begin() as uow:
        uow.policies.publish(PolicyVersion("builtin", manifest.version, ref))
        uow.artifacts.add(ref, session_id="policies", kind="policy")
