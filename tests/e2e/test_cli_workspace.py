"""Secrets, diff and export as a newcomer uses them, on the embedded stack."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_cli_embedded import Newcomer

VALUE = "t0p-secret-value"
LINES = [
    {"tool": "shell", "arguments": {"command": "cat /run/longstride/secrets/api; cp /run/longstride/secrets/api key"}},
    {"tool": "shell", "arguments": {"command": "printf 'one\\ntwo\\n' > notes; ls"}},
    {"tool": "shell", "arguments": {"command": "printf 'one\\n2\\n' > notes"}},
    {"tool": "submit", "arguments": {"answer": "done"}},
]


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    someone = Newcomer(tmp_path / "newcomer")
    yield someone
    someone.stack.down()


def everything_on_disk(folder: Path) -> Iterator[Path]:
    """All that the stack has written: objects, the database's files, logs."""
    yield from (path for path in folder.rglob("*") if path.is_file() and "secrets" not in path.parts)


def test_a_secret_is_used_and_kept_nowhere_and_steps_can_be_compared(newcomer: Newcomer) -> None:
    secret = newcomer.stack.home / "secrets/default/api"
    secret.parent.mkdir(parents=True)
    secret.write_text(VALUE + "\n")
    policy = newcomer.script("uses", LINES)
    code, out, err = newcomer.longstride("run", "Use it.", "--secret", "api", "--policy", policy, "--json")
    assert code == 0, err
    task = json.loads(out.splitlines()[0])["task_id"]
    seen = newcomer.longstride("show", task, "--step", "1", "--json")[1]
    assert json.loads(seen)["observation"]["text"] == (
        "[secret api]\n\n[not kept in the workspace: key (holds secret api)]"
    )
    assert json.loads(newcomer.longstride("show", task, "--step", "2", "--json")[1])["observation"]["text"] == "notes\n"

    code, out, err = newcomer.longstride("diff", task, "2", "3")
    assert code == 0, err
    assert [line.rstrip() for line in out.splitlines()] == [
        "changed notes",
        "@@ -1,2 +1,2 @@",
        " one",
        "-two",
        "+2",
        "",
    ]
    code, _, err = newcomer.longstride("export", task, "--at", "2", "--to", "two")
    assert code == 0, err
    assert (newcomer.folder / "two/notes").read_text() == "one\ntwo\n"

    code, out, err = newcomer.longstride("run", "Use it.", "--secret", "nowhere", "--policy", policy, "--json")
    assert code == 1
    assert "has no secret 'nowhere' for tenant 'default'" in out
    assert newcomer.longstride("down")[0] == 0
    assert [path for path in everything_on_disk(newcomer.stack.home) if VALUE.encode() in path.read_bytes()] == []
