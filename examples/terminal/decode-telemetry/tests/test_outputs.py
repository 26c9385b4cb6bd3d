"""The readings and the gaps. The whole of the file is compared by its hash."""

import csv
import hashlib
import unittest
from pathlib import Path

APP = Path("/app")


def rows():
    with (APP / "readings.csv").open(newline="") as file:
        return list(csv.DictReader(file))


class Decoded(unittest.TestCase):
    def test_there_are_as_many_readings(self):
        self.assertEqual(len(rows()), 112)

    def test_the_coldest(self):
        coldest = min(rows(), key=lambda row: float(row["celsius"]))
        self.assertEqual([coldest[name] for name in ("sequence", "celsius", "flags")], ["38", "-8.20", "frost"])

    def test_every_reading(self):
        lines = (APP / "readings.csv").read_text().split()
        self.assertEqual(lines[0], "sequence,seconds,celsius,hectopascal,flags")
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        self.assertEqual(digest, "968bf929277f931278601a55d3e685a03fb63801f80ce4e229d7d423214c9ea7")

    def test_the_gaps(self):
        self.assertEqual(
            (APP / "lost.txt").read_text().split(),
            [
                "65482",
                "65490",
                "65504",
                "65505",
                "65506",
                "65507",
                "65510",
                "65522",
                "65531",
                "65534",
                "2",
                "3",
                "5",
                "8",
                "19",
                "20",
                "21",
                "25",
                "36",
                "37",
                "40",
                "41",
                "43",
                "54",
                "63",
                "69",
                "72",
            ],
        )


def reward() -> float:
    """The share of the tests that pass."""
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName("__main__"))
    return 1 - len(result.failures + result.errors) / result.testsRun


if __name__ == "__main__":
    Path("/logs/verifier/reward.txt").write_text(f"{reward()}\n")
