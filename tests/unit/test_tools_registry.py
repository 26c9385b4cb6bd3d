"""Tools as a policy sees them, and what their arguments must be."""

import jsonschema
import pytest

from longstride.tools.registry import Registry, builtin_tools
from longstride.tools.shell import Shell
from longstride.tools.tool import InvalidArguments

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


def test_every_executed_tool_can_be_repeated() -> None:
    """A step that is run again starts from the workspace before it, so nothing here is unsafe."""
    assert {tool.idempotency for name in TOOLS.names if (tool := TOOLS.get(name))} == {"pure"}
