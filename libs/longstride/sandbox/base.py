"""The port: sandboxes that are used once. Make one, give it a workspace, run a command, take the workspace back, destroy it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from longstride.contracts.v1.action import Usage
from longstride.contracts.v1.egress import Connection, Egress
from longstride.contracts.v1.environment import WORKSPACE
from longstride.contracts.v1.limits import Isolation, SandboxLimits
from longstride.sandbox.egress.served import Sites
from longstride.sandbox.errors import IsolationUnavailable

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
    """Ids on the host."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Volume:
    """A directory that one task's code may write, and nobody else."""

    path: Path
    owner: Owner | None
    """Whose the files are, seen from the host; ``None``: this process's own."""
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
    links: Mapping[str, str] = field(default_factory=dict)
    """Symbolic links outside the workspace, path → target; see ``contracts.v1.environment``."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Directories of the host, shown read-only under ``SUPPORT`` for this command alone: relative path → directory."""
    egress: Egress | None = None
    """What it may reach over the network; ``None``: nothing."""
    sites: Sites = field(default_factory=dict)
    """Hosts in ``egress`` that its proxy answers itself."""
    network: "Sandbox | None" = None
    """As in ``Spec``."""
    cwd: str = WORKSPACE
    """Where it starts, an absolute path inside."""


class Input(Protocol):
    """The standard input of a program that runs. May be used from any thread."""

    def tell(self, data: bytes) -> None:
        """Write all of it; blocks while the program does not read.

        Raises:
            ProgramEnded: nobody will read it.
        """
        ...

    def hang_up(self) -> None:
        """Nothing more will be told; a second call does nothing."""
        ...


Stream = Literal["stdout", "stderr"]


class Dialogue(Protocol):
    """Who talks with a program while it runs. Called by the thread that watches the sandbox: nothing here may block."""

    def opened(self, stdin: Input) -> None:
        """The program is about to start. Never called for one that cannot be started."""
        ...

    def heard(self, stream: Stream, data: bytes) -> None:
        """It wrote this."""
        ...


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
    """Which limit stopped it, e.g. ``memory_mb=512``; of the task's own budgets ``limits.cpu_s=120``."""
    share: str | None = None
    """Where ``limit`` is a budget of the task: what the command had of it, e.g. ``14.2 s``."""
    deadline: str | None = None
    """The time that ran out, e.g. ``wall_s=120``, when ``limit`` is what made it too slow."""
    passed: tuple[str, ...] = ()
    """Limits that it reached on the way to a good end: a child was killed for memory, say, and the command went on."""
    usage: Usage = field(default_factory=Usage)
    killed: bool = False
    """It was cancelled from outside; then ``status`` says nothing."""
    connections: tuple[Connection, ...] = ()
    """Every connection that it asked for, in the order of their start."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What must be known of a sandbox before it is made."""

    limits: SandboxLimits
    isolation: Isolation = "process"
    workspace: Volume | None = None
    """The one that will be ``put``; ``None``: not known yet, which ``Capabilities.prewarm`` allows."""
    links: Mapping[str, str] = field(default_factory=dict)
    """As in ``Command``; given only where ``Capabilities.links`` says so."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """As in ``Command``; given only where ``Capabilities.folders`` says so."""
    network: "Sandbox | None" = None
    """One that lives, of the same task: both have one loopback. Given only where ``Capabilities.shares_network`` says so."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a sandbox uses now, its own first processes included; 0 for what this host does not count."""

    cpu_s: float
    memory_bytes: int
    processes: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend gives on this host."""

    backend: str
    isolation: frozenset[Isolation]
    enforced: tuple[str, ...]
    """Phrases for ``longstride doctor``: what is held here."""
    missing: tuple[str, ...] = ()
    """Sentences: what is not held here, and what would change that."""
    prewarm: bool = False
    """Whether a sandbox can be made before its workspace is known."""
    links: bool = False
    """Whether its sandboxes can show links outside the workspace."""
    fixed_limits: bool = False
    """Whether a sandbox keeps the limits it was made with; else those of the command are set when it starts."""
    egress: bool = False
    """Whether a command can be given a way out through a proxy."""
    folders: bool = False
    """Whether its sandboxes can show directories of the host."""
    shares_network: bool = False
    """Whether a sandbox can be made in the network of another."""
    copies_workspace: bool = False
    """Whether a sandbox works on a copy of its workspace, which ``collect`` brings back: no two can share one."""

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

    def admit(self, spec: Spec) -> None:
        """Refuse what this backend cannot make.

        Raises:
            IsolationUnavailable: with a sentence.
        """
        self.require(spec.isolation)
        if spec.links and not self.links:
            raise IsolationUnavailable(
                f"the task wants {', '.join(spec.links)} shown in its sandboxes, and the {self.backend} backend shows the "
                "workspace alone: submit it to an executor whose backend is bubblewrap"
            )
        if spec.folders and not self.folders:
            raise IsolationUnavailable(
                f"the folder {', '.join(map(str, spec.folders.values()))} would be shown in a sandbox, and the {self.backend} "
                "backend shows the workspace alone: use an executor whose backend is bubblewrap, runc or runsc"
            )
        assert spec.network is None or self.shares_network, "capabilities() says whether a network can be shared"


class Sandbox(Protocol):
    """One sandbox, for one command: ``put``, ``exec``, ``collect``, ``destroy``, in this order and once each.

    The thread that made it must live as long as it does. The other methods may be called from any thread.
    """

    @property
    def alive(self) -> bool:
        """Whether it still waits, or works."""
        ...

    def put(self, workspace: Volume) -> None:
        """Show the code this workspace.

        Raises:
            SandboxFailed: it broke, or was made for another workspace.
        """
        ...

    def exec(self, command: Command, cancelled: Cancellation = NEVER, dialogue: Dialogue | None = None) -> Execution:
        """Run to the end, a limit, or the cancellation, whichever is first; then no process of it is left. Blocks.

        Without a ``dialogue`` the program's standard input is empty.

        Raises:
            SandboxFailed: the sandbox broke before the outcome was known.
        """
        ...

    def collect(self, workspace: Volume) -> None:
        """The volume holds what the code left in it, and is no longer the sandbox's.

        Raises:
            SandboxFailed: what the code left cannot be had.
        """
        ...

    def terminate(self) -> None:
        """Ask the command to end (SIGTERM); nothing when it has ended. A shell that waits for others is not asked, they are.

        Raises:
            SandboxFailed: nothing inside can be asked here.
        """
        ...

    def pause(self) -> None:
        """Stop every process where it is, before this returns; the wall clock stands still, too.

        Raises:
            SandboxFailed: this host cannot.
        """
        ...

    def resume(self) -> None:
        """Let them go on."""
        ...

    def stats(self) -> Stats:
        """What it uses now."""
        ...

    def destroy(self) -> None:
        """Kill what is left, and remove every trace from the host. A second call does nothing.

        Raises:
            SandboxFailed: something could not be removed.
        """
        ...


class SandboxBackend(Protocol):
    """Makes sandboxes. May be called from many threads."""

    @property
    def volumes(self) -> Volumes:
        """The volumes whose files this backend's code can write."""
        ...

    def capabilities(self) -> Capabilities:
        """What is enforced on this host, in words."""
        ...

    def create(self, spec: Spec) -> Sandbox:
        """A sandbox that waits for its workspace and its command.

        Raises:
            IsolationUnavailable: the spec needs a stronger boundary.
            SandboxFailed: it could not be made; the same call may succeed later.
            NetworkGone: ``spec.network`` has ended.
        """
        ...

    def run(self, command: Command, cancelled: Cancellation = NEVER, dialogue: Dialogue | None = None) -> Execution:
        """One command in a sandbox that is gone when this returns: ``run_once``.

        Raises:
            IsolationUnavailable: the command needs a stronger boundary.
            SandboxFailed: the sandbox broke before the outcome was known.
        """
        ...

    def reap(self) -> list[str]:
        """Remove what executors that died left on this host; returns what that was."""
        ...

    def close(self) -> None:
        """Release what the backend holds on the host."""
        ...


def spec_of(command: Command) -> Spec:
    """What must be known of a sandbox that is made for one command."""
    return Spec(
        limits=command.limits,
        isolation=command.isolation,
        workspace=command.workspace,
        links=command.links,
        folders=command.folders,
        network=command.network,
    )


def run_once(
    create: Callable[[Spec], Sandbox],
    command: Command,
    cancelled: Cancellation = NEVER,
    dialogue: Dialogue | None = None,
) -> Execution:
    """Create, put, exec, collect, destroy."""
    sandbox = create(spec_of(command))
    try:
        sandbox.put(command.workspace)
        execution = sandbox.exec(command, cancelled, dialogue)
        sandbox.collect(command.workspace)
    finally:
        sandbox.destroy()
    return execution
