"""What differs between two states of a workspace, file by file."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, Literal

from longstride.client.step_state import StepState
from longstride.sandbox.contents import Contents
from longstride.sandbox.manifest import Entry, FileEntry

MOST_BYTES, MOST_LINES = 1 << 20, 20_000
"""Of a text that is compared line by line; comparing takes more than linear time."""
NO_NEWLINE = "\\ No newline at end of file\n"
Kind = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One path that is not the same in both states. Times do not count."""

    path: str
    kind: Kind
    before: Entry | None
    after: Entry | None
    lines: tuple[str, ...] | None
    """The unified diff, without its two header lines, each with its line end; ``None``: the contents are no text, or too
    large to be compared."""

    @property
    def added(self) -> int:
        """Lines."""
        return sum(line.startswith("+") for line in self.lines or ())

    @property
    def removed(self) -> int:
        """Lines."""
        return sum(line.startswith("-") for line in self.lines or ())

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "path": self.path,
            "change": self.kind,
            "before": described(self.before),
            "after": described(self.after),
            "added": self.added if self.lines is not None else None,
            "removed": self.removed if self.lines is not None else None,
            "diff": "".join(self.lines) if self.lines is not None else None,
        }


def differences(before: StepState, after: StepState) -> Iterator[Difference]:
    """In the order of the paths."""
    old, new = before.snapshot.manifest, after.snapshot.manifest
    was, now = Contents(before.store, before.snapshot), Contents(after.store, after.snapshot)
    for path in sorted(old.differing(new)):
        one, other = old.get(path), new.get(path)
        if _timeless(one) != _timeless(other):
            kind: Kind = "added" if one is None else "removed" if other is None else "changed"
            yield Difference(path, kind, one, other, _lines(one, other, was, now))


def described(entry: Entry | None) -> dict[str, Any] | None:
    """What lies at a path, for programs."""
    if isinstance(entry, FileEntry):
        return {"type": "file", "mode": f"{entry.mode:03o}", "size": entry.size, "sha256": entry.sha256}
    if isinstance(entry, str):
        return {"type": "link", "target": entry}
    return None if entry is None else {"type": "directory", "mode": f"{entry:03o}"}


def _timeless(entry: Entry | None) -> object:
    return (entry.mode, entry.sha256) if isinstance(entry, FileEntry) else entry


def _lines(one: Entry | None, other: Entry | None, was: Contents, now: Contents) -> tuple[str, ...] | None:
    if isinstance(one, FileEntry) and isinstance(other, FileEntry) and one.sha256 == other.sha256:
        return ()
    before, after = _text(one, was), _text(other, now)
    if before is None or after is None:
        return None
    found = list(unified_diff(before, after, "before", "after"))[2:]
    return tuple(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in found)


def _text(entry: Entry | None, contents: Contents) -> list[str] | None:
    """The lines of a file; of what is no file, none."""
    if not isinstance(entry, FileEntry):
        return []
    if entry.size > MOST_BYTES:
        return None
    data = contents.read(entry.sha256)
    if b"\x00" in data:
        return None
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        return None
    whole = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    return whole if len(whole) <= MOST_LINES else None
