"""Bytes from a server as messages: one JSON-RPC message a line, and no more of anything than a call can need."""

import re
from collections.abc import Iterator

from mcp_types import JSONRPCMessage, JSONRPCNotification, jsonrpc_message_adapter

MOST_LINE_BYTES = 4 << 20
"""A message with a picture in it has a megabyte or two."""
MOST_MESSAGES = 5000
MOST_VALUES = 30_000
"""Of one message, as its commas and brackets tell; each that does not fit costs the protocol's models five errors."""
SHOWN = 200
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
"""Of JSON; without going back, so that its length costs no memory."""


class Nonsense(ValueError):
    """This is no server that could be talked with; the text says what it does."""


class Frames:
    """Cuts what is heard into messages. Notifications (progress, logs, changed lists) are counted and dropped: a call has one
    result, and a server's chatter is not for the agent. Lines that are no message are dropped, too: many servers print."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._messages = 0
        self.first_noise = ""
        """The start of the first line that was no message."""

    def feed(self, data: bytes) -> Iterator[JSONRPCMessage]:
        """The messages that end in ``data``.

        Raises:
            Nonsense: a message has no end, or there are too many.
        """
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._extend(line)
            message = self._message(bytes(self._line).strip())
            self._line.clear()
            if message is not None:
                yield message
        self._extend(rest)

    def _extend(self, part: bytes) -> None:
        if len(self._line) + len(part) > MOST_LINE_BYTES:
            raise Nonsense(f"it sent a message of more than {MOST_LINE_BYTES >> 20} MiB")
        self._line += part

    def _message(self, line: bytes) -> JSONRPCMessage | None:
        if not line:
            return None
        self._messages += 1
        if self._messages > MOST_MESSAGES:
            raise Nonsense(f"it sent more than {MOST_MESSAGES} messages")
        if _is_wide(line):
            raise Nonsense(f"it sent a message of more than {MOST_VALUES} values")
        try:
            message: JSONRPCMessage = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self.first_noise = self.first_noise or line[:SHOWN].decode(errors="replace")
            return None
        return None if isinstance(message, JSONRPCNotification) else message


def _is_wide(line: bytes) -> bool:
    """By its punctuation, before anything is made of it: a value of three bytes is an object of a hundred here."""
    return _separators(line) > MOST_VALUES and _separators(STRING.sub(b"", line)) > MOST_VALUES


def _separators(line: bytes) -> int:
    return sum(map(line.count, (b",", b"{", b"[")))
