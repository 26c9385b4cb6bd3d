"""The default backend: bubblewrap, with control groups, rlimits and a system call filter around it.

A shared-kernel boundary. As root each sandbox runs under host ids of its own, which have no privileges; otherwise under this
process's ids, in a user namespace. ``capabilities`` says what this host gives.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import launcher, seccomp
from longstride.sandbox.base import (
    NEVER,
    Cancellation,
    Capabilities,
    Command,
    Execution,
    Owner,
    Spec,
    Volume,
    Volumes,
    run_once,
)
from longstride.sandbox.cell import BubblewrapCell, Habits, Jailer
from longstride.sandbox.cgroup import Cgroup
from longstride.sandbox.errors import SandboxFailed, SandboxUnavailable
from longstride.sandbox.host import describe, find_host
from longstride.sandbox.identity import Identities
from longstride.sandbox.mounts import bind_read_only
from longstride.sandbox.rootfs import (
    ENVIRONMENT,
    GID,
    UID,
    Shared,
    bounded_scratch,
    own_files,
    plain_scratch,
    prepare,
    system,
)
from longstride.sandbox.runs import RunFolder, run_folder
from longstride.sandbox.scratch import MARK, TRAVERSABLE, Scratch, default_root, reap
from longstride.sandbox.volumes import DirectoryVolumes, TmpfsVolumes
from longstride.sandbox.warden import Warden

PYTHON_FOLDERS = ("/usr/local/bin", "/usr/bin")
"""Where a host's own Python is; without one, the interpreter that runs this is shown at its own place."""
CLOSED = 0o700
CANNOT_ATTACH = (errno.EINVAL, errno.ENOSYS, errno.EPERM)
"""A kernel's word for not knowing mounts with ids of their own, or not letting this process make them."""
TRIAL_LIMITS = SandboxLimits(wall_s=20, cpu_s=10, memory_mb=64, disk_mb=1, files=16)


class BubblewrapSandbox:
    """Make one in each process that runs commands, after any fork: what a process made is removed when it dies."""

    def __init__(self, scratch: Path | None = None) -> None:
        """Find what the host gives, remove what dead processes left, and try one sandbox.

        Args:
            scratch: a folder for mounts and short-lived files, which processes may share; ``None``: the system's place.

        Raises:
            SandboxUnavailable: code cannot be isolated here; the text says what is missing and how to get it.
        """
        self._host = find_host()
        self._filter = seccomp.program()
        root = scratch or default_root()
        self._scratch = self._open_scratch(root)
        self._warden = Warden(root)
        self._ids = Identities()
        try:
            self._prewarm = False
            self._volumes, self._bounded = self._make_volumes()
            self._shared = self._prepare()
            self._system = system(self._shared)
            self._capabilities = self._describe()
            if self._bounded and self._try_to_attach():
                self._capabilities = self._describe()
            else:
                self._try_once()
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

    def create(self, spec: Spec) -> BubblewrapCell:
        """Namespaces, mounts, a group, the filter; and a shell inside that waits."""
        self._capabilities.require(spec.isolation)
        bound = None if self._prewarm else spec.workspace
        assert self._prewarm or bound, "capabilities() says that a sandbox is made for its workspace here"
        owner = bound.owner if bound else self._ids.draw()
        with ExitStack() as stack:
            mounted, limits = self._bounded, spec.limits
            folder = stack.enter_context(run_folder(self._scratch, mounted=mounted, owner=owner, limits=limits))
            group = stack.enter_context(self._group())
            jailer = self._jailer(owner, group, self._system_of(spec, folder, bound))
            stack.callback(jailer.end, group)
            jailer.wait_until_ready()
            habits = Habits(self._volumes, self._host.grouped, self._host.programs.prlimit)
            return BubblewrapCell(habits, jailer, folder, group, bound, stack.pop_all())

    def run(self, command: Command, cancelled: Cancellation = NEVER) -> Execution:
        """Create, run, destroy."""
        return run_once(self.create, command, cancelled)

    def reap(self) -> list[str]:
        """Remove what dead executors left under the same root."""
        return reap(self._scratch.path.parent)

    def close(self) -> None:
        """Remove this process's scratch folder, volumes included: close the workspaces before it."""
        self._scratch.close()
        self._warden.dismiss()

    def _jailer(self, owner: Owner | None, group: Cgroup, system: list[str]) -> Jailer:
        status = os.pipe2(os.O_CLOEXEC)
        seccomp_fd = os.open(self._shared.seccomp, os.O_RDONLY | os.O_CLOEXEC)
        reading = ("--seccomp", str(seccomp_fd), "--json-status-fd", str(status[1]))
        arguments_fd = launcher.argument_block([*launcher.NAMESPACES, *system, *reading])
        launch = launcher.Launch(self._host.programs, group.entrances, owner, arguments_fd)
        return Jailer(launch.command_line(), status, (seccomp_fd, arguments_fd), {MARK: self._scratch.name})

    def _system_of(self, spec: Spec, folder: RunFolder, bound: Volume | None) -> list[str]:
        scratch = bounded_scratch(folder.path) if folder.mounted else plain_scratch(spec.limits)
        environment = {**ENVIRONMENT, "PATH": self._shared.path}
        return [
            *(word for name, value in environment.items() for word in ("--setenv", name, value)),
            *self._system,
            *scratch,
            *own_files(bound.path if bound else folder.workspace, folder.support),
        ]

    @contextmanager
    def _group(self) -> Iterator[Cgroup]:
        group = self._scratch.cgroup()
        try:
            group.create()
            yield group
        finally:
            if not group.remove():
                raise SandboxFailed(f"control group {group.name} could not be removed: something in it does not die")

    def _open_scratch(self, root: Path) -> Scratch:
        try:
            reap(root)
            return Scratch(root, self._host.hierarchies)
        except OSError as error:
            raise SandboxUnavailable(
                f"the scratch folder {root} cannot be used ({error.strerror}): choose another"
            ) from error

    def _make_volumes(self) -> tuple[Volumes, bool]:
        """Bounded ones where a mount succeeds."""
        folder = self._scratch.path / "volumes"
        folder.mkdir()
        folder.chmod(TRAVERSABLE)
        if self._host.privileged:
            bounded = TmpfsVolumes(self._scratch, self._ids.draw)
            with contextlib.suppress(PermissionError):
                bounded.destroy(bounded.create(TRIAL_LIMITS))
                return bounded, True
        return DirectoryVolumes(folder, self._ids), False

    def _try_to_attach(self) -> bool:
        """Whether a sandbox that is there already can be given a workspace. Then the files of all workspaces have, on their
        file systems, the ids that their code has inside; whoever has these on the host must not get through to them."""
        folder, own = self._scratch.path / "volumes", self._volumes
        folder.chmod(CLOSED)
        self._prewarm, self._volumes = True, TmpfsVolumes(self._scratch, lambda: Owner(UID, GID))
        try:
            self._try_once()
        except OSError as error:
            if error.errno not in CANNOT_ATTACH:
                raise
            folder.chmod(TRAVERSABLE)
            self._prewarm, self._volumes = False, own
        return self._prewarm

    def _describe(self) -> Capabilities:
        return describe(self._host, quota=self._bounded, separate_ids=self._ids.separate, prewarm=self._prewarm)

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
            execution = self.run(Command(("sh", "-c", "exit 7"), volume, TRIAL_LIMITS))
        except SandboxFailed as error:
            raise SandboxUnavailable(f"bubblewrap does not work here: {error}. {_advice(str(error))}") from error
        finally:
            self._volumes.destroy(volume)
        if execution.exit_code != 7:
            raise SandboxUnavailable(f"bubblewrap does not work here: a trial ended as {execution}")


def _advice(said: str) -> str:
    if "ermission" in said or "not permitted" in said:
        return (
            "If user namespaces are closed to users: `sysctl kernel.unprivileged_userns_clone=1` (Debian), "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu 24.04), or run the executor as root; "
            "in a container, allow it to make namespaces."
        )
    if "nknown option" in said:
        return "bubblewrap 0.8 or newer is needed."
    return "Run `bwrap --unshare-all --ro-bind / / true` to see why."
