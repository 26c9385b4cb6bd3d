"""ledger.db → findings.json

A deleted cell stays in its page but for its first four bytes, so the tail of its record is whole: `at`, `cents`, `note`. The
seals say which id a tail belongs to, and what the changed entry was.
"""

import json
import re
import sqlite3
from hashlib import sha256
from pathlib import Path

EVIDENCE = Path("/evidence")
TAIL = re.compile(rb"2026-\d\d-\d\dT\d\d:\d\d")
MOST_CENTS = 100_000


def seal_of(before, number, at, cents, note):
    """The seal of an entry."""
    return sha256("|".join([before, str(number), at, str(cents), note]).encode()).hexdigest()


def tails(data):
    """(at, cents, note) of everything in the file that looks like the end of a record; the note's end is guessed."""
    for found in TAIL.finditer(data):
        at, rest = found[0].decode(), data[found.end() : found.end() + 60]
        for width in (1, 2, 3):
            cents, text = int.from_bytes(rest[:width], "big", signed=True), rest[width:]
            for end in range(1, len(text)):
                note = text[:end]
                if not note.isascii() or not note.decode().isprintable():
                    break
                yield at, cents, note.decode()


database = sqlite3.connect(f"file:{EVIDENCE / 'ledger.db'}?mode=ro", uri=True)
entries = {row[0]: row[1:] for row in database.execute("SELECT * FROM entries")}
seals = dict(database.execute("SELECT * FROM seals"))
before = {number: seals.get(number - 1, "0" * 64) for number in seals}
deleted = sorted(set(seals) - set(entries))
changed = next(n for n, entry in entries.items() if seal_of(before[n], n, *entry) != seals[n])
at, _, note = entries[changed]
cents = next(c for c in range(MOST_CENTS) if seal_of(before[changed], changed, at, c, note) == seals[changed])
candidates = list(tails((EVIDENCE / "ledger.db").read_bytes()))
notes = {n: next(t[2] for t in candidates if seal_of(before[n], n, *t) == seals[n]) for n in deleted}
findings = {"changed": changed, "deleted": deleted, "notes": notes, "original_cents": cents}
(EVIDENCE / "findings.json").write_text(json.dumps(findings))
