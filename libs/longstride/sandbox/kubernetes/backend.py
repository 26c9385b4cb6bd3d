"""The Kubernetes backend: a pod for each sandbox, claimed from a warm pool of agent-sandbox (kubernetes-sigs).

Executor and code are on different machines. Workspaces lie on the executor's, and are copied into a pod and back; commands go through
the API server's ``exec``, so a pod needs no network at all.
"""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

from longstride.contracts.ids import uuid7
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import (
    NEVER,
    Cancellation,
    Capabilities,
    Command,
    Dialogue,
    Execution,
    Spec,
    Volumes,
    run_once,
)
from longstride.sandbox.errors import SandboxError, SandboxFailed, SandboxUnavailable
from longstride.sandbox.kubernetes.cell import PodCell
from longstride.sandbox.kubernetes.cluster import Cluster
from longstride.sandbox.kubernetes.presence import EXECUTOR, Presence, reap
from longstride.sandbox.kubernetes.settings import KubernetesSettings
from longstride.sandbox.scratch import Scratch, default_root
from longstride.sandbox.scratch import reap as reap_scratch
from longstride.sandbox.volumes import DirectoryVolumes
from longstride.sandbox.warden import Warden

ENFORCED = (
    "memory, cpu and the workspace's bytes of the whole pod (its template)",
    "no network and no token of the API (the template's NetworkPolicy, which the cluster's network has to enforce)",
    "wall clock, output size, open files, no core dumps",
    "sandboxes that wait in a pool",
)
MISSING = (
    "limits below the pod's own hold for each process and not for their sum: memory_mb as its data segment, disk_mb as one file's size; "
    "CPU seconds of all are looked at twenty times a second where the pod has control groups. Give a pool's template the limits that its tasks have.",
    "the number of files is counted after a command, and the pod's memory bounds them until then: an emptyDir has no bound of its own",
    "a process or thread that the limit refused is not told of: nothing in a pod counts it",
    "programs are not talked with while they run: no processes between calls, no MCP servers",
    "devices, sockets and FIFOs in a workspace are not brought back, and nothing says so to the agent",
)
NO_OWN_USERS = (
    "processes are held by the node's own limit (the kubelet's podPidsLimit) alone: pods of pool {pool} share a kernel that counts their "
    "users together. Set hostUsers: false in their template, or use gVisor or Kata."
)
TRIAL_LIMITS = SandboxLimits(wall_s=30, cpu_s=10, memory_mb=64, disk_mb=1, files=16, cpus=0.1)
ADVICE = "`kubectl get sandboxwarmpools,sandboxclaims,pods -n {namespace}` shows what the cluster makes of it"

logger = logging.getLogger(__name__)


class KubernetesSandbox:
    """Runs commands in pods of their own. Make one in each process that runs commands, after any fork."""

    def __init__(
        self, settings: KubernetesSettings | None = None, scratch: Path | None = None, cluster: Cluster | None = None
    ) -> None:
        """Remove what dead executors left, and try one sandbox.

        Args:
            settings: ``None``: the environment's.
            scratch: a folder for workspaces, which processes may share; ``None``: the system's place.
            cluster: ``None``: the one that is found.

        Raises:
            SandboxUnavailable: code cannot be isolated there; the text says what is missing and how to get it.
        """
        self._settings = settings or KubernetesSettings()
        self._cluster = cluster or Cluster.find(self._settings.namespace)
        root = scratch or default_root()
        reap_scratch(root)
        self._scratch = Scratch(root)
        self._warden = Warden(root)
        self._volumes = DirectoryVolumes(self._scratch.path / "volumes")
        self._presence: Presence | None = None
        try:
            self._model = self._cluster.model(self._settings.pool)
            self._presence = Presence(self._cluster)
            self.reap()
            self._try_once()
        except SandboxUnavailable:
            self.close()
            raise
        except SandboxError as error:
            self.close()
            advice = ADVICE.format(namespace=self._settings.namespace)
            raise SandboxUnavailable(f"kubernetes does not work here: {error}. {advice}") from error
        except BaseException:
            self.close()
            raise

    @property
    def volumes(self) -> Volumes:
        """Plain directories on this host, where no agent's code runs."""
        return self._volumes

    def capabilities(self) -> Capabilities:
        """What the warm pool gives."""
        model = self._model
        shared = () if model.own_users else (NO_OWN_USERS.format(pool=model.pool),)
        return Capabilities("kubernetes", model.isolation, ENFORCED, (*MISSING, *shared), prewarm=True)

    def create(self, spec: Spec) -> PodCell:
        """A pod of the warm pool."""
        self.capabilities().admit(spec)
        model = self._model
        if spec.workspace:
            model.require(spec.limits)
        assert self._presence is not None, "its making ended"
        name, seconds = f"longstride-{uuid7().hex[-20:]}", self._settings.expiry_s
        expires = datetime.now(UTC) + timedelta(seconds=seconds)
        labels = {EXECUTOR: self._presence.name}
        pod = self._cluster.claim(name, model.pool, labels, seconds, self._settings.ready_s)
        cell = PodCell(self._cluster, name, pod.metadata.name, model, expires, self._scratch)
        if pod.spec.runtime_class_name != model.runtime_class:
            cell.destroy()
            raise SandboxFailed(
                f"pod {pod.metadata.name} has the RuntimeClass {pod.spec.runtime_class_name}, and its pool's template says "
                f"{model.runtime_class}: the template was changed; start the executor again"
            )
        return cell

    def run(self, command: Command, cancelled: Cancellation = NEVER, dialogue: Dialogue | None = None) -> Execution:
        """Create, put, exec, collect, destroy."""
        return run_once(self.create, command, cancelled, dialogue)

    def reap(self) -> list[str]:
        """Claims of executors that are gone, and this host's own folders."""
        return [*reap(self._cluster), *reap_scratch(self._scratch.path.parent)]

    def close(self) -> None:
        """Remove this process's folder and lease: destroy the sandboxes before it."""
        try:
            if self._presence:
                self._presence.close()
        except SandboxFailed as error:
            logger.warning("%s; others remove it when it has run out", error)
        finally:
            self._cluster.close()
            self._scratch.close()
            self._warden.dismiss()

    def _try_once(self) -> None:
        """One real sandbox, so that a cluster that cannot make them is known at start."""
        volume = self._volumes.create(TRIAL_LIMITS)
        try:
            execution = self.run(Command(("sh", "-c", "exit 7"), volume, TRIAL_LIMITS))
        finally:
            self._volumes.destroy(volume)
        if execution.exit_code != 7:
            raise SandboxFailed(f"a trial ended as {execution}")
