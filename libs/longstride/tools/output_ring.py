"""The last bytes of an output that may be endless."""

import threading


class OutputRing:
    """Written by one thread, read by others. Places are counted from the very first byte."""

    def __init__(self, size: int) -> None:
        """``size``: bytes that are kept."""
        self._size = size
        self._kept = bytearray()
        self._end = 0
        self._guard = threading.Lock()

    @property
    def end(self) -> int:
        """Bytes so far."""
        return self._end

    def write(self, data: bytes) -> None:
        """More of it. What no longer fits is dropped in blocks, so that each byte is moved once at the most."""
        with self._guard:
            self._kept += data
            self._end += len(data)
            if len(self._kept) > 2 * self._size:
                del self._kept[: -self._size]

    def since(self, place: int) -> tuple[bytes, int]:
        """What came after ``place``, and how many bytes of that were dropped."""
        with self._guard:
            first = self._end - min(self._size, len(self._kept))
            start = max(place, first)
            return bytes(self._kept[len(self._kept) - (self._end - start) :]), start - place
