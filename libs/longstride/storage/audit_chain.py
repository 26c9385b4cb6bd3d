"""The chain of a tenant's audit rows: how each row's hash is made, and the walk that finds where it does not hold."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from longstride.contracts.model import storable

GENESIS = "0" * 64
"""The hash that the first row follows."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """See ``tables.AuditRow``."""

    tenant: str
    seq: int
    """1, 2, 3 … a tenant."""
    text: str
    """The entry as JSON, byte for byte what was hashed."""
    previous: str
    sha256: str
    occurred_at: datetime

    @property
    def entry(self) -> dict[str, Any]:
        """What happened."""
        entry: dict[str, Any] = json.loads(self.text)
        return entry


class Link(NamedTuple):
    """A place in the chain."""

    seq: int
    sha256: str


class Gap(NamedTuple):
    """Rows that retention removed: the first and last seq, and the hash of the last, which the next row follows."""

    first: int
    last: int
    sha256: str


BEGINNING = Link(0, GENESIS)


@dataclass(frozen=True, slots=True)
class BrokenLink:
    """Where the chain does not hold."""

    seq: int
    problem: str


def written(entry: Mapping[str, Any]) -> str:
    """An entry as the text that is stored and hashed: sorted keys, no spaces, ASCII."""
    text = _dumped(entry)
    return _dumped(storable(dict(entry))) if "\\u0000" in text or "\\ud" in text else text


def _dumped(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False)


def moment(at: datetime) -> str:
    """A time as the hash takes it: UTC with microseconds."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def row_hash(row: AuditRow) -> str:
    """SHA-256 of the JSON of [previous, tenant, seq, occurred_at, entry] without spaces; ``audit.py`` does the same in SQL."""
    about = f'["{row.previous}",{json.dumps(row.tenant)},{row.seq},"{moment(row.occurred_at)}",{row.text}]'
    return hashlib.sha256(about.encode()).hexdigest()


@dataclass(slots=True)
class Walk:
    """Follows a tenant's rows in order. ``broken`` is the first place where they are not what was written."""

    gaps: Iterable[Gap] = ()
    """What retention removed, by the latest checkpoint; that row is part of the chain, and verified with it."""
    noted: Mapping[int, str] = field(default_factory=dict)
    """Hashes of rows as they were noted elsewhere, by seq."""
    last: Link = BEGINNING
    rows: int = 0
    broken: BrokenLink | None = None

    def take(self, row: AuditRow) -> bool:
        """Look at the next row; ``False``: the chain is broken here."""
        self._cross_gaps(row.seq)
        problem = self._problem(row)
        if problem:
            self.broken = BrokenLink(self.last.seq + 1, problem)
            return False
        self.last = Link(row.seq, row.sha256)
        self.rows += 1
        return True

    def end(self) -> None:
        """No row follows: what was noted must have been seen, or lie in a gap."""
        self._cross_gaps(1 + max((gap.last for gap in self.gaps), default=0))
        missing = [seq for seq in self.noted if seq > self.last.seq]
        if missing:
            first = self.last.seq + 1
            what = f"entry {first}" if max(missing) == first else f"entries {first} to {max(missing)}"
            self.broken = BrokenLink(
                first, f"the end is cut off: {what} {'is' if ' to ' not in what else 'are'} missing"
            )

    def _cross_gaps(self, seq: int) -> None:
        for gap in sorted(self.gaps):
            if gap.first == self.last.seq + 1 and gap.last < seq:
                self.last = Link(gap.last, gap.sha256)

    def _problem(self, row: AuditRow) -> str | None:
        seq = self.last.seq + 1
        if row.seq != seq:
            return f"entry {seq} is missing, the next one is {row.seq}"
        if self.noted.get(self.last.seq, self.last.sha256) != self.last.sha256:
            return "it follows rows that retention removed, and they ended otherwise than was noted elsewhere"
        if row.previous != self.last.sha256:
            return "it does not follow from the entry before"
        if row.sha256 != row_hash(row):
            return "it was changed after it was written"
        if self.noted.get(seq, row.sha256) != row.sha256:
            return "it is another entry than was noted elsewhere: the chain was written anew from here or before"
        return None


def merged(gaps: Iterable[Gap], removed: Iterable[Link]) -> list[Gap]:
    """All gaps once the rows ``removed`` are gone, too: neighbours become one."""
    runs = sorted([*gaps, *(Gap(link.seq, link.seq, link.sha256) for link in removed)])
    joined: list[Gap] = []
    for run in runs:
        if joined and joined[-1].last + 1 == run.first:
            joined[-1] = joined[-1]._replace(last=run.last, sha256=run.sha256)
        else:
            joined.append(run)
    return joined
