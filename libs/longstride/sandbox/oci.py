"""The OCI backend: a bundle for each sandbox, run by runc or runsc (gVisor) without a daemon. Needs root.

runc gives bubblewrap's boundary in another maker's words; runsc a kernel of its own in user space, which is the stronger one.
"""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from longstride.contracts.v1.limits import Isolation
from longstride.sandbox import bundle, cgroup, launcher
from longstride.sandbox.base import Capabilities, Owner, Volume
from longstride.sandbox.cell import START_S, Habits, Jailer
from longstride.sandbox.cgroup import Group, Overhead
from longstride.sandbox.egress.gate import Gates
from longstride.sandbox.errors import SandboxFailed, SandboxUnavailable
from longstride.sandbox.host import INSTEAD, NO_GROUPS, NO_POOL, find_nsenter
from longstride.sandbox.hosted import INSIDE, HostedBackend, Site
from longstride.sandbox.scratch import MARK
from longstride.sandbox.user_namespace import UserNamespace

Kind = Literal["runc", "runsc"]
"""What the program understands: runc's options (crun, youki), or gVisor's."""
ISOLATION: dict[Kind, frozenset[Isolation]] = {
    "runc": frozenset({"process"}),
    "runsc": frozenset({"process", "gvisor"}),
}
INSTALL: dict[Kind, str] = {
    "runc": "`apt-get install runc` (Debian, Ubuntu), `dnf install runc` (Fedora), `apk add runc` (Alpine)",
    "runsc": "`apt-get install runsc` (Debian), or as gvisor.dev/docs/user_guide/install says",
}
OVERHEAD: dict[Kind, Overhead] = {"runc": Overhead(processes=2), "runsc": Overhead(processes=256, memory_mb=96)}
"""gVisor's kernel has threads and memory of its own, and a process on the host for each of the command's threads."""
LOOSE = (
    f"gVisor's own kernel counts in the sandbox's group: up to {OVERHEAD['runsc'].processes} processes and "
    f"{OVERHEAD['runsc'].memory_mb} MiB above the limits are let through, and a command that passes them ends its whole sandbox"
)
OLD_STATX = (
    "`ls -l` and `stat` of this host fail inside: this runsc is too old for how they ask for a file's status (statx with "
    "AT_NO_AUTOMOUNT). Install a newer one: gvisor.dev/docs/user_guide/install"
)
FILTER_FLAG = "--oci-seccomp"
"""Without it runsc leaves the bundle's filter of system calls out."""

NOT_LATER = (
    "no sandbox waits in a pool, and a call waits for its making: what the host mounts later does not appear inside"
)


@dataclass(frozen=True, slots=True)
class Runtime:
    """A program that runs bundles."""

    kind: Kind
    program: str

    def command_line(self, state: Path, bundle_folder: Path, name: str) -> list[str]:
        """``run`` in the foreground, with nothing of the host's network."""
        where = ["--bundle", str(bundle_folder)]
        if self.kind == "runc":
            # What it counted would be gone with the container otherwise, before it is read.
            pid_file = str(bundle_folder / "pid")
            return [self.program, "--root", str(state), "run", "--keep", *where, "--pid-file", pid_file, name]
        settings = ["--ignore-cgroups", "--network=none", "--platform=ptrace", "--file-access-mounts=shared"]
        settings.append(FILTER_FLAG)
        return [self.program, "--root", str(state), *settings, "run", *where, name]


def find_runtime(kind: Kind) -> Runtime:
    """Look for the program.

    Raises:
        SandboxUnavailable: it is missing, or this process is not root.
    """
    program = shutil.which(kind)
    if program is None:
        raise SandboxUnavailable(f"{kind} is not installed: {INSTALL[kind]}")
    if os.geteuid() != 0:
        raise SandboxUnavailable(
            f"the oci backend needs root, and this is uid {os.geteuid()}: use bubblewrap, which does not"
        )
    return Runtime(kind, program)


class RuntimeJailer(Jailer):
    """A runtime in the foreground."""

    passes_code_on = True
    pid_file: Path | None = None
    namespace: UserNamespace | None = None
    state: Path | None = None

    def end(self, group: Group) -> None:
        """What the runtime remembers of it, too, and the holder of its namespace, when it never came that far."""
        super().end(group)
        if self.namespace:
            self.namespace.release()
        if self.state:
            shutil.rmtree(self.state)

    def _learn_first(self) -> None:
        """From a file that the runtime writes about now; gVisor's processes have no number outside."""
        deadline = time.monotonic() + START_S
        while self.pid_file and not self.pid_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SandboxFailed("the sandbox did not start: its first process was not named")
            time.sleep(0.001)
        if self.pid_file:
            self.reports = b'{ "child-pid": %d }\n' % int(self.pid_file.read_text())
        if self.namespace:
            self.namespace.release()


class OciSandbox(HostedBackend):
    """Runs commands in OCI containers of their own."""

    def __init__(self, kind: Kind = "runc", scratch: Path | None = None, gates: Gates | None = None) -> None:
        """
        Args:
            kind: which runtime; ``runsc`` for the isolation ``gvisor``.
            scratch: a folder for mounts and short-lived files, which processes may share; ``None``: the system's place.
            gates: ways out, which runc's sandboxes may be given; ``None``: to public addresses alone.

        Raises:
            SandboxUnavailable: code cannot be isolated here; the text says what is missing and how to get it.
        """
        self._runtime = find_runtime(kind)
        self.name, self.attaches = kind, kind == "runc"
        self._nsenter = find_nsenter() if kind == "runc" else None
        hierarchies = cgroup.mounted() if kind == "runc" else cgroup.discover()
        grouped = {"memory", "pids"} <= cgroup.given(hierarchies)
        super().__init__(
            scratch,
            hierarchies=hierarchies,
            privileged=True,
            habits=Habits(grouped, overhead=OVERHEAD[kind]),
            gates=gates,
        )

    def _set_up(self) -> None:
        self._root, self._state = self._scratch.path / "rootfs", self._scratch.path / "state"
        self._root.mkdir()
        self._state.mkdir(mode=0o700)
        bundle.make_root(self._root, self._shared)

    def _owner(self, bound: Volume | None) -> Owner | None:
        """gVisor's ids are its own kernel's."""
        return super()._owner(bound) if self._runtime.kind == "runc" else INSIDE

    def _launch(self, site: Site) -> Jailer:
        folder = site.folder.path / "bundle"
        folder.mkdir(mode=0o700)
        namespace = self._user_namespace(site)
        state = self._state / site.group.name
        state.mkdir(mode=0o700)
        try:
            bundle.write(folder, self._config(site, namespace))
            jailer = RuntimeJailer.start(
                self._command_line(site, folder, state),
                os.pipe2(os.O_CLOEXEC),
                site.joins,
                {**self._mark, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            )
        except BaseException:
            if namespace:
                namespace.release()
            shutil.rmtree(state)
            raise
        jailer.pid_file, jailer.namespace, jailer.state = folder / "pid" if namespace else None, namespace, state
        return jailer

    @property
    def _mark(self) -> dict[str, str]:
        return {MARK: self._scratch.name}

    def _user_namespace(self, site: Site) -> UserNamespace | None:
        """gVisor makes its own."""
        if self._runtime.kind == "runsc":
            return None
        assert site.owner is not None, "this backend runs as root"
        return UserNamespace(site.owner, bundle.uids(site.owner), bundle.gids(site.owner), self._mark)

    def _config(self, site: Site, namespace: UserNamespace | None) -> bundle.Config:
        folder = site.folder
        layout = bundle.Layout(
            self._root,
            self._shared,
            folder.path / "tmp",
            folder.path / "shm",
            folder.support,
            site.workspace,
            site.folders,
        )
        if namespace is None:
            return bundle.config(layout)
        return bundle.config(
            layout,
            cgroup=f"/{site.group.name}",
            owner=site.owner,
            user_namespace=namespace.path,
            own_network=site.network is None,
        )

    def _command_line(self, site: Site, folder: Path, state: Path) -> list[str]:
        """runc puts the container into its group itself; all that gVisor is made of is started in it."""
        entrances = () if self._runtime.kind == "runc" else site.group.entrances
        flags = launcher.rlimits(launcher.OF_EVERY_COMMAND) if self._runtime.kind == "runc" else ()
        line = self._runtime.command_line(state, folder, site.group.name)
        line = [*launcher.joining(self._nsenter, site.network), *line]
        return ["/bin/sh", "-c", launcher.SCRIPT, "sh", *entrances, "--", *flags, "--", *line]

    def _describe(self) -> Capabilities:
        kind, have = self._runtime.kind, cgroup.given(self._scratch.hierarchies)
        boundary = "namespaces" if kind == "runc" else "a kernel in user space (gVisor)"
        boundary += " and a system call filter"
        enforced = [boundary, "no network", "wall clock, output size, open files, no core dumps"]
        enforced += [f"{name} of the whole sandbox (cgroup)" for name in ("memory", "pids", "cpu") if name in have]
        missing = [
            NO_GROUPS.format(what=name, instead=INSTEAD[name]) for name in ("memory", "pids", "cpu") if name not in have
        ]
        if kind == "runsc":
            missing += [LOOSE, *(() if self._answers_stat else (OLD_STATX,))]
        why_not = NO_POOL if self.attaches else NOT_LATER
        (enforced if self._prewarm else missing).append("sandboxes that wait in a pool" if self._prewarm else why_not)
        # gVisor's kernel opens no socket of the host, the gate's included, unless it is told to open them all.
        way_out = kind == "runc"
        return Capabilities(
            f"oci ({kind})",
            ISOLATION[kind],
            tuple(enforced),
            tuple(missing),
            self._prewarm,
            egress=way_out,
            folders=True,
            shares_network=self._nsenter is not None,
        )

    def _advice(self, said: str) -> str:
        return f"Run `{self._runtime.program} --debug run` with a bundle of `{self._runtime.kind} spec` to see why."
