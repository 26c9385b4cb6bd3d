"""Files of this machine as inputs of a task: small text inside the message, anything else in the artifact store."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from longstride.agent.soundness import clash
from longstride.client.errors import UsageProblem
from longstride.client.working_directory import looked_in
from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.input_file import InputFile

if TYPE_CHECKING:
    from longstride.storage.artifacts import ArtifactStore

INLINE_BYTES = 1024
"""Longer text becomes an object where there is a store, as messages are small."""
MESSAGE_BYTES = 32 * 1024
"""Text that may travel inside the message where there is no store."""
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine, and where the task has it."""

    source: Path
    path: str
    """Relative to the workspace, or to a check's own folder."""
    executable: bool = False


class InputFiles:
    """Reads and, where needed, uploads."""

    def __init__(self, artifacts: "ArtifactStore | None", session: str, most_mb: int) -> None:
        """``most_mb``: mebibytes that the task's workspace holds."""
        self._artifacts, self._session, self._most = artifacts, session, most_mb * MEBIBYTE

    def of(self, arguments: list[str]) -> tuple[InputFile, ...]:
        """``["orders.csv", "data/a.bin:raw/a.bin"]``: each a file, and after a colon where the workspace has it.

        Raises:
            UsageProblem: a file that is missing, no file, unreadable or too large, or two that cannot both be there.
        """
        return self.laid([_split(argument) for argument in arguments])

    def laid(self, files: Sequence[LocalFile]) -> tuple[InputFile, ...]:
        """Files that are known to be files, each at its place.

        Raises:
            UsageProblem: as ``of``.
        """
        self.require(files)
        return tuple(map(self._input, files))

    def require_all(self, arguments: list[str]) -> None:
        """Everything that can be known of ``of`` without reading or uploading.

        Raises:
            UsageProblem: as ``of``.
        """
        self.require([_split(argument) for argument in arguments])

    def require(self, files: Sequence[LocalFile]) -> None:
        """As ``require_all``, for ``laid``."""
        total = sum(_size(file.source) for file in files)
        if total > self._most:
            raise UsageProblem(
                f"the inputs are {total / MEBIBYTE:.1f} MiB together; a workspace holds {self._most // MEBIBYTE} MiB"
                " (--disk MB gives it more)"
            )
        if why := clash([_checked(file.path, text="").path for file in files]):
            raise UsageProblem(f"inputs: {why}; name another place: FILE:path")

    def _input(self, file: LocalFile) -> InputFile:
        source, path = file.source, file.path
        try:
            data = source.read_bytes()
        except OSError as error:
            raise UsageProblem(f"input {str(source)!r} cannot be read: {error.strerror}") from error
        text = _text(data)
        if text is not None and len(data) <= (MESSAGE_BYTES if self._artifacts is None else INLINE_BYTES):
            return _checked(path, text=text, executable=file.executable)
        if self._artifacts is None:
            what = f"is {len(data):,} bytes" if text is not None else "is binary"
            raise UsageProblem(
                f"input {str(source)!r} {what} and needs an artifact store: set LONGSTRIDE_S3_ENDPOINT, _ACCESS_KEY,"
                " _SECRET_KEY and _BUCKET"
            )
        media_type = "application/octet-stream" if text is None else "text/plain"
        ref = self._uploaded(self._artifacts, data, media_type)
        return _checked(path, ref=ref, executable=file.executable)

    def _uploaded(self, artifacts: "ArtifactStore", data: bytes, media_type: str) -> ArtifactRef:
        from longstride.client.failures import translated

        try:
            with translated():
                return artifacts.put(data, session=self._session, kind="input", media_type=media_type)
        except ValueError as error:
            raise UsageProblem(str(error)) from error


def _split(argument: str) -> LocalFile:
    whole = Path(argument)
    name, colon, place = argument.rpartition(":")
    if not colon or _exists(whole):
        return LocalFile(whole, whole.name)
    return LocalFile(Path(name), place)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file system takes
        return False


def _size(source: Path) -> int:
    if not _exists(source):
        raise UsageProblem(f"input {str(source)!r} does not exist ({looked_in()})")
    if not source.is_file():
        raise UsageProblem(f"input {str(source)!r} is not a file; name each file with an --input of its own")
    return source.stat().st_size


def _checked(path: str, **content: object) -> InputFile:
    try:
        return InputFile.model_validate({"path": path, **content})
    except ValueError as error:
        raise UsageProblem(f"{path!r} cannot be a place in the workspace: give a relative path without '..'") from error


def _text(data: bytes) -> str | None:
    """UTF-8 without NUL, which neither JSON columns nor people can take; else ``None``."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
