"""The incident, part by part. The ids are compared by their hash, as there are 25 of them."""

import hashlib
import json
import unittest
from pathlib import Path


def part(name):
    return json.loads(Path("/app/incident.json").read_text())[name]


class Incident(unittest.TestCase):
    def test_service(self):
        self.assertEqual(part("service"), "billing-2")

    def test_cause(self):
        self.assertEqual(part("cause"), "certificate")

    def test_first_error(self):
        self.assertEqual(part("first_error"), "2026-03-04T09:11:03Z")

    def test_failed_requests(self):
        ids = part("failed_requests")
        self.assertEqual(len(ids), 25)
        digest = hashlib.sha256(" ".join(ids).encode()).hexdigest()
        self.assertEqual(digest, "dfa77f8e6531b141b876362bdfed691ba2c11603f06e7f6933ff1f271cdc6724")


def reward() -> float:
    """The share of the tests that pass."""
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName("__main__"))
    return 1 - len(result.failures + result.errors) / result.testsRun


if __name__ == "__main__":
    Path("/logs/verifier/reward.txt").write_text(f"{reward()}\n")
