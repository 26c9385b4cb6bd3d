"""A lossless tokenizer: words and phrases where they are known, UTF-8 bytes where they are not."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

TOKENIZER_FILE = "tokenizer.json"


class Tokenizer:
    """Ids: the special tokens first, then the 256 bytes, then phrases, then words.

    A *phrase* matches anywhere, the longest first; a *word* is ASCII letters and matches only where no letter stands
    beside it. Every text decodes to itself (a lone surrogate, which is no text, to ``?``); special tokens have no text, so no input can forge one.
    """

    def __init__(self, specials: Sequence[str], phrases: Sequence[str], words: Sequence[str]) -> None:
        self.specials, self.phrases, self.words = tuple(specials), tuple(phrases), tuple(words)
        self._check()
        pieces = [*self.phrases, *self.words]
        self._first_piece = len(self.specials) + 256
        self._piece_ids = {piece: self._first_piece + index for index, piece in enumerate(pieces)}
        self._special_ids = {name: index for index, name in enumerate(self.specials)}
        self._bytes = [b""] * len(self.specials) + [bytes([b]) for b in range(256)] + [p.encode() for p in pieces]
        self._pattern = _pattern(self.phrases, self.words)

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return len(self._bytes)

    def special(self, name: str) -> int:
        """The id of a special token.

        Raises:
            KeyError: there is none of that name.
        """
        return self._special_ids[name]

    def is_special(self, token: int) -> bool:
        """Whether an id is a special token."""
        return token < len(self.specials)

    def piece(self, token: int) -> bytes:
        """The bytes that an id stands for; none for a special token."""
        return self._bytes[token]

    def encode(self, text: str) -> list[int]:
        """Ids of a text; never a special token."""
        ids: list[int] = []
        for match in self._pattern.finditer(text):
            known = self._piece_ids.get(match[0]) if match.lastgroup else None
            ids.extend([known] if known is not None else self._spell(match[0]))
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, special tokens left out; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self._bytes[token] for token in ids).decode("utf-8", errors="replace")

    def save(self, directory: Path | str) -> None:
        """Write ``tokenizer.json`` into a directory, made if missing."""
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        content = {"version": 1, "specials": self.specials, "phrases": self.phrases, "words": self.words}
        (path / TOKENIZER_FILE).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, directory: Path | str) -> "Tokenizer":
        """Read what ``save`` wrote.

        Raises:
            ValueError: the file is missing or not a tokenizer of version 1; the text names it.
        """
        path = Path(directory) / TOKENIZER_FILE
        try:
            raw = json.loads(path.read_text())
        except FileNotFoundError as error:
            raise ValueError(f"{path} is missing") from error
        except ValueError as error:
            raise ValueError(f"{path} is not JSON: {error}") from error
        if not isinstance(raw, dict) or raw.get("version") != 1 or not {"specials", "phrases", "words"} <= raw.keys():
            raise ValueError(f"{path} is not a version 1 tokenizer: it needs version, specials, phrases and words")
        return cls(raw["specials"], raw["phrases"], raw["words"])

    def _spell(self, text: str) -> list[int]:
        return [len(self.specials) + byte for byte in text.encode("utf-8", errors="replace")]

    def _check(self) -> None:
        pieces = [*self.phrases, *self.words]
        if len(set(pieces)) < len(pieces) or len(set(self.specials)) < len(self.specials):
            raise ValueError("special tokens, phrases and words must be distinct")
        for word in self.words:
            if not re.fullmatch(r"[A-Za-z]{2,}", word):
                raise ValueError(f"word {word!r} must be two or more ASCII letters; anything else is a phrase")
        for phrase in self.phrases:
            if len(phrase) < 2:
                raise ValueError(f"phrase {phrase!r} must have two or more characters; single ones are bytes")


def _pattern(phrases: Sequence[str], words: Sequence[str]) -> re.Pattern[str]:
    longest_first = sorted(phrases, key=len, reverse=True)
    known = [f"(?P<phrase>{'|'.join(map(re.escape, longest_first))})"] if phrases else []
    if words:
        known.append(f"(?P<word>(?<![A-Za-z])(?:{'|'.join(words)})(?![A-Za-z]))")
    return re.compile("|".join([*known, r"(?s:.)"]))
