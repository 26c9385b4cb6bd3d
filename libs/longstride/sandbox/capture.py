"""Output that may never end, kept in bounded memory: its first and its last bytes."""

from collections import deque


class Capture:
    """Keeps at the most ``limit`` bytes, half from the start and half from the end."""

    def __init__(self, limit: int) -> None:
        self._head_room = limit - limit // 2
        self._tail_room = limit // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self.total += len(data)
        room = self._head_room - len(self._head)
        self._head += data[:room]
        if rest := data[room:]:
            self._tail.append(rest[-self._tail_room :] if self._tail_room else b"")
            self._tail_size += len(self._tail[-1])
            while self._tail_size - len(self._tail[0]) >= self._tail_room and len(self._tail) > 1:
                self._tail_size -= len(self._tail.popleft())

    @property
    def full(self) -> bool:
        """Whether something is being dropped."""
        return self.total > self._head_room + self._tail_room

    def bytes(self) -> bytes:
        """What was kept, with a line in the middle that says how much was not."""
        tail = b"".join(self._tail)[-self._tail_room :] if self._tail_room else b""
        dropped = self.total - len(self._head) - len(tail)
        middle = b"\n[%d bytes of output were dropped here]\n" % dropped if dropped else b""
        return bytes(self._head) + middle + tail
