"""Files that only their owner can read, and the passwords in them."""

import os
import secrets
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replace `path` atomically by a file of mode 0600: a reader sees the old text or the new one, nobody else any."""
    draft = path.with_name(path.name + ".draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


def password(folder: Path, name: str) -> str:
    """The random secret called `name` of this stack, made at its first use; safe inside a URL."""
    path = folder / "secrets" / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        write_private(path, secrets.token_hex(20))
    return path.read_text()
