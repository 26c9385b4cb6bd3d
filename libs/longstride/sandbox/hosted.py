"""A backend whose sandboxes run on this host, whatever builds them: scratch folder, ids, volumes, control groups."""

import contextlib
import errno
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import seccomp
from longstride.sandbox.base import (
    NEVER,
    Cancellation,
    Capabilities,
    Command,
    Dialogue,
    Execution,
    Owner,
    Spec,
    Volume,
    Volumes,
    run_once,
)
from longstride.sandbox.cell import Habits, HostedCell, Jailer
from longstride.sandbox.cgroup import Group, Hierarchy
from longstride.sandbox.egress.gate import Gates
from longstride.sandbox.errors import SandboxFailed, SandboxUnavailable
from longstride.sandbox.identity import Identities
from longstride.sandbox.mounts import bind_read_only
from longstride.sandbox.rootfs import GID, UID, Shared, prepare
from longstride.sandbox.runs import RunFolder, run_folder
from longstride.sandbox.scratch import TRAVERSABLE, Scratch, default_root, reap
from longstride.sandbox.volumes import DirectoryVolumes, TmpfsVolumes
from longstride.sandbox.warden import Warden

PYTHON_FOLDERS = ("/usr/local/bin", "/usr/bin")
"""Where a host's own Python is; without one, the interpreter that runs this is shown at its own place."""
CLOSED = 0o700
CANNOT_ATTACH = (errno.EINVAL, errno.ENOSYS, errno.EPERM)
"""A kernel's word for not knowing mounts with ids of their own, or not letting this process make them."""
TRIAL_LIMITS = SandboxLimits(wall_s=20, cpu_s=10, memory_mb=64, disk_mb=1, files=16)
TRIAL = "stat . >/dev/null 2>&1 && exit 7; exit 8"
"""The second code: it runs, and its kernel does not answer as this host's programs ask."""
INSIDE = Owner(UID, GID)


@dataclass(frozen=True, slots=True)
class Site:
    """What one sandbox is built from."""

    owner: Owner | None
    """Whom its code is outside; ``None``: this process."""
    folder: RunFolder
    group: Group
    workspace: Path
    """What is shown as its workspace: one, or a place where one can be attached."""
    limits: SandboxLimits
    links: Mapping[str, str]
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Where a directory is shown → a place on the host from which the sandbox's ids can bind it."""
    network: int | None = None
    """A descriptor of the network namespace that it is made in, closed once it has started; ``None``: one of its own."""

    @property
    def joins(self) -> tuple[int, ...]:
        """As descriptors to pass on."""
        return () if self.network is None else (self.network,)


class HostedBackend(ABC):
    """Make one in each process that runs commands, after any fork: what a process made is removed when it dies."""

    name: str
    attaches: bool = True
    """Whether its sandboxes see what is mounted on the host after they were made."""
    builds_as_owner: bool = False
    """Whether what builds its sandboxes has the ids of their code already; else it has those of this process."""
    own_ids: bool = True
    """Whether inside its sandboxes ids have other numbers than outside."""

    def __init__(
        self,
        scratch: Path | None,
        *,
        hierarchies: tuple[Hierarchy, ...],
        privileged: bool,
        habits: Habits,
        gates: Gates | None = None,
    ) -> None:
        """Remove what dead processes left, and try one sandbox.

        Args:
            scratch: a folder for mounts and short-lived files, which processes may share; ``None``: the system's place.
            hierarchies: where control groups are made.
            privileged: whether this process may mount and change ids.
            habits: how its sandboxes are bounded.
            gates: ways out, where ``Capabilities.egress`` says so; ``None``: to public addresses alone.

        Raises:
            SandboxUnavailable: code cannot be isolated here; the text says what is missing and how to get it.
        """
        self._filter = seccomp.program()
        self._privileged = privileged
        self._habits = habits
        self._gates = gates or Gates()
        root = scratch or default_root()
        self._scratch = self._open_scratch(root, hierarchies)
        self._warden = Warden(root)
        self._ids = Identities()
        try:
            self._prewarm = self._answers_stat = False
            self._volumes, self._bounded = self._make_volumes()
            self._shared = self._prepare()
            self._set_up()
            self._capabilities = self._describe()
            if not (self._bounded and self.own_ids and self._try_with_ids_of_inside()):
                self._try_once()
            self._capabilities = self._describe()
        except BaseException:
            self.close()
            raise

    @property
    def volumes(self) -> Volumes:
        """Workspaces that this backend's code can write."""
        return self._volumes

    def capabilities(self) -> Capabilities:
        """What is enforced here."""
        return self._capabilities

    def create(self, spec: Spec) -> HostedCell:
        """Everything around it, and a shell inside that waits."""
        self._capabilities.admit(spec)
        bound = None if self._prewarm else spec.workspace
        assert self._prewarm or bound, "capabilities() says that a sandbox is made for its workspace here"
        owner = self._owner(bound)
        with ExitStack() as stack:
            mounted, limits, builder = self._bounded, spec.limits, owner if self.builds_as_owner else None
            folder = stack.enter_context(
                run_folder(self._scratch, mounted=mounted, owner=owner, builder=builder, limits=limits)
            )
            group = stack.enter_context(self._group())
            place, network = bound.path if bound else folder.workspace, self._network(spec)
            folders = folder.show(spec.folders)
            site = Site(owner, folder, group, place, limits, spec.links, folders, network)
            jailer = self._launch(site)
            stack.callback(jailer.end, group)
            jailer.wait_until_ready()
            return HostedCell(
                self._habits, self._volumes, jailer, folder, group, owner, bound, self._gates, stack.pop_all()
            )

    def run(self, command: Command, cancelled: Cancellation = NEVER, dialogue: Dialogue | None = None) -> Execution:
        """Create, run, destroy."""
        return run_once(self.create, command, cancelled, dialogue)

    def reap(self) -> list[str]:
        """Remove what dead executors left under the same root."""
        return reap(self._scratch.path.parent)

    def close(self) -> None:
        """Remove this process's scratch folder, volumes included: close the workspaces before it."""
        self._scratch.close()
        self._warden.dismiss()

    @abstractmethod
    def _set_up(self) -> None:
        """Once, when ``_shared`` is there."""

    @abstractmethod
    def _launch(self, site: Site) -> Jailer:
        """Start one."""

    @abstractmethod
    def _describe(self) -> Capabilities:
        """In words."""

    @abstractmethod
    def _advice(self, said: str) -> str:
        """What to do about an error at the first trial."""

    def _network(self, spec: Spec) -> int | None:
        if spec.network is None:
            return None
        assert isinstance(spec.network, HostedCell), "a backend is given its own sandboxes"
        return spec.network.open_network()

    def _new_group(self) -> Group:
        return self._scratch.cgroup()

    def _owner(self, bound: Volume | None) -> Owner | None:
        return bound.owner if bound else self._ids.draw()

    @contextmanager
    def _group(self) -> Iterator[Group]:
        group = self._new_group()
        try:
            group.create()
            yield group
        finally:
            if not group.remove():
                raise SandboxFailed(f"control group {group.name} could not be removed: something in it does not die")

    def _open_scratch(self, root: Path, hierarchies: tuple[Hierarchy, ...]) -> Scratch:
        try:
            reap(root)
            return Scratch(root, hierarchies)
        except OSError as error:
            raise SandboxUnavailable(
                f"the scratch folder {root} cannot be used ({error.strerror}): choose another"
            ) from error

    def _make_volumes(self) -> tuple[Volumes, bool]:
        """Bounded ones where a mount succeeds."""
        folder = self._scratch.path / "volumes"
        folder.mkdir()
        folder.chmod(TRAVERSABLE)
        if self._privileged:
            bounded = TmpfsVolumes(self._scratch, self._ids.draw)
            with contextlib.suppress(PermissionError):
                bounded.destroy(bounded.create(TRIAL_LIMITS))
                return bounded, True
        return DirectoryVolumes(folder, self._ids), False

    def _try_with_ids_of_inside(self) -> bool:
        """Whether the files of all workspaces can have, on their file systems, the ids that their code has inside: whatever
        ids it has outside, it then sees them as its own. Whoever has these on the host must not get through to them."""
        folder, own = self._scratch.path / "volumes", self._volumes
        folder.chmod(CLOSED)
        self._prewarm, self._volumes = self.attaches, TmpfsVolumes(self._scratch, lambda: INSIDE)
        try:
            self._try_once()
        except OSError as error:
            if error.errno not in CANNOT_ATTACH:
                raise
            folder.chmod(TRAVERSABLE)
            self._prewarm, self._volumes = False, own
            return False
        return True

    def _prepare(self) -> Shared:
        shared = prepare(self._scratch.path, self._filter)
        if any(Path(folder, "python3").exists() for folder in PYTHON_FOLDERS):
            return shared
        return replace(shared, extra=((self._shown(Path(sys.base_prefix).resolve()), sys.base_prefix),))

    def _shown(self, directory: Path) -> Path:
        """A place from which the sandbox's ids can bind a directory that may lie in a closed home."""
        if not self._bounded:
            return directory
        target = self._scratch.fresh("interpreter")
        bind_read_only(directory, target)
        return target

    def _try_once(self) -> None:
        """One real sandbox, so that a host that cannot make them is known at start."""
        volume = self._volumes.create(TRIAL_LIMITS)
        try:
            execution = self.run(Command(("sh", "-c", TRIAL), volume, TRIAL_LIMITS))
        except SandboxFailed as error:
            raise SandboxUnavailable(f"{self.name} does not work here: {error}. {self._advice(str(error))}") from error
        finally:
            self._volumes.destroy(volume)
        if execution.exit_code not in (7, 8):
            raise SandboxUnavailable(f"{self.name} does not work here: a trial ended as {execution}")
        self._answers_stat = execution.exit_code == 7
