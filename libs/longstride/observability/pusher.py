"""Sends metrics over OTLP every few seconds, from this process alone."""

import threading

from opentelemetry.sdk.metrics.export import MetricReader


class Pusher:
    """Flushes a metric reader in a thread. A forked child has no such thread: the numbers it copied are its parent's to send."""

    def __init__(self, reader: MetricReader, interval_s: float) -> None:
        self._reader = reader
        self._interval_s = interval_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry-metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send once more, then no more."""
        self._closing.set()

    def close(self, timeout_s: float) -> bool:
        """Stop, and wait for the last push; ``False`` when the time is over first."""
        self.stop()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.wait(self._interval_s)
            self._reader.force_flush()
