"""The report, part by part."""

import json
import unittest
from pathlib import Path


def part(name):
    return json.loads(Path("/app/report.json").read_text())[name]


class Report(unittest.TestCase):
    def test_orders(self):
        self.assertEqual(part("orders"), 222)

    def test_revenue(self):
        self.assertAlmostEqual(part("revenue"), 43473.1, 2)

    def test_by_region(self):
        self.assertEqual(
            {name: round(sum_, 2) for name, sum_ in part("by_region").items()},
            {"east": 16788.85, "north": 12231.6, "south": 14452.65},
        )

    def test_by_month(self):
        self.assertEqual(
            {name: round(sum_, 2) for name, sum_ in part("by_month").items()},
            {"2026-01": 13043.2, "2026-02": 17670.9, "2026-03": 12759.0},
        )

    def test_best_seller(self):
        self.assertEqual(part("best_seller"), "scale")


def reward() -> float:
    """The share of the tests that pass."""
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName("__main__"))
    return 1 - len(result.failures + result.errors) / result.testsRun


if __name__ == "__main__":
    Path("/logs/verifier/reward.txt").write_text(f"{reward()}\n")
