"""Where the Longstride is that this user talks to: the environment, and nothing else."""

import os
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from longstride.client.errors import UsageProblem
from longstride.observability.wrong_settings import WRONG, told


def default_home() -> Path:
    """``$XDG_DATA_HOME/longstride``, or ``~/.local/share/longstride``."""
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "longstride"


class ClientSettings(BaseSettings):
    """``LONGSTRIDE_…`` variables. With none of them set, an embedded stack in ``home`` is used."""

    model_config = SettingsConfigDict(
        env_prefix="LONGSTRIDE_", frozen=True, extra="ignore", env_ignore_empty=True, use_attribute_docstrings=True
    )

    home: Path = Field(default_factory=default_home)
    """The folder of the embedded stack."""
    amqp_url: SecretStr | None = None
    """A broker to publish to."""
    database_url: SecretStr | None = None
    """PostgreSQL, to read tasks; with no ``amqp_url`` also to publish, through its outbox."""
    s3_endpoint: str | None = None
    """``http(s)://host:port`` of the artifact store."""
    s3_access_key: SecretStr | None = None
    s3_secret_key: SecretStr | None = None
    s3_bucket: str = "longstride"
    mcp_file: Path | None = None
    """The MCP servers of this user's services; unset: those of the embedded stack in ``home``."""
    patience_s: float = Field(default=15.0, ge=0)
    """Seconds to keep trying when the broker does not answer."""

    @property
    def embedded(self) -> bool:
        """Nothing but a folder of our own is configured."""
        return self.amqp_url is None and self.database_url is None

    @property
    def mcp_servers(self) -> Path:
        """Where ``longstride mcp`` keeps them."""
        return (self.mcp_file or self.home / "mcp.json").expanduser().absolute()


def load() -> ClientSettings:
    """The settings of this process.

    Raises:
        UsageProblem: a variable does not fit.
    """
    try:
        return ClientSettings()
    except WRONG as error:
        raise UsageProblem(told(error)) from error
