"""From a container's paths to a workspace's: the working directory is the workspace, other places are linked into it."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from longstride.client.input_files import LocalFile
from longstride.contracts.v1.environment import WORKSPACE, placed

ROOT = PurePosixPath("/")
ELSEWHERE = ".elsewhere"
"""Where the workspace keeps files whose place is outside the working directory."""
TAKEN = ("/logs", "/solution", "/tests")
"""The harness shows its own things there."""

DEEPEST = 128


class PlaceRefused(ValueError):
    """A sandbox cannot show anything at this path; the text says why."""


@dataclass
class Places:
    """Which file lies where."""

    workdir: PurePosixPath = ROOT
    """Where the agent starts."""
    _current: PurePosixPath = ROOT
    """Where the Dockerfile is."""
    _files: dict[PurePosixPath, LocalFile] = field(default_factory=dict)
    """Not yet taken."""
    _places: set[PurePosixPath] = field(default_factory=set)
    """Of all files and claimed directories."""
    _claimed: set[PurePosixPath] = field(default_factory=set)
    _directories: set[PurePosixPath] = field(default_factory=set)

    def accepted(self, path: PurePosixPath) -> PurePosixPath:
        """A place that a sandbox can show.

        Raises:
            PlaceRefused: it cannot.
        """
        if path == PurePosixPath(WORKSPACE):
            return path
        if any(path.is_relative_to(taken) for taken in TAKEN):
            raise PlaceRefused(f"{path}: /{path.parts[1]} is where the tests, the solution or their logs are shown")
        try:
            return PurePosixPath(placed(str(path)))
        except ValueError as error:
            raise PlaceRefused(f"{error}: use another directory, such as /app") from error

    def enter(self, path: str) -> None:
        """``WORKDIR``."""
        self._current = self._absolute(path)
        self._directories.add(self._current)

    def make(self, path: str) -> None:
        """A directory, which is there as soon as a file is in it."""
        self._directories.add(self._absolute(path))

    def put(self, source: Path, target: str, executable: bool) -> None:
        """Lay a file; a later one at the same place wins.

        Raises:
            PlaceRefused: a sandbox cannot show this place.
        """
        at = self._absolute(target)
        inside = str(self._inside(at))
        self._files[at] = LocalFile(source, inside, executable or bool(source.stat().st_mode & 0o111))
        self._places.add(at)
        self._directories.update(at.parents)

    def is_inside(self, path: str) -> bool:
        """Whether it is below the working directory, where that is not the root of all."""
        return self.workdir != ROOT and self._absolute(path).is_relative_to(self.workdir)

    def claim(self, path: str) -> None:
        """A directory that is there before any step, and that steps may write to. Where a sandbox cannot show it, it is not."""
        at = self._absolute(path)
        if at == ROOT or self.workdir.is_relative_to(at):
            return
        with suppress(PlaceRefused):
            self._inside(at)
            self._places.add(at)
            self._claimed.add(at)

    def take(self) -> tuple[LocalFile, ...]:
        """The files that were laid since the last time."""
        taken, self._files = tuple(self._files.values()), {}
        return taken

    def make_executable(self, path: str) -> bool:
        """Whether there are such files; a pattern may name several."""
        pattern = str(self._absolute(path))
        found = [at for at in self._files if at.match(pattern)]
        for at in found:
            self._files[at] = replace(self._files[at], executable=True)
        return bool(found)

    def is_directory(self, path: str) -> bool:
        """Whether a copied file would go into it."""
        return self._absolute(path) in self._directories

    def is_workdir(self, path: str) -> bool:
        """Whether the agent starts there."""
        return self._absolute(path) == self.workdir

    @property
    def current(self) -> str:
        """Where the Dockerfile is, as a sandbox has it: the root is the workspace where that is all there is."""
        return WORKSPACE if self._current == self.workdir == ROOT else str(self._current)

    @property
    def claimed(self) -> tuple[str, ...]:
        """Directories that must be there, relative to the workspace."""
        return tuple(sorted(str(self._inside(at)) for at in self._claimed))

    @property
    def links(self) -> dict[str, str]:
        """What has to be linked, path → target."""
        links = {}
        if self.workdir not in (ROOT, PurePosixPath(WORKSPACE)):
            links[str(self.workdir)] = WORKSPACE
        for top in sorted(set(self._outside())):
            links[str(top)] = f"{WORKSPACE}/{self._inside(top)}"
        return links

    def _outside(self) -> Iterator[PurePosixPath]:
        """The uppermost directories, or files, that are not below the working directory.

        Raises:
            PlaceRefused: one of them also holds the working directory.
        """
        for at in self._places:
            if at.is_relative_to(self.workdir) and len(self.workdir.parts) > 1:
                continue
            top = PurePosixPath(*at.parts[: 3 if at.parts[1] in ("home", "var") and len(at.parts) > 2 else 2])
            if len(self.workdir.parts) > 1 and self.workdir.is_relative_to(top):
                top = PurePosixPath(*at.parts[: len(_shared(at, self.workdir)) + 1])
            yield top

    def _inside(self, at: PurePosixPath) -> PurePosixPath:
        if at.is_relative_to(self.workdir):
            inside = at.relative_to(self.workdir)
            if len(self.workdir.parts) > 1:
                return inside
        self.accepted(at)
        inside = at.relative_to("/")
        return inside if len(self.workdir.parts) == 1 else ELSEWHERE / inside

    def absolute(self, path: str) -> str:
        """A path from where the Dockerfile is."""
        return str(self._absolute(path))

    def _absolute(self, path: str) -> PurePosixPath:
        parts: list[str] = []
        for part in shallow(self._current / path).parts[1:]:
            if part == "..":
                del parts[-1:]
            else:
                parts.append(part)
        return PurePosixPath("/", *parts)


def shallow(path: PurePosixPath) -> PurePosixPath:
    """The path.

    Raises:
        PlaceRefused: it has more folders above each other than anybody needs.
    """
    if len(path.parts) > DEEPEST:
        raise PlaceRefused(f"{str(path)[:80]}… has more than {DEEPEST} folders above each other")
    return path


def _shared(one: PurePosixPath, other: PurePosixPath) -> list[str]:
    """The first parts that both paths have."""
    shared = []
    for mine, theirs in zip(one.parts, other.parts, strict=False):
        if mine != theirs:
            break
        shared.append(mine)
    return shared
