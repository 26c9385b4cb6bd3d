"""``longstride mcp``, called in this process: no stack is needed."""

import json
import shutil
from pathlib import Path

import pytest

from longstride.client.health import examine
from longstride.client.settings import load
from longstride.tools.mcp.catalogue import read
from tests.support.command_line import longstride
from tests.support.mcp.arena import HERE
from tests.support.sandboxes import arena

NAMES = [f"notes__{tool}" for tool in ("add", "all", "draw", "look", "count", "fail")]
START = ("--", "python3", "${folder}/notes_server.py")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with arena():
        monkeypatch.setenv("LONGSTRIDE_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("LONGSTRIDE_MCP_FILE", str(tmp_path / "servers.json"))
        shutil.copytree(HERE, tmp_path / "server")
    return tmp_path / "servers.json"


def test_a_server_is_added_looked_at_changed_and_removed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert longstride(capsys, "mcp", "list")[0] == 0
    folder = str(file.parent / "server")
    added = [
        "mcp",
        "add",
        "notes",
        "--folder",
        folder,
        "--timeout",
        "9",
        "--only",
        "add",
        "--allow-host",
        "a.example.com",
    ]
    code, out, err = longstride(capsys, *added, *START)
    assert code == 0, err
    assert out == f"notes is pinned in {file}; its tools:\n  notes__add\n"
    server = read(file).servers["notes"]
    assert (server.timeout_s, server.tools, str(server.egress and server.egress.rules[0])) == (
        9,
        ("add",),
        "a.example.com:443",
    )
    assert server.pinned is not None
    assert (server.pinned.server, server.pinned.protocol) == ("notes 1.2", "2025-11-25")
    assert "python3 ${folder}/notes_server.py" in longstride(capsys, "mcp", "list")[1]
    shown = longstride(capsys, "mcp", "show", "notes")[1]
    assert "notes__add\nAdd a note.\n" in shown
    assert "notes__all  (not offered)" in shown

    assert longstride(capsys, "mcp", "check")[:2] == (0, "notes: as it was pinned\n")
    program = file.parent / "server/notes_server.py"
    program.write_text(program.read_text().replace("Add a note.", "Add it.").replace('"name": "look"', '"name": "see"'))
    code, out, _ = longstride(capsys, "mcp", "check", "notes")
    assert code == 1
    assert [line.strip() for line in out.splitlines()[1:]] == [
        'the description of \'add\' is another: was "Add a note.", is "Add it."',
        "the tool 'look' is gone",
        "the tool 'see' is new, and not offered",
    ]
    code, _, err = longstride(capsys, "mcp", "add", "notes", "--idempotency", "keyed")
    assert code == 0, err
    assert "changed: the description of 'add' is another; the tool 'look' is gone" in err
    again = read(file).servers["notes"]
    assert (again.idempotency, again.timeout_s, again.args) == ("keyed", 9, server.args)
    assert longstride(capsys, "mcp", "check", "--json")[:2] == (0, '{\n  "notes": []\n}\n')
    assert longstride(capsys, "mcp", "remove", "notes")[0] == 0
    assert read(file).servers == {}


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["mcp", "show", "absent"], 4, "there is no MCP server 'absent'; there are none"),
        (["mcp", "check", "absent"], 4, "there is no MCP server 'absent'"),
        (["mcp", "add", "new"], 2, "how is 'new' started?"),
        (["mcp", "add", "a b", "--", "cat"], 2, "should match pattern"),
        (["mcp", "add", "new", "--env", "A", "--", "cat"], 2, "--env 'A' is not NAME=VALUE"),
        (
            ["mcp", "add", "new", "--backend", "chroot", "--", "cat"],
            2,
            "there is no backend 'chroot'; there are bubblewrap",
        ),
        (["mcp", "add", "new", "--allow-host", "10.0.0.1", "--", "cat"], 2, "no sandbox ever reaches 10.0.0.1"),
        (["mcp", "add", "new", "--idempotency", "maybe", "--", "cat"], 2, "new.idempotency: Input should be"),
        (["mcp", "add", "new", "--secret", "key", "--", "cat"], 1, "has no secret 'key' for tenant 'default'"),
        (["mcp", "add", "new", "--", "no-such-program"], 1, "exec: no-such-program: not found"),
        (["mcp", "add", "new", "--timeout", "0.5", "--", "sleep", "60"], 1, "did not answer before its time was over"),
    ],
)
def test_what_cannot_be_added_is_told(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, why: str
) -> None:
    told, _, err = longstride(capsys, *arguments)
    assert told == code, err
    assert why in err
    assert not file.exists()


def test_a_clash_leaves_the_file_as_it_was(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ("--folder", str(file.parent / "server"))
    assert longstride(capsys, "mcp", "add", "a-b", *folder, *START)[0] == 0
    before = file.read_bytes()
    code, _, err = longstride(capsys, "mcp", "add", "a_b", *folder, *START)
    assert code == 1
    assert "two tools are named 'a_b__add': rename one" in err
    assert file.read_bytes() == before


def test_rules_know_the_servers_tools(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert longstride(capsys, "mcp", "add", "notes", "--folder", str(file.parent / "server"), *START)[0] == 0
    rules = file.parent / "rules.json"
    rules.write_text(json.dumps({"tools": ["notes__add", "submit"]}))
    assert longstride(capsys, "rules", "check", str(rules))[0] == 0
    rules.write_text(json.dumps({"tools": ["notes__fly", "submit"]}))
    code, _, err = longstride(capsys, "rules", "check", str(rules))
    assert code == 2
    assert "notes__fly" in err


def test_a_pin_that_was_changed_by_hand_is_told_by_the_doctor_and_can_be_made_anew(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(file.parent / "server")
    assert longstride(capsys, "mcp", "add", "notes", "--folder", folder, *START)[0] == 0
    sound = file.read_text()
    file.write_text(sound.replace("Add a note", "Add any note"))
    assert "changed by hand" in longstride(capsys, "mcp", "list")[2]
    found = next(finding for finding in examine(load(), trial=False) if finding.name == "MCP servers")
    assert (found.state, "changed by hand" in found.told) == ("missing", True)
    assert longstride(capsys, "mcp", "add", "notes")[0] == 0
    assert longstride(capsys, "mcp", "list")[0] == 0
    file.write_text(sound.replace("Add a note", "Add any note"))
    assert longstride(capsys, "mcp", "remove", "notes")[0] == 0
    assert longstride(capsys, "mcp", "list")[0] == 0
