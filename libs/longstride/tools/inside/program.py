"""Our own programs, as commands that run inside a sandbox, where nothing of Longstride is."""

from dataclasses import dataclass
from pathlib import Path

from longstride.sandbox.base import SUPPORT

PACKAGE = "longstride.tools.inside"
FOLDER = "code"
"""In the support folder."""
START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from importlib import import_module; "
    "sys.exit(import_module(sys.argv.pop(1)).main())"
)


@dataclass(frozen=True, slots=True)
class Program:
    """A module with a ``main`` that returns the exit code, and those that it imports."""

    name: str
    parts: tuple[str, ...] = ()

    def argv(self, *arguments: str) -> tuple[str, ...]:
        """The command."""
        return ("python3", "-I", "-S", "-c", START, f"{SUPPORT}/{FOLDER}", f"{PACKAGE}.{self.name}", *arguments)

    @property
    def files(self) -> dict[str, bytes]:
        """What the support folder must hold."""
        folder = f"{FOLDER}/{PACKAGE.replace('.', '/')}"
        return {f"{folder}/{name}.py": _source(name) for name in (self.name, *self.parts)}


def _source(name: str) -> bytes:
    return Path(__file__).with_name(f"{name}.py").read_bytes()
