"""Who makes sandboxes, and whether they still live: a ``Lease`` an executor, renewed while it runs.

Sandboxes carry their executor's name. Those of an executor whose lease has run out, or is gone, are removed by any other one.
"""

import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from longstride.contracts.ids import uuid7
from longstride.sandbox.errors import SandboxFailed
from longstride.sandbox.kubernetes.cluster import Cluster, answered

EXECUTOR = "longstride.dev/executor"
"""On each claim: the name of its executor's lease."""
ROLE = "longstride.dev/role"
LABELS = {"app.kubernetes.io/part-of": "longstride", ROLE: "sandbox-executor"}
RENEW_S, DURATION_S = 10, 60
SKEW_S = 30
"""Two machines' clocks may differ by so much."""
REAP_EVERY = 6
"""Renewals between two looks for what dead executors left."""

logger = logging.getLogger(__name__)


class Presence:
    """This process's lease."""

    def __init__(self, cluster: Cluster) -> None:
        """
        Raises:
            SandboxFailed: the lease cannot be made.
        """
        self.name = f"longstride-{uuid7().hex[-20:]}"
        self._cluster = cluster
        self._closing = threading.Event()
        self._create()
        self._keeper = threading.Thread(target=self._keep, name="sandbox-presence", daemon=True)
        self._keeper.start()

    def close(self) -> None:
        """It has removed its sandboxes itself."""
        self._closing.set()
        self._keeper.join()
        _delete(self._cluster, self.name)

    def renew(self) -> None:
        """It lives; one that others took for dead says so again.

        Raises:
            SandboxFailed: the API does not answer.
        """
        from kubernetes.client import ApiException

        with answered(f"lease {self.name} cannot be renewed"):
            try:
                body = {"spec": {"renewTime": _now()}}
                self._cluster.leases.patch_namespaced_lease(self.name, self._cluster.namespace, body)
            except ApiException as error:
                if error.status != 404:
                    raise
                self._create()

    def _create(self) -> None:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "labels": LABELS},
            "spec": {"holderIdentity": self.name, "leaseDurationSeconds": DURATION_S, "renewTime": _now()},
        }
        with answered(f"lease {self.name} cannot be made"):
            self._cluster.leases.create_namespaced_lease(self._cluster.namespace, body)

    def _keep(self) -> None:
        count = 0
        while not self._closing.wait(RENEW_S):
            count += 1
            try:
                self.renew()
                if count % REAP_EVERY == 0:
                    reap(self._cluster)
            except SandboxFailed as error:
                logger.warning("%s; again in %d s", error, RENEW_S)


def reap(cluster: Cluster) -> list[str]:
    """Remove what dead executors left.

    Returns:
        The names of their claims.

    Raises:
        SandboxFailed: the API does not answer.
    """
    claims = cluster.claims(EXECUTOR)  # before the leases: an executor has its lease before its first claim
    leases = _leases(cluster)
    living = {name for name, lease in leases.items() if not _over(lease)}
    orphans = sorted(name for name, owner in claims.items() if owner not in living)
    for claim in orphans:
        cluster.release(claim)
    for name in leases.keys() - living:
        _delete(cluster, name)
    return orphans


def _leases(cluster: Cluster) -> dict[str, Any]:
    selector = ",".join(f"{key}={value}" for key, value in LABELS.items())
    with answered("leases cannot be listed"):
        found: Any = cluster.leases.list_namespaced_lease(cluster.namespace, label_selector=selector)
    return {lease.metadata.name: lease for lease in found.items}


def _over(lease: Any) -> bool:
    """One that was never renewed is new, or nobody's: its claims expire by themselves."""
    renewed: datetime | None = lease.spec.renew_time
    duration = timedelta(seconds=(lease.spec.lease_duration_seconds or DURATION_S) + SKEW_S)
    return renewed is not None and renewed + duration < datetime.now(UTC)


def _delete(cluster: Cluster, name: str) -> None:
    from kubernetes.client import ApiException

    with answered(f"lease {name} cannot be removed"):
        try:
            cluster.leases.delete_namespaced_lease(name, cluster.namespace)
        except ApiException as error:
            if error.status != 404:
                raise


def _now() -> str:
    """A ``MicroTime``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
