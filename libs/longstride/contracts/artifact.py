"""References to what is stored: the claim check of every message and row."""

from hashlib import sha256
from typing import Annotated

from pydantic import Field, StringConstraints

from longstride.contracts.model import Contract
from longstride.contracts.most import Most

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class ArtifactRef(Contract):
    """Where an object lies and what it must hash to."""

    key: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9._/=-]+$")]
    """The object's key in the artifact store: ``<session>/<kind>/<sha256>``."""
    sha256: Sha256
    """Hex digest of the content; a reader that gets other bytes raises ``ArtifactCorrupt``."""
    size: Annotated[int, Field(ge=0), Most(1 << 50)]
    """Bytes."""
    media_type: str = "application/octet-stream"
    """An IANA media type."""


def ref_for(data: bytes, *, session: str, kind: str, media_type: str = "application/octet-stream") -> ArtifactRef:
    """The reference that ``data`` has in any store: it depends on the content alone, so it is known before the write."""
    digest = sha256(data).hexdigest()
    return ArtifactRef(key=f"{session}/{kind}/{digest}", sha256=digest, size=len(data), media_type=media_type)


class NamedArtifact(Contract):
    """A file that a task produced, under the name the agent gave it."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    """The path relative to the workspace."""
    ref: ArtifactRef
