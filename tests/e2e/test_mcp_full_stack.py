"""Tools of MCP servers where every service is a process of its own: all of them read one file."""

import subprocess
import sys
from pathlib import Path

import pytest

from longstride.contracts.v1.commands import ApproveAction, SubmitTask
from longstride.tools.mcp.catalogue import Catalogue, write
from tests.support.deployment import MODULES, ROOT, deployed
from tests.support.eventually import eventually
from tests.support.mcp.arena import NOTES, surveyed
from tests.support.sandboxes import arena
from tests.support.servers import Servers

LINES = [
    {"tool": "notes__add", "arguments": {"text": "milk"}},
    {"tool": "submit", "arguments": {"answer": "noted"}},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with arena() as box:
        server = surveyed(box, "notes", NOTES.model_copy(update={"idempotency": "unsafe"}))
    write(tmp_path / "mcp.json", Catalogue(servers={"notes": server}))
    return tmp_path / "mcp.json"


def test_a_call_waits_for_a_person_runs_once_and_is_in_the_audit(
    servers: Servers, database_url: str, amqp_url: str, bucket: str, tmp_path: Path, file: Path
) -> None:
    with deployed(
        servers, database_url, amqp_url, bucket, tmp_path, forked=True, LONGSTRIDE_MCP_FILE=str(file)
    ) as deployment:
        submit = SubmitTask(
            instruction="Note it.",
            policy=deployment.script(LINES),
            tools=("notes__add", "submit"),
            approvals="unsafe",
        )
        task_id = deployment.submit(submit)
        eventually(lambda: [(s.step, s.status) for s in deployment.steps(task_id)] == [(1, "waiting")])
        deployment.send(ApproveAction(step=1, approved=True, by="ada"), task_id)
        assert deployment.ended(task_id)[0].answer == "noted"
        first = deployment.steps(task_id)[0]
        assert (first.tool, first.status, first.observation) == ("notes__add", "ok", "note 1")
        with deployment.database.begin() as uow:
            spans = uow.spans.for_task(task_id)
            audited = list(uow.audit.all("default"))
        assert "execute_tool notes__add" in {span.name for span in spans}
        assert [row for row in audited if "notes__add" in str(row)]


@pytest.mark.parametrize("service", ["planner", "tool-executor", "model-worker", "telemetry"])
def test_a_service_does_not_start_with_servers_that_cannot_be_used(tmp_path: Path, service: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"notes": {"command": "notes"}}}')
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LONGSTRIDE_DATABASE_URL": "postgresql://x@127.0.0.1:9/x",
        "LONGSTRIDE_AMQP_URL": "amqp://x@127.0.0.1:9/",
        "LONGSTRIDE_MCP_FILE": str(path),
    }
    done = subprocess.run(
        [sys.executable, "-m", MODULES[service]], env=environment, capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 78, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "longstride: nobody knows the tools of the MCP server notes: run `longstride mcp add notes`"
    )
