"""Where a service finds what it stands on: the same variables for all of them."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from longstride.messaging.lease import HEARTBEAT_S, TTL_S
from longstride.storage.artifacts import ArtifactStore
from longstride.storage.disk import DiskArtifacts


class Connections(BaseSettings):
    """``LONGSTRIDE_…``"""

    model_config = SettingsConfigDict(
        env_prefix="LONGSTRIDE_", env_ignore_empty=True, use_attribute_docstrings=True, frozen=True
    )

    database_url: SecretStr
    """``postgresql://user:password@host:port/database``."""
    amqp_url: SecretStr
    """``amqp://user:password@host:port/vhost``."""
    artifacts_dir: Path | None = None
    """Keep artifacts in this folder; unset: in the S3 store below."""
    s3_endpoint: str = "http://127.0.0.1:9000"
    """``http(s)://host:port``."""
    s3_access_key: SecretStr = SecretStr("")
    s3_secret_key: SecretStr = SecretStr("")
    s3_bucket: str = "longstride"
    migrate: bool = True
    """Bring the schema up to date at start; with ``false`` a service refuses one that is not."""
    patience_s: float = 60.0
    """Seconds to wait at start for PostgreSQL, RabbitMQ and the artifact store, each."""
    lease_ttl_s: Annotated[float, Field(gt=0)] = TTL_S
    """Seconds after its last heartbeat at which a worker counts as dead."""
    heartbeat_s: Annotated[float, Field(gt=0)] = HEARTBEAT_S
    """Seconds between heartbeats; at most a third of that."""
    mcp_file: Path | None = None
    """The MCP servers whose tools there are, as ``longstride mcp add`` writes them; the same for every service."""
    state_dir: Path = Path(".longstride")
    """Files of this machine that can be made again: weights, sandboxes' scratch."""

    def artifacts(self) -> ArtifactStore:
        """The artifact store."""
        if self.artifacts_dir is not None:
            return DiskArtifacts(self.artifacts_dir)
        from longstride.storage.minio_artifacts import MinioArtifacts

        access, secret = self.s3_access_key.get_secret_value(), self.s3_secret_key.get_secret_value()
        return MinioArtifacts(self.s3_endpoint, access, secret, self.s3_bucket)
