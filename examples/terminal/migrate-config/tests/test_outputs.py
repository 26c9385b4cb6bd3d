"""The new configuration, rule by rule."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

RELAY = Path("/srv/relay")


class Migrated(unittest.TestCase):
    def setUp(self):
        self.config = json.loads((RELAY / "relay.json").read_text())

    def test_it_is_well_formed(self):
        done = subprocess.run(
            [sys.executable, "check_config.py", "relay.json"], cwd=RELAY, capture_output=True, text=True
        )
        self.assertEqual((done.returncode, done.stdout), (0, "well-formed\n"))

    def test_later_files_win(self):
        self.assertEqual(self.config["listen"], {"host": "10.0.0.5", "port": 2525})

    def test_sizes_and_times_are_numbers(self):
        self.assertEqual(self.config["limits"], {"message_bytes": 26214400, "idle_seconds": 90, "connections": 200})

    def test_routes_keep_their_order_and_the_disabled_go(self):
        self.assertEqual(
            self.config["routes"],
            [
                {
                    "name": "internal",
                    "match": ["corp.example", "lab.example"],
                    "via": "mx1.corp.example:25",
                    "tls": "require",
                },
                {"name": "partners", "match": ["partner.example"], "via": "gw.partner.example:587", "tls": "prefer"},
                {"name": "rest", "match": ["*"], "via": "smart.example:465", "tls": "never"},
            ],
        )

    def test_users_have_roles(self):
        self.assertEqual(self.config["users"], {"ada": ["admin", "send"], "ben": ["send"], "cy": []})

    def test_interpolation_and_defaults(self):
        self.assertEqual(self.config["log"], {"file": "/var/log/relay/mail.txt", "level": "warning", "rotate": True})


def reward() -> float:
    """The share of the tests that pass."""
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName("__main__"))
    return 1 - len(result.failures + result.errors) / result.testsRun


if __name__ == "__main__":
    Path("/logs/verifier/reward.txt").write_text(f"{reward()}\n")
