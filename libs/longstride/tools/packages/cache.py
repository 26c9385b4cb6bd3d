"""Files of packages on the host's disk, under their sha256, and pages for a short while. Processes share it without locks: what has
a name is whole, and was verified."""

import errno
import hashlib
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from longstride.sandbox.egress.served import Unserved
from longstride.tools.packages.listing import SHA256

PAGE_S = 300.0
"""Seconds for which a page is believed."""
ABANDONED_S = 3600.0
"""Age of a part that nobody writes any more: no download takes so long."""
PART = ".part-"
CHUNK = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class PackageCache:
    """One folder."""

    folder: Path
    """Made when it is first needed."""
    most_bytes: int
    """Of all files and pages together, those that are under way counted; what nobody used for longest goes first."""

    def file(self, sha256: str) -> BinaryIO | None:
        """A file that is here; one that does not have this hash any more goes, and counts as absent."""
        path = self._path(sha256)
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return None
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            file.close()
            path.unlink(missing_ok=True)
            return None
        os.utime(file.fileno())
        file.seek(0)
        return file

    def size(self, sha256: str) -> int | None:
        """Bytes of a file that is here."""
        try:
            return self._path(sha256).stat().st_size
        except FileNotFoundError:
            return None

    def keep(self, sha256: str, chunks: Iterable[bytes], what: str) -> BinaryIO:
        """Write a file as it comes, and give it back open.

        Args:
            sha256: what it must have.
            chunks: its bytes.
            what: its name, for complaints.

        Raises:
            Unserved: it is another file, it is too large, or the host's disk is full. Nothing of it is left.
        """
        path = self._path(sha256)
        try:
            kept = self._written(path, sha256, chunks, what)
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise Unserved(507, f"no room is left on the executor's host for {what}: {error.strerror}") from error
        self._make_room(path)
        return kept

    def page(self, name: str) -> bytes | None:
        """What was kept under a name, while it is fresh."""
        path = self._page(name)
        try:
            fresh = 0 <= time.time() - path.stat().st_mtime < PAGE_S
            return path.read_bytes() if fresh else None
        except FileNotFoundError:
            return None

    def keep_page(self, name: str, data: bytes) -> None:
        """For ``PAGE_S``. A full disk costs the next call a request, and no more."""
        path = self._page(name)
        part = self._part(path)
        try:
            part.write_bytes(data)
            part.replace(path)
            self._drop_stale_pages(path.parent)
            self._make_room(path)
        except OSError as error:
            if error.errno not in FULL:
                raise
        finally:
            part.unlink(missing_ok=True)

    def _written(self, path: Path, sha256: str, chunks: Iterable[bytes], what: str) -> BinaryIO:
        """Open: another process may make room as soon as it has its name."""
        part = self._part(path)
        file = part.open("x+b")
        try:
            self._fill(file, sha256, chunks, what)
            part.replace(path)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        finally:
            part.unlink(missing_ok=True)
        return file

    def _fill(self, file: BinaryIO, sha256: str, chunks: Iterable[bytes], what: str) -> None:
        digest, size = hashlib.sha256(), 0
        for chunk in chunks:
            size += len(chunk)
            if size > self.most_bytes:
                raise Unserved(
                    413, f"{what} is larger than the executor's whole cache of packages, {self.most_bytes} bytes"
                )
            digest.update(chunk)
            file.write(chunk)
        if digest.hexdigest() != sha256:
            raise Unserved(
                502, f"{what} is not the file that the index names: its sha256 is {digest.hexdigest()}, not {sha256}"
            )
        file.flush()
        os.fsync(file.fileno())

    def _drop_stale_pages(self, folder: Path) -> None:
        now = time.time()
        for path in folder.iterdir():
            with suppress(FileNotFoundError):
                if not 0 <= now - path.stat().st_mtime <= PAGE_S:
                    path.unlink()

    def _make_room(self, newest: Path) -> None:
        """Below the bound again; what is open stays readable for those who have it."""
        now, entries = time.time(), []
        for path in chain(self._folder("files").iterdir(), self._folder("pages").iterdir()):
            with suppress(FileNotFoundError):
                entries.append((path.stat().st_mtime, path.stat().st_size, path))
        total = sum(size for _, size, _ in entries)
        for used_at, size, path in sorted(entries):
            abandoned = path.name.startswith(PART) and now - used_at > ABANDONED_S
            surplus = total > self.most_bytes and path != newest and not path.name.startswith(PART)
            if abandoned or surplus:
                path.unlink(missing_ok=True)
                total -= size

    def _path(self, sha256: str) -> Path:
        """
        Raises:
            ValueError: a name that is no sha256 could lead out of the folder.
        """
        if not SHA256.fullmatch(sha256):
            raise ValueError(f"{sha256[:100]!r} is not a sha256 in lower-case hexadecimal")
        return self._folder("files") / sha256

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _page(self, name: str) -> Path:
        return self._folder("pages") / f"{name}.json"

    def _part(self, path: Path) -> Path:
        return path.with_name(f"{PART}{uuid4().hex}")
