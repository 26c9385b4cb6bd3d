"""Where a running stack is reached, and with which secrets."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.native.private import write_private

FILE = "addresses.json"


@dataclass(frozen=True)
class Addresses:
    """Everything a program needs to use the stack. Holds secrets: keep it out of logs."""

    amqp_url: str
    """RabbitMQ, virtual host ``/``."""
    management_url: str
    """RabbitMQ's HTTP API, user and password included."""
    prometheus_url: str
    """RabbitMQ's metrics in the Prometheus text format."""
    database_url: str
    """PostgreSQL as a superuser, so that tests can make databases and extensions."""
    s3_endpoint: str
    """``http://host:port`` of the S3 server."""
    access_key: str
    secret_key: str
    bucket: str
    """A bucket that exists."""
    folder: str
    """The stack's folder, by which `Stack(folder)` restarts or kills single servers."""

    def environment(self) -> dict[str, str]:
        """The variables that every program of Longstride reads."""
        return {
            "LONGSTRIDE_AMQP_URL": self.amqp_url,
            "LONGSTRIDE_MANAGEMENT_URL": self.management_url,
            "LONGSTRIDE_DATABASE_URL": self.database_url,
            "LONGSTRIDE_S3_ENDPOINT": self.s3_endpoint,
            "LONGSTRIDE_S3_ACCESS_KEY": self.access_key,
            "LONGSTRIDE_S3_SECRET_KEY": self.secret_key,
            "LONGSTRIDE_S3_BUCKET": self.bucket,
            "LONGSTRIDE_STACK": self.folder,
        }

    def save(self) -> None:
        write_private(Path(self.folder) / FILE, json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, folder: Path) -> "Addresses":
        """Read what `save` wrote. `FileNotFoundError` where no stack has run in `folder`."""
        return cls(**json.loads((folder / FILE).read_text()))
