"""What the pool of sandboxes does, as metrics."""

from dataclasses import dataclass

from longstride.observability.metrics import Metrics
from longstride.sandbox.pool import Level, Source


@dataclass(frozen=True, slots=True)
class Counted:
    """Tells the process's instruments."""

    metrics: Metrics

    def acquired(self, source: Source, seconds: float) -> None:
        """A call got its sandbox."""
        self.metrics.sandbox_acquired(source, seconds)

    def level(self, level: Level) -> None:
        """The pool changed."""
        self.metrics.sandboxes(ready=level.ready, used=level.used, target=level.target)
