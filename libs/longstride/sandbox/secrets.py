"""Secrets: values that a task's calls may read, and that nothing keeps.

They come from the tool-executor's own side; messages and rows carry their names alone. What a call prints of them is taken
out before it is stored, and a file that holds one is not kept in the workspace. That guards against accidents: code that
may read a value and wants to hide it (encoded, say) can.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from longstride.sandbox.base import SUPPORT
from longstride.sandbox.errors import InputUnusable

FOLDER = "secrets"
"""Below ``SUPPORT``: one file a secret, read-only."""
PLACE = f"{SUPPORT}/{FOLDER}"
MIN_BYTES = 6
"""Shorter values would turn up in ordinary text, and could not be taken out of it."""
MAX_BYTES = 64 << 10
NO_SECRETS: Mapping[str, bytes] = {}
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class Secrets(Protocol):
    """Where values come from."""

    def get(self, tenant: str, name: str) -> bytes | None:
        """A tenant's secret; ``None``: there is none of that name."""
        ...


class DirectorySecrets:
    """One file a secret: ``<root>/<tenant>/<name>``. It is read for each call, so a changed value counts at once."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, tenant: str, name: str) -> bytes | None:
        """The file's bytes.

        Raises:
            InputUnusable: it is there and cannot be read.
        """
        if not (_PART.fullmatch(tenant) and _PART.fullmatch(name)):
            return None
        try:
            return (self._root / tenant / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise InputUnusable(f"secret {name!r} cannot be read by the tool-executor: {error.strerror}") from error


class MemorySecrets:
    """Secrets in memory: the twin of ``DirectorySecrets``. By default there are none."""

    def __init__(self, values: Mapping[tuple[str, str], bytes] | None = None) -> None:
        """``values`` are by tenant and name."""
        self._values = values or {}

    def get(self, tenant: str, name: str) -> bytes | None:
        """The value."""
        return self._values.get((tenant, name))


def values_of(secrets: Secrets, tenant: str, names: tuple[str, ...]) -> dict[str, bytes]:
    """The values that a task asks for.

    Raises:
        InputUnusable: one is unknown, or too short or long to be kept secret.
    """
    return {name: _value(secrets, tenant, name) for name in names}


def _value(secrets: Secrets, tenant: str, name: str) -> bytes:
    value = secrets.get(tenant, name)
    if value is None:
        raise InputUnusable(
            f"the tool-executor has no secret {name!r} for tenant {tenant!r}: "
            f"put its value into the file {tenant}/{name} of its secrets folder"
        )
    if not MIN_BYTES <= len(value.strip()) <= MAX_BYTES:
        raise InputUnusable(
            f"secret {name!r} has {len(value.strip())} bytes: between {MIN_BYTES} and {MAX_BYTES} can be kept out of what is stored"
        )
    return value


def mounted(values: Mapping[str, bytes]) -> dict[str, bytes]:
    """As ``Command.files``."""
    return {f"{FOLDER}/{name}": value for name, value in values.items()}


def secret_in(data: bytes, values: Mapping[str, bytes]) -> str | None:
    """The name of a secret whose value stands in ``data``."""
    return next((name for name, value in values.items() if value.strip() in data), None)


def without_secrets(text: str, values: Mapping[str, bytes]) -> str:
    """``text`` with ``[secret NAME]`` in the place of each value, the longest first."""
    for name, value in sorted(values.items(), key=lambda item: -len(item[1])):
        for shown in _appearances(value):
            text = text.replace(shown, f"[secret {name}]")
    return text


def _appearances(value: bytes) -> list[str]:
    """As a whole, and each of its lines: a key of many lines may be printed indented or numbered."""
    whole = value.strip().decode(errors="replace")
    lines = [line.strip() for line in whole.splitlines()]
    return [whole, *(line for line in lines if len(line) > MIN_BYTES)] if len(lines) > 1 else [whole]
