"""What sandboxed code sees as its file system, as arguments of bwrap."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from longstride.contracts.v1.environment import WORKSPACE
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import certificates
from longstride.sandbox.base import SUPPORT

UID = GID = 1000
"""Inside; bwrap maps them to the owner's outside."""
MEBIBYTE = 1 << 20

ETC = {
    "passwd": f"agent:x:{UID}:{GID}:agent:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "group": f"agent:x:{GID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
HIDDEN_PROC = (
    "kallsyms",
    "cmdline",
    "keys",
    "timer_list",
    "iomem",
    "key-users",
    "sched_debug",
    "kcore",
    "sysrq-trigger",
)
"""They tell about the host, or act on it."""

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "USER": "agent",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""All of it; nothing is inherited. HOME is not the workspace, so that caches do not end up in its snapshots."""


def searched(path: str, own: str = ENVIRONMENT["PATH"]) -> str:
    """A command's PATH with the sandbox's own behind it: a task that was written for an image names directories of that image,
    and without a shell and an interpreter neither tools nor checks work.

    Empty entries are left out: they mean the current directory, which is often the workspace.

    Args:
        path: as the task sets it.
        own: the sandbox's; empty where a shell inside adds it.
    """
    before = path.removesuffix(ENVIRONMENT["PATH"]).split(":")
    return ":".join([*filter(None, before), own])


@dataclass(frozen=True, slots=True)
class Shared:
    """Host paths that every sandbox of this process sees read-only."""

    etc: Path
    empty: Path
    """An empty file, shown in place of what is hidden."""
    seccomp: Path
    """The system call filter."""
    extra: tuple[tuple[Path, str], ...] = ()
    """(host directory, where it is shown): an interpreter that is not below /usr. Its ``bin`` goes onto the path."""

    @property
    def path(self) -> str:
        """PATH inside."""
        return ":".join([ENVIRONMENT["PATH"], *(f"{target}/bin" for _, target in self.extra)])


def prepare(folder: Path, seccomp: bytes) -> Shared:
    """Make the shared files once."""
    etc = folder / "etc"
    etc.mkdir()
    for name, text in ETC.items():
        (etc / name).write_text(text)
    _copy_system(etc)
    shared = Shared(etc, folder / "empty", folder / "seccomp.bpf")
    shared.empty.write_bytes(b"")
    shared.seccomp.write_bytes(seccomp)
    etc.chmod(0o755)
    shared.empty.chmod(0o444)
    return shared


def _copy_system(etc: Path) -> None:
    """What dynamic linking and Debian's alternatives need, and certificates, which are public."""
    for name in ("ld.so.cache", "alternatives", "ssl/certs", "mime.types", "localtime"):
        source = Path("/etc") / name
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, etc / name, symlinks=name == "alternatives", ignore_dangling_symlinks=True)
        elif source.is_file():
            shutil.copyfile(source, etc / name)
    trusted = etc / Path(certificates.INSIDE).relative_to("/etc")
    trusted.parent.mkdir(parents=True, exist_ok=True)
    trusted.write_bytes(certificates.bundle())
    trusted.chmod(0o644)


def system(shared: Shared) -> list[str]:
    """/usr read-only, own /proc and /dev, nothing else of the host.

    /proc is read-only because processes of one owner may otherwise write each other's memory, bwrap's first process
    included, and take themselves out of the OOM killer's choice.
    """
    arguments = ["--ro-bind", "/usr", "/usr", *_top_level(), "--ro-bind", str(shared.etc), "/etc", "--proc", "/proc"]
    for name in HIDDEN_PROC:
        if Path("/proc", name).exists():
            arguments += ["--ro-bind", str(shared.empty), f"/proc/{name}"]
    arguments += ["--remount-ro", "/proc"]
    for source, target in shared.extra:
        arguments += ["--ro-bind", str(source), target]
    return [*arguments, "--dev", "/dev", "--dir", "/var/tmp", "--symlink", "/run", "/var/run"]


def _top_level() -> list[str]:
    """/bin and its like: links into /usr on a merged system, directories on others."""
    arguments = []
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/") / name
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    return arguments


def bounded_scratch(run: Path) -> list[str]:
    """/tmp and shared memory on this run's own file system, whose bytes and inodes are bounded."""
    return ["--bind", str(run / "tmp"), "/tmp", "--bind", str(run / "shm"), "/dev/shm"]


def plain_scratch(limits: SandboxLimits) -> list[str]:
    """/tmp and shared memory where nothing can be mounted beforehand: bounded in bytes."""
    size = str(limits.memory_mb * MEBIBYTE)
    return [
        "--perms",
        "1777",
        "--size",
        size,
        "--tmpfs",
        "/tmp",
        "--perms",
        "1777",
        "--size",
        size,
        "--tmpfs",
        "/dev/shm",
    ]


def own_files(workspace: Path, support: Path, folders: Mapping[str, Path]) -> list[str]:
    """The workspace or its place, and the command's own files; then nothing more is added, and the root is closed."""
    return [
        *("--bind", str(workspace), WORKSPACE, "--ro-bind", str(support), SUPPORT),
        *(word for inside, place in folders.items() for word in ("--ro-bind", str(place), inside)),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
    ]
