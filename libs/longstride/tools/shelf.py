"""A session's own place in the artifact store, as tools reach it."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from longstride.contracts.artifact import ArtifactRef, NamedArtifact
from longstride.sandbox.content import ContentStore
from longstride.sandbox.secrets import NO_SECRETS, secret_in
from longstride.storage.errors import ArtifactCorrupt, ArtifactMissing

OUTPUT = "output"
READABLE = (OUTPUT, "observation")
"""Kinds that a task may read: what it put, and its long outputs. Not its inputs: hidden check files are among them."""
KEY = re.compile(r"(?P<session>[^/]+)/(?P<kind>[^/]+)/(?P<sha256>[0-9a-f]{64})")


class NotKept(ValueError):
    """It holds a secret; the text says which."""


class NotOnShelf(ValueError):
    """There is nothing that the task may read under this key; the text says what a key looks like."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """What a task may put and get. Objects are content-addressed: the same bytes are the same key."""

    artifacts: ContentStore
    session: str
    secrets: Mapping[str, bytes] = field(default_factory=lambda: NO_SECRETS)
    """Values that nothing may keep, by name."""

    def put(self, name: str, data: bytes) -> NamedArtifact:
        """Keep a file under its name.

        Raises:
            NotKept: a secret is in it, or in its name.
        """
        if secret := secret_in(data, self.secrets) or secret_in(os.fsencode(name), self.secrets):
            raise NotKept(f"{name} is not kept: it holds secret {secret}")
        return NamedArtifact(name=name, ref=self.artifacts.put(data, session=self.session, kind=OUTPUT))

    def get(self, key: str, size: int) -> bytes:
        """Read what was put by a task of this session, or an output that was shown in part.

        Raises:
            NotOnShelf: another session's, another kind of thing, or nothing.
        """
        found = KEY.fullmatch(key)
        if not found or found["session"] != self.session or found["kind"] not in READABLE:
            raise NotOnShelf(
                f"{key!r} is no key of this session: artifact_put gives one, as {self.session}/{OUTPUT}/<64 hexadecimal digits>"
            )
        try:
            return self.artifacts.get(ArtifactRef(key=key, sha256=found["sha256"], size=size))
        except (ArtifactMissing, ArtifactCorrupt) as error:
            raise NotOnShelf(f"nothing of {size} bytes is kept as {key}: {error}") from error
