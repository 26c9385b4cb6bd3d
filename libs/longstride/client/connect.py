"""The Longstride that this user talks to: a full stack by the environment's addresses, else an embedded one of their own."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from longstride.client.embedded_stack import EmbeddedStack, RunningStack
from longstride.client.errors import Unreachable, UsageProblem
from longstride.client.settings import ClientSettings, load

if TYPE_CHECKING:
    from longstride.client.port import TaskClient
    from longstride.client.reader import Reader
    from longstride.storage.artifacts import ArtifactStore


class Deployment:
    """A running Longstride. Each part connects when it is first asked for; an embedded stack is started then."""

    def __init__(self, settings: ClientSettings, say: Callable[[str], None]) -> None:
        self.settings = settings
        self._say = say

    @property
    def embedded(self) -> bool:
        """One process in a folder, rather than services that others run."""
        return self.settings.embedded

    @cached_property
    def stack(self) -> RunningStack:
        """The embedded stack."""
        assert self.embedded, "a full stack is started by others"
        return EmbeddedStack(self.settings.home).up(self._say)

    @property
    def readable(self) -> bool:
        """Whether there is a database to read tasks from."""
        return self.embedded or self.settings.database_url is not None

    @cached_property
    def reader(self) -> "Reader":
        """Reads tasks.

        Raises:
            UsageProblem: only a broker is configured.
        """
        from longstride.client.reader import Reader

        return Reader(self._database_url, self._say, self._revive)

    def _revive(self) -> None:
        """Start an embedded stack that died; not one that somebody stopped."""
        if self.embedded:
            stack = EmbeddedStack(self.settings.home)
            if stack.stopped:
                raise Unreachable(f"the embedded stack in {stack.home} was stopped; the next command starts it again")
            stack.up(self._say)

    @property
    def _database_url(self) -> str:
        if self.embedded:
            return self.stack.database_url
        if self.settings.database_url is None:
            raise UsageProblem(
                "reading tasks needs the database: set LONGSTRIDE_DATABASE_URL beside LONGSTRIDE_AMQP_URL"
            )
        return self.settings.database_url.get_secret_value()

    @cached_property
    def client(self) -> "TaskClient":
        """Publishes: to the broker when one is configured, else through the database's outbox."""
        if self.settings.amqp_url is None:
            return self.outbox
        from longstride.client.amqp import Client

        return Client(self.settings.amqp_url.get_secret_value(), patience_s=self.settings.patience_s, say=self._say)

    @cached_property
    def outbox(self) -> "TaskClient":
        """Publishes through the database, whatever else is configured: the way of jobs, which Celery carries."""
        from longstride.client.outbox_client import OutboxClient

        return OutboxClient(self.reader)

    @cached_property
    def artifacts(self) -> "ArtifactStore | None":
        """The artifact store; ``None`` when none is configured."""
        if self.embedded:
            from longstride.storage.disk import DiskArtifacts

            return DiskArtifacts(self.stack.artifacts)
        return self._bucket() if self.settings.s3_endpoint else None

    def _bucket(self) -> "ArtifactStore":
        from longstride.storage.minio_artifacts import MinioArtifacts

        settings = self.settings
        if settings.s3_endpoint is None or settings.s3_access_key is None or settings.s3_secret_key is None:
            raise UsageProblem("LONGSTRIDE_S3_ENDPOINT needs LONGSTRIDE_S3_ACCESS_KEY and LONGSTRIDE_S3_SECRET_KEY")
        return MinioArtifacts(
            settings.s3_endpoint,
            settings.s3_access_key.get_secret_value(),
            settings.s3_secret_key.get_secret_value(),
            settings.s3_bucket,
        )

    def where(self, key: str) -> str:
        """Where an artifact lies, for people."""
        if self.embedded:
            return str(Path(self.stack.artifacts) / key)
        return f"s3://{self.settings.s3_bucket}/{key}"

    def close(self) -> None:
        """Let go of what was connected; a stack that was started stays."""
        for part in ("client", "reader"):
            if part in self.__dict__:
                self.__dict__[part].close()

    def __enter__(self) -> "Deployment":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()


def connect(say: Callable[[str], None]) -> Deployment:
    """The deployment that the environment names.

    Raises:
        UsageProblem: a variable does not fit.
    """
    return Deployment(load(), say)
