"""What a policy is called: ``builtin``, ``builtin@7`` (one version), ``scripted:PATH``, ``local:PATH`` or ``remote:URL``."""

import re
from pathlib import Path
from typing import NamedTuple

from longstride.policies.base import PolicyUnavailable

FORMS = "builtin, builtin@VERSION, scripted:PATH, local:PATH or remote:URL"

_NAME = re.compile(r"builtin(?:@(?P<version>\d{1,9}))?|(?P<kind>scripted|local|remote)(?::(?P<where>.+))?", re.DOTALL)


class PolicyName(NamedTuple):
    """A name, taken apart."""

    kind: str
    where: str | None
    version: int | None

    @property
    def family(self) -> str:
        """The name without its version, as manifests and token records carry it."""
        return self.kind if self.where is None else f"{self.kind}:{self.where}"


def parse_name(name: str) -> PolicyName:
    """Take a policy name apart.

    Raises:
        PolicyUnavailable: it is none; the text says what a name looks like.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise PolicyUnavailable(f"unknown policy {name[:200]!r}: a policy is {FORMS}")
    kind, where, version = found["kind"] or "builtin", found["where"], found["version"]
    if kind in ("scripted", "local") and not where:
        raise PolicyUnavailable(f"{name[:200]!r} names no file: write {kind}:PATH")
    return PolicyName(kind, where, None if version is None else int(version))


def unnameable(name: str | None) -> str | None:
    """Why no policy can have this name, or ``None``."""
    try:
        parse_name(name or "builtin")
    except PolicyUnavailable as error:
        return str(error)
    return None


def found_from(name: str, folder: Path) -> str:
    """A name whose relative path is as seen from ``folder``, for processes that run elsewhere."""
    wanted = parse_name(name)
    if wanted.kind not in ("scripted", "local") or wanted.where is None:
        return name
    place = folder / Path(wanted.where).expanduser()
    return f"{wanted.kind}:{place}" if place.exists() else name
