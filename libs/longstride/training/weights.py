"""A policy version as it is published: files in the artifact store, and a manifest that names them. No torch.

Objects come first, then the manifest, then (by the caller) the row that makes the version visible. A kill in between
leaves objects that nothing refers to. Each step of a lineage can be walked: version → batch → trajectories.
"""

import re
import shutil
from datetime import datetime
from hashlib import sha256
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Annotated, Literal, Protocol

from pydantic import Field, JsonValue, ValidationError, model_validator

from longstride.contracts.artifact import ArtifactRef, NamedArtifact
from longstride.contracts.envelope import explain
from longstride.contracts.model import Contract
from longstride.contracts.v1.events import PolicyPublished
from longstride.training.errors import WeightsRefused
from longstride.training.probe import Probe

SESSION = "policies"
"""Policies belong to no session; their objects lie under this one."""


class Artifacts(Protocol):
    """The part of ``storage.artifacts.ArtifactStore`` that is used here."""

    def put(self, data: bytes, *, session: str, kind: str, media_type: str = "application/octet-stream") -> ArtifactRef:
        """Store bytes under their hash; again is the same."""
        ...

    def get(self, ref: ArtifactRef) -> bytes:
        """The bytes, their size and hash verified."""
        ...


class Lineage(Contract):
    """Where a version comes from: what was trained further, on what, and how."""

    parent: ArtifactRef
    """The manifest of the version that was trained further."""
    parent_version: Annotated[int, Field(ge=0)]
    batch_id: str
    batch: ArtifactRef
    task_ids: tuple[str, ...]
    """The trajectories that were trained on."""
    recipe: dict[str, JsonValue]
    metrics: dict[str, float]


class Manifest(Contract):
    """Everything about one version. Stored as JSON; ``PolicyPublished.manifest`` refers to it."""

    format_version: Literal[1] = 1
    policy: str
    version: Annotated[int, Field(ge=0)]
    files: Annotated[tuple[NamedArtifact, ...], Field(min_length=1)]
    """Weights, config, tokenizer: the directory that a policy loads, all of it."""
    optimizer: ArtifactRef | None = None
    """AdamW's moments, for the next update; engines do not need them."""
    probe: ArtifactRef | None = None
    """JSON of ``training.probe.Probe``: what an engine must reproduce before it serves the version."""
    lineage: Lineage | None = None
    """``None`` for a version from outside: the one that ships, or an import."""
    created_at: datetime

    @model_validator(mode="after")
    def _consistent(self) -> "Manifest":
        if self.parent_version is not None and self.version != self.parent_version + 1:
            raise ValueError(f"version {self.version} cannot follow version {self.parent_version}")
        names = [file.name for file in self.files]
        if len(set(names)) != len(names) or not all(map(_plain, names)):
            raise ValueError(f"file names must be plain and different, got {names}")
        return self

    @property
    def parent_version(self) -> int | None:
        """The version that was trained further."""
        return self.lineage.parent_version if self.lineage else None

    @property
    def digest(self) -> str:
        """SHA-256 over the names and contents of the files: what is loaded, whoever made it."""
        listing = "\n".join(f"{file.name} {file.ref.sha256}" for file in self.files)
        return sha256(listing.encode()).hexdigest()

    def published(self, ref: ArtifactRef) -> PolicyPublished:
        """The event that tells of this version; ``ref`` is where the manifest lies."""
        return PolicyPublished(
            policy=self.policy,
            policy_version=self.version,
            parent_version=self.parent_version,
            manifest=ref,
            batch_id=self.lineage.batch_id if self.lineage else None,
        )


def publish(
    directory: Path,
    *,
    artifacts: Artifacts,
    policy: str,
    version: int,
    created_at: datetime,
    optimizer: bytes | None = None,
    probe: Probe | None = None,
    lineage: Lineage | None = None,
) -> tuple[Manifest, ArtifactRef]:
    """Store a policy's directory and its manifest.

    Idempotent: equal files, lineage and time give the same objects under the same keys.

    Args:
        directory: plain files only; all of them are published.
        created_at: when the version was asked for, not the clock: see above.
        optimizer: state for the next update.
        probe: what an engine must reproduce.
        lineage: ``None`` for a version from outside.

    Returns:
        The manifest and where it lies. Nothing is visible until the caller commits a row that refers to it.

    Raises:
        WeightsRefused: the directory is empty or holds something other than plain files.
    """
    files = tuple(_store(path, artifacts) for path in _plain_files(directory))
    manifest = Manifest(
        policy=policy,
        version=version,
        files=files,
        optimizer=None if optimizer is None else artifacts.put(optimizer, session=SESSION, kind="optimizer"),
        probe=None if probe is None else _put_json(probe, "probe", artifacts),
        lineage=lineage,
        created_at=created_at,
    )
    return manifest, _put_json(manifest, "manifest", artifacts)


def open_manifest(ref: ArtifactRef, artifacts: Artifacts, *, policy: str, version: int) -> Manifest:
    """Read the manifest of a version.

    Raises:
        WeightsRefused: it is no manifest, or that of another policy or version.
    """
    try:
        manifest = Manifest.model_validate_json(artifacts.get(ref))
    except ValidationError as error:
        raise WeightsRefused(f"{ref.key} is not a manifest: {explain(error)}") from error
    if (manifest.policy, manifest.version) != (policy, version):
        raise WeightsRefused(
            f"{ref.key} is the manifest of {manifest.policy}@{manifest.version}, not of {policy}@{version}"
        )
    return manifest


def read_probe(manifest: Manifest, artifacts: Artifacts) -> Probe | None:
    """What an engine must reproduce; ``None`` for a version from outside.

    Raises:
        WeightsRefused: the object is no probe.
    """
    if manifest.probe is None:
        return None
    try:
        return Probe.model_validate_json(artifacts.get(manifest.probe))
    except ValidationError as error:
        raise WeightsRefused(f"{manifest.probe.key} is not a probe: {explain(error)}") from error


def fetch(manifest: Manifest, artifacts: Artifacts, directory: Path) -> Path:
    """The version's files in a directory of their own below ``directory``, ready to load.

    The hashes are verified, also of files fetched earlier; those that do not fit are fetched again. The directory
    appears whole or not at all, however many processes fetch at once.

    Raises:
        ArtifactMissing, ArtifactCorrupt (of the store): an object is gone or damaged.
        WeightsRefused: the files cannot be put in place.
    """
    target = directory / _slug(manifest.policy) / f"v{manifest.version}-{manifest.digest[:12]}"
    if not _intact(manifest, target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".fetching-", dir=target.parent) as scratch:
            _fill(manifest, artifacts, Path(scratch) / "files")
            _put_in_place(manifest, Path(scratch) / "files", target)
    return target


def _fill(manifest: Manifest, artifacts: Artifacts, directory: Path) -> None:
    directory.mkdir()
    for file in manifest.files:
        (directory / file.name).write_bytes(artifacts.get(file.ref))
    if not _intact(manifest, directory):
        raise WeightsRefused(
            f"{manifest.policy}@{manifest.version}: the store gave other bytes than the manifest names"
        )


def _put_in_place(manifest: Manifest, fetched: Path, target: Path) -> None:
    if target.exists() and not _intact(manifest, target):
        shutil.rmtree(target)
    try:
        fetched.rename(target)
    except OSError as error:
        # Another process was first; what it put there is as good.
        if not _intact(manifest, target):
            raise WeightsRefused(f"{target} cannot be put in place: {error}") from error


def _intact(manifest: Manifest, directory: Path) -> bool:
    return all(_holds(directory / file.name, file.ref) for file in manifest.files)


def _holds(path: Path, ref: ArtifactRef) -> bool:
    if not path.is_file() or path.stat().st_size != ref.size:
        return False
    with path.open("rb") as content:
        digest = sha256()
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == ref.sha256


def _put_json(body: Contract, kind: str, artifacts: Artifacts) -> ArtifactRef:
    return artifacts.put(body.model_dump_json().encode(), session=SESSION, kind=kind, media_type="application/json")


def _store(path: Path, artifacts: Artifacts) -> NamedArtifact:
    media_type = "application/json" if path.suffix == ".json" else "application/octet-stream"
    ref = artifacts.put(path.read_bytes(), session=SESSION, kind="weights", media_type=media_type)
    return NamedArtifact(name=path.name, ref=ref)


def _plain_files(directory: Path) -> list[Path]:
    paths = sorted(directory.iterdir()) if directory.is_dir() else []
    if not paths or not all(path.is_file() and not path.is_symlink() for path in paths):
        raise WeightsRefused(f"{directory} must be a directory of plain files, and hold at least one")
    return paths


def _plain(name: str) -> bool:
    return name not in (".", "..") and PurePosixPath(name).name == name and "\x00" not in name


def _slug(policy: str) -> str:
    """A directory name; the hash keeps ``local:a/b`` and ``local:a_b`` apart."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", policy)[:64]
    return readable if readable == policy else f"{readable}-{sha256(policy.encode()).hexdigest()[:8]}"
