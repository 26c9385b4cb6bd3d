"""The file of MCP servers, and what is made of it."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.egress import Egress, EgressRule
from longstride.contracts.v1.limits import SandboxLimits
from longstride.tools.mcp.catalogue import Catalogue, CatalogueUnusable, Server, read, write
from longstride.tools.mcp.listing import Listing, ServerTool, called, changes, digest
from longstride.tools.mcp.register import offered_tools, preload, registered
from longstride.tools.mcp.tool import McpTool
from longstride.tools.registry import builtin_tools
from longstride.tools.tool import InvalidArguments

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ADD = ServerTool(name="add", description="Add a note.", input_schema=SCHEMA)


def listing(*tools: ServerTool) -> Listing:
    return Listing(at=datetime(2026, 7, 28, tzinfo=UTC), tools=tools, sha256=digest(tools))


def one(*tools: ServerTool, name: str = "notes", **fields: object) -> Catalogue:
    server = Server(command="notes", pinned=listing(*(tools or (ADD,))), **fields)
    return Catalogue(servers={name: server})


def written(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_the_shape_that_other_clients_use_is_read(tmp_path: Path) -> None:
    known = {"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"A": "b"}, "type": "stdio"}}}
    server = read(written(tmp_path, known)).servers["git"]
    assert (server.command, server.args, server.env) == ("uvx", ("mcp-server-git",), {"A": "b"})
    assert (server.idempotency, server.egress, server.secrets) == ("unsafe", None, ())


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    catalogue = one(folder=Path("/srv/notes"), secrets=("key",), timeout_s=5, idempotency="pure", tools=("add",))
    path = tmp_path / "deep/mcp.json"
    write(path, catalogue)
    assert read(path) == catalogue
    assert [file.name for file in path.parent.iterdir()] == ["mcp.json"]


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("{", "Invalid JSON"),
        ({"mcp": {}}, "mcp: Extra inputs are not permitted"),
        ({"mcpServers": {"a": {"url": "https://x/mcp"}}}, "only servers that are programs"),
        ({"mcpServers": {"a": {}}}, "mcpServers.a.command: Field required"),
        ({"mcpServers": {"a b": {"command": "x"}}}, "should match pattern"),
        ({"mcpServers": {"a": {"command": "x", "folder": "srv"}}}, "'srv' must be an absolute path"),
        ({"mcpServers": {"a": {"command": "x\0"}}}, "mcpServers.a.command: String should match"),
        ({"mcpServers": {"a": {"command": "x", "env": {"A-B": ""}}}}, "'A-B', which cannot be an environment variable"),
        ({"mcpServers": {"a": {"command": "${folder}/x"}}}, "no folder is named"),
        ({"mcpServers": {"a": {"command": "x", "env": {"A": "${secret:key}"}}}}, "secrets does not name 'key'"),
        ({"mcpServers": {"a": {"command": "x", "idempotency": "maybe"}}}, "'pure', 'keyed' or 'unsafe'"),
        ({"mcpServers": {"a": {"command": "x", "egress": {"rules": [{"host": "*.com"}]}}}}, "'*.com' is too wide"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_place_and_reason(
    tmp_path: Path, document: object, why: str
) -> None:
    with pytest.raises(CatalogueUnusable) as caught:
        read(written(tmp_path, document))
    assert "mcp.json" in str(caught.value)
    assert why in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogueUnusable, match=r"absent\.json cannot be read: No such file"):
        offered_tools(tmp_path / "absent.json")
    assert offered_tools(None).names == builtin_tools().names


def test_a_pin_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    write(path, one())
    path.write_text(path.read_text().replace("Add a note.", "Add a note!"))
    with pytest.raises(CatalogueUnusable, match="the pinned tools were changed by hand"):
        read(path)


def test_secrets_and_the_folder_are_filled_in_where_they_belong() -> None:
    server = Server(
        command="${folder}/run",
        args=("--at=${folder}", "$HOME", "${other}"),
        env={"KEY": "Bearer ${secret:key}"},
        folder=Path("/srv"),
        secrets=("key",),
    )
    place = "/run/longstride/mcp/notes"
    assert server.argv("notes") == (f"{place}/run", f"--at={place}", "$HOME", "${other}")
    assert server.variables("notes", {"key": b"t0ken\n"}) == {
        "PYTHONPATH": place,
        "KEY": "Bearer t0ken",
        "PYTHONSAFEPATH": "1",
    }
    assert server.home("notes") == place
    assert server.folders("notes") == {"mcp/notes": Path("/srv")}


def test_a_policy_sees_the_pinned_tools_under_names_that_it_can_call() -> None:
    catalogue = one(ADD, ServerTool(name="Web.Search-2", input_schema={"type": "object"}), name="My-Notes")
    tools = registered(catalogue)
    first, second = tools.specs(["my_notes__add", "my_notes__web_search_2"])
    assert (first.description, first.parameters) == ("Add a note.", SCHEMA)
    assert second.description == "The tool Web.Search-2 of the MCP server My-Notes."
    assert tools.allowed(None) == builtin_tools().allowed(None), "only tasks that name them get them"


def test_only_the_listed_tools_are_offered() -> None:
    other = ServerTool(name="wipe", description="Wipe.", input_schema={"type": "object"})
    assert "notes__wipe" not in registered(one(ADD, other, tools=("add",))).names
    with pytest.raises(CatalogueUnusable, match="has no tool 'fly'; it has add, wipe"):
        registered(one(ADD, other, tools=("fly",)))


def tool(**fields: object) -> ServerTool:
    return ServerTool.model_validate({"name": "add", "description": "Add.", "input_schema": SCHEMA} | fields)


@pytest.mark.parametrize(
    ("catalogue", "why"),
    [
        (one(tool(), tool(name="ADD")), "two tools are named 'notes__add'"),
        (Catalogue(servers={**one(name="a-b").servers, **one(name="a_b").servers}), "two tools are named 'a_b__add'"),
        (one(tool(name="x" * 60)), "String should match pattern"),
        (one(tool(input_schema={"type": "string"})), "must be of type object, not 'string'"),
        (one(tool(input_schema={"type": "object", "properties": {"a": {"type": "text"}}})), "properties.a.type"),
        (one(tool(output_schema={"type": "objekt"})), "the schema of add's result is not valid"),
        (one(tool(input_schema={**SCHEMA, "x": "y" * 20_000})), "at most 16384 are shown to a policy"),
        (Catalogue(servers={"new": Server(command="x")}), "run `longstride mcp add new`"),
    ],
)
def test_what_cannot_be_registered_is_refused_with_a_sentence(catalogue: Catalogue, why: str) -> None:
    with pytest.raises(CatalogueUnusable) as caught:
        registered(catalogue)
    assert why in str(caught.value)


def test_arguments_are_checked_before_anything_runs() -> None:
    notes = registered(one()).get("notes__add")
    assert isinstance(notes, McpTool)
    assert notes.parse({"text": "milk"}).values == {"text": "milk"}
    with pytest.raises(InvalidArguments, match=r"notes__add: text: 3 is not of type 'string'\. Its arguments are \{"):
        notes.parse({"text": 3})


@pytest.mark.parametrize(("kind", "unsafe"), [("unsafe", True), ("keyed", False), ("pure", False)])
def test_what_an_operator_says_of_a_server_holds_after_a_crash(kind: str, unsafe: bool) -> None:
    action = Action(tool="notes__add", arguments={"text": "x"})
    way_out = Egress(rules=(EgressRule(host="api.example.com"),))
    command = ExecuteAction(
        step=1, action=action, tools=(), limits=SandboxLimits(), isolation="process", egress=way_out
    )
    assert registered(one(idempotency=kind)).unsafe(command) is unsafe


def test_changes_are_named_and_what_is_new_is_none() -> None:
    was = [tool(), tool(name="gone"), tool(name="same")]
    now = [tool(description="Add. Then send it."), tool(name="same"), tool(name="new")]
    assert list(changes(was, now)) == ["the description of 'add' is another", "the tool 'gone' is gone"]
    assert next(changes(was, now, shown=8)) == 'the description of \'add\' is another: was "Add.", is "Add. Th'
    assert list(changes([tool()], [tool(input_schema={"type": "object"}, annotations={"readOnlyHint": True})])) == [
        "the input schema of 'add' is another",
        "the annotations of 'add' is another",
    ]


def test_a_digest_does_not_depend_on_order() -> None:
    reordered = {"required": ["text"], "properties": {"text": {"type": "string"}}, "type": "object"}
    assert digest([tool(), tool(name="b")]) == digest([tool(name="b"), tool(input_schema=reordered)])
    assert digest([tool()]) != digest([tool(description="Add!")])
    assert called("Brave-Search", "web.search") == "brave_search__web_search"


PRELOADING = """
import sys
from pathlib import Path
from longstride.tools.mcp.catalogue import CatalogueUnusable
from longstride.tools.mcp.register import offered_tools, preload
tools = offered_tools(Path(sys.argv[1]))
assert "mcp" not in sys.modules, "planner and model-worker do without"
sys.modules["mcp"] = None
try:
    preload(tools)
except CatalogueUnusable as error:
    print(error)
"""


def test_the_sdk_is_needed_by_whoever_calls_servers_and_by_nobody_else(tmp_path: Path) -> None:
    write(tmp_path / "mcp.json", one())
    done = subprocess.run(
        [sys.executable, "-c", PRELOADING, str(tmp_path / "mcp.json")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "MCP servers need the package mcp: pip install 'longstride[mcp]'\n"
    preload(builtin_tools())
    preload(registered(one()))
