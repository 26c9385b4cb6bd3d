"""What a task leaves in the audit, and what rules on tools do to it: the real planner and the real command line."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from longstride.contracts.artifact import ref_for
from longstride.contracts.envelope import MessageError, seal
from longstride.contracts.ids import new_id
from longstride.contracts.model import Contract
from longstride.contracts.v1.action import Action, Observation
from longstride.contracts.v1.commands import ApproveAction, CancelTask, SubmitTask, Sweep
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.limits import Limits
from longstride.messaging.outbox import Outbox
from longstride.observability import names
from longstride.observability.settings import TelemetrySettings
from longstride.observability.setup import setup
from longstride.observability.span_record import MemorySpans
from longstride.storage.audit_chain import GENESIS
from longstride.storage.memory import MemoryArtifacts
from services.model_worker.sweeper import Sweeper
from tests.support.command_line import longstride
from tests.support.played_stack import PlayedStack, turns

WHOLE = ref_for(b"all of it", session="s", kind="observation", media_type="text/plain")


def shell(command: str = "ls") -> Action:
    return Action(tool="shell", arguments={"command": command})


SUBMIT = (Action(tool="submit", arguments={"answer": "3"}), Observation(status="ok", text="handed in"))
OK = Observation(status="ok", text="a.csv", exit_code=0)


class World:
    """A database, the command line, and stacks that play a script."""

    def __init__(self, database_url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.url, self.folder = database_url, folder
        self._capsys = capsys
        self._stacks: list[PlayedStack] = []

    def stack(self, *script: tuple[Action, Any]) -> PlayedStack:
        self._stacks.append(PlayedStack(self.url, MemoryArtifacts(), turns(*script)))
        return self._stacks[-1]

    def close(self) -> None:
        for stack in self._stacks:
            stack.database.close()

    def longstride(self, *arguments: str) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)."""
        return longstride(self._capsys, *arguments)

    def json(self, *arguments: str) -> Any:
        code, out, err = self.longstride(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    def rules(self, rules: object, *options: str) -> None:
        path = self.folder / "rules.json"
        path.write_text(json.dumps(rules))
        code, _, err = self.longstride("rules", "set", str(path), *options)
        assert code == 0, err

    def audit(self, *options: str) -> list[dict[str, Any]]:
        code, out, err = self.longstride("audit", "export", *options)
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def entries(self) -> list[dict[str, Any]]:
        return [row["entry"] for row in self.audit()]


@pytest.fixture
def world(database_url: str, tmp_path: Path, capsys, monkeypatch) -> Iterator[World]:
    monkeypatch.setenv("LONGSTRIDE_DATABASE_URL", database_url)
    monkeypatch.delenv("LONGSTRIDE_AMQP_URL", raising=False)
    monkeypatch.setenv("LONGSTRIDE_S3_ENDPOINT", "")
    world = World(database_url, tmp_path, capsys)
    yield world
    world.close()


def send(stack: PlayedStack, message: Contract, task_id: str | None = None, tenant: str = "default") -> str:
    task_id = task_id or new_id("task")
    session = "session_1" if tenant == "default" else f"session_{tenant}"
    with stack.database.begin() as uow:
        Outbox().post(uow, seal(message, task_id=task_id, session_id=session, tenant=tenant))
    stack.play()
    return task_id


def task(stack: PlayedStack, tenant: str = "default", **fields: Any) -> str:
    return send(stack, SubmitTask(instruction="Look.", **fields), tenant=tenant)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def digest(arguments: dict[str, Any]) -> str:
    return sha256(json.dumps(arguments, sort_keys=True, separators=(",", ":")))


# What is written


def test_every_action_and_both_ends_of_a_task_are_in_the_audit_with_what_they_refer_to(world: World) -> None:
    failed = Observation(status="limit", text="head … tail", exit_code=137, limit="memory_mb=512", full=WHOLE)
    stack = world.stack((shell("make"), failed), SUBMIT)
    task_id = task(stack, policy="scripted:x", isolation="process")
    accepted, first, second, ended = world.entries()
    with stack.database.begin() as uow:
        events = {event.seq: event for event in uow.events.read(task_id)}
    assert (accepted["kind"], accepted["instruction_sha256"]) == ("task_accepted", sha256("Look."))
    assert (accepted["agent"], accepted["policy"], accepted["approvals"]) == ("default", "scripted:x", "never")
    assert events[accepted["submission_event"]].type == "submitted"
    assert (first["kind"], first["step"], first["tool"], first["attempt"]) == ("action", 1, "shell", 1)
    assert first["arguments_sha256"] == digest({"command": "make"})
    assert events[first["arguments_event"]].payload["action"]["arguments"] == {"command": "make"}
    assert (first["policy"], first["isolation"], first["limits"]["memory_mb"]) == ("played", "process", 512)
    result = first["result"]
    assert (result["status"], result["exit_code"], result["limit"]) == ("limit", 137, "memory_mb=512")
    assert (result["output_sha256"], result["output"]["key"]) == (WHOLE.sha256, WHOLE.key)
    assert events[result["event"]].payload["observation"]["text"] == "head … tail"
    assert (second["tool"], second["result"]["output_sha256"]) == ("submit", sha256("handed in"))
    assert (ended["kind"], ended["outcome"], ended["reason"], ended["steps"]) == (
        "task_ended",
        "succeeded",
        "submitted",
        2,
    )
    assert ended["last_event"] == max(events)
    assert {entry["task_id"] for entry in world.entries()} == {task_id}


def test_who_was_asked_and_what_they_said_is_in_the_audit(world: World) -> None:
    stack = world.stack((shell("rm a"), OK), (shell("rm b"), OK))
    task_id = task(stack, approvals="always")
    send(stack, ApproveAction(step=1, approved=True, by="ada"), task_id)
    send(stack, ApproveAction(step=2, approved=False, by="bob", reason="no"), task_id)
    _, asked, approved, done, _, refused, denied = world.entries()[:7]
    assert (asked["kind"], asked["tool"], asked["question"]) == (
        "approval_asked",
        "shell",
        "every action of this task needs approval: shell",
    )
    assert asked["arguments_sha256"] == digest({"command": "rm a"})
    assert (approved["kind"], approved["approved"], approved["by"]) == ("approval_decided", True, "ada")
    assert (done["result"]["status"], done["approver"]) == ("ok", "ada")
    assert (refused["approved"], refused["by"], refused["reason"]) == (False, "bob", "no")
    assert (denied["result"]["status"], denied.get("approver"), denied.get("attempt")) == ("denied", None, None)


def test_an_action_that_the_end_overtook_is_told_of_too(world: World) -> None:
    stack = world.stack((shell("sleep 60"), None))
    send(stack, CancelTask(reason="enough"), task(stack))
    overspent = task(stack, limits=Limits(tokens=1))
    found = [(e.get("result", {}).get("status"), e["kind"], e.get("detail")) for e in world.entries()]
    assert found[1] == ("no_result", "action", None)
    assert found[2] == (None, "task_ended", "enough")
    assert [e["kind"] for e in world.entries() if e["task_id"] == overspent] == [
        "task_accepted",
        "action",
        "task_ended",
    ]
    assert found[4][0] == "not_run"


def test_a_step_that_cannot_be_audited_does_not_commit(world: World) -> None:
    stack = world.stack((shell(), OK))
    with psycopg.connect(world.url) as connection:
        connection.execute("ALTER TABLE audit ADD CONSTRAINT no_actions CHECK (entry->>'kind' <> 'action')")
    with pytest.raises(psycopg.errors.CheckViolation):
        task(stack)
    with psycopg.connect(world.url) as connection:
        types = [row[0] for row in connection.execute("SELECT type FROM task_events ORDER BY seq")]
    assert types == ["submitted", "started", "step_started", "action_proposed"]
    assert [e["kind"] for e in world.entries()] == ["task_accepted"]


# Verify and export


def test_verify_says_which_row_and_fails_and_an_export_is_a_note_of_the_head(world: World) -> None:
    task(world.stack((shell(), OK), SUBMIT))
    task(world.stack(SUBMIT), tenant="other")
    code, out, _ = world.longstride("audit", "verify")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == [["default", "4"], ["other", "3"]]
    exported = world.audit("--tenant", "default")
    assert [row["seq"] for row in exported] == [1, 2, 3, 4]
    assert exported[0]["previous"] == GENESIS
    for row in exported:
        about = [row["previous"], row["tenant"], row["seq"], row["occurred_at"], row["entry"]]
        assert row["sha256"] == sha256(json.dumps(about, sort_keys=True, separators=(",", ":")))
    note = world.folder / "note.jsonl"
    note.write_text("\n".join(map(json.dumps, exported)))
    code, out, _ = world.longstride("audit", "verify", "--against", str(note))
    assert (code, "4 entries hold, 4 compared with the export" in " ".join(out.split())) == (0, True)
    with psycopg.connect(world.url) as connection:
        connection.execute("DELETE FROM audit WHERE tenant = 'default' AND seq = 4")
        connection.execute("DELETE FROM audit_heads WHERE tenant = 'default'")
        connection.execute(
            "INSERT INTO audit_heads SELECT tenant, seq, previous, sha256 FROM audit WHERE (tenant, seq) = ('default', 3)"
        )
    code, out, _ = world.longstride("audit", "verify", "--tenant", "default")
    assert code == 0, out
    code, out, _ = world.longstride("audit", "verify", "--against", str(note))
    assert code == 1
    assert "default  entry 4: the end is cut off: entry 4 is missing" in out
    assert "other  3 entries hold" in out
    with psycopg.connect(world.url) as connection:
        connection.execute("UPDATE audit SET entry = '{}' WHERE tenant = 'other' AND seq = 2")
    code, out, _ = world.longstride("audit", "verify", "--json")
    assert code == 1
    (broken,) = [found["broken"] for found in json.loads(out) if found["tenant"] == "other"]
    assert broken == {"seq": 2, "problem": "it was changed after it was written"}


@pytest.mark.parametrize(
    ("forge", "told"),
    [
        (
            lambda lines: [line.replace('"tool":"shell"', '"tool":"shelx"') for line in lines],
            "line 2: entry 2 of default was changed",
        ),
        (lambda lines: [*lines[:1], *lines[2:]], "entry 2 of default was taken out of the export"),
    ],
    ids=["changed", "taken out"],
)
def test_an_export_that_was_tampered_with_proves_nothing(world: World, forge, told: str) -> None:
    task(world.stack((shell(), OK), SUBMIT))
    lines = world.longstride("audit", "export")[1].splitlines()
    note = world.folder / "note.jsonl"
    note.write_text("\n".join(lines))
    assert world.longstride("audit", "verify", "--against", str(note))[0] == 0
    note.write_text("\n".join(forge(lines)))
    code, _, err = world.longstride("audit", "verify", "--against", str(note))
    assert (code, told in " ".join(err.split())) == (1, True), err


def test_an_export_may_be_of_a_time(world: World) -> None:
    task(world.stack(SUBMIT))
    assert len(world.audit("--since", "2020-01-01", "--until", "2099-01-01")) == 3
    assert world.audit("--until", "2020-01-01T10:00:00") == []
    assert world.audit("--since", "2099-01-01", "--tenant", "default") == []


def test_what_is_no_export_is_refused_with_its_line(world: World) -> None:
    task(world.stack(SUBMIT))
    note = world.folder / "note.jsonl"
    note.write_text(world.longstride("audit", "export")[1].splitlines()[0] + '\n{"tenant":"a"}')
    code, _, err = world.longstride("audit", "verify", "--against", str(note))
    assert (code, "line 2: not an entry of" in " ".join(err.split())) == (2, True)


def test_an_export_without_entries_proves_nothing(world: World) -> None:
    note = world.folder / "note.jsonl"
    note.write_text("")
    code, _, err = world.longstride("audit", "verify", "--against", str(note))
    assert (code, "holds no entry" in " ".join(err.split())) == (2, True)


def test_a_hold_says_why(world: World) -> None:
    code, _, err = world.longstride("audit", "hold", " ")
    assert (code, "say why" in err) == (2, True)


def sweep(stack: PlayedStack) -> None:
    message = Sweep(orphans_after_s=86_400, keep_spans_s=86_400)
    Sweeper(stack.database, MemoryArtifacts()).sweep(seal(message), message)


def test_retention_and_holds_from_the_command_line_are_audited(world: World) -> None:
    stack = world.stack(SUBMIT)
    kept, gone = task(stack), task(stack)
    with psycopg.connect(world.url) as connection:
        connection.execute("UPDATE audit SET occurred_at = occurred_at - interval '40 days'")
    assert world.longstride("audit", "retain", "30")[0] == 0
    hold = world.json("audit", "hold", "case 7", "--task", kept)
    assert (hold["task_id"], hold["reason"]) == (kept, "case 7")
    assert [one["id"] for one in world.json("audit", "holds")] == [hold["id"]]
    sweep(stack)
    assert {e.get("task_id") for e in world.entries() if e["kind"] == "action"} == {kept}
    assert gone not in {e.get("task_id") for e in world.entries()}
    assert world.longstride("audit", "release", str(hold["id"]))[0] == 0
    assert world.longstride("audit", "release", str(hold["id"]))[0] == 4
    sweep(stack)
    assert [e["kind"] for e in world.entries()] == [
        "retention_set",
        "hold_placed",
        "rows_removed",
        "hold_released",
        "rows_removed",
    ]
    assert world.longstride("audit", "retain", "soon")[0] == 2
    assert world.json("audit", "retain", "forever") == {"tenant": "default", "days": None}


# Rules on tools


def statuses(stack: PlayedStack, task_id: str) -> list[tuple[str | None, str]]:
    with stack.database.begin() as uow:
        return [(step.tool, step.status) for step in uow.steps.for_task(task_id)]


def test_a_denied_call_is_an_observation_an_audit_entry_and_a_span_event(world: World) -> None:
    world.rules({"tools": ["submit", "read_file"]})
    store = MemorySpans()
    settings = TelemetrySettings(otlp_endpoint=None, metrics_port=None, log_format="json")
    telemetry = setup("planner", settings, writer=store)
    try:
        stack = world.stack((shell("rm -r /"), OK), SUBMIT)
        task_id = task(stack)
        telemetry.flush()
    finally:
        telemetry.shutdown(1)
    assert statuses(stack, task_id) == [("shell", "denied"), ("submit", "ok")]
    with stack.database.begin() as uow:
        assert uow.attempts.last(task_id, 1, "execute") == 0
    (action,) = [e for e in world.entries() if e.get("tool") == "shell"]
    assert (action["result"]["status"], action["rules_version"], action.get("attempt")) == ("denied", 1, None)
    told = [event for span in store.of_task(task_id) for event in span.events if event["name"] == names.DENIED]
    assert [event["attributes"][names.REASON] for event in told] == [
        "the rules do not allow shell; the tools are submit, read_file"
    ]


def test_a_running_task_keeps_the_rules_it_was_accepted_under(world: World) -> None:
    world.rules({"approvals": [{"tool": "shell", "path": "$.command", "pattern": "^rm", "question": "remove?"}]})
    stack = world.stack((shell("rm a"), OK), (shell("ls"), OK), SUBMIT)
    first = task(stack)
    world.rules({"tools": ["submit"]})
    send(stack, ApproveAction(step=1, approved=True, by="ada"), first)
    assert statuses(stack, first) == [("shell", "ok"), ("shell", "ok"), ("submit", "ok")]
    second = task(stack)
    assert statuses(stack, second) == [("shell", "denied"), ("shell", "denied"), ("submit", "ok")]
    asked = [e["question"] for e in world.entries() if e["kind"] == "approval_asked"]
    assert asked == ["remove?"]
    accepted = [e["rules_version"] for e in world.entries() if e["kind"] == "task_accepted"]
    assert accepted == [1, 2]
    changes = [(e["version"], e["agent"]) for e in world.entries() if e["kind"] == "rules_set"]
    assert changes == [(1, "default"), (2, "default")]


def test_a_rate_limit_counts_over_the_tenants_tasks(world: World) -> None:
    for tenant in ("default", "other"):
        world.rules({"rates": [{"tool": "shell", "per_minute": 3}]}, "--tenant", tenant)
    stack = world.stack((shell("ls"), OK), (shell("ls -l"), OK), SUBMIT)
    first, second = task(stack), task(stack)
    assert statuses(stack, first) == [("shell", "ok"), ("shell", "ok"), ("submit", "ok")]
    assert statuses(stack, second) == [("shell", "ok"), ("shell", "denied"), ("submit", "ok")]
    assert statuses(stack, task(stack, tenant="other"))[:2] == [("shell", "ok"), ("shell", "ok")]
    with psycopg.connect(world.url) as connection:
        connection.execute("UPDATE tool_calls SET calls = ARRAY(SELECT at - interval '61 s' FROM unnest(calls) at)")
    assert statuses(stack, task(stack))[:2] == [("shell", "ok"), ("shell", "ok")]


def test_an_agent_has_rules_of_its_own_and_exists_by_them(world: World) -> None:
    stack = world.stack((shell("ls"), OK), SUBMIT)
    with pytest.raises(MessageError, match="has set no rules for an agent 'careful'"):
        task(stack, agent="careful")
    world.rules({"tools": ["submit"]}, "--agent", "careful")
    assert statuses(stack, task(stack, agent="careful"))[0] == ("shell", "denied")
    assert statuses(stack, task(stack))[0] == ("shell", "ok")
    assert [(one["agent"], one["version"]) for one in world.json("rules", "list")] == [("careful", 1)]
    assert world.json("rules", "show", "--agent", "careful")["rules"]["tools"] == ["submit"]
    assert world.longstride("rules", "show")[0] == 4


def test_redactions_go_with_the_command_to_whoever_stores_its_output(world: World) -> None:
    world.rules({"redactions": [{"pattern": "AK[0-9]+"}]})
    seen: list[Any] = []
    script = turns((shell("ls"), OK), SUBMIT)

    def noting(envelope: Any, command: Any) -> Any:
        seen.append(command)
        return script(envelope, command)

    stack = world.stack()
    stack._script = noting
    task(stack)
    assert [r.pattern for command in seen for r in getattr(command, "redactions", ())] == ["AK[0-9]+"] * 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "Invalid JSON"),
        ('{"tools": ["shell"]}', "without submit no task could ever be handed in"),
        ('{"approvals": [{"tool": "shell", "pattern": "("}]}', "is not a regular expression of RE2"),
        ('{"rates": [{"tool": "shell", "per_minute": 0}]}', "rates.0.per_minute"),
        ('{"colour": 1}', "colour"),
        ('{"approvals": [{"tool": "shell", "path": "$.cmd"}]}', "there is no 'cmd' in $; there is command, timeout_s"),
        ('{"approvals": [{"tool": "shell", "tool": "python"}]}', "'tool' is given twice in one object"),
        ('{"tools": ["submit"], "tools": ["submit", "shell"]}', "'tools' is given twice in one object"),
    ],
)
def test_rules_that_cannot_hold_are_refused_with_a_sentence(world: World, text: str, told: str) -> None:
    path = world.folder / "rules.json"
    path.write_text(text)
    for command in ("set", "check"):
        code, _, err = world.longstride("rules", command, str(path))
        assert (code, told in " ".join(err.split())) == (2, True), err
    assert world.json("rules", "list") == []


def test_check_says_what_rules_mean_for_a_call(world: World) -> None:
    path = world.folder / "rules.json"
    path.write_text(
        '{"tools": ["shell", "submit"], "approvals": [{"tool": "shell", "path": "$.command", "pattern": "rm"}]}'
    )

    def ruling(command: object, tool: str = "shell", **more: object) -> Any:
        call = json.dumps({"tool": tool, "arguments": {"command": command, **more}})
        return world.json("rules", "check", str(path), "--call", call)["ruling"]

    assert ruling("ls") == ["allowed", ""]
    assert ruling("rm a")[0] == "needs approval"
    assert ruling("ls", "python") == ["denied", "the rules do not allow python; the tools are shell, submit"]
    assert ruling(7)[0] == ruling("ls", comand="rm")[0] == "invalid"
    assert ruling("ls", comand="rm")[1].startswith("shell: comand: Extra inputs are not permitted")
    assert world.longstride("rules", "check", str(path), "--call", "{}")[0] == 2
    assert world.longstride("rules", "check", str(path))[0] == 0


@pytest.mark.parametrize(
    "export", [b"\xff\xfe", b"[" * 100_000, b"[]", b"7", b'{"tenant":"t","seq":1e400}', b"", b"\n"]
)
def test_what_is_no_export_is_said_to_be_none(world: World, export: bytes) -> None:
    path = world.folder / "export.jsonl"
    path.write_bytes(export)
    code, _, err = world.longstride("audit", "verify", "--against", str(path))
    assert code == 2, err
    assert "export.jsonl" in "".join(err.split())


def test_an_action_that_a_rule_holds_back_is_sent_out_once(world: World) -> None:
    world.rules({"approvals": [{"tool": "shell"}]})
    stack = world.stack((shell("ls"), ActionExecuted(step=1, observation=OK)), SUBMIT)
    task_id = task(stack)
    send(stack, ApproveAction(step=1, approved=True, by="ada"), task_id)
    with stack.database.begin() as uow:
        assert uow.attempts.last(task_id, 1, "execute") == 1
    assert statuses(stack, task_id) == [("shell", "ok"), ("submit", "ok")]


def test_an_audit_that_was_emptied_as_a_whole_is_missed(world: World) -> None:
    task(world.stack(SUBMIT))
    assert world.longstride("audit", "verify")[0] == 0
    with psycopg.connect(world.url) as connection:
        connection.execute("DELETE FROM audit")
        connection.execute("DELETE FROM audit_heads")
    code, told, _ = world.longstride("audit", "verify")
    assert code == 1
    assert "a chain before it is gone: by then 1 of the tenant's tasks had ended, each of which had entries" in told


def test_a_chain_that_begins_anew_does_not_hide_the_one_before(world: World) -> None:
    task(world.stack(SUBMIT))
    with psycopg.connect(world.url) as connection:
        connection.execute("DELETE FROM audit")
        connection.execute("DELETE FROM audit_heads")
        connection.execute("UPDATE tasks SET ended_at = ended_at - interval '1 hour'")
    task(world.stack(SUBMIT))
    code, told, _ = world.longstride("audit", "verify")
    assert code == 1
    assert "a chain before it is gone: by then 1 of the tenant's tasks had ended" in told
