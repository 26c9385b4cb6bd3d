"""``longstride mcp``: MCP servers whose tools agents may call, and what was pinned of each."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from longstride.client.cli.allowed_hosts import rule
from longstride.client.cli.exit_codes import FAILED
from longstride.client.cli.options import Json
from longstride.client.embedded_stack import EmbeddedStack
from longstride.client.errors import ClientError, NotFound, UsageProblem
from longstride.client.port import DEFAULT_TENANT
from longstride.client.screen import units
from longstride.client.screen.console import cell, say, show, show_json
from longstride.client.screen.table import table
from longstride.client.settings import load
from longstride.contracts.envelope import explain
from longstride.sandbox.errors import SandboxError
from longstride.tools.mcp.catalogue import Catalogue, CatalogueUnusable, Server, read, read_renewing, write
from longstride.tools.mcp.listing import Listing, called, changes

if TYPE_CHECKING:
    from longstride.tools.registry import Registry

Name = Annotated[str, typer.Argument(metavar="NAME", help="The server's name; its tools are called NAME__tool.")]
Backend = Annotated[str, typer.Option("--backend", metavar="NAME", help="The sandbox that it is started in here.")]
Tenant = Annotated[str, typer.Option("--tenant", metavar="NAME", help="Whose secrets it is started with here.")]
Many = list[str] | None

SHOWN = 300
"""Characters of what a tool said of itself, before and after."""

NO_SERVERS = "no MCP servers; `longstride mcp add` adds one"

app = typer.Typer(
    help="MCP servers as tools: programs that are started in a sandbox for each call, and held to the tools they once listed.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def add(
    name: Name,
    command: Annotated[
        Many, typer.Argument(metavar="-- COMMAND ARG…", help="How it is started; absent: as it was added before.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Show it this folder of the executor's host, read-only; ${folder} in COMMAND is its place.",
        ),
    ] = None,
    env: Annotated[
        Many,
        typer.Option(metavar="NAME=VALUE", help="A variable; ${secret:NAME} is a secret's value. Repeat for more."),
    ] = None,
    secret: Annotated[Many, typer.Option(metavar="NAME", help="A secret of the tenant that it needs. Repeat.")] = None,
    allow_host: Annotated[
        Many, typer.Option(metavar="HOST[:PORT,…]", help="What it may reach. Repeat. Default: no network.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="For a whole call (60).")] = None,
    idempotency: Annotated[
        str | None,
        typer.Option(
            metavar="unsafe|keyed|pure", help="Whether an interrupted call may be made again unasked (unsafe)."
        ),
    ] = None,
    only: Annotated[Many, typer.Option(metavar="TOOL", help="Offer this of its tools. Repeat. Default: all.")] = None,
    backend: Backend = "bubblewrap",
    tenant: Tenant = DEFAULT_TENANT,
    json: Json = False,
) -> None:
    """Start a server once in a sandbox, and pin the tools that it lists: agents are offered these and no others.

    Without COMMAND the server is pinned again as it was added. Services read the file when they start.

    Example:

      longstride mcp add notes --folder /srv/notes -- python3 '${folder}/server.py'
      longstride run "Sum up my notes." --tool notes__search --tool submit
    """
    path = load().mcp_servers
    fields = {
        "folder": folder and folder.expanduser().absolute(),
        "env": dict(map(_variable, env)) if env else None,
        "secrets": secret,
        "egress": {"rules": list(map(rule, allow_host))} if allow_host else None,
        "timeout_s": timeout,
        "idempotency": idempotency,
        "tools": only,
    }
    with _told():
        catalogue = _catalogue(path, name)
        before = catalogue.servers.get(name)
        server = _server(name, before, command, {key: value for key, value in fields.items() if value is not None})
        pinned = server.model_copy(update={"pinned": _surveyed(name, server, backend, tenant)})
        _keep(path, catalogue, name, pinned)
    _tell_added(path, name, before, pinned, json=json)


@app.command("list")
def list_servers(json: Json = False) -> None:
    """List the servers."""
    with _told():
        servers = _catalogue(load().mcp_servers).servers
    if json:
        return show_json([{"name": name, **_document(server)} for name, server in servers.items()])
    if not servers:
        return say(NO_SERVERS)
    grid = table("server", ">tools", "idempotency", ">pinned", "*command")
    for name, server in servers.items():
        age = units.ago(server.pinned.at) if server.pinned else "never"
        count = str(len(_names(name, server)))
        grid.add_row(cell(name), count, server.idempotency, age, cell(" ".join((server.command, *server.args))))
    return show(grid)


@app.command("show")
def show_server(name: Name, json: Json = False) -> None:
    """Print a server's entry and the tools that were pinned."""
    with _told():
        server = _known(_catalogue(load().mcp_servers), name)
    if json or server.pinned is None:
        return show_json(_document(server))
    said, pinned = server.model_dump(mode="json", exclude_defaults=True, exclude={"pinned"}), server.pinned
    show_json(said)
    show(f"pinned {units.ago(pinned.at)} ago: {pinned.server}, protocol {pinned.protocol}, sha256 {pinned.sha256}")
    for tool in pinned.tools:
        offered = server.tools is None or tool.name in server.tools
        show(f"\n{called(name, tool.name)}{'' if offered else '  (not offered)'}", tool.description)
        show_json(tool.model_dump(mode="json", exclude_none=True, exclude={"name", "description"}))
    return None


@app.command()
def check(
    names: Annotated[Many, typer.Argument(metavar="NAME…", help="Which servers; absent: all.")] = None,
    backend: Backend = "bubblewrap",
    tenant: Tenant = DEFAULT_TENANT,
    json: Json = False,
) -> None:
    """Start servers again, and show what is not as it was pinned. Exit code 1: something is."""
    with _told():
        catalogue = _catalogue(load().mcp_servers)
        found = {name: _changed(name, _known(catalogue, name), backend, tenant) for name in names or catalogue.servers}
    if json:
        show_json(found)
    elif not found:
        say(NO_SERVERS)
    else:
        for name, what in found.items():
            show("\n".join([f"{name}: as it was pinned" if not what else f"{name}:", *(f"  {line}" for line in what)]))
    raise typer.Exit(FAILED if any(found.values()) else 0)


@app.command()
def remove(name: Name, json: Json = False) -> None:
    """Take a server away."""
    path = load().mcp_servers
    with _told():
        catalogue = _catalogue(path, name)
        _known(catalogue, name)
        write(path, catalogue.without(name))
    if json:
        return show_json({"removed": name})
    show(f"removed {name} from {path}")
    return _tell_restart()


def known_tools() -> "Registry":
    """All tools that this user's services have, as far as is known here.

    Raises:
        ClientError: the file of MCP servers cannot be used.
    """
    from longstride.tools.mcp.register import registered

    with _told():
        return registered(_catalogue(load().mcp_servers))


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (CatalogueUnusable, SandboxError) as error:
        raise ClientError(str(error).strip()) from error


def _catalogue(path: Path, renewed: str | None = None) -> Catalogue:
    """An absent file holds no servers. ``renewed``: the one whose pin will be another, or none."""
    if not path.exists():
        return Catalogue()
    return read(path) if renewed is None else read_renewing(path, renewed)


def _known(catalogue: Catalogue, name: str) -> Server:
    if name not in catalogue.servers:
        raise NotFound(f"there is no MCP server {name!r}; there are {', '.join(catalogue.servers) or 'none'}")
    return catalogue.servers[name]


def _server(name: str, before: Server | None, command: Sequence[str] | None, fields: Mapping[str, Any]) -> Server:
    """As the command line says, else as it was."""
    if command:
        fields = {**fields, "command": command[0], "args": command[1:]}
    elif before is None:
        raise UsageProblem(f"how is {name!r} started? longstride mcp add {name} -- COMMAND ARG…")
    else:
        fields = {**before.model_dump(exclude={"pinned"}), **fields}
    try:
        return Catalogue.model_validate({"mcpServers": {name: fields}}).servers[name]
    except ValidationError as error:
        raise UsageProblem(explain(error).replace("mcpServers.", "")) from error


def _surveyed(name: str, server: Server, backend: str, tenant: str) -> Listing:
    """What it lists now, in a sandbox of this machine."""
    from longstride.sandbox import backends
    from longstride.sandbox.secrets import DirectorySecrets, values_of

    made = next((make for kind, make in backends.MAKERS.items() if kind == backend), None)
    if made is None:
        raise UsageProblem(f"there is no backend {backend!r}; there are {', '.join(backends.MAKERS)}")
    try:
        from longstride.tools.mcp.call import survey
    except ModuleNotFoundError as error:
        raise ClientError(f"{error.name} is not installed: pip install 'longstride[mcp]'") from error
    folder = Path(os.environ.get("LONGSTRIDE_TOOL_EXECUTOR_SECRETS_DIR") or load().home / "secrets").expanduser()
    secrets = values_of(DirectorySecrets(folder), tenant, server.secrets)
    sandbox = made(None)
    try:
        return survey(name, server, sandbox, secrets)
    finally:
        sandbox.close()


def _keep(path: Path, catalogue: Catalogue, name: str, server: Server) -> None:
    """Write it down, once it is known that its tools can be offered beside all others."""
    from longstride.tools.mcp.register import registered

    fresh = catalogue.with_server(name, server)
    registered(fresh)
    write(path, fresh)


def _changed(name: str, server: Server, backend: str, tenant: str) -> list[str]:
    if server.pinned is None:
        return [f"nothing is pinned yet: `longstride mcp add {name}`"]
    now = _surveyed(name, server, backend, tenant).tools
    old = {tool.name for tool in server.pinned.tools}
    new = [f"the tool {tool.name!r} is new, and not offered" for tool in now if tool.name not in old]
    return [*changes(server.pinned.tools, now, shown=SHOWN), *new]


def _tell_added(path: Path, name: str, before: Server | None, server: Server, *, json: bool) -> None:
    if json:
        return show_json({"name": name, **_document(server)})
    assert server.pinned is not None, "what is added is pinned"
    if before and before.pinned and (what := list(changes(before.pinned.tools, server.pinned.tools))):
        say("changed: " + "; ".join(what))
    show(f"{name} is pinned in {path}; its tools:", *(f"  {tool}" for tool in _names(name, server)))
    return _tell_restart()


def _tell_restart() -> None:
    settings = load()
    if not settings.embedded and settings.mcp_file is None:
        say(
            f"services do not know of it yet: set LONGSTRIDE_MCP_FILE={settings.mcp_servers} for each, and restart them"
        )
    elif not settings.embedded:
        say("services read this file when they start: restart them")
    elif EmbeddedStack(settings.home).running():
        say("the embedded stack reads it when it starts: `longstride down`, and the next command starts it again")


def _names(name: str, server: Server) -> list[str]:
    tools = server.pinned.tools if server.pinned else ()
    return [called(name, tool.name) for tool in tools if server.tools is None or tool.name in server.tools]


def _document(server: Server) -> dict[str, Any]:
    return server.model_dump(mode="json", exclude_defaults=True)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageProblem(f"--env {text!r} is not NAME=VALUE")
    return name, value
