"""The findings, and the evidence unchanged."""

import hashlib
import json
import unittest
from pathlib import Path

EVIDENCE = Path("/evidence")


def part(name):
    return json.loads((EVIDENCE / "findings.json").read_text())[name]


class Findings(unittest.TestCase):
    def test_what_was_changed(self):
        self.assertEqual(part("changed"), 23)

    def test_what_was_deleted(self):
        self.assertEqual(part("deleted"), [17, 41, 42])

    def test_the_notes_of_the_deleted(self):
        self.assertEqual(
            part("notes"), {"17": "spare bulbs #776", "41": "returned scale #882", "42": "fan with a dent #403"}
        )

    def test_what_the_changed_entry_said(self):
        self.assertEqual(part("original_cents"), 1027)
        self.assertEqual(
            hashlib.sha256((EVIDENCE / "ledger.db").read_bytes()).hexdigest(),
            "7d07ea25d51ebe5f38513cb5ceb1eb88e035d56a26b346ea6583abcf9e120ddd",
        )


def reward() -> float:
    """The share of the tests that pass."""
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName("__main__"))
    return 1 - len(result.failures + result.errors) / result.testsRun


if __name__ == "__main__":
    Path("/logs/verifier/reward.txt").write_text(f"{reward()}\n")
