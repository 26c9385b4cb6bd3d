"""``longstride tools``: what an agent may call. Needs no stack."""

import json as jsonlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from longstride.client.cli.mcp import known_tools
from longstride.client.cli.options import Json
from longstride.client.did_you_mean import did_you_mean
from longstride.client.errors import NotFound
from longstride.client.screen.console import cell, say, show, show_json
from longstride.client.screen.program import program
from longstride.client.screen.safe import one_line, safe
from longstride.client.screen.table import table
from longstride.tools.argument import MOST, Argument
from longstride.tools.card import Card, card
from longstride.tools.registry import AnyTool, Registry

EVERY, NAMED = "every task", "by name"


def tools(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="All about this one.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """List the tools that an agent may call, those of MCP servers as they were pinned; with NAME its arguments, effects, limits.

    A task that names no tools gets those of `every task`; the others, and no more than it names, it gets by `run --tool NAME`.

    Examples:

      longstride tools

      longstride tools edit_file

      longstride tools --json | jq '.[] | select(.effects == "unsafe") | .name'
    """
    registry = known_tools()
    if name is not None:
        _show_one(registry, name, json)
    elif json:
        show_json([asdict(card(registry, known)) for known in registry.names])
    else:
        show(_listing([tool for known in registry.names if (tool := registry.get(known))]))
        say(f"all about one: {program()} tools NAME")


def _listing(tools: list[AnyTool]) -> Table:
    grid = table("tool", "given to", "effects", "*what it does")
    for one in sorted(tools, key=lambda one: not one.offered):
        given = EVERY if one.offered else NAMED
        grid.add_row(Text(one.name, "name"), given, one.idempotency, cell(one.spec.description))
    return grid


def _show_one(registry: Registry, name: str, json: bool) -> None:
    if registry.get(name) is None:
        hint = did_you_mean(name, registry.names, f"`{program()} tools` lists them")
        raise NotFound(f"there is no tool {name!r}; {hint}")
    found = card(registry, name)
    if json:
        return show_json(asdict(found))
    show(Text.assemble((found.name, "name"), "  ", (_given(found), "faint")), Text(safe(found.description)), Text())
    show(_beside((Text(label, "faint"), Text(safe(told))) for label, told in _facts(found)))
    show(Text(), Text("arguments" if found.arguments else "it takes no arguments", "strong"))
    show(_beside((Text(f"  {one_line(argument.name)}", "name"), _told(argument)) for argument in found.arguments))
    if len(found.arguments) == MOST:
        show(
            Text(f"  these are the first {MOST}; the whole schema: {program()} tools {one_line(name)} --json", "faint")
        )
    show(Text(), Text("example", "strong"), Text(f"  {jsonlib.dumps(found.example, ensure_ascii=False)}"))
    return None


def _given(found: Card) -> str:
    return "of every task that names no tools" if found.offered else f"for tasks that name it: --tool {found.name}"


def _facts(found: Card) -> Iterator[tuple[str, str]]:
    yield "effects", f"{found.effects}: {found.after_an_interruption}"
    yield "runs", found.runs
    yield "network", found.network
    if found.secrets:
        yield "secrets", f"{', '.join(found.secrets)}, whether the task names them or not"
    limits = "  ".join(f"{name}={value:g}" for name, value in found.limits.items())
    yield "limits", f"{limits}  of one call, unless its task says otherwise" if limits else "the budgets of its task"


def _told(argument: Argument) -> Text:
    """Its type first, its meaning on a line of its own."""
    needed = "required" if argument.required else f"default {_json(argument.default)}"
    if not argument.required and argument.default is None:
        needed = "optional"
    head = "; ".join(filter(None, [f"{argument.type}, {needed}", argument.bounds]))
    told = Text(safe(head), "faint")
    return told.append(f"\n{safe(argument.meaning)}", "default not dim") if argument.meaning else told


def _json(value: Any) -> str:
    return jsonlib.dumps(value, ensure_ascii=False)


def _beside(rows: Iterable[tuple[Text, Text]]) -> Table:
    """Labels, and beside them text that is broken within its own column."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for label, told in rows:
        grid.add_row(label, told)
    return grid
