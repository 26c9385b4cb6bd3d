"""The command line and its embedded stack, as a newcomer uses them: nothing else runs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from longstride.client.embedded_stack import EmbeddedStack
from tests.support.eventually import eventually
from tests.support.serving import serving_lines, serving_processes
from tests.support.terminal_folders import harbor

ADD_UP = "import csv\nprint(sum(float(r['amount']) for r in csv.DictReader(open('{}'))))"
LINES: list[dict[str, Any]] = [
    {"plan": ["add up", "submit"], "tool": "python", "arguments": {"code": ADD_UP.format("orders.csv")}},
    {"tool": "python", "arguments": {"code": ADD_UP.format("shop/orders.csv")}},
    {"tool": "submit", "arguments": {"answer": "6.5"}},
]


class Newcomer:
    """Somebody with a folder, a table and the program."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.settings: dict[str, str] = {}
        self.stack = EmbeddedStack(folder / "home")
        (folder / "orders.csv").write_text("id,amount\n1,2.5\n2,4\n")
        self.policy = self.script("corrected", LINES)

    def script(self, name: str, lines: list[dict[str, Any]]) -> str:
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({"version": 1, "lines": lines, "then": "repeat"}))
        return f"scripted:{path}"

    @contextmanager
    def start(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """The program, killed at the end of the block if it has not ended."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("LONGSTRIDE_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "longstride.client.main", *arguments],
            cwd=self.folder,
            env={**clean, "LONGSTRIDE_HOME": str(self.stack.home), "COLUMNS": "120", **self.settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def longstride(self, *arguments: str) -> tuple[int, str, str]:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=100)
        return process.returncode, out, err


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    someone = Newcomer(tmp_path / "newcomer")
    yield someone
    someone.stack.down()


def run_arguments(someone: Newcomer) -> list[str]:
    files = ["--input", "orders.csv:shop/orders.csv", "--policy", someone.policy]
    return ["run", "Add up amount in orders.csv.", "--expect-number", "6.5", *files]


def test_a_first_task_starts_the_stack_corrects_itself_and_can_be_looked_at(newcomer: Newcomer) -> None:
    code, out, err = newcomer.longstride(*run_arguments(newcomer))
    assert code == 0, err
    assert "starting the embedded stack" in err
    assert "✗ failed exit 1 FileNotFoundError" in out
    assert "2 ↻ python" in out
    assert "checks passed · answer 6.5 · reward 1.00" in out

    task = json.loads(newcomer.longstride("tasks", "--json")[1])[0]
    assert (task["status"], task["reward"]) == ("succeeded", 1.0)
    page = newcomer.longstride("show", task["id"][-8:], "--json")[1]
    assert [step["status"] for step in json.loads(page)["steps"]] == ["failed", "ok", "ok"]
    seen = doctor(newcomer)
    assert seen["stack"]["told"].startswith("runs, pid")
    assert "services that run: " in seen["database"]["told"]
    spans = json.loads(newcomer.longstride("trace", task["id"], "--json")[1])["spans"]
    assert {"planner", "model-worker", "tool-executor"} <= {span["service"] for span in spans}

    code, out, _ = newcomer.longstride("fork", task["id"], "--at", "2", "--json")
    assert (code, json.loads(out.splitlines()[-1])["outcome"]) == (0, "succeeded")
    code, out, _ = newcomer.longstride("down")
    assert (code, "stopped pid" in out) == (0, True)
    assert newcomer.stack.running() is None


def doctor(someone: Newcomer) -> dict[str, dict[str, str]]:
    """What it finds, by name."""
    code, out, err = someone.longstride("doctor", "--json")
    assert code == 0, out + err
    return {line["name"]: line for line in map(json.loads, out.splitlines())}


def test_doctor_tries_a_database_and_leaves_nothing_behind(newcomer: Newcomer) -> None:
    before = sorted(newcomer.folder.iterdir())
    seen = doctor(newcomer)
    assert (seen["home"]["state"], seen["database"]["state"]) == ("good", "good")
    assert "can be made and started here" in seen["database"]["told"]
    assert "not running" in seen["stack"]["told"]
    assert sorted(newcomer.folder.iterdir()) == before


def test_a_terminal_task_is_done_in_its_containers_paths_and_judged_by_its_tests(newcomer: Newcomer) -> None:
    folder = harbor(newcomer.folder / "greet")
    lines = [
        {"tool": "shell", "arguments": {"command": "cp /app/data/words.txt /app/out.txt"}},
        {"tool": "submit", "arguments": {"answer": "done"}},
    ]
    policy = ["--policy", newcomer.script("greet", lines)]
    code, out, err = newcomer.longstride("run", "--terminal-task", str(folder), *policy)
    assert code == 0, err
    assert "FROM debian:12-slim: this host's /usr stands in for it" in err
    assert "checks passed · answer done · reward 1.00" in out
    idle = newcomer.script("idle", lines[1:])
    code, out, _ = newcomer.longstride("run", "--terminal-task", str(folder), "--policy", idle, "--json")
    end = json.loads(out.splitlines()[-1])
    assert (code, end["outcome"]) == (1, "failed"), out
    made = harbor(
        newcomer.folder / "made",
        "FROM debian:12-slim\nWORKDIR /app\nRUN mkdir data && echo hello > data/words.txt && touch /tmp/left\n",
    )
    code, out, err = newcomer.longstride("run", "--terminal-task", str(made), *policy)
    assert code == 0, err
    assert "the RUN steps left /tmp/left, which no step of the agent sees" in err
    assert "reward 1.00" in out
    code, _, err = newcomer.longstride("run", "Do it.", "--terminal-task", str(folder))
    assert (code, "INSTRUCTION and --terminal-task exclude each other" in err) == (2, True)


def test_a_stack_that_is_killed_is_started_again_and_its_task_ends_once(newcomer: Newcomer) -> None:
    lines = [{"tool": "shell", "arguments": {"command": "sleep 2; date >> log"}}, LINES[2]]
    code, out, err = newcomer.longstride("submit", "Wait.", "--policy", newcomer.script("slow", lines))
    assert code == 0, err
    running = newcomer.stack.running()
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    code, shown, err = newcomer.longstride("watch", out.strip(), "--json")
    assert code == 0, err
    events = [json.loads(line) for line in shown.splitlines()]
    assert [event["type"] for event in events].count("ended") == 1
    assert [event["step"] for event in events if event["type"] == "action_observed"] == [1, 2]


def test_a_process_lives_between_the_steps_of_its_task_and_ends_with_it(newcomer: Newcomer) -> None:
    lines = serving_lines(port := 8417)
    tools = [
        word for name in ("bash", "write_file", "process_start", "process_poll", "submit") for word in ("--tool", name)
    ]
    serve = [
        "run",
        "Serve it.",
        "--policy",
        newcomer.script("serve", lines),
        *tools,
        "--check",
        "grep -x 'once twice' seen",
    ]
    code, out, err = newcomer.longstride(*serve)
    assert code == 0, out + err
    assert "checks passed" in out
    eventually(lambda: serving_processes(port) == [])


@contextmanager
def follow_slowly(someone: Newcomer, seconds: int) -> Iterator["subprocess.Popen[str]"]:
    """``run`` with a command that takes a while, just after its first line."""
    lines = [{"tool": "shell", "arguments": {"command": f"sleep {seconds}"}}, LINES[2]]
    with someone.start("run", "Wait.", "--policy", someone.script("slow", lines)) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("▸ task_"), process.communicate(timeout=60)
        yield process


def test_a_stack_that_dies_while_one_looks_is_started_again(newcomer: Newcomer) -> None:
    with follow_slowly(newcomer, 2) as process:
        running = newcomer.stack.running()
        assert running is not None
        os.kill(running.pid, signal.SIGKILL)
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "the database does not answer" in err
    assert "○ submitted, nothing checked" in out


def test_a_stack_that_is_stopped_while_one_looks_stays_stopped(newcomer: Newcomer) -> None:
    with follow_slowly(newcomer, 30) as process:
        assert newcomer.longstride("down")[0] == 0
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "was stopped" in err
    assert newcomer.stack.running() is None


def test_ctrl_c_lets_go_and_the_task_goes_on(newcomer: Newcomer) -> None:
    with follow_slowly(newcomer, 3) as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    name = json.loads(newcomer.longstride("tasks", "--json")[1])[0]["id"][-8:]
    assert f"longstride watch {name}" in err
    assert newcomer.longstride("watch", name)[0] == 0


def test_two_stacks_side_by_side_do_not_meet(newcomer: Newcomer, tmp_path: Path) -> None:
    other = Newcomer(tmp_path / "other")
    try:
        assert newcomer.longstride(*run_arguments(newcomer))[0] == 0
        code, out, _ = other.longstride("tasks", "--json")
        assert (code, json.loads(out)) == (0, [])
        assert newcomer.stack.running() != other.stack.running()
    finally:
        other.stack.down()


def test_a_taken_home_and_a_broken_one_are_sentences(newcomer: Newcomer) -> None:
    newcomer.stack.home.mkdir()
    (newcomer.stack.home / "postgres").write_text("not a folder")
    code, out, err = newcomer.longstride("up")
    assert (code, out) == (3, "")
    assert "the embedded stack did not start" in err
    assert "Traceback" not in err


def demo_tasks(someone: Newcomer) -> Path:
    """A list of the demo's form, for a policy that needs no weights."""
    tasks = someone.folder / "tasks.json"
    orders = {"path": "shop/orders.csv", "file": "orders.csv"}
    body = {"instruction": "Add up amount.", "policy": someone.policy, "inputs": [orders]}
    tasks.write_text(json.dumps([body | {"checks": [{"kind": "answer", "number": n}]} for n in (6.5, 7)]))
    return tasks


def test_the_demo_shows_everything_and_leaves_nothing_running(newcomer: Newcomer) -> None:
    home = newcomer.folder / "demo"
    code, out, err = newcomer.longstride("demo", "--tasks", str(demo_tasks(newcomer)), "--home", str(home))
    assert code == 1, err  # the second task's check cannot pass
    assert out.count("2 ↻ python") == 2
    assert "answer 6.5 · reward 1.00" in out
    assert "reward 0.00" in out
    table = [
        line.split()
        for line in out.splitlines()
        if line[8:11] == "   " and line[11:].startswith(("succeeded", "failed"))
    ]
    assert [(row[1], row[3]) for row in table] == [("succeeded", "1.00"), ("failed", "0.00")]
    assert "execute_tool python" in out
    assert f"artifacts {home}/artifacts/session_" in out
    assert f"LONGSTRIDE_HOME=demo longstride show {table[0][0]}" in out
    assert EmbeddedStack(home).running() is None


def test_the_demo_leaves_a_folder_alone_that_is_not_its_own(newcomer: Newcomer) -> None:
    mine = newcomer.folder / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    code, _, err = newcomer.longstride("demo", "--tasks", str(demo_tasks(newcomer)), "--home", str(mine))
    assert (code, "is left alone" in err) == (1, True)
    assert (mine / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("text", "told"),
    [(None, "cannot be read"), ("{", "is not a list of tasks"), ('[{"instruction": ""}]', "instruction: ")],
)
def test_a_demo_without_a_sound_list_of_tasks_says_so(newcomer: Newcomer, text: str | None, told: str) -> None:
    tasks = newcomer.folder / "list.json"
    if text is not None:
        tasks.write_text(text)
    code, _, err = newcomer.longstride("demo", "--tasks", str(tasks))
    assert (code, told in err) == (2, True), err


def test_a_stack_whose_postgresql_is_killed_ends_and_is_started_again(newcomer: Newcomer) -> None:
    with follow_slowly(newcomer, 3) as process:
        postmaster = newcomer.stack.home / "postgres" / "data" / "postmaster.pid"
        os.kill(int(postmaster.read_text().splitlines()[0]), signal.SIGKILL)
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "○ submitted, nothing checked" in out


def test_two_demos_in_one_folder_take_turns_or_say_so(newcomer: Newcomer) -> None:
    arguments = ("demo", "--json", "--policy", newcomer.script("any", [LINES[2]]))
    with newcomer.start(*arguments) as first, newcomer.start(*arguments) as second:
        ends = [process.communicate(timeout=100) for process in (first, second)]
    refused = [err for _, err in ends if "a demo runs in" in err]
    assert len(refused) == 1, ends
    assert not any("Traceback" in err for _, err in ends)


@pytest.mark.parametrize("command", ["tasks", "down", "up"])
def test_a_home_that_is_a_file_is_a_sentence(newcomer: Newcomer, command: str) -> None:
    newcomer.stack.home.write_text("mine")
    code, _, err = newcomer.longstride(command)
    assert code != 0
    assert "cannot hold an embedded stack: Not a directory" in err
    assert "Traceback" not in err
    newcomer.stack.home.unlink()


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 64 KiB over a folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_artifact_disk_is_told_and_the_task_goes_on_once_there_is_room(newcomer: Newcomer) -> None:
    noise = "import os; open('noise', 'wb').write(os.urandom(200_000)); print('made')"
    lines = [{"tool": "python", "arguments": {"code": noise}}, {"tool": "submit", "arguments": {"answer": "made"}}]
    policy = newcomer.script("noisy", lines)
    artifacts = newcomer.stack.up(lambda _sentence: None).artifacts
    with small_disk(artifacts), newcomer.start("run", "Make noise.", "--policy", policy, "--expect", "made") as process:
        told = eventually(lambda: json.loads(newcomer.longstride("tasks", "--json")[1] or "[]"))
        waits = eventually(lambda: json.loads(newcomer.longstride("show", told[0]["id"], "--json")[1])["waits"])
        assert f"the artifact folder {artifacts} is full" in waits["reason"]
        assert "waits" in newcomer.longstride("show", told[0]["id"])[1]
        subprocess.run(["mount", "-o", "remount,size=8m", artifacts], check=True)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "succeeded" in out
        assert f"it waits: the artifact folder {artifacts} is full" in err.replace("\n", " ")
