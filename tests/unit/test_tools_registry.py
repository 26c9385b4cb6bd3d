"""Tools as a policy sees them, and what their arguments must be."""

from collections.abc import Callable

import jsonschema
import pytest

from longstride.contracts.v1.action import Action, ToolSpec
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.egress import Egress, EgressRule
from longstride.contracts.v1.limits import SandboxLimits
from longstride.tools.registry import Registry, builtin_tools
from longstride.tools.shell import Shell
from longstride.tools.submit import Submit
from longstride.tools.tool import Arguments, InvalidArguments

TOOLS = builtin_tools()


@pytest.mark.parametrize("name", TOOLS.names)
def test_a_schema_is_valid_and_closed(name: str) -> None:
    parameters = TOOLS.specs([name])[0].parameters
    jsonschema.Draft202012Validator.check_schema(parameters)
    assert parameters["type"] == "object"
    assert parameters["additionalProperties"] is False
    assert all("title" not in field for field in parameters.get("properties", {}).values())
    assert all(field.get("description") for field in parameters.get("properties", {}).values())


def test_a_task_that_names_no_tools_gets_those_that_are_offered() -> None:
    everything = {"shell", "python", "read_file", "write_file", "search_files", "submit", "delegate", "recall"}
    assert set(TOOLS.allowed(None)) == set(TOOLS.allowed(())) == everything
    assert TOOLS.allowed(["noop", "submit"]) == ("noop", "submit")
    assert TOOLS.unknown(["submit", "fly"]) == ("fly",)


def test_a_tool_that_is_gone_is_passed_over() -> None:
    assert TOOLS.allowed(["notes__add", "submit"]) == ("submit",)
    assert [spec.name for spec in TOOLS.specs(["notes__add", "submit"])] == ["submit"]


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are named 'shell'"):
        Registry([Shell(), Shell()])


CALLS = [
    ("shell", {"command": "ls"}, True),
    ("shell", {"command": "ls", "timeout_s": 3}, True),
    ("shell", {}, False),
    ("shell", {"command": ""}, False),
    ("shell", {"command": "ls", "timeout_s": 0}, False),
    ("shell", {"command": ["ls"]}, False),
    ("shell", {"command": "ls", "cwd": "/"}, False),
    ("python", {"code": "print(1)"}, True),
    ("python", {"code": 1}, False),
    ("read_file", {"path": "a", "start_line": 2, "lines": 5}, True),
    ("read_file", {"path": "a", "start_line": 0}, False),
    ("read_file", {"path": "a", "start_line": "2"}, False),
    ("write_file", {"path": "a", "content": ""}, True),
    ("write_file", {"path": "a"}, False),
    ("write_file", {"path": "a", "content": "x", "append": "yes"}, False),
    ("search_files", {"pattern": "x"}, True),
    ("search_files", {"pattern": "x", "max_matches": 100_000}, False),
    ("submit", {"answer": "42"}, True),
    ("submit", {"answer": "42", "artifacts": ["a", "b"]}, True),
    ("submit", {"answer": 42}, False),
    ("submit", {"answer": "42", "artifacts": "a"}, False),
    ("submit", {"answer": "x" * 8193}, False),
    (
        "delegate",
        {"tasks": [{"name": "a", "instruction": "b"}, {"name": "c", "instruction": "d", "after": ["a"]}]},
        True,
    ),
    ("delegate", {"tasks": []}, False),
    ("delegate", {"tasks": [{"name": "a"}]}, False),
    ("recall", {"step": 3}, True),
    ("recall", {"step": True}, False),
    ("edit_file", {"path": "a", "old": "b", "new": "c"}, True),
    ("edit_file", {"path": "a", "diff": "@@ -1 +1 @@\n-b\n+c\n"}, True),
    ("edit_file", {"old": "b", "new": "c"}, False),
    ("edit_file", {"path": "a", "old": "b", "new": "c", "every": "yes"}, False),
    ("fetch_url", {"url": "https://example.com/"}, True),
    ("fetch_url", {"url": "https://example.com/", "method": "HEAD", "path": "a", "max_bytes": 5}, True),
    ("fetch_url", {"url": "https://example.com/", "method": "POST"}, False),
    ("fetch_url", {"url": "https://example.com/", "max_bytes": 0}, False),
    ("install_packages", {"packages": ["requests>=2"]}, True),
    ("install_packages", {"packages": []}, False),
    ("install_packages", {"packages": "requests"}, False),
    ("install_packages", {"packages": ["requests"], "index": "https://x.example"}, False),
    ("run_tests", {}, True),
    ("run_tests", {"framework": "pytest", "arguments": ["-k", "x"]}, True),
    ("run_tests", {"framework": "command", "command": "make test", "report": "out.xml"}, True),
    ("run_tests", {"framework": "nose"}, False),
    ("run_tests", {"arguments": "-v"}, False),
    ("artifact_put", {"path": "a"}, True),
    ("artifact_put", {}, False),
    ("artifact_get", {"key": "s/output/" + "0" * 64, "size": 0, "path": "a"}, True),
    ("artifact_get", {"key": "k", "size": -1, "path": "a"}, False),
    ("noop", {}, True),
    ("noop", {"x": 1}, False),
]


@pytest.mark.parametrize(("name", "arguments", "valid"), CALLS)
def test_what_is_accepted_is_what_the_schema_says(name: str, arguments: dict, valid: bool) -> None:
    tool = TOOLS.get(name)
    assert tool is not None
    schema = jsonschema.Draft202012Validator(tool.spec.parameters)
    assert schema.is_valid(arguments) is valid
    if valid:
        assert tool.parse(arguments)
    else:
        with pytest.raises(InvalidArguments):
            tool.parse(arguments)


def test_a_refusal_names_each_field_and_what_is_expected() -> None:
    tool = TOOLS.get("shell")
    assert tool is not None
    with pytest.raises(InvalidArguments) as caught:
        tool.parse({"cmd": "ls", "timeout_s": "soon"})
    text = str(caught.value)
    assert "command: Field required" in text
    assert "cmd: Extra inputs are not permitted" in text
    assert "timeout_s: Input should be a valid number" in text
    assert "The command line, for bash." in text


def a_tool(name: str = "fly", parameters: dict | None = None, description: str = "Fly.") -> Shell:
    """One whose spec says what the test wants."""
    tool = Shell()
    spec = ToolSpec.model_construct(name=name, description=description, parameters=parameters or {"type": "object"})
    tool.__dict__["spec"] = spec
    return tool


def _with(properties: dict, **more: object) -> Shell:
    return a_tool(parameters={"type": "object", "properties": properties, **more})


def test_every_executed_tool_can_be_repeated() -> None:
    """A step that is run again starts from the workspace before it, so nothing here is unsafe."""
    classes = {name: tool.idempotency for name in TOOLS.names if (tool := TOOLS.get(name))}
    assert {name for name, kind in classes.items() if kind != "pure"} == {"artifact_put"}
    assert classes["artifact_put"] == "keyed"


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        (a_tool(description=" "), "tool 'fly' has no description"),
        (a_tool(parameters={"type": "string"}), "must be of type object, not 'string'"),
        (a_tool(parameters={"properties": {}}), "must be of type object, not None"),
        (_with({"a": {"type": "text"}}), r"arguments\.properties\.a\.type is 'text'; the types are array, boolean"),
        (_with({"a": {"type": "array", "items": 3}}), r"arguments\.properties\.a\.items must be a schema, is 3"),
        (_with({"a": {"enum": []}}), r"arguments\.properties\.a\.enum must be a list of values"),
        (_with({"a": {"pattern": "("}}), r"arguments\.properties\.a\.pattern is no regular expression"),
        (_with({"a": {"anyOf": {}}}), r"arguments\.properties\.a\.anyOf must be a list"),
        (_with({"a": {"$ref": "#/$defs/B"}}), r"\$ref is '#/\$defs/B', and there is nothing at that place"),
        (_with({"a": {}}, required=["b"]), "arguments.required names 'b', which is no property"),
        (_with({"a": {"description": "x" * 20_000}}), "at most 16384 are shown to a policy"),
    ],
)
def test_a_tool_that_cannot_be_shown_is_refused_with_a_sentence(tool: Shell, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Registry([Submit(), tool])


def test_a_name_that_no_policy_can_call_is_refused() -> None:
    class Shouting(Shell):
        name = "SHELL me"

    with pytest.raises(ValueError, match=r"tool 'SHELL me' cannot be registered: name: String should match"):
        Registry([Shouting()])


def test_arguments_without_a_schema_are_refused() -> None:
    class Odd(Arguments):
        what: Callable[[], int]

    class Strange(Shell):
        name = "strange"
        arguments = Odd  # type: ignore[assignment]

    with pytest.raises(ValueError, match="tool 'strange' has arguments without a JSON schema"):
        Registry([Strange()])


WAY_OUT = Egress(rules=(EgressRule(host="api.example.com"),))


@pytest.mark.parametrize(
    ("tool", "egress", "unsafe"),
    [
        ("shell", None, False),
        ("shell", WAY_OUT, True),
        ("python", WAY_OUT, True),
        ("read_file", WAY_OUT, False),
        ("submit", WAY_OUT, False),
        ("fetch_url", WAY_OUT, False),
        ("install_packages", WAY_OUT, False),
        ("no_such_tool", WAY_OUT, False),
    ],
)
def test_a_call_that_may_have_sent_something_is_not_repeated_unseen(
    tool: str, egress: Egress | None, unsafe: bool
) -> None:
    command = ExecuteAction(
        step=1, action=Action(tool=tool), tools=(), limits=SandboxLimits(), isolation="process", egress=egress
    )
    assert TOOLS.unsafe(command) is unsafe
