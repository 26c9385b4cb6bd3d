"""A small process that outlives a killed executor for a moment, and takes its sandboxes along.

``--die-with-parent`` is not enough: bwrap's first process only asks for it once the sandbox is built, so an executor that is
killed in between leaves one that nobody watches.
"""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = 'read -r word; [ "$word" = done ] || exec "$0" -m longstride.sandbox.warden "$1"'
"""A shell that waits costs a megabyte; Python is only started when there is something to remove."""


class Warden:
    """Waits for the end of this process. It sits in a session of its own, where a terminal's signals do not reach it."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, sys.executable, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """This process ends in good order and has removed everything itself."""
        self._process.communicate(b"done\n")


def main() -> None:
    """Remove what dead owners left below the folder that is named."""
    from longstride.sandbox.scratch import reap

    reap(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
