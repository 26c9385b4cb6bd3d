"""One server of the stack: what to run, and the process that runs it."""

import functools
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from infra.native.linux import die_with_parent

TAIL_BYTES = 4000


@dataclass(frozen=True)
class Command:
    """A process to run, always alone in its session, so that a terminal's Ctrl-C reaches the supervisor only."""

    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    """The whole of it: nothing of the caller's leaks into a server, PATH and HOME apart."""
    log: Path = Path(os.devnull)
    """Where output is appended to."""
    orphaned: signal.Signals = signal.SIGKILL
    """What the kernel sends when the supervisor is gone."""

    def start(self) -> "subprocess.Popen[bytes]":
        """Run it as a child that does not outlive the calling thread."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **self.environment}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.arguments,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=functools.partial(die_with_parent, os.getpid(), self.orphaned),
            )


class Server(Protocol):
    """What the supervisor needs to know of RabbitMQ, PostgreSQL or an S3 server."""

    name: str
    """By which it is restarted, e.g. ``rabbitmq``."""
    log: Path
    stop_signal: signal.Signals
    """Ends it in good order."""
    stop_seconds: float
    """How long that may take before SIGKILL; every one of them keeps its data through that too."""
    litter: list[Path]
    """Files that it makes outside the stack's folder; removed after its end."""

    def prepare(self) -> None:
        """Write configuration and, the first time, an empty data folder."""

    def commands(self) -> list[Command]:
        """What to run: helpers first, the server itself last."""

    def ready(self) -> bool:
        """Whether it serves requests and has what every client expects, e.g. a bucket, which it makes where missing."""


def tail(log: Path) -> str:
    """The end of a log, for an error's text."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return f"the end of {log}:\n{file.read().decode(errors='replace')}"
