"""Whether the packages were installed from the wheels, and the report is what they print."""

import subprocess
import sys
import unittest
from pathlib import Path

APP = Path("/app")
REPORT = "ABACUS      12\nBELLOWS      7\nCALIPER     31\ntotal       50\n"


class Installed(unittest.TestCase):
    def test_the_versions_fit_together(self):
        have = sorted(path.name for path in (APP / "vendor").glob("*.dist-info"))
        self.assertEqual(have, ["inkwell-1.4.0.dist-info", "quire-2.3.1.dist-info"])

    def test_the_packages_can_be_imported(self):
        code = "import inkwell, quire; print(inkwell.__version__, quire.__version__)"
        done = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": "/app/vendor"}, capture_output=True, text=True
        )
        self.assertEqual(done.stdout, "1.4.0 2.3.1\n", done.stderr)


class Reported(unittest.TestCase):
    def test_the_report_is_right(self):
        self.assertEqual((APP / "report.txt").read_text(), REPORT)

    def test_the_program_still_prints_it(self):
        self.assertIn("inkwell>=1.2,<2", (APP / "requirements.txt").read_text())
        done = subprocess.run(
            [sys.executable, "report.py"], cwd=APP, env={"PYTHONPATH": "/app/vendor"}, capture_output=True, text=True
        )
        self.assertEqual(done.stdout, REPORT, done.stderr)


def reward() -> float:
    """The share of the tests that pass."""
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName("__main__"))
    return 1 - len(result.failures + result.errors) / result.testsRun


if __name__ == "__main__":
    Path("/logs/verifier/reward.txt").write_text(f"{reward()}\n")
