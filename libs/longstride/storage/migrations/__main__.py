"""``python -m longstride.storage.migrations upgrade`` on the database that LONGSTRIDE_DATABASE_URL names."""

import argparse
import os
import sys

from longstride.storage.errors import StorageError
from longstride.storage.migrations import check, downgrade, upgrade


def main() -> int:
    """Exit code 1: it did not work, or ``check`` found differences."""
    parser = argparse.ArgumentParser(prog="python -m longstride.storage.migrations", description=__doc__)
    parser.add_argument("action", choices=("upgrade", "downgrade", "check"))
    parser.add_argument("--database-url", default=os.environ.get("LONGSTRIDE_DATABASE_URL"))
    chosen = parser.parse_args()
    if not chosen.database_url:
        parser.error("give --database-url or set LONGSTRIDE_DATABASE_URL")
    try:
        return _run(chosen.action, chosen.database_url)
    except (StorageError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _run(action: str, url: str) -> int:
    if action == "check":
        differences = check(url)
        sys.stdout.writelines(f"{difference}\n" for difference in differences)
        return 1 if differences else 0
    upgrade(url) if action == "upgrade" else downgrade(url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
