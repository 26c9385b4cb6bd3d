"""The options of ``run`` and ``submit`` as a task."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from longstride.client.cli.submission import Submission, takes_task
from longstride.client.connect import Deployment
from longstride.client.errors import ClientError, UsageProblem
from longstride.client.settings import ClientSettings
from longstride.client.terminal.importer import read
from longstride.contracts.v1.check import AnswerCheck, CommandCheck
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.egress import EgressRule
from longstride.storage.memory import MemoryArtifacts
from tests.support.terminal_folders import DOCKERFILE, harbor


class Recorder:
    """A client that keeps what is published."""

    def __init__(self) -> None:
        self.published: list[tuple[SubmitTask, str, str | None]] = []

    def submit(self, task: SubmitTask, *, tenant: str, session_id: str | None) -> Any:
        self.published.append((task, tenant, session_id))


def submission(*arguments: str, stdin: str | None = None) -> Submission:
    """What the options say."""
    caught: list[Submission] = []

    @takes_task
    def command(given: Submission) -> None:
        caught.append(given)

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    if isinstance(result.exception, ClientError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return caught[0]


def published(*arguments: str) -> list[SubmitTask]:
    deployment = Deployment(ClientSettings(), lambda _: None)
    recorder = deployment.__dict__["client"] = Recorder()
    submission(*arguments).publish(deployment)
    return [task for task, _, _ in recorder.published]


def test_an_instruction_alone_is_a_task_with_the_defaults() -> None:
    assert published("Count.") == [SubmitTask(instruction="Count.")]


def test_every_option_lands_in_its_field() -> None:
    (task,) = published(
        *("Count.", "--check", "test -f a", "-c", "test -f b", "--expect", "7", "--expect-number", "7.5"),
        *("--tool", "shell", "--tool", "submit", "--approve", "unsafe", "--steps", "5", "--tokens", "900"),
        *("--cost", "0.5", "--timeout", "60", "--step-timeout", "9", "--memory", "128", "--disk", "32"),
        *("--policy", "builtin@3", "--track", "deep", "--temperature", "0.7", "--seed", "11"),
        *("--priority", "9", "--key", "k", "--concurrency-key", "c"),
    )
    assert task == SubmitTask(
        instruction="Count.",
        checks=(
            CommandCheck(name="command 1", run="test -f a"),
            CommandCheck(name="command 2", run="test -f b"),
            AnswerCheck(name="answer", equals="7"),
            AnswerCheck(name="number", number=7.5),
        ),
        tools=("shell", "submit"),
        approvals="unsafe",
        limits={"steps": 5, "tokens": 900, "cost_usd": 0.5, "wall_clock_s": 60, "step_timeout_s": 9},
        sandbox={"memory_mb": 128, "disk_mb": 32},
        policy="builtin@3",
        track="deep",
        sampling={"temperature": 0.7, "seed": 11},
        priority=9,
        idempotency_key="k",
        concurrency_key="c",
    )


def test_an_instruction_may_come_from_standard_input() -> None:
    assert submission("-", stdin="Count\nall.").instruction == "Count\nall."


def test_tenant_and_session_are_the_envelopes() -> None:
    given = submission("x", "--tenant", "acme", "--session", "session_1")
    assert (given.tenant, given.session) == ("acme", "session_1")
    assert submission("x").session != submission("x").session


def test_a_group_is_siblings_that_differ_in_their_seed_alone() -> None:
    tasks = published("x", "--group", "3", "--seed", "5", "--key", "k")
    assert [task.sampling.seed for task in tasks] == [5, 6, 7]
    assert {task.sampling.temperature for task in tasks} == {1.0}
    assert len({task.group_id for task in tasks}) == 1
    assert [task.idempotency_key for task in tasks] == ["k/0", "k/1", "k/2"]
    assert {task.sampling.temperature for task in published("x", "--group", "2", "--temperature", "0.4")} == {0.4}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["  "], "instruction: "),
        (["x", "--steps", "0"], "limits.steps: "),
        (["x", "--tokens=-1"], "limits.tokens: "),
        (["x", "--cost", "0"], "limits.cost_usd: "),
        (["x", "--tokens", "10000000000000"], "limits.tokens: 10000000000000 is more than is taken"),
        (["x", "--timeout", "0"], "limits.wall_clock_s: "),
        (["x", "--track", "slow"], "track: Input should be 'fast' or 'deep'"),
        (["x", "--approve", "maybe"], "approvals: "),
        (["x", "--priority", "10"], "priority: "),
        (["x", "--check", ""], "run: "),
        (["x", "--tool", "shell", "--tool", "nosuch"], "there is no tool 'nosuch'; the tools are shell, python, "),
    ],
)
def test_what_is_not_a_task_is_refused_before_anything_is_read(arguments: list[str], told: str) -> None:
    with pytest.raises(UsageProblem, match=told):
        published(*arguments, "--input", "nowhere.csv")


def test_a_terminal_task_gives_what_the_options_do_not(tmp_path: Path) -> None:
    folder = harbor(tmp_path / "greet")
    deployment = Deployment(ClientSettings(), lambda _: None)
    recorder = deployment.__dict__["client"] = Recorder()
    artifacts = deployment.__dict__["artifacts"] = MemoryArtifacts()
    submission("--terminal-task", str(folder), "--steps", "7", "--memory", "256", "--step-timeout", "9").publish(
        deployment
    )
    ((task, _, _),) = recorder.published
    assert task.instruction == "Write hello to /app/out.txt."
    assert [(file.path, file.text) for file in task.inputs] == [("data/words.txt", "hello\n")]
    assert (task.limits.steps, task.limits.wall_clock_s, task.limits.step_timeout_s) == (7, 300, 9)
    assert (task.sandbox.memory_mb, task.sandbox.disk_mb, task.sandbox.wall_s) == (256, 64, 9)
    (check,) = task.checks
    assert isinstance(check, CommandCheck)
    hidden = {file.path: file for file in check.files}
    assert hidden["test.sh"].text == (folder / "tests" / "test.sh").read_text()
    verify = hidden["longstride_verify.py"].ref
    assert verify is not None
    assert b"reward.json" in artifacts.get(verify)


@pytest.mark.parametrize(
    ("lines", "files", "why"),
    [
        ("RUN make\n", 0, "has RUN steps"),
        ("", 64, "starts with 65 files, too many for a message"),
    ],
)
def test_a_folder_that_needs_an_artifact_store_says_what_for(tmp_path: Path, lines: str, files: int, why: str) -> None:
    folder = harbor(tmp_path / "greet", DOCKERFILE + lines, **{f"environment__{n}": "" for n in range(files)})
    deployment = Deployment(ClientSettings(), lambda _: None)
    deployment.__dict__["artifacts"] = None
    task = read(folder)
    given = Submission(task.instruction, [], task.fields, "default", "s", 1, False, task)
    with pytest.raises(UsageProblem, match=f"greet {why}: its workspace needs an artifact store: set LONGSTRIDE_S3_"):
        given.publish(deployment)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "say what to do: an INSTRUCTION, or --terminal-task DIR"),
        (("Do it.", "--terminal-task", "x"), "INSTRUCTION and --terminal-task exclude each other"),
        (("--terminal-task", "x", "--input", "a"), "--input and --terminal-task exclude each other"),
        (("--terminal-task", "x", "--expect-number", "1"), "--expect-number and --terminal-task exclude each other"),
        (("--terminal-task", "/nowhere/at/all"), "/nowhere/at/all is not a folder"),
    ],
)
def test_a_folder_or_an_instruction(arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageProblem, match=why):
        submission(*arguments)


def test_hosts_that_it_may_reach() -> None:
    (task,) = published("x", "--allow-host", "api.example.com", "--allow-host", "*.example.org:80,8080")
    assert task.egress is not None
    assert task.egress.rules == (
        EgressRule(host="api.example.com", ports=(443,)),
        EgressRule(host="*.example.org", ports=(80, 8080)),
    )


def test_how_much_may_go_there_and_how_fast() -> None:
    (task,) = published("x", "--allow-host", "example.com", "--network-rate", "100", "--network-volume", "8")
    assert task.egress is not None
    assert (task.egress.kbytes_per_s, task.egress.max_mbytes) == (100, 8)


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("http://example.com", "name a host, not a URL or a network, e.g. example.com:443"),
        ("*", "not a host: give a name in ASCII (xn--… for others) or an IPv4 address"),
        ("*.com", "it is too wide: name two labels after the star, e.g. *.example.com"),
        ("münchen.example", "not a host: give a name in ASCII (xn--… for others) or an IPv4 address"),
        ("0x7f.1", "not an IPv4 address in its usual form, e.g. 93.184.215.14"),
        ("example.com:", "'' is not a port: give numbers from 1 to 65535, e.g. example.com:80,443"),
        ("example.com:x", "'x' is not a port: give numbers from 1 to 65535, e.g. example.com:80,443"),
        ("example.com:0", "'0' is not a port: give numbers from 1 to 65535, e.g. example.com:80,443"),
        ("example.com:80,65536", "'65536' is not a port: give numbers from 1 to 65535, e.g. example.com:80,443"),
        ("e.com:" + ",".join(map(str, range(1, 18))), "17 ports are too many: 16 at the most for each host"),
        (
            "[::1]:443",
            "give a name or an IPv4 address, and the ports after one colon, e.g. example.com:80,443",
        ),
        ("127.0.0.1:5432", "no sandbox ever reaches 127.0.0.1, which is loopback: name a public host"),
        ("localhost", "no sandbox ever reaches localhost, which is loopback: name a public host"),
        ("10.1.2.3", "no sandbox ever reaches 10.1.2.3, which is private: name a public host"),
        (
            "169.254.169.254:80",
            "no sandbox ever reaches 169.254.169.254, which is link-local, where clouds have their metadata service: "
            "name a public host",
        ),
    ],
)
def test_hosts_that_are_none_and_hosts_that_nobody_reaches(host: str, told: str) -> None:
    with pytest.raises(UsageProblem) as refused:
        published("x", "--allow-host", host)
    assert str(refused.value) == f"--allow-host {host!r}: {told}"


def test_a_port_of_thousands_of_digits_is_none() -> None:
    with pytest.raises(UsageProblem, match=r"'9{80}' is not a port: give numbers from 1 to 65535"):
        published("x", "--allow-host", "example.com:" + "9" * 5000)


@pytest.mark.parametrize("option", ["--network-rate", "--network-volume"])
def test_a_bound_of_no_network_is_a_mistake(option: str) -> None:
    with pytest.raises(UsageProblem, match=f"{option} bounds nothing without --allow-host HOST"):
        published("x", option, "5")


def test_more_hosts_than_a_task_may_have() -> None:
    many = [word for i in range(65) for word in ("--allow-host", f"h{i}.example.com")]
    with pytest.raises(UsageProblem, match="--allow-host is given 65 times; a task may reach 64 hosts"):
        published("x", *many)
