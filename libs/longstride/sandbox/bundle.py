"""A sandbox as an OCI bundle's ``config.json`` (OCI Runtime Specification 1.0.2), for runc, runsc and their like."""

import errno
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longstride.contracts.v1.environment import WORKSPACE
from longstride.sandbox import launcher, seccomp
from longstride.sandbox.base import SUPPORT, Owner
from longstride.sandbox.rootfs import ENVIRONMENT, GID, HIDDEN_PROC, UID, Shared
from longstride.sandbox.user_namespace import Range

VERSION = "1.0.2"
FIRST = "exec 3>&2 2>/dev/null; (exec /bin/sh 2>&3 3>&-); exit $?"
"""The first process inside: it collects orphans, and says nothing of how the command died, which a shell does of a command
that is not in a subshell. The second becomes the command."""
NAMESPACES = ("pid", "network", "ipc", "uts", "mount", "cgroup")
ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
BIND = ("rbind", "nosuid", "nodev")
READ_ONLY = (*BIND, "ro")
FOLDERS = ("usr", "etc", "proc", "dev", "tmp", "run/longstride", "var/tmp", WORKSPACE.strip("/"))
TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
RLIMITS = [
    {"type": "RLIMIT_NOFILE", "hard": launcher.OPEN_FILES, "soft": launcher.OPEN_FILES},
    {"type": "RLIMIT_CORE", "hard": 0, "soft": 0},
]
Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """Host paths that one sandbox is made of."""

    root: Path
    """What ``make_root`` made."""
    shared: Shared
    tmp: Path
    shm: Path
    support: Path
    workspace: Path
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Path inside → what is shown there read-only."""


def make_root(folder: Path, shared: Shared) -> None:
    """A root directory of mount points and links, the same for all; it is only ever shown read-only."""
    for name in (*FOLDERS, *(target.strip("/") for _, target in shared.extra)):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "var/run").symlink_to("/run")
    for name in TOP:
        path = Path("/") / name
        if path.is_symlink():
            (folder / name).symlink_to(path.readlink())
        elif path.is_dir():
            (folder / name).mkdir()
    for made in (folder, *folder.rglob("*")):
        if not made.is_symlink():
            made.chmod(0o755)


def config(
    layout: Layout,
    *,
    cgroup: str | None = None,
    owner: Owner | None = None,
    user_namespace: Path | None = None,
    own_network: bool = True,
) -> Config:
    """The whole file.

    Args:
        layout: what it shows.
        cgroup: the group that the runtime makes; ``None``: it stays in the one it is started in.
        owner: whom the code is on the host, in ``user_namespace``, with the rlimits that the runtime is started with;
            ``None``: the runtime isolates its ids itself.
        user_namespace: the one that is joined.
        own_network: whether it gets a network namespace; else it stays in the one it is started in.
    """
    linux: Config = {
        "namespaces": [{"type": kind} for kind in NAMESPACES if own_network or kind != "network"],
        "maskedPaths": [f"/proc/{name}" for name in HIDDEN_PROC],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"],
        "resources": {"devices": [{"allow": False, "access": "rwm"}]},
        "rootfsPropagation": "slave",
    }
    if cgroup:
        linux["cgroupsPath"] = cgroup
    if owner:
        linux["namespaces"].append({"type": "user", "path": str(user_namespace)})
        for key, ranges in (("uidMappings", uids(owner)), ("gidMappings", gids(owner))):
            linux[key] = [{"containerID": inside, "hostID": outside, "size": 1} for inside, outside in ranges]
    linux["seccomp"] = filtered(in_gvisor=owner is None)
    return {
        "ociVersion": VERSION,
        "hostname": "sandbox",
        "root": {"path": str(layout.root), "readonly": True},
        "process": {**_process(layout.shared), **({} if owner else {"rlimits": RLIMITS})},
        "mounts": list(_mounts(layout, closed=() if owner is None else ("ro",))),
        "linux": linux,
    }


def _process(shared: Shared) -> Config:
    environment = {**ENVIRONMENT, "PATH": shared.path, "PWD": "/"}
    return {
        "terminal": False,
        "user": {"uid": UID, "gid": GID},
        "args": [launcher.INIT, "-c", FIRST],
        "env": [f"{name}={value}" for name, value in environment.items()],
        "cwd": "/",
        "capabilities": {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")},
        "noNewPrivileges": True,
        "oomScoreAdj": 1000,
    }


def uids(owner: Owner) -> list[Range]:
    """A runtime starts as 0 inside, so that one is there too: as the number after the owner's, which nobody else has."""
    return [(0, owner.uid + 1), (UID, owner.uid)]


def gids(owner: Owner) -> list[Range]:
    """The same for groups."""
    return [(0, owner.gid + 1), (GID, owner.gid)]


def _mounts(layout: Layout, closed: Sequence[str]) -> Sequence[Config]:
    """``closed``: an option for /dev, from which gVisor then opens no device for writing, and needs no such help."""
    shared = layout.shared
    return [
        bind(Path("/usr"), "/usr", READ_ONLY),
        *(bind(source, target, READ_ONLY) for source, target in unmerged()),
        bind(shared.etc, "/etc", READ_ONLY),
        *(bind(source, target, READ_ONLY) for source, target in shared.extra),
        mount("/proc", "proc", ("nosuid", "noexec", "nodev", "ro")),
        mount("/dev", "tmpfs", ("nosuid", "strictatime", "mode=755", "size=65536k", *closed)),
        mount("/dev/pts", "devpts", ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")),
        bind(layout.shm, "/dev/shm", BIND),
        bind(layout.tmp, "/tmp", BIND),
        bind(layout.support, SUPPORT, READ_ONLY),
        *(bind(place, inside, READ_ONLY) for inside, place in layout.folders.items()),
        bind(layout.workspace, WORKSPACE, (*BIND, "rslave")),
    ]


def unmerged() -> list[tuple[Path, str]]:
    """/bin and its like, where they are directories and not links into /usr."""
    paths = (Path("/") / name for name in TOP)
    return [(path, str(path)) for path in paths if path.is_dir() and not path.is_symlink()]


def mount(target: str, kind: str, options: Sequence[str]) -> Config:
    """A file system."""
    return {"destination": target, "type": kind, "source": kind, "options": list(options)}


def bind(source: Path, target: str, options: Sequence[str]) -> Config:
    """A directory of the host."""
    return {"destination": target, "type": "bind", "source": str(source), "options": list(options)}


def filtered(*, in_gvisor: bool = False) -> Config:
    """The system call filter as the specification writes it. Calls of an architecture that it does not name kill the caller.

    Args:
        in_gvisor: for the kernel of runsc, which calls no libseccomp: it knows no error but EPERM, and ENOSYS by another name.
    """
    rules: list[Config] = [{"names": list(names), **_refusal(code, in_gvisor)} for names, code in seccomp.CALLS]
    rules += [
        {"names": [call], **_refusal(code, in_gvisor), "args": list(map(_argument, conditions))}
        for call, code, conditions in seccomp.by_argument()
    ]
    return {"defaultAction": "SCMP_ACT_ALLOW", "architectures": _architectures(), "syscalls": rules}


def _refusal(code: int, in_gvisor: bool) -> Config:
    """A call that a tracer would be asked about is not there where no tracer is."""
    if in_gvisor and code == errno.ENOSYS:
        return {"action": "SCMP_ACT_TRACE"}
    return {"action": "SCMP_ACT_ERRNO", "errnoRet": code}


def _argument(condition: seccomp.Condition) -> Config:
    if condition.mask is None:
        return {"index": condition.index, "value": condition.value, "op": f"SCMP_CMP_{condition.test}"}
    masked = {"value": condition.mask, "valueTwo": condition.value, "op": "SCMP_CMP_MASKED_EQ"}
    return {"index": condition.index, **masked}


def _architectures() -> list[str]:
    known = ARCHITECTURES.get(platform.machine())
    return [known] if known else []


def write(folder: Path, what: Config) -> None:
    """Make it a bundle."""
    (folder / "config.json").write_text(json.dumps(what))
