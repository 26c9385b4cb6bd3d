"""The program: its table of commands, exit codes, and where it says what."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from longstride.client.application import COMMANDS, load, overview, problem_of
from longstride.client.cli.exit_codes import CODES
from longstride.client.errors import ClientError, NotFound, WrongState
from longstride.client.health import install
from longstride.contracts.envelope import MessageError

NOWHERE = "amqp://guest:guest@127.0.0.1:9/%2F"


def longstride(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LONGSTRIDE_")}
    return subprocess.run(
        [sys.executable, "-m", "longstride.client.main", *arguments],
        env={**clean, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        errors="surrogateescape",
        input="\udcff",
        timeout=60,
    )


def test_the_help_lists_every_command_and_exit_code() -> None:
    told = longstride("--help")
    assert told.returncode == 0
    assert [line.split()[0] for line in told.stdout.splitlines() if line.startswith("  ")] == [e.name for e in COMMANDS]
    ending = " ".join(told.stdout.partition("Exit codes: ")[2].split())
    assert ending == (
        "0 done, 1 failed, 2 wrong usage, 3 unreachable, 4 no such thing, 5 cancelled, 6 too late or too early, 130 Ctrl-C"
    )


def test_the_readme_tells_what_every_exit_code_means() -> None:
    lines = [f"| {code.number} | {code.word} | {code.meaning} |" for code in CODES]
    assert "\n".join(lines) in (Path(__file__).parents[2] / "README.md").read_text()


def test_every_error_has_an_exit_code_that_is_told_of() -> None:
    def family(kind: type[ClientError]) -> set[type[ClientError]]:
        return {kind, *(found for below in kind.__subclasses__() for found in family(below))}

    for entry in COMMANDS:
        load(entry)
    assert {kind.exit_code for kind in family(ClientError)} <= {code.number for code in CODES}


def test_the_help_needs_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in overview()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in overview()


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_of_the_table_loads_and_has_help(entry) -> None:
    command = load(entry)
    assert command.name == entry.name
    parts = list(command.commands.values()) if hasattr(command, "commands") else [command]
    for part in parts:
        assert part.help
        flags = {flag for parameter in part.params for flag in parameter.opts}
        assert "--json" in flags, f"{entry.name} {part.name} has no --json"


@pytest.mark.parametrize("entry", [e for e in COMMANDS if e.attribute != "app"], ids=lambda entry: entry.name)
def test_every_command_shows_an_example(entry) -> None:
    assert f"longstride {entry.name}" in load(entry).help


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["bogus"], 2, "No such command 'bogus'"),
        (["run"], 2, "INSTRUCTION"),
        (["run", " "], 2, "instruction: "),
        (["run", "x", "--steps", "0"], 2, "limits.steps"),
        (["run", "x", "--tokens", "10000000000000"], 2, "limits.tokens"),
        (["run", "x", "--steps", "many"], 2, "'--steps'"),
        (["run", "x"], 3, "RabbitMQ at 127.0.0.1:9 does not answer"),
        (["tasks"], 2, "set LONGSTRIDE_DATABASE_URL"),
        (["tasks", "--status", "asleep"], 2, "is none of queued"),
        (["run", "x", "--tenant", "../.."], 2, "the tenant '../..' cannot be one: it must be 1 to 128 letters"),
        (["run", "x", "--session", "a b"], 2, "the session 'a b' cannot be one"),
        (["run", "x", "--tool", "nosuch"], 2, "there is no tool 'nosuch'; the tools are shell, python"),
        (
            ["run", "x", "--policy", "gpt-5"],
            2,
            "unknown policy 'gpt-5': a policy is builtin, builtin@VERSION, scripted:PATH",
        ),
        (["submit", "-"], 2, "standard input is not UTF-8 text"),
        (["cancel", "x", "--reason", "y" * 1025], 2, "reason: String should have at most 1024 characters"),
        (["policy", "bogus"], 2, "No such command 'bogus' (see `longstride policy --help`)"),
        (["runn"], 2, "No such command 'runn'; did you mean run? (see `longstride --help`)"),
        (["cancel"], 2, "Missing argument 'TASK' (see `longstride cancel --help`)"),
        (["tasks", "--sttus", "x"], 2, "(see `longstride tasks --help`)"),
        (["run", "x", "-i", "no-such-file"], 2, "input 'no-such-file' does not exist (looked in "),
        (["export", "x", "--to", "x.rar"], 2, "'x.rar': archives are made as .zip, "),
    ],
)
@pytest.mark.parametrize("json_", [False, True], ids=["sentence", "json"])
def test_mistakes_are_told_on_standard_error_with_an_exit_code(
    arguments: list[str], code: int, told: str, json_: bool
) -> None:
    json_options = ["--json"] if json_ else []
    result = longstride(*arguments, *json_options, LONGSTRIDE_AMQP_URL=NOWHERE, LONGSTRIDE_PATIENCE_S="0")
    assert (result.returncode, result.stdout) == (code, "")
    said = json.loads(result.stderr)["error"] if json_ else result.stderr
    assert told in " ".join(said.split())
    for noise in ("Traceback", "pydantic", "validation error", "╭"):
        assert noise not in result.stderr
    assert json_ or result.stderr.startswith("error: "), "all errors look alike"


GROUPS = [entry.name for entry in COMMANDS if entry.attribute == "app"]


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_of_commands_by_itself_shows_its_help(name: str) -> None:
    told = longstride(name)
    assert (told.returncode, told.stderr) == (2, "")
    assert f"Usage: longstride {name} " in told.stdout
    assert "completion" not in told.stdout


def test_a_wrong_input_is_told_before_a_stack_is_started(tmp_path: Path) -> None:
    result = longstride("run", "x", "-i", "no-such-file", LONGSTRIDE_HOME=str(tmp_path / "home"))
    assert (result.returncode, "does not exist" in result.stderr) == (2, True)
    assert not (tmp_path / "home").exists()


def test_a_setting_that_does_not_fit_is_named_as_its_variable() -> None:
    result = longstride("tasks", LONGSTRIDE_PATIENCE_S="soon")
    assert (result.returncode, result.stderr.startswith("error: LONGSTRIDE_PATIENCE_S: ")) == (2, True), result.stderr


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (PermissionError(13, "Permission denied", "/root/x"), ("/root/x: Permission denied", 1)),
        (NotFound("no task 'x'"), ("no task 'x'", 4)),
        (WrongState("it has ended"), ("it has ended", 6)),
        (MessageError("submit_task is 70000 bytes"), ("submit_task is 70000 bytes", 2)),
        (ValueError("a bug"), None),
        (OSError("a bug"), None),
        (KeyError("a bug"), None),
    ],
)
def test_errors_are_told_and_bugs_are_not_hidden(error: Exception, problem: tuple[str, int] | None) -> None:
    assert problem_of(error) == problem


def test_an_argument_that_is_no_text_is_a_sentence() -> None:
    result = longstride("run", "\udcff", LONGSTRIDE_AMQP_URL=NOWHERE)
    assert (result.returncode, "Traceback" in result.stderr) == (2, False), result.stderr


SLOW_IMPORT = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.stderr.write("importing\\n"); sys.stderr.flush()
            time.sleep(30)
sys.meta_path.insert(0, Slow())
sys.argv = ["longstride", "tasks"]
from longstride.client.main import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "longstride.client.cli.tasks", "rich.table"])
def test_ctrl_c_while_modules_load_is_quiet(module: str) -> None:
    program = [sys.executable, "-c", SLOW_IMPORT.format(module=module)]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (130, "")


def test_a_wrong_environment_is_a_usage_error() -> None:
    result = longstride("tasks", LONGSTRIDE_AMQP_URL="http://localhost", LONGSTRIDE_DATABASE_URL="mysql://x/y")
    assert result.returncode == 2
    assert "must be PostgreSQL" in result.stderr


@pytest.mark.parametrize("inside", [False, True])
def test_doctor_says_that_a_home_cannot_be_written(tmp_path: Path, inside: bool) -> None:
    (tmp_path / "file").write_text("mine")
    home = tmp_path / "file" / "below" if inside else tmp_path / "file"
    result = longstride("doctor", "--json", LONGSTRIDE_HOME=str(home))
    found = {line["name"]: line for line in map(json.loads, result.stdout.splitlines())}
    assert result.returncode == 1
    assert found["home"]["state"] == "missing"
    assert found["home"]["told"] == f"{home} cannot be written: Not a directory"
    assert "LONGSTRIDE_HOME" in found["home"]["remedy"]
    assert (tmp_path / "file").read_text() == "mine"


def test_hints_fit_a_clone_too() -> None:
    assert install("local") == "pip install 'longstride[local]' (in a clone: pip install -e '.[local]')"


def test_doctor_says_what_is_missing_and_fails(tmp_path: Path) -> None:
    result = longstride("doctor", "--json", LONGSTRIDE_AMQP_URL=NOWHERE, LONGSTRIDE_HOME=str(tmp_path))
    found = {line["name"]: line for line in map(json.loads, result.stdout.splitlines())}
    assert result.returncode == 1
    assert found["Python"]["state"] == "good"
    assert found["RabbitMQ"]["state"] == "missing"
    assert "LONGSTRIDE_AMQP_URL" in found["RabbitMQ"]["remedy"]
    assert found["PostgreSQL"]["state"] in ("good", "weak")


FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


def redirected(*arguments: str, to: str) -> "subprocess.CompletedProcess[str]":
    """The program, its standard output as a shell says."""
    line = f'exec "$@" {to}'
    command = ["sh", "-c", line, "sh", sys.executable, "-m", "longstride.client.main", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)


@FULL
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["tasks", "--help"], ["doctor"]])
def test_a_full_disk_under_the_output_is_a_sentence(arguments: list[str]) -> None:
    told = redirected(*arguments, to="> /dev/full")
    assert told.stderr == "error: standard output cannot be written: No space left on device\n"
    assert told.returncode == 1


@FULL
def test_a_full_disk_is_told_a_program_in_json() -> None:
    told = redirected("doctor", "--json", to="> /dev/full")
    assert json.loads(told.stderr) == {"error": "standard output cannot be written: No space left on device"}


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- <&- 2>&-"])
def test_closed_descriptors_are_no_reason_to_fail(closed: str) -> None:
    told = redirected("--version", to=closed)
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["doctor"], ["doctor", "--json"], ["--help"]])
def test_a_reader_that_went_away_is_no_traceback(arguments: list[str]) -> None:
    told = redirected(*arguments, to="| head -c 0")
    assert told.stderr == ""
