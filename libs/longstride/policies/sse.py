"""Server-sent events (WHATWG HTML, 9.2.6), as far as chat servers use them: data fields."""


class EventReader:
    """Makes events of bytes that arrive cut anywhere, inside a UTF-8 character too. An event cut off by the end is dropped, as the standard says."""

    def __init__(self) -> None:
        self.started = False
        """Whether anything has arrived."""
        self._rest = b""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that ``chunk`` completes."""
        events = []
        for line in self._lines(chunk):
            if not line and self._data:
                events.append("\n".join(self._data))
                self._data = []
            elif line == "data" or line.startswith("data:"):
                self._data.append(line[5:].removeprefix(" "))
        return events

    def _lines(self, chunk: bytes) -> list[str]:
        """Lines ended by LF, CR or CRLF."""
        rest = self._rest + chunk
        if not self.started:
            rest = rest.removeprefix(b"\xef\xbb\xbf")
        self.started = self.started or bool(chunk)
        # A CR at the end may be the first half of a CRLF.
        held = b"\r" if rest.endswith(b"\r") else b""
        *lines, tail = rest.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = tail + held
        return [line.decode("utf-8", "replace") for line in lines]
