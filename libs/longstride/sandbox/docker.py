"""The Docker backend: a container for each sandbox, from an empty image, by an engine on this host. Needs root and the SDK.

What the container shows is bound from the host as for the other backends, so no image is pulled. A runtime that the engine
knows, e.g. ``runsc``, gives its own isolation.
"""

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import signal
import socket
import tarfile
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longstride.contracts.v1.environment import WORKSPACE
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import bundle, cgroup, launcher
from longstride.sandbox.base import SUPPORT, Capabilities
from longstride.sandbox.cell import Habits, Jailer
from longstride.sandbox.cgroup import NO_GROUP, Cgroup, Group, Overhead
from longstride.sandbox.container_process import Api, ContainerProcess
from longstride.sandbox.errors import SandboxFailed, SandboxUnavailable
from longstride.sandbox.hosted import HostedBackend, Site
from longstride.sandbox.oci import FILTER_FLAG, ISOLATION, LOOSE, NOT_LATER, OLD_STATX, OVERHEAD, Kind
from longstride.sandbox.rootfs import ENVIRONMENT, HIDDEN_PROC, Shared
from longstride.sandbox.scratch import MARK

REPOSITORY = "longstride-sandbox"
LABEL = "longstride.sandbox"
"""On each container: whose it is."""
MEBIBYTE = 1 << 20
CPU_PERIOD_US = 100_000
KILLED = 128 + signal.SIGKILL
"""The exit code of a container whose first process was killed."""
NOTICE_S, NOTICE_POLL_S = 1.0, 0.01
"""For how long after such an end the engine may not have heard that it was for memory."""
NOT_COUNTED = (
    "a process or thread that the limit refused is not told of, and a command that ends within a tenth of a second is not charged for "
    "CPU time: the engine removes what counted it"
)
NOT_FILTERED = (
    f"no filter of system calls stands before gVisor's own kernel: the engine runs runsc without {FILTER_FLAG}. Add it to the "
    "runtime's runtimeArgs in daemon.json"
)
DEFAULT_HOST = "unix:///var/run/docker.sock"
ATTACHED = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}


@dataclass
class Container:
    """What the engine bounds and counts: its group is known once it has started, and gone when it has ended."""

    api: Api
    name: str
    id: str = ""
    pid: int = 0
    entrances: tuple[str, ...] = field(default=(), init=False)
    _group: Cgroup = field(default=NO_GROUP, init=False)

    def find(self, pid: int) -> None:
        """The group that the engine made, by the first process: later, its number may be another's."""
        self.pid, self._group = pid, cgroup.of_process(pid)

    def create(self, limits: SandboxLimits | None = None) -> None:
        """The engine does."""

    def limit(self, limits: SandboxLimits, overhead: Overhead = cgroup.BWRAP) -> None:
        """They were fixed when it was made."""

    def freeze(self, frozen: bool) -> bool:
        """Pause or go on; ``False`` where the engine refuses, as it does for a container that has ended."""
        import docker.errors

        try:
            (self.api.pause if frozen else self.api.unpause)(self.id)
        except docker.errors.APIError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL to all."""
        import docker.errors

        with contextlib.suppress(docker.errors.APIError):
            self.api.kill(self.id)

    def remove(self) -> bool:
        """By force; and its connection to the engine."""
        import docker.errors

        try:
            if self.id:
                self.api.remove_container(self.id, force=True, v=True)
        except docker.errors.NotFound:
            return True
        except docker.errors.APIError:
            return False
        finally:
            self.api.close()
        return True

    def out_of_memory(self) -> int:
        """As the engine was told: of a kill for memory and of the end by different ways, either of which may be the first."""
        deadline = time.monotonic() + NOTICE_S
        while True:
            state = self.api.inspect_container(self.id)["State"]
            if state["OOMKilled"] or state["ExitCode"] != KILLED or time.monotonic() > deadline:
                return int(state["OOMKilled"])
            time.sleep(NOTICE_POLL_S)

    def refused_processes(self) -> int:
        """Not known."""
        return 0

    def peak_memory_bytes(self) -> int:
        """Of its group."""
        return self._group.peak_memory_bytes()

    def memory_bytes(self) -> int:
        """Of its group."""
        return self._group.memory_bytes()

    def processes(self) -> int:
        """Of its group."""
        return self._group.processes()

    def cpu_seconds(self) -> float:
        """Of its group."""
        return self._group.cpu_seconds()


class ContainerJailer(Jailer):
    """A started container."""

    passes_code_on = True

    def __init__(self, process: ContainerProcess, pid: int) -> None:
        status, write_end = os.pipe2(os.O_CLOEXEC)
        os.close(write_end)
        super().__init__(process, status)
        self._container = process
        self.reports = b'{ "child-pid": %d }\n' % pid

    def end(self, group: Group) -> None:
        """Its pipe, too."""
        super().end(group)
        self._container.forget()

    def _learn_first(self) -> None:
        """The engine said it."""


class DockerSandbox(HostedBackend):
    """Runs commands in Docker containers of their own."""

    attaches = False
    own_ids = False

    def __init__(self, runtime: Kind = "runc", scratch: Path | None = None) -> None:
        """
        Args:
            runtime: one that the engine knows; ``runsc`` for the isolation ``gvisor``.
            scratch: a folder for mounts and short-lived files, which processes may share; ``None``: the system's place.

        Raises:
            SandboxUnavailable: no engine answers on this host, or it cannot do this; the text says what is missing.
        """
        self._runtime = runtime
        self.name = f"docker ({runtime})"
        self._api, registered = _require(runtime)
        self._filters = runtime == "runc" or FILTER_FLAG in (registered.get("runtimeArgs") or ())
        super().__init__(scratch, hierarchies=(), privileged=True, habits=Habits(grouped=True))

    def reap(self) -> list[str]:
        """Containers too, whose executor's folder is gone."""
        reaped = super().reap()
        self._remove_orphans()
        return reaped

    def close(self) -> None:
        """As every backend; and the connection."""
        super().close()
        self._api.close()

    def _set_up(self) -> None:
        self._remove_orphans()
        self._image = _empty_image(self._api, self._shared)
        rules = bundle.filtered(in_gvisor=self._runtime == "runsc")
        self._options = ["no-new-privileges:true", f"seccomp={json.dumps(rules)}"]

    def _remove_orphans(self) -> None:
        import docker.errors

        for container in self._api.containers(all=True, filters={"label": LABEL}):
            if not (self._scratch.path.parent / container["Labels"][LABEL]).exists():
                with contextlib.suppress(docker.errors.NotFound):
                    self._api.remove_container(container["Id"], force=True, v=True)

    def _new_group(self) -> Container:
        return Container(_connect(self._api.api_version), self._scratch.cgroup().name)

    def _launch(self, site: Site) -> Jailer:
        import docker.errors

        group = site.group
        assert isinstance(group, Container), "made by _new_group"
        api = group.api
        try:
            group.id = api.create_container(**self._container(site))["Id"]
            stream = api.attach_socket(group.id, params=ATTACHED)
            api.start(group.id)
            group.find(api.inspect_container(group.id)["State"]["Pid"])
        except docker.errors.APIError as error:
            raise SandboxFailed(f"the container did not start: {error.explanation}") from error
        return ContainerJailer(ContainerProcess(api, group.id, stream), group.pid)

    def _container(self, site: Site) -> dict[str, Any]:
        owner = site.owner
        assert owner is not None, "this backend runs as root"
        environment = {**ENVIRONMENT, "PATH": self._shared.path, "PWD": "/", MARK: self._scratch.name}
        return {
            "image": self._image,
            "name": site.group.name,
            "command": [launcher.INIT, "-c", bundle.FIRST],
            "user": f"{owner.uid}:{owner.gid}",
            "hostname": "sandbox",
            "working_dir": "/",
            "environment": environment,
            "stdin_open": True,
            "labels": {LABEL: self._scratch.name},
            "host_config": self._host_config(site),
        }

    def _host_config(self, site: Site) -> dict[str, Any]:
        limits, overhead = site.limits, OVERHEAD[self._runtime]
        memory = (limits.memory_mb + overhead.memory_mb) * MEBIBYTE
        bounds = self._api.create_host_config(
            mounts=_mounts(self._shared, site),
            dns=["127.0.0.1"],
            read_only=True,
            network_mode="none",
            ipc_mode="private",
            cap_drop=["ALL"],
            security_opt=self._options,
            mem_limit=memory,
            memswap_limit=memory,
            pids_limit=limits.processes + overhead.processes,
            cpu_period=CPU_PERIOD_US,
            cpu_quota=max(1000, int(limits.cpus * CPU_PERIOD_US)),
            oom_score_adj=1000,
            runtime=self._runtime if self._runtime != "runc" else None,
            log_config={"Type": "none"},
        )
        hidden = [f"/proc/{name}" for name in HIDDEN_PROC]
        nofile = {"Name": "nofile", "Soft": launcher.OPEN_FILES, "Hard": launcher.OPEN_FILES}
        limited = [nofile, {"Name": "core", "Soft": 0, "Hard": 0}]
        bounds["CgroupnsMode"] = "private"
        return {**bounds, "MaskedPaths": [*hidden, "/sys"], "ReadonlyPaths": ["/proc"], "Ulimits": limited}

    def _describe(self) -> Capabilities:
        enforced = ["namespaces" if self._runtime == "runc" else "a kernel in user space (gVisor)"]
        enforced[0] += " and a system call filter" if self._filters else ""
        enforced += ["no network", "wall clock, output size, open files, no core dumps"]
        enforced += ["memory, pids and cpu of the whole sandbox (engine)", "host ids of its own for each workspace"]
        missing = [NOT_COUNTED, NOT_LATER]
        if self._runtime == "runsc":
            missing += [
                LOOSE,
                *(() if self._answers_stat else (OLD_STATX,)),
                *(() if self._filters else (NOT_FILTERED,)),
            ]
        return Capabilities(self.name, ISOLATION[self._runtime], tuple(enforced), tuple(missing), fixed_limits=True)

    def _advice(self, said: str) -> str:
        return "Run `docker info` to see what the engine gives."


def _connect(version: str = "auto") -> Api:
    """One for each sandbox: threads do not share connections."""
    import docker

    return docker.APIClient(**docker.utils.kwargs_from_env(), version=version, timeout=60)


def _require(runtime: Kind) -> tuple[Api, dict[str, Any]]:
    """A connection, and how the engine has the runtime registered."""
    if importlib.util.find_spec("docker") is None:
        raise SandboxUnavailable("the docker backend needs Docker's SDK: pip install 'longstride[docker]'")
    if os.geteuid() != 0:
        raise SandboxUnavailable(
            f"the docker backend needs root, and this is uid {os.geteuid()}: use bubblewrap, which does not"
        )
    host = os.environ.get("DOCKER_HOST") or DEFAULT_HOST
    if not host.startswith("unix://"):
        raise SandboxUnavailable(
            f"the docker backend binds directories of its own host, and DOCKER_HOST={host} is another's"
        )
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(host.removeprefix("unix://"))
    except OSError as error:
        raise SandboxUnavailable(
            f"no Docker engine answers at {host} ({error.strerror}): start one, or set DOCKER_HOST"
        ) from error
    api = _connect()
    known = api.info()["Runtimes"]
    if runtime not in known:
        api.close()
        raise SandboxUnavailable(
            f"the Docker engine knows no runtime {runtime!r}, only {', '.join(sorted(known))}: register it in daemon.json"
        )
    return api, known[runtime]


def _empty_image(api: Api, shared: Shared) -> str:
    """Mount points, links and /etc, where the engine puts files of its own; imported once."""
    import docker.errors

    archive = _root_archive(shared)
    name = f"{REPOSITORY}:{hashlib.sha256(archive).hexdigest()[:32]}"
    try:
        api.inspect_image(name)
    except docker.errors.ImageNotFound:
        repository, tag = name.split(":")
        api.import_image_from_data(archive, repository=repository, tag=tag)
    return name


def _root_archive(shared: Shared) -> bytes:
    """The same bytes for the same content."""
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=buffer, mode="w") as archive:
        bundle.make_root(Path(folder), shared)
        for source, target in ((Path(folder), "."), (shared.etc, "etc")):
            for path in sorted(source.rglob("*")):
                archive.add(path, f"{target}/{path.relative_to(source)}", recursive=False, filter=_anonymous)
    return buffer.getvalue()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _mounts(shared: Shared, site: Site) -> list[Any]:
    from docker.types import Mount

    def bind(source: Path, target: str, *, read_only: bool) -> Any:
        return Mount(target, str(source), type="bind", read_only=read_only, propagation="rprivate")

    run = site.folder.path
    return [
        bind(Path("/usr"), "/usr", read_only=True),
        *(bind(source, target, read_only=True) for source, target in bundle.unmerged()),
        *(bind(source, target, read_only=True) for source, target in shared.extra),
        bind(run / "shm", "/dev/shm", read_only=False),
        bind(run / "tmp", "/tmp", read_only=False),
        bind(site.folder.support, SUPPORT, read_only=True),
        bind(site.workspace, WORKSPACE, read_only=False),
    ]
