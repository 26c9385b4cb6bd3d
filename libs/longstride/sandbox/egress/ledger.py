"""The connections of one call."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from longstride.contracts.v1.egress import Connection, ConnectionVerdict

WHY = 300


@dataclass
class Entry:
    """A connection that is under way. Until it is judged it counts as refused."""

    started_at: datetime
    host: str = ""
    port: int = 0
    address: str | None = None
    sent: int = 0
    received: int = 0
    verdict: ConnectionVerdict = "refused"
    why: str = "it never asked for anything"
    complete: bool = False
    """The server has said all it had to say: whatever ends it now cuts nothing."""
    ended_at: datetime | None = None

    def cut(self, why: str) -> None:
        """It did not end by itself."""
        if self.complete:
            return
        self.why = f"{self.why}; {why}" if self.verdict == "allowed" else why

    def connection(self, now: datetime) -> Connection:
        """The record."""
        return Connection(
            host=self.host,
            port=self.port,
            address=self.address,
            sent=self.sent,
            received=self.received,
            started_at=self.started_at,
            ended_at=self.ended_at or now,
            verdict=self.verdict,
            why=self.why[:WHY],
        )


@dataclass
class Ledger:
    """Grows by one entry a connection."""

    now: Callable[[], datetime]
    entries: list[Entry] = field(default_factory=list)

    def open(self) -> Entry:
        """A connection begins."""
        entry = Entry(self.now())
        self.entries.append(entry)
        return entry

    def close(self, entry: Entry) -> None:
        """It has ended."""
        entry.ended_at = self.now()

    @property
    def under_way(self) -> int:
        """Connections that have not ended."""
        return sum(entry.ended_at is None for entry in self.entries)

    def connections(self) -> tuple[Connection, ...]:
        """All records, in the order of their start."""
        return tuple(entry.connection(self.now()) for entry in self.entries)
