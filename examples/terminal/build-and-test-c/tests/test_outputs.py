"""Whether the program builds with its flags, passes its tests, and is right for what they leave out."""

import subprocess
import unittest
from pathlib import Path

APP = Path("/app")


def make(*targets):
    return subprocess.run(["make", *targets], cwd=APP, capture_output=True, text=True, timeout=60)


def rle(mode, data):
    return subprocess.run([APP / "rle", mode], input=data, capture_output=True, timeout=20).stdout


class Built(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        make("clean")
        cls.done = make()

    def test_it_builds_without_a_warning(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertNotIn("warning", self.done.stderr)
        self.assertIn("CFLAGS = -std=c11 -Wall -Wextra -Werror -O2", (APP / "Makefile").read_text())

    def test_its_own_tests_pass(self):
        self.assertEqual(make("test").stdout.splitlines()[-1:], ["5 of 5 tests pass"])

    def test_runs_longer_than_a_byte_counts_are_split(self):
        self.assertEqual(rle("-e", b"a" * 300), b"\xffa\x2da")

    def test_every_byte_comes_back(self):
        data = bytes(range(256)) * 3 + b"\0" * 1000 + b"xyzzy"
        self.assertEqual(rle("-d", rle("-e", data)), data)


def reward() -> float:
    """The share of the tests that pass."""
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName("__main__"))
    return 1 - len(result.failures + result.errors) / result.testsRun


if __name__ == "__main__":
    Path("/logs/verifier/reward.txt").write_text(f"{reward()}\n")
