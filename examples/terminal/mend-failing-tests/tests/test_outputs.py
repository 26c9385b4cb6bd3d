"""The package against its own tests, which must be unchanged, and against some that it does not ship."""

import hashlib
import subprocess
import sys
import unittest
from datetime import date
from pathlib import Path

APP = Path("/app")
OWN = "29df939c1096f96cb0e05ee6f00d6c02a1b8235939c22d2b3c4503000ff9d55f"
sys.path.insert(0, str(APP))


class Mended(unittest.TestCase):
    def test_its_own_tests_pass_as_they_were(self):
        self.assertEqual(hashlib.sha256((APP / "tests" / "test_schedule.py").read_bytes()).hexdigest(), OWN)
        done = subprocess.run(
            [sys.executable, "-m", "unittest", "discover", "-s", "tests"], cwd=APP, capture_output=True, text=True
        )
        self.assertIn("Ran 9 tests", done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_months_at_the_end_of_a_year(self):
        from schedule.recurring import monthly

        self.assertEqual(monthly(date(2027, 10, 31), 5)[-1], date(2028, 2, 29))
        self.assertEqual(monthly(date(2027, 11, 30), 3), [date(2027, 11, 30), date(2027, 12, 30), date(2028, 1, 30)])

    def test_weekdays_across_a_week(self):
        from schedule.recurring import workdays

        self.assertEqual(workdays(date(2026, 7, 31), 3), [date(2026, 7, 31), date(2026, 8, 3), date(2026, 8, 4)])
        self.assertEqual(workdays(date(2026, 8, 2), 1), [date(2026, 8, 3)])

    def test_intervals_that_only_touch(self):
        from schedule.intervals import merged

        self.assertEqual(merged([(5, 9), (1, 2), (2, 4), (8, 12)]), [(1, 4), (5, 12)])
        self.assertEqual(merged([(1, 10), (2, 3)]), [(1, 10)])


def reward() -> float:
    """The share of the tests that pass."""
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName("__main__"))
    return 1 - len(result.failures + result.errors) / result.testsRun


if __name__ == "__main__":
    Path("/logs/verifier/reward.txt").write_text(f"{reward()}\n")
