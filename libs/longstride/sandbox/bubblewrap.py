"""The default backend: bubblewrap, with control groups, rlimits and a system call filter around it.

A shared-kernel boundary. As root each sandbox runs under host ids of its own, which have no privileges; otherwise under this
process's ids, in a user namespace. ``capabilities`` says what this host gives.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import launcher, seccomp
from longstride.sandbox.base import NEVER, Cancellation, Capabilities, Command, Execution, Volumes
from longstride.sandbox.cgroup import Cgroup
from longstride.sandbox.egress.gate import Gates
from longstride.sandbox.egress.inside import with_relay
from longstride.sandbox.errors import SandboxFailed, SandboxUnavailable
from longstride.sandbox.host import describe, find_host
from longstride.sandbox.identity import Identities
from longstride.sandbox.meter import GroupMeter, Meter, TreeMeter
from longstride.sandbox.mounts import bind_read_only
from longstride.sandbox.rootfs import ENVIRONMENT, Shared, bounded_scratch, own_files, plain_scratch, prepare, system
from longstride.sandbox.runs import RunFolder, run_folder
from longstride.sandbox.scratch import MARK, Scratch, default_root, reap
from longstride.sandbox.supervisor import Outcome, Supervisor
from longstride.sandbox.verdict import Evidence, judge
from longstride.sandbox.volumes import DirectoryVolumes, TmpfsVolumes
from longstride.sandbox.warden import Warden

PYTHON_FOLDERS = ("/usr/local/bin", "/usr/bin")
"""Where a host's own Python is; without one, the interpreter that runs this is shown at its own place."""
TRIAL_LIMITS = SandboxLimits(wall_s=20, cpu_s=10, memory_mb=64, disk_mb=1, files=16)


class BubblewrapSandbox:
    """Make one in each process that runs commands, after any fork: what a process made is removed when it dies."""

    def __init__(self, scratch: Path | None = None, gates: Gates | None = None) -> None:
        """Find what the host gives, remove what dead processes left, and try one sandbox.

        Args:
            scratch: a folder for mounts and short-lived files, which processes may share; ``None``: the system's place.
            gates: ways out; ``None``: to public addresses alone.

        Raises:
            SandboxUnavailable: code cannot be isolated here; the text says what is missing and how to get it.
        """
        self._host = find_host()
        self._gates = gates or Gates()
        self._filter = seccomp.program()
        root = scratch or default_root()
        self._scratch = self._open_scratch(root)
        self._warden = Warden(root)
        self._ids = Identities()
        try:
            self._volumes, self._bounded = self._make_volumes()
            self._shared = self._prepare()
            self._system = system(self._shared)
            given = describe(self._host, quota=self._bounded, separate_ids=self._ids.separate)
            self._capabilities = replace(given, egress=True)
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

    def run(self, command: Command, cancelled: Cancellation = NEVER) -> Execution:
        """Create, run, destroy."""
        self._capabilities.require(command.isolation)
        inside = with_relay(command)
        with ExitStack() as stack:
            folder = stack.enter_context(self._folder(inside))
            gate = stack.enter_context(self._gates.open(command.egress, folder.support, command.workspace.owner))
            group = stack.enter_context(self._group(inside.limits))
            meter = GroupMeter(group) if self._host.grouped else TreeMeter()
            with self._started(inside, folder, group) as (process, status_fd):
                outcome = Supervisor(process, status_fd, command.limits, cancelled, meter, group.kill).watch()
            return gate.account(judge(self._evidence(command, folder, group, meter, outcome)))

    def close(self) -> None:
        """Remove this process's scratch folder, volumes included: close the workspaces before it."""
        self._scratch.close()
        self._warden.dismiss()

    @contextmanager
    def _started(
        self, command: Command, folder: RunFolder, group: Cgroup
    ) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
        """A running sandbox; dead afterwards, whatever happened."""
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        seccomp_fd = os.open(self._shared.seccomp, os.O_RDONLY | os.O_CLOEXEC)
        arguments_fd = launcher.argument_block(self._arguments(command, folder, seccomp_fd, status_write))
        launch = launcher.Launch(
            programs=self._host.programs,
            entrances=group.entrances,
            owner=command.workspace.owner,
            limits=command.limits,
            argument_fd=arguments_fd,
            argv=command.argv,
            grouped=self._host.grouped,
        )
        try:
            process = subprocess.Popen(
                launch.command_line(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(seccomp_fd, arguments_fd, status_write),
                env={MARK: self._scratch.name},
                cwd="/",
                bufsize=0,
            )
        finally:
            for descriptor in (seccomp_fd, arguments_fd, status_write):
                os.close(descriptor)
        try:
            yield process, status_read
        finally:
            os.close(status_read)
            _end(process, group)

    def _arguments(self, command: Command, folder: RunFolder, seccomp_fd: int, status_fd: int) -> list[str]:
        scratch = bounded_scratch(folder.path) if folder.mounted else plain_scratch(command.limits)
        environment = {**ENVIRONMENT, "PATH": self._shared.path, **command.env}
        return [
            *launcher.NAMESPACES,
            *(word for name, value in environment.items() for word in ("--setenv", name, value)),
            *self._system,
            *scratch,
            *own_files(command.workspace.path, folder.support),
            *("--seccomp", str(seccomp_fd), "--json-status-fd", str(status_fd)),
        ]

    def _evidence(self, command: Command, folder: RunFolder, group: Cgroup, meter: Meter, outcome: Outcome) -> Evidence:
        limits = command.limits
        return Evidence(
            outcome=outcome,
            limits=limits,
            out_of_memory=group.out_of_memory(),
            refused_processes=group.refused_processes(),
            exhausted=self._volumes.exhausted(command.workspace, limits) or folder.exhausted(limits),
            cpu_s=meter.cpu_s,
            peak_memory_bytes=meter.peak_memory_bytes,
        )

    @contextmanager
    def _folder(self, command: Command) -> Iterator[RunFolder]:
        owner, limits, files = command.workspace.owner, command.limits, command.files
        with run_folder(self._scratch, mounted=self._bounded, owner=owner, limits=limits, files=files) as folder:
            yield folder

    @contextmanager
    def _group(self, limits: SandboxLimits) -> Iterator[Cgroup]:
        group = self._scratch.cgroup()
        try:
            group.create(limits)
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
        if self._host.privileged:
            bounded = TmpfsVolumes(self._scratch, self._ids)
            with contextlib.suppress(PermissionError):
                bounded.destroy(bounded.create(TRIAL_LIMITS))
                return bounded, True
        return DirectoryVolumes(self._scratch.path / "volumes", self._ids), False

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


def _end(process: subprocess.Popen[bytes], group: Cgroup) -> None:
    """After an error in the middle the sandbox may still run."""
    if process.returncode is None:
        group.kill()
        process.kill()
        process.wait()
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()


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
