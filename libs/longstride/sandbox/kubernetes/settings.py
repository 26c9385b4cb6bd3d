"""Which cluster's sandboxes the ``kubernetes`` backend uses."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class KubernetesSettings(BaseSettings):
    """``LONGSTRIDE_KUBERNETES_…``; the cluster itself is the pod's own, else that of ``KUBECONFIG``."""

    model_config = SettingsConfigDict(env_prefix="LONGSTRIDE_KUBERNETES_", use_attribute_docstrings=True, frozen=True)

    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "longstride-sandboxes"
    """Where claims are made, and nothing else lives."""
    pool: str = "longstride-gvisor"
    """The warm pool (``SandboxWarmPool``) that sandboxes are claimed from. The RuntimeClass of its template says how they isolate."""
    ready_s: Annotated[int, Field(gt=0, le=3600)] = 120
    """Seconds to wait for a pod; without a warm one it is scheduled, and its image may have to be pulled."""
    expiry_s: Annotated[int, Field(ge=300, le=86_400)] = 3600
    """Seconds after which the cluster itself removes a sandbox that nobody removed; a longer call puts it off."""
