"""The port: run one command in a sandbox that is used once, against a workspace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from longstride.contracts.v1.action import Usage
from longstride.contracts.v1.egress import Connection, Egress
from longstride.contracts.v1.limits import Isolation, SandboxLimits
from longstride.sandbox.errors import IsolationUnavailable

WORKSPACE = "/workspace"
"""Where the code finds its workspace; also its working directory."""
SUPPORT = "/run/longstride"
"""Where the code finds ``Command.files``, read-only."""

ExecutionStatus = Literal["ok", "failed", "timeout", "limit"]


class Cancellation(Protocol):
    """A ``threading.Event``, or anything that answers like one."""

    def is_set(self) -> bool:
        """Whether the call is to stop now."""
        ...


class NeverCancelled:
    """For calls that nobody can cancel."""

    def is_set(self) -> bool:
        """Never."""
        return False


NEVER = NeverCancelled()


@dataclass(frozen=True, slots=True)
class Owner:
    """The host's ids that the sandboxed code runs under."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Volume:
    """A directory that one task's code may write, and nobody else."""

    path: Path
    owner: Owner | None
    """``None``: the code runs under this process's own ids."""
    bounded: bool
    """Whether the file system itself refuses more bytes and inodes than the limits allow."""
    honest_times: bool
    """Whether every change of a file shows in its times. A tmpfs does not show stores through a shared mapping."""


class Volumes(Protocol):
    """Where workspaces come from."""

    def create(self, limits: SandboxLimits, like: Volume | None = None) -> Volume:
        """An empty directory that holds at the most ``disk_mb`` and ``files``, of the same owner as ``like``."""
        ...

    def fit(self, volume: Volume, limits: SandboxLimits) -> bool:
        """Change a volume's limits; ``False`` when it already holds more."""
        ...

    def exhausted(self, volume: Volume, limits: SandboxLimits) -> str | None:
        """The limit that the volume has reached, e.g. ``disk_mb=256``, or ``None``."""
        ...

    def destroy(self, volume: Volume) -> None:
        """Remove the volume and all it holds."""
        ...


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and with what."""

    argv: tuple[str, ...]
    workspace: Volume
    limits: SandboxLimits
    isolation: Isolation = "process"
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to a minimal environment; nothing of the host's is passed on."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Laid read-only under ``SUPPORT`` for this command alone: relative path → content."""
    egress: Egress | None = None
    """What it may reach over the network; ``None``: nothing."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How a command ended."""

    status: ExecutionStatus
    exit_code: int | None
    """The command's own, 128 + n when signal n ended it; ``None`` when it was killed with the sandbox."""
    stdout: bytes
    stderr: bytes
    """Each keeps its head and tail within half of ``output_bytes``; a line in the middle says how much was dropped."""
    written: int = 0
    """Bytes of both together, the dropped ones included."""
    limit: str | None = None
    """Which limit stopped it, e.g. ``memory_mb=512``."""
    usage: Usage = field(default_factory=Usage)
    killed: bool = False
    """It was cancelled from outside; then ``status`` says nothing."""
    connections: tuple[Connection, ...] = ()
    """Every connection that it asked for, in the order of their start."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend gives on this host."""

    backend: str
    isolation: frozenset[Isolation]
    enforced: tuple[str, ...]
    """Phrases for ``longstride doctor``: what is held here."""
    missing: tuple[str, ...] = ()
    """Sentences: what is not held here, and what would change that."""
    egress: bool = False
    """Whether a command can be given a way out through a proxy."""

    def require(self, isolation: Isolation) -> None:
        """Refuse a weaker boundary than the one asked for.

        Raises:
            IsolationUnavailable: with a sentence that names both.
        """
        if isolation not in self.isolation:
            given = ", ".join(sorted(self.isolation)) or "none"
            raise IsolationUnavailable(
                f"the task needs {isolation} isolation, and the {self.backend} backend gives {given}: "
                f"submit it with another isolation, or to an executor whose backend gives {isolation}"
            )

    def require_egress(self, egress: Egress | None) -> None:
        """Refuse a way out that could not be watched.

        Raises:
            IsolationUnavailable: with a sentence that names both.
        """
        if egress is not None and not self.egress:
            raise IsolationUnavailable(
                f"the task may reach {egress.rules[0]}, and the {self.backend} backend gives no way out of its sandboxes: "
                "submit it without hosts, or to an executor whose backend has an egress proxy"
            )


class SandboxBackend(Protocol):
    """Runs commands, each in a sandbox of its own that is destroyed when ``run`` returns."""

    @property
    def volumes(self) -> Volumes:
        """The volumes whose files this backend's code can write."""
        ...

    def capabilities(self) -> Capabilities:
        """What is enforced on this host, in words."""
        ...

    def run(self, command: Command, cancelled: Cancellation = NEVER) -> Execution:
        """Run to the end, a limit, or the cancellation, whichever is first. Blocks; may be called from many threads.

        Raises:
            IsolationUnavailable: the command needs a stronger boundary.
            SandboxFailed: the sandbox broke before the outcome was known.
        """
        ...

    def close(self) -> None:
        """Release what the backend holds on the host."""
        ...
