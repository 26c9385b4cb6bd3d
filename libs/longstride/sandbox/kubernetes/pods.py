"""What a warm pool's pods are made of, read from their template: how well they isolate, and how much they hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longstride.contracts.v1.environment import WORKSPACE
from longstride.contracts.v1.limits import Isolation, SandboxLimits
from longstride.sandbox.base import SUPPORT
from longstride.sandbox.errors import IsolationUnavailable, SandboxUnavailable
from longstride.sandbox.kubernetes.program import MARK, POD

MEBIBYTE = 1 << 20
CODE, PORTER = "sandbox", "porter"
"""The containers: of the agent's code, and of what carries files in and out."""
HANDLERS: Sequence[tuple[str, Isolation]] = (("runsc", "gvisor"), ("gvisor", "gvisor"), ("kata", "microvm"))
"""How a RuntimeClass's handler begins → what it gives."""


@dataclass(frozen=True, slots=True)
class PodModel:
    """One warm pool's pods."""

    pool: str
    runtime_class: str | None
    isolation: frozenset[Isolation]
    memory_mb: int
    """Of the agent's code, what its file systems in memory may hold left out."""
    cpus: float
    disk_mb: int
    own_users: bool
    """Whether the kernel counts this pod's processes apart from other pods'."""

    def require(self, limits: SandboxLimits) -> None:
        """Refuse a call that a pod of this pool cannot give its due.

        Raises:
            IsolationUnavailable: with a sentence.
        """
        for name in ("memory_mb", "cpus", "disk_mb"):
            wanted, held = getattr(limits, name), getattr(self, name)
            if wanted > held:
                raise IsolationUnavailable(
                    f"the task may use {name}={wanted:g}, and the pods of pool {self.pool} hold {held:g}: lower it, or raise "
                    "the resources of their SandboxTemplate"
                )


def model_of(pool: str, template: Mapping[str, Any], handler: str | None) -> PodModel:
    """Judge a template.

    Args:
        pool: for what is said.
        template: the ``spec`` of a ``SandboxTemplate``.
        handler: of its RuntimeClass; ``None``: it names none.

    Raises:
        SandboxUnavailable: code would not be isolated in its pods, or they lack what is needed; the text says what.
    """
    spec = template["podTemplate"]["spec"]
    containers = {container["name"]: container for container in spec["containers"]}
    for lacking in (problem for problem in _problems(spec, containers)):
        raise SandboxUnavailable(
            f"the pods of warm pool {pool} cannot be used: {lacking}. infra/kubernetes/sandboxes has templates that can"
        )
    code = containers[CODE]
    volumes = {volume["name"]: volume.get("emptyDir") or {} for volume in spec.get("volumes", ())}
    mounts = {mount["mountPath"]: volumes.get(mount["name"], {}) for mount in code.get("volumeMounts", ())}
    held = code["resources"]["limits"]
    in_memory = sum(_mebibytes(volume["sizeLimit"]) for volume in mounts.values() if volume.get("medium") == "Memory")
    isolation = _isolation(pool, handler)
    return PodModel(
        pool=pool,
        runtime_class=spec.get("runtimeClassName"),
        isolation=isolation,
        memory_mb=_mebibytes(held["memory"]) - in_memory,
        cpus=float(_quantity(held["cpu"])),
        disk_mb=_mebibytes(mounts[WORKSPACE]["sizeLimit"]),
        own_users=isolation != {"process"} or spec.get("hostUsers") is False,
    )


def _isolation(pool: str, handler: str | None) -> frozenset[Isolation]:
    if handler is None:
        return frozenset({"process"})
    given: list[Isolation] = [isolation for start, isolation in HANDLERS if handler.startswith(start)]
    if not given:
        known = ", ".join(start for start, _ in HANDLERS)
        raise SandboxUnavailable(
            f"the RuntimeClass of warm pool {pool} has the handler {handler!r}, and what that isolates is not known: known are {known}"
        )
    return frozenset({"process", given[0]})


def _problems(spec: Mapping[str, Any], containers: Mapping[str, Any]) -> list[str]:
    """The first is told."""
    if missing := [name for name in (CODE, PORTER) if name not in containers]:
        return [f"there is no container {missing[0]!r}"]
    code = containers[CODE]
    mounts = {mount["mountPath"]: mount for mount in code.get("volumeMounts", ())}
    sizes = {volume["name"]: (volume.get("emptyDir") or {}).get("sizeLimit") for volume in spec.get("volumes", ())}
    limits = code.get("resources", {}).get("limits", {})
    checks = [
        (WORKSPACE in mounts and sizes.get(mounts[WORKSPACE]["name"]), f"{WORKSPACE} is no emptyDir with a sizeLimit"),
        (SUPPORT in mounts and mounts[SUPPORT].get("readOnly"), f"{SUPPORT} is not mounted read-only into {CODE!r}"),
        ({"memory", "cpu"} <= limits.keys(), f"container {CODE!r} has no limits of memory and cpu"),
        (spec.get("automountServiceAccountToken") is False, "the agent's code would get a token of the cluster's API"),
        (
            (MARK, POD) in {(variable["name"], variable.get("value")) for variable in code.get("env", ())},
            f"{MARK}={POD} is not in the environment of {CODE!r}",
        ),
        (
            not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")),
            "namespaces are shared",
        ),
        (
            not any("hostPath" in volume for volume in spec.get("volumes", ())),
            "a directory of the node is shown in them",
        ),
    ]
    return [sentence for good, sentence in checks if not good]


def _quantity(text: str) -> Any:
    from kubernetes.utils import parse_quantity

    return parse_quantity(text)


def _mebibytes(text: str) -> int:
    return int(_quantity(text)) // MEBIBYTE
