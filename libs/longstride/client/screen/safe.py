"""Text from agents, made safe to print: nothing in it may move the cursor, recolour, or reorder what a person reads."""

import re
import unicodedata

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff{_BIDI}\ud800-\udfff]")


def safe(text: str) -> str:
    """``text`` with line feeds kept, tabs as spaces, and every other control character spelled out: ``\\x1b``."""
    return _UNSAFE.sub(_spelled, text.replace("\r\n", "\n").expandtabs(4))


def one_line(text: str, limit: int = 4096) -> str:
    """``text`` on one line: line ends become ``⏎``, runs of spaces one space."""
    cut = text[: 4 * limit].strip()
    return re.sub(r" {2,}", " ", safe(re.sub(r"\s*\n\s*", " ⏎ ", cut)))[:limit]


def _spelled(match: "re.Match[str]") -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def is_safe(text: str) -> bool:
    """No character of ``text`` controls a terminal. For tests and assertions."""
    return all(c == "\n" or unicodedata.category(c) not in ("Cc", "Cs") for c in text) and not _UNSAFE.search(text)
