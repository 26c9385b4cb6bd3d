"""A user namespace that is made by the one who will live in it.

The kernel counts some things (inotify instances, keys, further namespaces) against whoever made a user namespace, too. One that
root makes would let each sandbox use up root's share.
"""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from longstride.sandbox.base import Owner
from longstride.sandbox.errors import SandboxFailed

SCRIPT = "echo; exec cat"
"""Tells that it is there, and holds it until nobody holds the other end of its input."""
Range = tuple[int, int]
"""(id inside, id on the host)."""


class UserNamespace:
    """Held by a process that waits, until it is released; whoever joined keeps it from then on."""

    def __init__(self, owner: Owner, uids: Iterable[Range], gids: Iterable[Range], env: Mapping[str, str]) -> None:
        """
        Args:
            owner: makes it.
            uids: user ids in it.
            gids: group ids in it.
            env: of the process that holds it.

        Raises:
            SandboxFailed: it cannot be made; the text says why.
        """
        ids = ["--reuid", str(owner.uid), "--regid", str(owner.gid), "--clear-groups", "--no-new-privs"]
        self._process = subprocess.Popen(
            ["setpriv", *ids, "unshare", "--user", "/bin/sh", "-c", SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**env, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            cwd="/",
            bufsize=0,
        )
        assert self._process.stdout is not None
        if self._process.stdout.read(1) != b"\n":
            assert self._process.stderr is not None
            said = self._process.stderr.read().decode(errors="replace").strip()
            self.release()
            raise SandboxFailed(f"no user namespace can be made: {said}")
        self.path = Path(f"/proc/{self._process.pid}/ns/user")
        for name, ranges in (("uid_map", uids), ("gid_map", gids)):
            lines = "".join(f"{inside} {outside} 1\n" for inside, outside in ranges)
            Path(f"/proc/{self._process.pid}/{name}").write_text(lines)

    def release(self) -> None:
        """Let it go; a second call does nothing."""
        self._process.communicate()
