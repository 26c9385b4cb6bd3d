"""From a policy's name to a policy, loaded when it is first asked for.

torch is imported when a name needs it, and not before.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING

from longstride.contracts.v1.events import PolicyPublished
from longstride.policies.artifacts import Artifacts
from longstride.policies.base import Policy, PolicyUnavailable
from longstride.policies.naming import PolicyName, parse_name

if TYPE_CHECKING:
    from longstride.policies.builtin.policy import BuiltinPolicy
    from longstride.training.probe import Probe

BUILTIN_WEIGHTS = Path(__file__).parent / "builtin" / "weights"
"""The versions that ship: ``v0``, ``v1``."""
DEFAULT = "builtin"
KEPT = 3
"""Policies, and versions of builtin beside the current one, that stay loaded."""


@dataclass
class _Served:
    """The versions of one policy that this process knows."""

    directories: dict[int, Path] = field(default_factory=dict)
    current: int = -1
    loaded: dict[int, Policy] = field(default_factory=dict)


class PolicyRegistry:
    """The policies of one process. Safe for threads: a version that is being swapped out finishes its calls."""

    def __init__(
        self,
        *,
        default: str = DEFAULT,
        artifacts: Artifacts | None = None,
        directory: Path | None = None,
        builders: Mapping[str, Callable[[PolicyName], Policy]] | None = None,
        torch_threads: int = 1,
    ) -> None:
        """Set up without loading anything.

        Args:
            default: what ``None`` resolves to.
            artifacts: where published versions lie; without it ``publish`` cannot be called.
            directory: of this machine, for the files of published versions.
            builders: kind → how it is made, in place of the ones in ``BUILDERS``.
            torch_threads: set for the process when the first builtin version is loaded. Two threads beside any other
                load are slower than one.
        """
        self.default = default
        self._artifacts, self._directory = artifacts, directory
        self._builders = {**BUILDERS, **(builders or {})}
        self._threads = torch_threads
        self._others: OrderedDict[str, Policy] = OrderedDict()
        self._builtin = _Served(directories=shipped())
        self._builtin.current = max(self._builtin.directories, default=-1)
        self._loading = RLock()
        self._swap = Lock()

    def resolve(self, name: str | None) -> Policy:
        """The policy of a name; ``None`` is the default. Loads it on first use.

        Raises:
            PolicyUnavailable: an unknown name or version, or one that cannot be loaded; the text says which and why.
        """
        wanted = parse_name(name or self.default)
        if wanted.kind == "builtin":
            return self._version(self._builtin.current if wanted.version is None else wanted.version)
        return self._other(wanted)

    def publish(self, event: PolicyPublished) -> float | None:
        """Serve a new version: fetched, loaded, probed, and then swapped in at once. Calls in flight end on the old one.

        A version at or below the current one can be named from now on, but does not become the current one. One that is
        refused cannot be named, and nothing else changes.

        Returns:
            The mean distance, in nats, of its log-probabilities from the trainer's; ``None``: it declares no probe.

        Raises:
            PolicyUnavailable: this process has no store, cannot load the files, or the policy has no versions here.
            WeightsRefused: the files are not what the manifest says, or do not compute what the trainer did.
            ArtifactMissing, ArtifactCorrupt: (of the store) an object is gone or damaged.
        """
        from longstride.training.weights import fetch, open_manifest, read_probe

        if event.policy != "builtin":
            raise PolicyUnavailable(f"{event.policy} has no versions that are served here; only builtin has")
        if self._artifacts is None or self._directory is None:
            raise PolicyUnavailable("this process was started without a store for published versions")
        manifest = open_manifest(event.manifest, self._artifacts, policy=event.policy, version=event.policy_version)
        directory = fetch(manifest, self._artifacts, self._directory)
        policy = load_builtin(directory, event.policy_version, self._threads)
        probe = read_probe(manifest, self._artifacts)
        gap = None if probe is None else require_agreement(policy, probe)
        self._serve(directory, policy)
        return gap

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions of ``builtin`` that can be named, ascending."""
        return tuple(sorted(self._builtin.directories))

    @property
    def current(self) -> int:
        """The version that ``builtin`` alone means."""
        return self._builtin.current

    def _version(self, version: int) -> Policy:
        held = self._builtin.loaded.get(version)
        if held is not None:
            return held
        with self._loading:
            if version not in self._builtin.loaded:
                self._builtin.loaded[version] = self._load(version)
                self._forget_old(version)
            return self._builtin.loaded[version]

    def _serve(self, directory: Path, policy: "BuiltinPolicy") -> None:
        with self._loading:
            self._builtin.directories[policy.version] = directory
            self._builtin.loaded[policy.version] = policy
            self._forget_old(policy.version)
            with self._swap:
                self._builtin.current = max(self._builtin.current, policy.version)

    def _load(self, version: int) -> Policy:
        directory = self._builtin.directories.get(version)
        if directory is None:
            known = ", ".join(map(str, self.versions)) or "none"
            raise PolicyUnavailable(f"builtin has no version {version} here; known are {known}")
        return load_builtin(directory, version, self._threads)

    def _forget_old(self, newest: int) -> None:
        loaded = self._builtin.loaded
        for version in [v for v in loaded if v not in (newest, self._builtin.current)][
            : max(0, len(loaded) - KEPT - 1)
        ]:
            del loaded[version]

    def _other(self, wanted: PolicyName) -> Policy:
        with self._loading:
            if wanted.family not in self._others:
                self._others[wanted.family] = self._builders[wanted.kind](wanted)
            self._others.move_to_end(wanted.family)
            while len(self._others) > KEPT:
                self._others.popitem(last=False)
            return self._others[wanted.family]


def shipped() -> dict[int, Path]:
    """The versions of ``builtin`` that came with the package."""
    return {int(path.name[1:]): path for path in BUILTIN_WEIGHTS.glob("v*") if (path / "config.json").is_file()}


def load_builtin(directory: Path, version: int, threads: int = 1) -> "BuiltinPolicy":
    """Load builtin weights; imports torch.

    Raises:
        PolicyUnavailable: torch is missing, or the files are broken.
    """
    try:
        import torch

        from longstride.policies.builtin.policy import BuiltinPolicy
    except ModuleNotFoundError as error:
        raise PolicyUnavailable(
            f"builtin needs {error.name}: pip install 'longstride[model]' (in a clone: pip install -e '.[model]')"
        ) from error
    torch.set_num_threads(threads)
    try:
        return BuiltinPolicy.load(directory, version)
    except ValueError as error:
        raise PolicyUnavailable(f"builtin@{version} cannot be loaded: {error}") from error


def require_agreement(policy: "BuiltinPolicy", probe: "Probe") -> float:
    """The mean distance, in nats, of what a policy computes on its serving path from what its trainer did.

    Raises:
        WeightsRefused: it is too large, or the policy cannot have sampled the probe's sequences.
    """
    from longstride.training.errors import WeightsRefused
    from longstride.training.probe import require_served

    try:
        engine = [policy.score(segment) for segment in probe.segments]
    except ValueError as error:
        raise WeightsRefused(f"{policy.name}@{policy.version} cannot have sampled its probe: {error}") from error
    return require_served(probe, engine)


def _scripted(name: PolicyName) -> Policy:
    from longstride.policies.scripted import Script, ScriptedPolicy

    assert name.where is not None
    return ScriptedPolicy(Script.read(Path(name.where)), name.family)


def _local(name: PolicyName) -> Policy:
    from longstride.policies.local import LocalPolicy

    assert name.where is not None
    return LocalPolicy.load(Path(name.where), name.family)


def _remote(name: PolicyName) -> Policy:
    from longstride.policies.remote import RemotePolicy

    return RemotePolicy.configured(name.where)


BUILDERS: Mapping[str, Callable[[PolicyName], Policy]] = {"scripted": _scripted, "local": _local, "remote": _remote}
