"""Whether a submission can be a task at all: what its schema alone cannot say. Asked at both ends of the queue."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePosixPath

from longstride.contracts.most import excess
from longstride.contracts.v1.check import CommandCheck
from longstride.contracts.v1.commands import SubmitTask

NAME_BYTES = 255
"""What a file's or folder's name has at the most on every file system in use."""


def objection(submit: SubmitTask, tools: Collection[str]) -> str | None:
    """Why it cannot be carried out whatever the agent does, or ``None``.

    Args:
        submit: what somebody wants.
        tools: the names there are.
    """
    return next(_objections(submit, tools), None)


def _objections(submit: SubmitTask, tools: Collection[str]) -> Iterator[str]:
    if why := excess(submit):
        yield why
    if unknown := [name for name in dict.fromkeys(submit.tools or ()) if name not in tools]:
        yield f"there is no tool {', '.join(map(repr, unknown))}; the tools are {', '.join(tools)}"
    if why := clash([file.path for file in submit.inputs]):
        yield f"inputs: {why}"
    for check in submit.checks:
        if isinstance(check, CommandCheck) and (why := clash([file.path for file in check.files])):
            yield f"files of the check {check.name!r}: {why}"


def clash(paths: Sequence[str]) -> str | None:
    """Why files cannot lie in one folder together, or ``None``."""
    files = set(paths)
    if twice := [path for path in files if paths.count(path) > 1]:
        return f"two files would be {min(twice)!r}"
    for path in sorted(files):
        place = PurePosixPath(path)
        if blocking := [str(folder) for folder in place.parents if str(folder) in files]:
            return f"{blocking[0]!r} would be a file and the folder of {path!r}"
        if any(len(name.encode(errors="surrogatepass")) > NAME_BYTES for name in place.parts):
            return f"{path[:40]!r}… has a name of more than {NAME_BYTES} bytes"
    return None
