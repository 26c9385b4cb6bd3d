"""Workspaces and secrets with real sandboxes around the code."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.events import ActionExecuted
from longstride.sandbox import snapshot
from longstride.sandbox import workspace as workspaces_module
from longstride.sandbox.secrets import MemorySecrets
from longstride.tools.executor import Executor
from longstride.tools.registry import builtin_tools
from tests.support.sandboxes import SMALL, Arena, arena

VALUE = b"t0p-secret-value\n"


@pytest.fixture(scope="module")
def box() -> Iterator[Arena]:
    with arena() as made:
        secrets = MemorySecrets({("acme", "api"): VALUE})
        yield replace(made, executor=Executor(made.backend, made.workspaces, made.artifacts, builtin_tools(), secrets))


def do(
    box: Arena, command: str, *secrets: str, workspace: ArtifactRef | None = None, tool: str = "shell"
) -> ActionExecuted:
    key = "command" if tool == "shell" else "code"
    asked = ExecuteAction(
        step=1,
        action=Action(tool=tool, arguments={key: command}),
        tools=(),
        workspace=workspace,
        limits=SMALL.model_copy(update={"files": 2000, "disk_mb": 64}),
        isolation="process",
        secrets=secrets,
    )
    return box.executor.execute(asked, task_id="task", session_id="session", tenant="acme")


def text(executed: ActionExecuted) -> str:
    assert executed.observation is not None, executed
    return executed.observation.text


def test_a_secret_is_a_read_only_file_of_the_calls_that_may_read_it(box: Arena) -> None:
    shown = text(do(box, "cd /run/longstride/secrets; cat api; echo x > api; echo x > new; tr a-z A-Z < api", "api"))
    assert shown.splitlines()[0] == "[secret api]"
    assert "T0P-SECRET-VALUE" in shown, (
        "code that means to hide a value can: the mount works, the rest guards accidents"
    )
    assert shown.count("Read-only file system") == 2
    assert "No such file or directory" in text(do(box, "cat /run/longstride/secrets/api"))
    assert (
        text(do(box, "env; cat /proc/self/environ /proc/1/environ; cat /proc/self/mountinfo", "api")).count("t0p") == 0
    )


def test_a_secret_that_is_copied_into_the_workspace_is_gone_at_the_next_step(box: Arena) -> None:
    first = do(box, "cp /run/longstride/secrets/api key; echo kept > kept", "api")
    assert text(first) == "\n[not kept in the workspace: key (holds secret api)]"
    assert text(do(box, "ls", workspace=first.workspace)) == "kept\n"


def test_a_store_through_a_mapping_inside_the_sandbox_is_in_the_next_snapshot(
    box: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces_module, "WATCHED_FILES", 100)
    first = do(box, "for n in $(seq 300); do head -c 5000 /dev/zero > f$n; done")
    same = do(box, "cat f* | wc -c", workspace=first.workspace)
    assert (text(same), same.workspace) == ("1500000\n", first.workspace)
    code = (
        "import mmap, os\nbefore = os.stat('f7')\nwith open('f7', 'r+b') as f, mmap.mmap(f.fileno(), 5000) as m: m[0] = 65\n"
        "os.utime('f7', ns=(before.st_atime_ns, before.st_mtime_ns))"
    )
    changed = do(box, code, workspace=same.workspace, tool="python")
    assert changed.workspace is not None
    assert changed.workspace != first.workspace
    assert list(snapshot.load(box.artifacts, changed.workspace).deltas[-1].undo) == ["f7"]
    box.workspaces.forget("task")
    assert text(do(box, "head -c 1 f7", workspace=changed.workspace)) == "A\n"
