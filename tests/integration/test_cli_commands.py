"""The command line on a real database, with a real planner and scripted workers behind it."""

import getpass
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from longstride.client.cli import steering
from longstride.contracts.artifact import ArtifactRef, NamedArtifact
from longstride.contracts.v1.action import Action, CheckResult, Observation, Usage
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.input_file import InputFile
from longstride.observability.span_record import SpanRecord
from longstride.sandbox.volumes import DirectoryVolumes
from longstride.sandbox.workspace import Workspaces
from tests.support.command_line import longstride
from tests.support.eventually import eventually
from tests.support.played_stack import PlayedStack, turns
from tests.support.servers import Servers

TRACEBACK = "Traceback (most recent call last):\nFileNotFoundError: orders.csv"
PASSED = CheckResult(name="number", passed=True, score=1)


class World:
    """A database with a stack on it, and the command line that talks to it."""

    def __init__(self, database_url: str, servers: Servers, bucket: str, folder: Path, capsys, monkeypatch) -> None:
        from longstride.storage.minio_artifacts import MinioArtifacts

        self.database_url = database_url
        self.artifacts = MinioArtifacts(servers.s3_endpoint, servers.access_key, servers.secret_key, bucket)
        self.folder = folder
        self._capsys = capsys
        self.environment = {
            "LONGSTRIDE_DATABASE_URL": database_url,
            "LONGSTRIDE_S3_ENDPOINT": servers.s3_endpoint,
            "LONGSTRIDE_S3_ACCESS_KEY": servers.access_key,
            "LONGSTRIDE_S3_SECRET_KEY": servers.secret_key,
            "LONGSTRIDE_S3_BUCKET": bucket,
            "COLUMNS": "140",
        }
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("LONGSTRIDE_AMQP_URL", raising=False)
        monkeypatch.chdir(folder)

    def stack(self, *script: tuple[Action, Observation | ActionExecuted | None]) -> PlayedStack:
        return PlayedStack(self.database_url, self.artifacts, turns(*script))

    def longstride(self, *arguments: str) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)."""
        return longstride(self._capsys, *arguments)

    def finished(
        self, *script: tuple[Action, Observation | ActionExecuted | None], options: tuple[str, ...] = ()
    ) -> str:
        """The id of a task that went through the script."""
        with self.stack(*(script or SCRIPT)):
            code, out, err = self.longstride("run", "Add up amount.", "--json", *options)
        assert code == 0, err
        return json.loads(out.splitlines()[0])["task_id"]

    def waiting(self, *options: str) -> str:
        """The id of a task that a model call never answers."""
        with self.stack():
            code, out, err = self.longstride("submit", "Wait.", *options)
        assert code == 0, err
        return out.strip()


def shell(command: str, **more) -> Action:
    return Action(tool="shell", arguments={"command": command}, **more)


SCRIPT = (
    (shell("cat orders.csv", plan=("look", "add up")), Observation(status="failed", text=TRACEBACK, exit_code=1)),
    (shell("cat shop/orders.csv"), Observation(status="ok", text="1\n2\n")),
    (
        Action(tool="submit", arguments={"answer": "3"}),
        ActionExecuted(step=3, observation=Observation(status="ok", text="handed in"), checks=(PASSED,)),
    ),
)


@pytest.fixture
def world(database_url: str, servers: Servers, bucket: str, tmp_path: Path, capsys, monkeypatch) -> World:
    return World(database_url, servers, bucket, tmp_path, capsys, monkeypatch)


def test_run_publishes_follows_and_ends_with_the_outcome(world: World) -> None:
    with world.stack(*SCRIPT):
        code, out, err = world.longstride("run", "Add up amount.", "--expect-number", "3")
    assert code == 0
    lines = [line.rstrip() for line in out.splitlines()]
    assert "Add up amount." in lines[1]
    assert "       plan          1 look · 2 add up" in lines
    assert any(
        line.startswith("     ✗ failed exit  FileNotFoundError") or "FileNotFoundError: orders.csv" in line
        for line in lines
    )
    assert any(line.startswith("   2 ↻ shell") for line in lines)
    assert "     ✓ succeeded     checks passed · answer 3 · reward 1.00" in lines
    assert "360 tokens" in lines[-1]
    assert err == ""


def test_run_as_json_is_one_event_a_line(world: World) -> None:
    with world.stack(*SCRIPT):
        code, out, _ = world.longstride("run", "Add up amount.", "--expect-number", "3", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["type"] == "submitted"
    assert (events[-1]["type"], events[-1]["outcome"], events[-1]["reward"]) == ("ended", "succeeded", 1.0)


def test_a_task_that_fails_is_exit_code_1(world: World) -> None:
    with world.stack((shell("ls"), Observation(status="ok", text="a"))):
        code, out, _ = world.longstride("run", "x", "--steps", "1")
    assert code == 1
    assert "steps exhausted" in out


def test_a_repeated_key_follows_the_first_task(world: World) -> None:
    first = world.finished(options=("--key", "nightly"))
    with world.stack():
        code, out, err = world.longstride("run", "Add up amount.", "--key", "nightly", "--json")
    assert code == 0
    assert json.loads(out.splitlines()[0])["task_id"] == first
    assert "was used before" in err


def test_a_group_is_followed_together(world: World) -> None:
    with world.stack(*SCRIPT):
        code, out, _ = world.longstride("run", "x", "--group", "3", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len({event["task_id"] for event in events}) == 3
    assert len({e["submit"]["group_id"] for e in events if e["type"] == "submitted"}) == 1


def test_inputs_are_uploaded_and_reach_the_task(world: World) -> None:
    (world.folder / "big.csv").write_text("amount\n" + "1\n" * 5000)
    task = world.finished(options=("--input", "big.csv:data/big.csv"))
    _, out, _ = world.longstride("show", task, "--json")
    (sent,) = json.loads(out)["submit"]["inputs"]
    assert sent["path"] == "data/big.csv"
    assert sent["ref"]["size"] == 10_007


def test_submit_prints_the_id_and_watch_shows_it_from_the_start(world: World) -> None:
    with world.stack(*SCRIPT):
        code, out, _ = world.longstride("submit", "Add up amount.")
        task = out.strip()
        watched, shown, _ = world.longstride("watch", task[-8:])
    assert (code, watched) == (0, 0)
    assert f"▸ {task}" in shown
    assert "✓ succeeded" in shown


def test_tasks_lists_the_newest_first(world: World) -> None:
    done, waits = world.finished(), world.waiting("--tenant", "acme")
    _, out, _ = world.longstride("tasks", "--json")
    assert [(t["id"], t["status"]) for t in json.loads(out)] == [(waits, "running"), (done, "succeeded")]
    assert [t["id"] for t in json.loads(world.longstride("tasks", "--status", "running", "--json")[1])] == [waits]
    assert [t["id"] for t in json.loads(world.longstride("tasks", "--tenant", "acme", "--json")[1])] == [waits]
    table = world.longstride("tasks")[1]
    assert done[-8:] in table
    assert "Add up amount." in table


def test_what_nothing_checked_is_said_so_and_stays_a_success_for_programs(world: World) -> None:
    handed_in = ActionExecuted(step=1, observation=Observation(status="ok", text="submitted"))
    task = world.finished((Action(tool="submit", arguments={"answer": "3"}), handed_in))
    assert "submitted, nothing checked" in world.longstride("tasks")[1]
    page = world.longstride("show", task)[1].splitlines()
    assert page[0] == f"{task}  submitted, nothing checked"
    assert "     ○ submitted, nothing checked · answer 3" in page
    code, watched, _ = world.longstride("watch", task)
    assert (code, "○ submitted, nothing checked" in watched, "succeeded" in watched) == (0, True, False)
    assert json.loads(world.longstride("tasks", "--json")[1])[0]["status"] == "succeeded"


def test_show_has_steps_budget_and_trace_id(world: World) -> None:
    task = world.finished()
    document = json.loads(world.longstride("show", task, "--json")[1])
    assert [(s["step"], s["status"], s["corrects"]) for s in document["steps"]] == [
        (1, "failed", None),
        (2, "ok", 1),
        (3, "ok", None),
    ]
    assert document["budget"]["tokens"] == {"used": 360, "limit": 200_000}
    assert document["budget"]["steps"] == {"used": 3, "limit": 30}
    assert len(document["trace_id"]) == 32
    page = world.longstride("show", task[-8:])[1]
    assert "3 of 30 steps, 360 of 200,000 tokens" in page
    assert document["trace_id"] in page


def test_show_works_on_a_database_that_cannot_tell_yet_what_a_task_waits_for(world: World) -> None:
    task_id = world.finished()
    with psycopg.connect(world.database_url) as connection:
        connection.execute("ALTER TABLE attempts DROP COLUMN hindrance, DROP COLUMN hindered_at")
    code, out, err = world.longstride("show", task_id, "--json")
    assert code == 0, err
    assert json.loads(out)["waits"] is None


def test_show_step_gives_the_whole_observation(world: World) -> None:
    whole = "\n".join(f"line {i}" for i in range(4000))
    ref = world.artifacts.put(whole.encode(), session="session_1", kind="observation")
    cut = Observation(status="ok", text="line 0\n…\nline 3999", full=ref)
    task = world.finished((shell("cat big"), cut), *SCRIPT[2:])
    assert "line 2000" in world.longstride("show", task, "--step", "1")[1]
    assert json.loads(world.longstride("show", task, "--step", "1", "--json")[1])["observation_full"] == whole
    code, _, err = world.longstride("show", task, "--step", "9")
    assert (code, "has no step 9" in err) == (4, True)


@pytest.mark.parametrize("command", [["show"], ["watch"], ["trace"], ["cancel"], ["artifacts"], ["fork", "--at", "1"]])
def test_an_unknown_task_is_exit_code_4(world: World, command: list[str]) -> None:
    code, out, err = world.longstride(*command, "task_0123456789abcdef")
    assert (code, out) == (4, "")
    assert "no task 'task_0123456789abcdef'" in err


def test_an_abbreviation_that_fits_several_tasks_is_refused(world: World) -> None:
    first, second = world.waiting(), world.waiting()
    common = first[5:11]  # both were made within a minute, and ids begin with the time
    code, _, err = world.longstride("show", common)
    assert code == 2
    assert first in err
    assert second in err


def test_cancel_ends_a_task_at_once(world: World) -> None:
    task = world.waiting()
    with world.stack():
        code, out, _ = world.longstride("cancel", task, "--reason", "wrong file")
        assert (code, out.split()) == (0, [task[-8:], "cancelled"])
        again = world.longstride("cancel", task)
        watched = world.longstride("watch", task)
    told = f"{task[-8:]} has ended: cancelled by {getpass.getuser()}: wrong file, "
    assert (again[0], told in again[2]) == (6, True), again
    assert watched[0] == 5
    assert "wrong file" in watched[1]


def test_pause_message_and_resume_reach_the_task(world: World) -> None:
    task = world.waiting()
    with world.stack():
        assert world.longstride("message", task, "The amounts are in cents.")[0] == 0
        assert world.longstride("pause", task)[0] == 0
        document = json.loads(world.longstride("show", task, "--json")[1])
        assert world.longstride("resume", task)[0] == 0
    assert document["phase"] == "thinking"
    assert world.longstride("message", task, "")[0] == 2


def outbox(world: World) -> list[tuple[object, ...]]:
    """What waits to be sent; no stack runs that would take it."""
    with psycopg.connect(world.database_url) as connection:
        return connection.execute("SELECT id FROM outbox ORDER BY id").fetchall()


STEERING = [["cancel"], ["pause"], ["resume"], ["message", "Hurry."]]


@pytest.mark.parametrize("command", STEERING, ids=lambda command: command[0])
def test_another_tenants_task_is_not_found_and_hears_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr(steering, "EFFECT_S", 0.0)
    task = world.waiting("--tenant", "acme")
    before = outbox(world)
    name, *rest = command
    for tenant in ("mine", "default"):
        code, out, err = world.longstride(name, task, *rest, "--tenant", tenant)
        assert (code, out) == (4, ""), err
        assert f"no task {task!r} of the tenant {tenant!r}" in err
    assert outbox(world) == before
    assert world.longstride(name, task, *rest, "--tenant", "acme")[0] == 0
    assert len(outbox(world)) == len(before) + 1


@pytest.mark.parametrize("command", STEERING, ids=lambda command: command[0])
@pytest.mark.parametrize("options", [(), ("--tenant", "acme")], ids=["untold", "told"])
def test_the_tenant_of_a_task_need_not_be_told(world: World, command: list[str], options: tuple[str, ...]) -> None:
    task = world.waiting("--tenant", "acme")
    with world.stack():
        name, *rest = command
        code, out, err = world.longstride(name, task, *rest, *options, "--json")
    assert (code, json.loads(out)["task_id"]) == (0, task), err


@pytest.mark.parametrize(
    ("status", "name", "told"),
    [
        ("running", "cancel", "once a planner has read it"),
        ("running", "pause", "once the call in flight is over"),
        ("parked", "resume", "once a planner has read it, and goes on waiting for an approval"),
        ("queued", "resume", "once there is a place for the task among the running ones"),
    ],
)
def test_what_an_effect_waits_for_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch, status: str, name: str, told: str
) -> None:
    """No planner runs, so that nothing comes of it."""
    task = world.waiting()
    with psycopg.connect(world.database_url) as connection:
        connection.execute("UPDATE tasks SET status = %s WHERE id = %s", (status, task))
    monkeypatch.setattr(steering, "EFFECT_S", 0.0)
    code, _, err = world.longstride(name, task)
    assert (code, f"asked for; it shows {told}" in err) == (0, True), err


def test_approve_decides_the_action_that_waits(world: World) -> None:
    script = ((shell("rm -r out"), Observation(status="ok", text="gone")), SCRIPT[2])
    with world.stack(*script):
        _, out, _ = world.longstride("submit", "x", "--approve", "always")
        task = out.strip()
        eventually(lambda: json.loads(world.longstride("show", task, "--json")[1])["phase"] == "awaiting_approval")
        assert "waiting" in world.longstride("show", task)[1]
        wrong = world.longstride("approve", task, "--step", "2")
        assert (wrong[0], "does not wait" in wrong[2]) == (6, True)
        assert world.longstride("approve", task, "--step", "1", "--deny", "--reason", "not today")[0] == 0
        eventually(lambda: json.loads(world.longstride("show", task, "--json")[1])["phase"] == "awaiting_approval")
        first = json.loads(world.longstride("show", task, "--json")[1])["steps"][0]
        assert (first["status"], "not today" in first["decision"]) == ("denied", True)
        code, _, err = world.longstride("approve", task, "--step", "1")
        who = getpass.getuser()
        told = f"step 1 was denied by {who}: not today; step 2 of {task[-8:]} does wait"
        assert (code, told in err) == (6, True), err
        assert world.longstride("approve", task)[0] == 0
        eventually(lambda: json.loads(world.longstride("show", task, "--json")[1])["task"]["status"] == "succeeded")
    code, _, err = world.longstride("approve", task)
    assert code == 6
    assert re.search(
        rf"{task[-8:]} has ended: succeeded \(checks passed\), \d+ s ago; step 2 was approved by {who}", err
    ), err


def test_nothing_to_approve_is_said_plainly(world: World) -> None:
    task = world.waiting()
    code, _, err = world.longstride("approve", task)
    assert (code, f"nothing of {task[-8:]} waits for approval" in err) == (6, True), err


WORDS = [["cancel"], ["pause"], ["resume"], ["message", "Hurry."], ["approve"]]
ENDS = {
    "succeeded": (SCRIPT, (), r"succeeded \(checks passed\)"),
    "failed": (SCRIPT[:2], ("--steps", "2"), r"failed \(steps exhausted\)"),
    "cancelled": ((), (), r"cancelled by \S+: wrong file"),
}


@pytest.fixture
def ended(world: World, request: pytest.FixtureRequest) -> str:
    """A task that has ended in one of these ways."""
    script, options, _ = ENDS[request.param]
    with world.stack(*script):
        if script:
            _, out, _ = world.longstride("run", "Add up amount.", "--json", *options)
            return json.loads(out.splitlines()[0])["task_id"]
        _, out, _ = world.longstride("submit", "Wait.")
        assert world.longstride("cancel", out.strip(), "--reason", "wrong file")[0] == 0
        return out.strip()


@pytest.mark.parametrize("ended", ENDS, indirect=True)
def test_no_word_to_a_task_that_has_ended_is_wrong_usage(
    world: World, ended: str, request: pytest.FixtureRequest
) -> None:
    how = ENDS[request.node.callspec.params["ended"]][2]
    for name, *rest in WORDS:
        code, out, err = world.longstride(name, ended, *rest)
        assert (code, out) == (6, ""), err
        assert re.search(rf"error: {ended[-8:]} has ended: ({how}).*, \d+ s ago", err), err


@pytest.mark.parametrize("columns", ["40", "50", "70", "120"])
def test_a_narrow_terminal_still_shows_which_tasks_there_are(
    world: World, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    task = world.waiting()
    monkeypatch.setenv("COLUMNS", columns)
    lines = [line for line in world.longstride("tasks")[1].splitlines() if task[-8:] in line]
    assert len(lines) == 1
    assert [word in lines[0] for word in ("running", "Wait.")] == [True, True], lines
    assert len(lines[0]) <= int(columns)


def test_a_filter_that_fits_nothing_does_not_say_that_there_are_no_tasks(world: World) -> None:
    world.waiting()
    _, out, err = world.longstride("tasks", "--status", "failed")
    assert (out, "no task is like that" in err) == ("", True)


def test_feedback_is_for_tasks_that_ended(world: World) -> None:
    task = world.waiting()
    code, _, err = world.longstride("feedback", task, "1")
    assert (code, f"{task[-8:]} has not ended yet (running): only what is finished" in err) == (6, True), err


def test_a_denied_answer_is_not_shown_as_one(world: World) -> None:
    with world.stack((Action(tool="submit", arguments={"answer": "42"}), None)):
        task = world.longstride("submit", "x", "--approve", "always")[1].strip()
        eventually(lambda: json.loads(world.longstride("show", task, "--json")[1])["phase"] == "awaiting_approval")
        assert world.longstride("approve", task, "--deny")[0] == 0
        assert world.longstride("cancel", task)[0] == 0
        page = world.longstride("show", task)[1]
    assert "cancelled" in page
    assert "answer " not in page


def test_fork_starts_from_a_past_step(world: World) -> None:
    task = world.finished()
    with world.stack(*SCRIPT):
        code, out, err = world.longstride("fork", task, "Use the median.", "--at", "2", "--json")
    assert code == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    assert events[0]["submit"]["fork_of"] == [task, 2]
    forked = next(e for e in events if e["type"] == "forked")
    assert (forked["source"], forked["step"]) == (task, 2)
    assert forked["tail"][-1]["content"] == "Use the median."
    code, _, err = world.longstride("fork", task, "--at", "7")
    assert (code, "it has: 1, 2, 3" in err) == (4, True)


def test_a_forks_policy_is_looked_for_where_it_is_named(world: World) -> None:
    Path("s.json").write_text("{}")
    task = world.finished()
    with world.stack(*SCRIPT):
        code, out, err = world.longstride("fork", task, "--at", "2", "--policy", "scripted:s.json", "--json")
    assert code == 0, err
    assert json.loads(out.splitlines()[0])["submit"]["policy"] == f"scripted:{Path('s.json').absolute()}"


def test_artifacts_are_listed_and_fetched(world: World) -> None:
    data = b"a,b\n\x00\xff"
    ref = world.artifacts.put(data, session="session_1", kind="output")
    handed_in = ActionExecuted(
        step=1,
        observation=Observation(status="ok", text="ok"),
        artifacts=(NamedArtifact(name="out/report.csv", ref=ref),),
    )
    task = world.finished((Action(tool="submit", arguments={"answer": "3"}), handed_in))
    (entry,) = json.loads(world.longstride("artifacts", task, "--json")[1])
    assert (entry["name"], entry["sha256"]) == ("out/report.csv", ref.sha256)
    assert world.longstride("artifacts", task, "--get", "out/report.csv")[0] == 0
    assert (world.folder / "report.csv").read_bytes() == data
    code, _, err = world.longstride("artifacts", task, "--get", "out/report.csv")
    assert (code, "exists" in err) == (2, True)
    assert world.longstride("artifacts", task, "--get", "out/report.csv", "-o", "report.csv")[0] == 0
    code, _, err = world.longstride("artifacts", task, "--get", "nope")
    assert (code, "out/report.csv" in err) == (4, True)


def stepped(world: World) -> str:
    """A task whose first step wrote files and whose second changed them."""
    workspaces = Workspaces(world.artifacts, DirectoryVolumes(world.folder / "volumes"))
    refs: list[ArtifactRef | None] = [None]
    for text in ("one\ntwo\n", "one\n2\n"):
        with workspaces.open("t", refs[-1], [InputFile(path="orders.csv", text="1\n")]) as workspace:
            (workspace.volume.path / "out").mkdir(exist_ok=True)
            (workspace.volume.path / "out/numbers.txt").write_text(text)
            refs.append(workspace.commit("ses"))
    workspaces.close()
    done = Observation(status="ok", text="")
    return world.finished(
        (shell("one"), ActionExecuted(step=1, observation=done, workspace=refs[1])),
        (shell("two"), ActionExecuted(step=2, observation=done, workspace=refs[2])),
        (SCRIPT[2][0], ActionExecuted(step=3, observation=done, workspace=refs[2], checks=(PASSED,))),
        options=("--input", "orders.csv"),
    )


def test_diff_shows_what_changed_between_two_steps(world: World) -> None:
    (world.folder / "orders.csv").write_text("1\n")
    task = stepped(world)
    code, out, err = world.longstride("diff", task, "1", "2")
    assert code == 0, err
    assert [line.rstrip() for line in out.splitlines()] == [
        "changed out/numbers.txt",
        "@@ -1,2 +1,2 @@",
        " one",
        "-two",
        "+2",
        "",
    ]
    code, out, _ = world.longstride("diff", task, "0", "--stat")
    assert [line.rstrip() for line in out.splitlines()] == [
        "out              nothing → directory, mode 755",
        "out/numbers.txt  +2 -0",
        "2 paths, +2 -0 lines",
    ]
    code, out, _ = world.longstride("diff", task, "1", "3", "--json")
    told = json.loads(out)
    assert (told["from"], told["to"], [each["path"] for each in told["changes"]]) == (1, 3, ["out/numbers.txt"])
    assert told["changes"][0]["diff"] == "@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    code, out, err = world.longstride("diff", task, "2", "3")
    assert (code, out) == (0, "")
    assert "nothing changed in the workspace" in err
    code, _, err = world.longstride("diff", task, "1", "9")
    assert code == 4
    assert "has carried out 3 steps, not 9" in err


def test_export_writes_the_workspace_of_a_step(world: World) -> None:
    (world.folder / "orders.csv").write_text("1\n")
    task = stepped(world)
    code, _, err = world.longstride("export", task, "--at", "1", "--to", "one")
    assert code == 0, err
    assert (world.folder / "one/out/numbers.txt").read_text() == "one\ntwo\n"
    assert (world.folder / "one/orders.csv").read_text() == "1\n"
    code, out, _ = world.longstride("export", task, "--to", "last.tar.zst", "--json")
    assert {**json.loads(out), "bytes": 0} == {
        "task": task,
        "step": 3,
        "to": "last.tar.zst",
        "files": 2,
        "bytes": 0,
        "left_out": [],
    }
    code, _, _ = world.longstride("export", task, "--at", "0", "--to", "inputs")
    assert [path.name for path in (world.folder / "inputs").iterdir()] == ["orders.csv"]
    code, _, err = world.longstride("export", task, "--to", "one")
    assert code == 2
    assert "'one' exists already" in err


def test_trace_draws_the_spans(world: World) -> None:
    task = world.finished()
    code, _, err = world.longstride("trace", task)
    assert (code, "no spans yet" in err) == (4, True)
    stack = world.stack()
    with stack.database.begin() as uow:
        common = {
            "kind": "internal",
            "service": "planner",
            "task_id": task,
            "step": 1,
            "status": "ok",
            "status_detail": None,
        }
        uow.spans.add_many(
            [SpanRecord("ab" * 16, "cd" * 8, None, "chat builtin", started_ns=1, ended_ns=2_000_001, **common)]
        )
    stack.database.close()
    assert "chat builtin" in world.longstride("trace", task)[1]
    assert json.loads(world.longstride("trace", task, "--json")[1])["spans"][0]["name"] == "chat builtin"


def test_dead_letters_are_listed_shown_and_replayed_once(world: World) -> None:
    task = world.waiting()
    stack = world.stack()
    wire = {"message_id": "msg_1", "type": "cancel_task", "task_id": task, "body": {}}
    with stack.database.begin() as uow:
        number = uow.dead_letters.add(
            "longstride.planner", "the disk was full", json.dumps(wire).encode(), {}, "msg_1", "cancel_task"
        )
    (letter,) = json.loads(world.longstride("dead-letters", "list", "--json")[1])
    assert (letter["id"], letter["reason"], letter["type"]) == (number, "the disk was full", "cancel_task")
    assert task in world.longstride("dead-letters", "show", str(number))[1]
    assert world.longstride("dead-letters", "replay", str(number))[0] == 0
    stack.play()
    stack.database.close()
    assert json.loads(world.longstride("show", task, "--json")[1])["task"]["status"] == "cancelled"
    code, _, err = world.longstride("dead-letters", "replay", str(number))
    assert (code, "was replayed" in err) == (1, True)
    assert world.longstride("dead-letters", "show", "999")[0] == 4
    assert json.loads(world.longstride("dead-letters", "list", "--json")[1]) == []


def test_ctrl_c_lets_go_of_the_task_and_says_how_to_watch_it(world: World) -> None:
    with world.stack():
        process = subprocess.Popen(
            [sys.executable, "-m", "longstride.client.main", "run", "Wait."],
            env={**os.environ, **world.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            eventually(lambda: json.loads(world.longstride("tasks", "--json")[1]))
            assert process.stdout is not None
            assert process.stdout.readline().startswith("▸ task_")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
        (task,) = json.loads(world.longstride("tasks", "--json")[1])
    assert process.returncode == 130
    assert f"longstride watch {task['id'][-8:]}" in err
    assert task["status"] == "running"


def test_a_database_that_is_away_is_exit_code_3(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGSTRIDE_DATABASE_URL", "postgresql://u:p@127.0.0.1:9/x")
    code, _, err = world.longstride("tasks")
    assert (code, "PostgreSQL cannot be reached" in err) == (3, True)


def test_a_database_without_tables_says_so(
    world: World, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGSTRIDE_DATABASE_URL", empty_database_url)
    code, _, err = world.longstride("tasks")
    assert code == 1
    assert "migrations" in err


def published(world: World) -> None:
    from longstride.storage.policies import PolicyVersion

    stack = world.stack()
    manifest = world.artifacts.put(b"{}", session="policies", kind="policy")
    with stack.database.begin() as uow:
        uow.policies.publish(PolicyVersion("builtin", 0, manifest))
        uow.policies.publish(PolicyVersion("builtin", 1, manifest, 0, "batch_1", {"loss": 0.25}))
    stack.database.close()


def test_policies_are_listed_and_shown_by_version(world: World) -> None:
    published(world)
    versions = json.loads(world.longstride("policy", "list", "--json")[1])
    assert [(v["name"], v["version"], v["parent_version"]) for v in versions] == [
        ("builtin", 0, None),
        ("builtin", 1, 0),
    ]
    assert json.loads(world.longstride("policy", "show", "builtin", "--json")[1])["metrics"] == {"loss": 0.25}
    assert json.loads(world.longstride("policy", "show", "builtin@0", "--json")[1])["version"] == 0
    assert world.longstride("policy", "show", "builtin@9")[0] == 4
    assert world.longstride("policy", "show", "builtin@x")[0] == 2


def test_an_update_with_nothing_to_learn_from_says_so(world: World) -> None:
    code, _, err = world.longstride("policy", "update", "builtin")
    assert (code, "no published version" in err) == (1, True)
    published(world)
    code, _, err = world.longstride("policy", "update", "builtin")
    assert (code, "0 groups with a signal, 1 wanted" in err, "--group 8" in err) == (1, True, True)
    code, _, err = world.longstride("policy", "update", "--timeout", "5")
    assert (code, "--timeout is for --wait" in err) == (2, True)


def test_an_export_of_what_is_no_manifest_is_refused(world: World) -> None:
    published(world)
    code, _, err = world.longstride("policy", "export", "builtin", "out")
    assert (code, "is not a manifest" in err) == (1, True)


# Budgets of all tool calls together


def test_a_budget_of_tool_calls_ends_the_task_and_is_shown_with_what_was_used(world: World) -> None:
    shell = Action(tool="shell", arguments={"command": "make"})
    ran = Observation(status="ok", text="made")
    used = Usage(cpu_ms=1250, wall_ms=2000, output_bytes=1 << 19)
    turns = [(shell, ActionExecuted(step=1, observation=ran, usage=used))]
    options = ("--cpu", "1.2", "--output", "4", "--received", "8", "--json")
    with world.stack(*turns):
        code, out, err = world.longstride("run", "Build it.", *options)
    assert code == 1, err
    end = json.loads(out.splitlines()[-1])
    assert (end["type"], end["reason"]) == ("ended", "cpu_exhausted")
    assert end["detail"] == "1.25 of 1.2 CPU seconds of tool calls used"
    task_id = end["task_id"]
    _, page, _ = world.longstride("show", task_id)
    assert (
        "tools      1.25 of 1.2 CPU seconds of tool calls, 2 seconds of tool calls, 0.5 of 4 MiB of tool output, "
        "0 of 8 MiB received over the network"
    ) in page
    budget = json.loads(world.longstride("show", task_id, "--json")[1])["budget"]
    assert budget["cpu_s"] == {"used": 1.25, "limit": 1.2}
    assert budget["tool_s"] == {"used": 2.0, "limit": None}
    assert (budget["output_mb"], budget["sent_mb"]["limit"]) == ({"used": 0.5, "limit": 4.0}, None)


def test_who_cancelled_a_task_is_shown(world: World) -> None:
    task_id = world.waiting()
    with world.stack():
        code, _, err = world.longstride("cancel", task_id, "--reason", "wrong file")
    assert code == 0, err
    _, page, _ = world.longstride("show", task_id)
    assert f"cancelled by {getpass.getuser()}: wrong file" in page
