"""What one call of ``bash`` leaves to the next: a script in the workspace, and so a part of every snapshot."""

import errno
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from longstride.contracts.v1.environment import WORKSPACE
from longstride.sandbox.files import FileRefused, WorkspaceFiles
from longstride.tools.shell_dump import DumpIncomplete, parts_of

FOLDER = ".longstride"
IGNORE, STATE, DUMP = f"{FOLDER}/.gitignore", f"{FOLDER}/bash", f"{FOLDER}/bash.dump"
MAX_BYTES = 1 << 20
DUMPED_BYTES = 8 << 20
"""A dump holds each value twice, and what is not kept, too."""
UNCHANGED = "it is as it was before this call: "
HEAD = b"# longstride bash state 1 "
RESTART = f"call bash with restart set to start a new shell, or lay {STATE} as it was"


class StateUnusable(ValueError):
    """The last call's state cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class ShellState:
    """The state in one open workspace."""

    files: WorkspaceFiles

    def load(self) -> bytes | None:
        """The script; ``None``: there is none yet.

        Raises:
            StateUnusable: it is not as it was written.
        """
        try:
            content = self.files.read(STATE, MAX_BYTES + 1).data
        except FileRefused as refused:
            if isinstance(refused.__cause__, FileNotFoundError):
                return None
            raise StateUnusable(f"the shell's state cannot be read: {refused}: {RESTART}") from refused
        head, _, script = content.partition(b"\n")
        if head != _head(script):
            raise StateUnusable(f"the shell's state in {WORKSPACE}/{STATE} was changed or is damaged: {RESTART}")
        return script

    def prepare(self, *, restart: bool) -> None:
        """Make the folder; a ``restart`` forgets the state.

        Raises:
            StateUnusable: something is in its place.
            OSError: ENOSPC where the workspace is full.
        """
        try:
            for stale in (DUMP, *((STATE,) if restart else ())):
                self.files.remove(stale)
            if not self._is(IGNORE, b"*\n"):
                self.files.write(IGNORE, b"*\n")
        except FileRefused as refused:
            raise StateUnusable(f"the shell's state has no place: {refused}. Move it away") from refused

    def take(self, secrets: Mapping[str, bytes]) -> list[str]:
        """Make what the shell dumped the state; returns sentences for the agent, none when all is well.

        Raises:
            OSError: other than ENOSPC.
        """
        try:
            dump = self.files.read(DUMP, DUMPED_BYTES).data
            self.files.remove(DUMP)
            parts = parts_of(dump)
        except (FileRefused, DumpIncomplete):
            return [UNCHANGED + "the shell did not come to its end"]
        held = {part.what: name for part in parts if (name := part.secret(secrets))}
        script = b"\n".join(part.script for part in parts if part.what not in held) + b"\n"
        if len(script) > MAX_BYTES:
            return [f"{UNCHANGED}it has {len(script)} bytes now, and {MAX_BYTES} are the most: unset what is large"]
        return self._store(script) or [f"{what} is not kept: it holds secret {name}" for what, name in held.items()]

    def _store(self, script: bytes) -> list[str]:
        """Unchanged, it is not written, so that the workspace is unchanged, too."""
        content = _head(script) + b"\n" + script
        if self._is(STATE, content):
            return []
        try:
            before = self._read(STATE)
            self.prepare(restart=False)
            return self._replace(before, content)
        except (FileRefused, StateUnusable) as refused:
            return [f"{UNCHANGED}{refused}"]

    def _replace(self, before: bytes | None, content: bytes) -> list[str]:
        try:
            self.files.write(STATE, content)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if before is None:
                self.files.remove(STATE)
            else:
                self.files.write(STATE, before)
            return [UNCHANGED + "the workspace is full"]
        return []

    def _read(self, path: str) -> bytes | None:
        try:
            return self.files.read(path, MAX_BYTES + 1024).data
        except FileRefused:
            return None

    def _is(self, path: str, content: bytes) -> bool:
        return self._read(path) == content


def _head(script: bytes) -> bytes:
    return HEAD + hashlib.sha256(script).hexdigest().encode()
