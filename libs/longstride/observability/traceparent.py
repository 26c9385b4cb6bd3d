"""W3C Trace Context, level 2: the ``traceparent`` of an envelope."""

import re
from typing import NamedTuple

_FORMAT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
SAMPLED = 0x01
RANDOM = 0x02


class SpanRef(NamedTuple):
    """Which span of which trace."""

    trace_id: int
    """128 bits."""
    span_id: int
    """64 bits."""
    flags: int = SAMPLED | RANDOM

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


def parse(traceparent: str | None) -> SpanRef | None:
    """Read a ``traceparent``; ``None`` for a missing or invalid one, which the specification wants treated alike."""
    found = _FORMAT.fullmatch(traceparent or "")
    if found is None:
        return None
    ref = SpanRef(*(int(part, 16) for part in found.groups()))
    return ref if ref.trace_id and ref.span_id else None
