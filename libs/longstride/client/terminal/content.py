"""What the files of a task's folder say. The folder may be a stranger's: nothing outside it is read, and of a file no more than
a person would have written."""

from importlib import import_module
from pathlib import Path
from typing import Any

from longstride.client.errors import UsageProblem

MOST_BYTES = 256 * 1024
"""Of a file that is read as text."""
MOST_NODES = 20_000
"""Values of a YAML file, those that its aliases repeat counted each time: ten lines of aliases can stand for billions."""


def is_inside(path: Path, folder: Path) -> bool:
    """Whether it is, once links are followed: they may lead about in the folder, and not to other files of this machine."""
    return path.resolve().is_relative_to(folder.resolve())


def text_of(path: Path, folder: Path) -> str:
    """A text file that lies in the folder.

    Raises:
        UsageProblem: it leads outside, is no file, is too large, or is no text.
    """
    if not is_inside(path, folder):
        raise UsageProblem(f"{path} is a link that leads outside the folder: replace it by its content")
    if path.exists() and not path.is_file():
        raise UsageProblem(f"{path} is no regular file: replace it by its content")
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UsageProblem(f"{path} has more than {MOST_BYTES >> 10} KiB, too many for a file that people write")
        return data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageProblem(f"{path} cannot be read: {error}") from error


def yaml_of(path: Path, folder: Path) -> Any:
    """A YAML file.

    Raises:
        UsageProblem: as ``text_of``; it is not YAML, too large once its aliases are followed, or PyYAML is not installed.
    """
    try:
        yaml = import_module("yaml")
    except ImportError as error:
        raise UsageProblem(
            f"reading {path.name} needs PyYAML: `pip install pyyaml`, or use Harbor's task.toml"
        ) from error
    text = text_of(path, folder)
    try:
        _require_bounded(yaml.compose(text, yaml.SafeLoader), path)
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageProblem(f"{path} is not YAML: {error}") from error


def _require_bounded(root: Any, path: Path) -> None:
    """Counts as one who follows each alias would, and so ends where an alias leads in a circle."""
    waiting, seen = [root], 0
    while waiting:
        found = waiting.pop()
        seen += 1
        if seen > MOST_NODES:
            raise UsageProblem(f"{path} has more than {MOST_NODES} values once its aliases are followed")
        if isinstance(found, tuple):  # a key and its value
            waiting += found
        elif found is not None and isinstance(found.value, list):
            waiting += found.value[: MOST_NODES + 1]
