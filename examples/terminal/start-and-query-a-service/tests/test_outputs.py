"""Whether the script starts the service, and the answers are those of the service."""

import json
import os
import subprocess
import unittest
import urllib.request
from pathlib import Path

APP = Path("/app")
PORT = os.environ["STOCK_PORT"]


def get(path):
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=5) as answer:
        return json.load(answer)


class Started(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        cls.code = subprocess.run(["sh", "start.sh"], cwd=APP, timeout=20, **quiet).returncode

    def test_the_script_returns_once_it_serves(self):
        self.assertEqual(self.code, 0)
        self.assertEqual(get("/health"), {"ok": True})

    def test_it_serves_the_stock(self):
        self.assertEqual([item["name"] for item in get("/items?page=3")["items"]], ["vice", "wedge", "yardstick"])


class Answers(unittest.TestCase):
    def test_the_total(self):
        self.assertEqual(json.loads((APP / "answers.json").read_text())["total"], 238)

    def test_what_is_scarce(self):
        self.assertEqual(
            json.loads((APP / "answers.json").read_text())["scarce"],
            ["awl", "file", "gimlet", "hatchet", "jig", "level", "plane", "vice", "yardstick"],
        )


def reward() -> float:
    """The share of the tests that pass."""
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName("__main__"))
    return 1 - len(result.failures + result.errors) / result.testsRun


if __name__ == "__main__":
    Path("/logs/verifier/reward.txt").write_text(f"{reward()}\n")
