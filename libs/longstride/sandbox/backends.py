"""The backends there are, by the names that settings use."""

import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from longstride.sandbox.base import SandboxBackend
from longstride.sandbox.bubblewrap import BubblewrapSandbox
from longstride.sandbox.docker import DockerSandbox
from longstride.sandbox.kubernetes.backend import KubernetesSandbox
from longstride.sandbox.oci import OciSandbox

BackendName = Literal["bubblewrap", "runc", "runsc", "docker", "docker-runsc", "kubernetes"]
MAKERS: Mapping[BackendName, Callable[[Path | None], SandboxBackend]] = {
    "bubblewrap": BubblewrapSandbox,
    "runc": lambda scratch: OciSandbox("runc", scratch),
    "runsc": lambda scratch: OciSandbox("runsc", scratch),
    "docker": lambda scratch: DockerSandbox("runc", scratch),
    "docker-runsc": lambda scratch: DockerSandbox("runsc", scratch),
    "kubernetes": lambda scratch: KubernetesSandbox(scratch=scratch),
}
PROGRAMS: Mapping[BackendName, str] = {
    "bubblewrap": "bwrap",
    "runc": "runc",
    "runsc": "runsc",
    "docker": "docker",
    "docker-runsc": "runsc",
}
DEFAULT: BackendName = "bubblewrap"


def make(name: BackendName = DEFAULT, scratch: Path | None = None) -> SandboxBackend:
    """Find what the host gives, and try one sandbox.

    Raises:
        SandboxUnavailable: this backend cannot isolate code here; the text says what is missing and how to get it.
    """
    return MAKERS[name](scratch)


def installed() -> list[BackendName]:
    """Those whose program or cluster is here, the default first whether it is or not."""
    here: list[BackendName] = [name for name, program in PROGRAMS.items() if name == DEFAULT or shutil.which(program)]
    return [*here, "kubernetes"] if _has_cluster() else here


def _has_cluster() -> bool:
    """Whether this is a pod, or somebody has a kubeconfig, and there is a client to use it."""
    kubeconfig = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    known = "KUBERNETES_SERVICE_HOST" in os.environ or kubeconfig.exists()
    return known and importlib.util.find_spec("k8s_agent_sandbox") is not None
