"""What workspaces need of an artifact store; every store in ``longstride.storage`` fits."""

from typing import Protocol

from longstride.contracts.artifact import ArtifactRef


class ContentStore(Protocol):
    """Content-addressed objects under ``<session>/<kind>/<sha256>``."""

    def put(self, data: bytes, *, session: str, kind: str, media_type: str = "application/octet-stream") -> ArtifactRef:
        """Store; the same content under the same session and kind is one object."""
        ...

    def get(self, ref: ArtifactRef) -> bytes:
        """Read and verify.

        Raises:
            ArtifactMissing, ArtifactCorrupt: of ``longstride.storage.errors``.
        """
        ...
