"""``longstride diff``: what changed in a task's workspace between two steps."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.text import Text

from longstride.client.cli.options import Json, TaskId
from longstride.client.connect import connect
from longstride.client.screen import units
from longstride.client.screen.console import say, show, show_json
from longstride.client.screen.safe import one_line, safe
from longstride.client.step_state import readable, step_states
from longstride.client.workspace_diff import Difference, differences
from longstride.sandbox.manifest import Entry, FileEntry

STYLES = {"+": "good", "-": "bad", "@": "name", "\\": "faint"}


def diff(
    task: TaskId,
    before: Annotated[int, typer.Argument(metavar="STEP", min=0, help="The state after this step; 0: the inputs.")],
    after: Annotated[
        int | None, typer.Argument(metavar="STEP", min=0, help="And after this one (the last).", show_default=False)
    ] = None,
    stat: Annotated[bool, typer.Option("--stat", help="A line for each file, not what changed in it.")] = False,
    json: Json = False,
) -> None:
    """Show what changed in a task's workspace between two steps. Times of files do not count.

    Examples:

      longstride diff 3f9a12bc 3 7

      longstride diff 3f9a12bc 0 --stat

      longstride diff 3f9a12bc 3 7 --json | jq -r '.changes[].path'
    """
    with connect(say) as deployment:
        head = deployment.reader.find(task)
        one, other = step_states(deployment, head, before, after)
        with readable():
            found = list(differences(one, other))
    if json:
        show_json({"task": head.id, "from": one.step, "to": other.step, "changes": [each.document() for each in found]})
    elif not found:
        say(f"nothing changed in the workspace of {units.short(head.id)} between steps {one.step} and {other.step}")
    elif stat:
        show(*_stat(found))
    else:
        show(*(line for each in found for line in _whole(each)))


def _whole(each: Difference) -> Iterator[Text]:
    yield Text(f"{each.kind} {_name(each)}", "strong")
    if isinstance(each.before, FileEntry) and isinstance(each.after, FileEntry) and each.before.mode != each.after.mode:
        yield Text(f"mode {each.before.mode:03o} → {each.after.mode:03o}", "mend")
    if each.lines is None:
        yield Text(f"contents differ: {_what(each.before)} → {_what(each.after)}", "mend")
    elif not each.lines and not (isinstance(each.before, FileEntry) and isinstance(each.after, FileEntry)):
        yield Text(f"{_what(each.before)} → {_what(each.after)}", "mend")
    for line in each.lines or ():
        yield Text(safe(line.removesuffix("\n")), STYLES.get(line[0], ""))
    yield Text()


def _stat(found: Sequence[Difference]) -> Iterator[Text]:
    width = min(max(len(_name(each)) for each in found), 80)
    for each in found:
        told = Text(f"{_name(each):<{width}}  ", "name")
        if each.lines:
            told.append(f"+{each.added}", "good").append(f" -{each.removed}", "bad")
        else:
            told.append(f"{_what(each.before)} → {_what(each.after)}", "mend")
        yield told
    added, removed = sum(each.added for each in found), sum(each.removed for each in found)
    yield Text(f"{len(found)} paths, +{added} -{removed} lines", "faint")


def _name(each: Difference) -> str:
    return one_line(each.path)


def _what(entry: Entry | None) -> str:
    """An entry in a few words."""
    if isinstance(entry, FileEntry):
        return f"{units.size(entry.size)}, mode {entry.mode:03o}"
    if isinstance(entry, str):
        return f"link to {one_line(entry)}"
    return "nothing" if entry is None else f"directory, mode {entry:03o}"
