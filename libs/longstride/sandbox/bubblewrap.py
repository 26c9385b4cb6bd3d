"""The default backend: bubblewrap, with control groups, rlimits and a system call filter around it.

A shared-kernel boundary. As root each sandbox runs under host ids of its own, which have no privileges; otherwise under this
process's ids, in a user namespace. ``capabilities`` says what this host gives.
"""

import os
from pathlib import Path

from longstride.sandbox import launcher
from longstride.sandbox.base import Capabilities
from longstride.sandbox.cell import Habits, Jailer
from longstride.sandbox.egress.gate import Gates
from longstride.sandbox.host import describe, find_host
from longstride.sandbox.hosted import HostedBackend, Site
from longstride.sandbox.rootfs import ENVIRONMENT, bounded_scratch, own_files, plain_scratch, system
from longstride.sandbox.scratch import MARK


class BubblewrapSandbox(HostedBackend):
    """Runs commands in bubblewrap."""

    name = "bubblewrap"
    builds_as_owner = True

    def __init__(self, scratch: Path | None = None, gates: Gates | None = None) -> None:
        """Find what the host gives; else as ``HostedBackend``."""
        self._host = find_host()
        grouped = self._host.grouped
        super().__init__(
            scratch,
            hierarchies=self._host.hierarchies,
            privileged=self._host.privileged,
            habits=Habits(grouped, None if grouped else self._host.programs.prlimit),
            gates=gates,
        )

    def _set_up(self) -> None:
        self._system = system(self._shared)

    def _launch(self, site: Site) -> Jailer:
        status = os.pipe2(os.O_CLOEXEC)
        seccomp_fd = os.open(self._shared.seccomp, os.O_RDONLY | os.O_CLOEXEC)
        reading = ("--seccomp", str(seccomp_fd), "--json-status-fd", str(status[1]))
        network = ("--share-net",) if site.network is not None else ()
        arguments_fd = launcher.argument_block([*launcher.NAMESPACES, *network, *self._arguments(site), *reading])
        launch = launcher.Launch(self._host.programs, site.group.entrances, site.owner, arguments_fd, site.network)
        reads = (seccomp_fd, arguments_fd, *site.joins)
        return Jailer.start(launch.command_line(), status, reads, {MARK: self._scratch.name})

    def _arguments(self, site: Site) -> list[str]:
        scratch = bounded_scratch(site.folder.path) if site.folder.mounted else plain_scratch(site.limits)
        environment = {**ENVIRONMENT, "PATH": self._shared.path}
        return [
            *(word for name, value in environment.items() for word in ("--setenv", name, value)),
            *self._system,
            *scratch,
            *(word for link, target in site.links.items() for word in ("--symlink", target, link)),
            *own_files(site.workspace, site.folder.support, site.folders),
        ]

    def _describe(self) -> Capabilities:
        return describe(self._host, quota=self._bounded, separate_ids=self._ids.separate, prewarm=self._prewarm)

    def _advice(self, said: str) -> str:
        if "ermission" in said or "not permitted" in said:
            return (
                "If user namespaces are closed to users: `sysctl kernel.unprivileged_userns_clone=1` (Debian), "
                "`sysctl kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu 24.04), or run the executor as root; "
                "in a container, allow it to make namespaces."
            )
        if "nknown option" in said:
            return "bubblewrap 0.8 or newer is needed."
        return "Run `bwrap --unshare-all --ro-bind / / true` to see why."
