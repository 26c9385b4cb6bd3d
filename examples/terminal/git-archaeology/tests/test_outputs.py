"""The answers, and the clone."""

import json
import subprocess
import unittest
from pathlib import Path


def part(name):
    return json.loads(Path("/app/answers.json").read_text())[name]


class Answers(unittest.TestCase):
    def test_the_commit_that_changed_the_rounding(self):
        self.assertEqual(part("rounding"), "9f5d6e3c694131e092f6fd9c3d7bc8d0a0f1e8db")

    def test_its_author(self):
        self.assertEqual(part("rounding_author"), "Ben Cole")

    def test_the_token(self):
        self.assertEqual(part("leaked"), "tk-7f3d-91c2-amber-otter")

    def test_the_commit_that_leaked_it(self):
        self.assertEqual(part("leaked_by"), "442ae6438cfeceff2ba6bcb093331cf1b8f64403")

    def test_the_price_before(self):
        self.assertEqual(part("gross_before"), 1201)


class Clone(unittest.TestCase):
    def test_main_is_checked_out(self):
        said = subprocess.run(
            ["git", "-C", "/app/till", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        self.assertEqual(said, "a2467e35c047c82db1499fe2afba0c6fc37f17eb")
        self.assertTrue(Path("/app/till/till.py").is_file())


def reward() -> float:
    """The share of the tests that pass."""
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName("__main__"))
    return 1 - len(result.failures + result.errors) / result.testsRun


if __name__ == "__main__":
    Path("/logs/verifier/reward.txt").write_text(f"{reward()}\n")
