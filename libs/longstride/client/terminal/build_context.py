"""The folder that a Dockerfile copies from."""

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from longstride.client.terminal.content import text_of

ALWAYS_LEFT_OUT = (".dockerignore", "Dockerfile", "docker-compose.yaml", "docker-compose.yml")
MOST_OF_PART = 255
"""Characters of one, and of a line of ``.dockerignore``: no file has a longer name, and Python looks for the end of each ``[`` through all that follows it."""
MOST_PARTS = 64
"""Folders above each other in a pattern."""
MOST_PATTERNS = 500
"""Of ``.dockerignore``: each file is held against each of them."""


class ContextProblem(ValueError):
    """A source cannot be copied; the text says why."""


@dataclass(frozen=True)
class BuildContext:
    """``environment/`` of a task, or what ``build: context:`` names."""

    folder: Path
    hidden: tuple[str, ...] = ()
    """Paths that the agent must not see: the tests and the solution of a task whose context is its own folder."""

    def find(self, source: str) -> list[Path]:
        """The files and directories that a source names; it may be a pattern.

        Raises:
            ContextProblem: it names nothing, or something outside.
        """
        inside = source.strip("/") if source.startswith("/") else source
        if ".." in PurePosixPath(inside).parts:
            raise ContextProblem(f"{source} lies outside {self.folder}")
        if inside in ("", ".", "./"):
            return [self.folder]
        found = sorted(self._matching(inside.removeprefix("./").rstrip("/")))
        if not found:
            raise ContextProblem(f"there is no {source} in {self.folder}")
        for path in found:
            self._refuse_outside(path)
            self._refuse_hidden(path)
            if not (path.is_file() or path.is_dir()):
                raise ContextProblem(f"{self._name(path)} is no regular file")
        return found

    def _matching(self, pattern: str) -> Iterator[Path]:
        """Docker's patterns end at a slash; without ``**`` no pattern looks at a file twice."""
        parts = PurePosixPath(pattern).parts
        odd = any("**" in part or len(part) > MOST_OF_PART for part in parts)
        if odd or len(parts) > MOST_PARTS or "\0" in pattern:
            raise ContextProblem(f"{pattern[:80]!r} is no path, and no pattern that Docker knows")
        return self.folder.glob(pattern)

    def below(self, directory: Path) -> list[Path]:
        """All files below a directory that are not ignored.

        Raises:
            ContextProblem: a link or another thing that is no file, or a hidden file.
        """
        files = []
        for path in sorted(directory.rglob("*")):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise ContextProblem(f"{self._name(path)} is a link or no regular file: replace it by its content")
            if path.is_file() and not self._ignored(path):
                self._refuse_hidden(path)
                files.append(path)
        return files

    def empty_below(self, directory: Path) -> list[str]:
        """Directories without anything in them, by name."""
        return [self._name(path) for path in sorted(directory.rglob("*")) if path.is_dir() and not any(path.iterdir())]

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _refuse_outside(self, path: Path) -> None:
        """Somebody else's folder must not send files of this machine to a model."""
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise ContextProblem(f"{self._name(path)} is a link that leads outside {self.folder}")

    def _refuse_hidden(self, path: Path) -> None:
        name = self._name(path)
        if any(name == hidden or name.startswith(f"{hidden}/") for hidden in self.hidden):
            raise ContextProblem(f"it would show the agent {name}: copy single files, or name it in .dockerignore")

    def _ignored(self, path: Path) -> bool:
        name = self._name(path)
        if name in ALWAYS_LEFT_OUT:
            return True
        parents = [parent.as_posix() for parent in PurePosixPath(name).parents][:-1]
        ignored = False
        for pattern in self._patterns:
            keep = pattern.startswith("!")
            if any(fnmatch.fnmatchcase(candidate, pattern.lstrip("!")) for candidate in (name, *parents)):
                ignored = not keep
        return ignored

    @cached_property
    def _patterns(self) -> list[str]:
        file = self.folder / ".dockerignore"
        lines = text_of(file, self.folder).splitlines() if file.is_file() else []
        told = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if len(told) > MOST_PATTERNS:
            raise ContextProblem(f".dockerignore has more than {MOST_PATTERNS} patterns")
        if long := next((line for line in told if len(line) > MOST_OF_PART), None):
            raise ContextProblem(f".dockerignore: {long[:80]!r} … has more than {MOST_OF_PART} characters")
        return [line.strip("/").removeprefix("**/").removeprefix("./") for line in told]
