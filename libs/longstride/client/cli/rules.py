"""``longstride rules``: what the tasks of a tenant and agent definition may do with tools."""

import contextlib
import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from longstride.client import person
from longstride.client.cli.options import Json
from longstride.client.connect import connect
from longstride.client.errors import NotFound, UsageProblem
from longstride.client.port import DEFAULT_TENANT
from longstride.client.screen import units
from longstride.client.screen.console import cell, say, show, show_json
from longstride.client.screen.table import table
from longstride.contracts.envelope import explain
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.tool_rules import ToolRules
from longstride.storage.tool_rules import StoredRules

DEFAULT_AGENT = "default"
File = Annotated[str, typer.Argument(metavar="FILE", help="The rules as JSON; - reads them from stdin.")]
Tenant = Annotated[str, typer.Option("--tenant", metavar="NAME", help="Whose tasks.")]
Agent = Annotated[str, typer.Option("--agent", metavar="NAME", help="Of which agent definition.")]

app = typer.Typer(
    help="Rules on tools: which may be called, which calls need a person, how often, and what is taken out of their output.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("list")
def list_rules(
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Of this tenant alone (all).")] = None,
    json: Json = False,
) -> None:
    """List the agent definitions that have rules."""
    with connect(say) as deployment, deployment.reader.transaction() as uow:
        found = uow.tool_rules.list(tenant)
    if json:
        show_json([_document(stored) for stored in found])
        return None
    if not found:
        return say("nobody has set rules: every tool may be called")
    grid = table("tenant", "agent", ">version", "by", ">age")
    for stored in found:
        names = (cell(stored.tenant), cell(stored.agent), str(stored.version), cell(stored.set_by))
        grid.add_row(*names, units.ago(stored.set_at))
    return show(grid)


@app.command("show")
def show_rules(agent: Agent = DEFAULT_AGENT, tenant: Tenant = DEFAULT_TENANT, json: Json = False) -> None:
    """Print the rules that hold for new tasks, as a file for `set`."""
    with connect(say) as deployment, deployment.reader.transaction() as uow:
        stored = uow.tool_rules.latest(tenant, agent)
    if stored is None:
        raise NotFound(f"tenant {tenant!r} has set no rules for agent {agent!r}")
    if not json:
        say(f"version {stored.version}, set by {stored.set_by} {units.ago(stored.set_at)} ago")
    show_json(_document(stored) if json else stored.rules)


@app.command("set")
def set_rules(file: File, agent: Agent = DEFAULT_AGENT, tenant: Tenant = DEFAULT_TENANT, json: Json = False) -> None:
    """Set rules for the tasks that are accepted from now on; those that run keep theirs.

    An agent other than `default` exists once it has rules: `longstride run --agent NAME`.
    """
    rules = _read(file)
    with connect(say) as deployment, deployment.reader.transaction() as uow:
        stored = uow.tool_rules.set(tenant, _agent(agent), rules, person.name())
    show_json(_document(stored)) if json else show(f"{tenant}/{agent}  version {stored.version}")


@app.command()
def check(
    file: File,
    call: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='Also say what they mean for a call: {"tool": …, "arguments": {…}}.'),
    ] = None,
    json: Json = False,
) -> None:
    """Say whether a file holds rules that can be set, and what they mean for a call."""
    rules = _read(file)
    ruling = _ruling(rules, call) if call is not None else None
    if json:
        show_json({"sound": True, "ruling": ruling})
    else:
        show(f"{ruling[0]}: {ruling[1]}" if ruling and ruling[1] else ruling[0] if ruling else "these rules can be set")


def _ruling(rules: ToolRules, call: str) -> tuple[str, str]:
    from longstride.agent.tool_rules import Denied, NeedsApproval, rule

    _require_single_keys("--call", call)
    try:
        action = Action.model_validate_json(call)
    except ValidationError as error:
        raise UsageProblem(f"--call is not a call: {explain(error, 'it')}") from error
    ruling = rule(action, rules, calls=0)
    if isinstance(ruling, Denied):
        return "denied", ruling.reason
    if why := _unfit(action):
        return "invalid", why
    return ("needs approval", ruling.question) if isinstance(ruling, NeedsApproval) else ("allowed", "")


def _unfit(action: Action) -> str | None:
    """Why no executor would carry the call out, whatever the rules say."""
    from longstride.client.cli.mcp import known_tools
    from longstride.tools.tool import InvalidArguments

    tools = known_tools()
    tool = tools.get(action.tool)
    if tool is None:
        return f"there is no tool {action.tool!r}; the tools are {', '.join(tools.names)}"
    try:
        tool.parse(action.arguments)
    except InvalidArguments as error:
        return str(error)
    return None


def _read(file: str) -> ToolRules:
    """The rules in a file.

    Raises:
        UsageProblem: they cannot hold; each reason is a sentence.
    """
    from longstride.agent.tool_rules import faults, too_large
    from longstride.client.cli.mcp import known_tools

    text = sys.stdin.read() if file == "-" else _text(Path(file))
    _require_single_keys(file, text)
    try:
        rules = ToolRules.model_validate_json(text)
    except ValidationError as error:
        raise UsageProblem(f"{file}: {explain(error, 'it')}") from error
    tools = known_tools()
    schemas = {spec.name: spec.parameters for spec in tools.specs(tools.names)}
    if why := [*faults(rules, tools.names, schemas), *too_large(rules)]:
        raise UsageProblem(f"{file}: {'; '.join(why)}")
    return rules


def _require_single_keys(name: str, text: str) -> None:
    """Of a key that is there twice JSON's readers take one, and do not say which.

    Raises:
        UsageProblem: there is one.
    """

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            beside = ", ".join(f"{key} = {value!r:.40}" for key, value in pairs)
            raise UsageProblem(f"{name}: {twice!r} is given twice in one object ({beside}): keep one")
        return dict(pairs)

    with contextlib.suppress(ValueError, RecursionError):  # no JSON: told of with its place by whoever reads it next
        jsonlib.loads(text, object_pairs_hook=checked)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageProblem(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}"
        ) from error


def _agent(name: str) -> str:
    from pydantic import TypeAdapter

    from longstride.contracts.v1.commands import AgentName

    try:
        return TypeAdapter(AgentName).validate_python(name)
    except ValidationError as error:
        raise UsageProblem(f"{name!r} is no name of an agent: lower case letters, digits, - and _") from error


def _document(stored: StoredRules) -> dict[str, Any]:
    about = {"tenant": stored.tenant, "agent": stored.agent, "version": stored.version}
    return {**about, "set_by": stored.set_by, "set_at": stored.set_at, "rules": stored.rules}
