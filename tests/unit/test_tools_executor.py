"""One action from command to answer, above the in-memory sandbox."""

import errno
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.action import Action, IdempotencyClass
from longstride.contracts.v1.check import AnswerCheck, Check, CommandCheck, FileCheck
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.egress import Egress, EgressRule
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import Allowance, SandboxLimits, Share
from longstride.sandbox.base import Capabilities
from longstride.sandbox.errors import ExecutionCancelled, SandboxFailed
from longstride.sandbox.memory import LimitReached, MemorySandbox, Process
from longstride.sandbox.workspace import Workspaces
from longstride.storage.errors import ArtifactMissing, StorageFull
from longstride.storage.memory import MemoryArtifacts
from longstride.tools.examiner import ABSENT
from longstride.tools.executor import Executor
from longstride.tools.registry import Registry, builtin_tools
from longstride.tools.shell import Shell

LIMITS = SandboxLimits(wall_s=5, disk_mb=1, files=50)


def interpreter(process: Process) -> int:
    """The twin of a shell: the last argument is one of a few commands."""
    word, _, rest = process.argv[-1].partition(" ")
    match word:
        case "echo":
            process.print(rest)
        case "write":
            name, _, text = rest.partition(" ")
            (process.workspace / name).write_text(text)
        case "cat":
            process.print((process.workspace / rest).read_text())
        case "fill":
            (process.workspace / "fill").write_bytes(bytes(2 << 20))
        case "fail":
            process.stderr.write(rest.encode())
            return 3
        case "flood":
            process.print("\n".join(f"line {n}" for n in range(int(rest))))
        case "runaway":
            process.print("the head")
            while True:
                process.print(rest * 1000)
        case "binary":
            process.stdout.write(bytes(range(32)) * 100)
            process.stderr.write(b"it broke")
            return 3
        case "hang":
            process.work(60)
        case "greedy":
            raise LimitReached("memory_mb")
        case "connect":
            for place in rest.split():
                host, _, port = place.partition(":")
                process.connect(host, int(port))
        case "missing":
            process.stderr.write(f"/bin/sh: 1: {rest}: not found\n".encode())
            return 127
        case "pytest":  # asked for where the agent has nothing
            return ABSENT
        case "python3":
            return 0
        case "loud":
            process.print("found" * 1000)
        case "half":
            process.print("score=0.5")
            return 1
        case "break":
            raise SandboxFailed("the sandbox broke")
        case "answer":
            return 0 if process.files["answer"].decode() == rest else 1
        case "hidden":
            return 0 if process.files["checks/expected.txt"] == b"secret" else 1
        case "spoil":
            for path in process.workspace.iterdir():
                path.write_text("spoiled")
            return 1
        case _:
            raise AssertionError(f"no command {word!r}")
    return 0


class DangerousShell(Shell):
    idempotency: IdempotencyClass = "unsafe"
    name = "launch"


@dataclass
class World:
    executor: Executor
    artifacts: MemoryArtifacts
    workspaces: Workspaces
    ran: list[tuple[str, ...]]

    def do(self, tool: str, workspace: ArtifactRef | None = None, **options: object) -> ActionExecuted:
        keys = (
            "tools",
            "inputs",
            "checks",
            "isolation",
            "egress",
            "approvals",
            "approved",
            "limits",
            "allowance",
            "redactions",
        )
        known = {key: options.pop(key) for key in keys if key in options}
        cancelled = options.pop("cancelled", None)
        command = ExecuteAction(
            step=1,
            action=Action.model_validate({"tool": tool, "arguments": options}),
            workspace=workspace,
            **{"tools": (), "limits": LIMITS, "isolation": "process", **known},
        )
        extra = {"cancelled": cancelled} if cancelled else {}
        return self.executor.execute(command, task_id="task", session_id="session", **extra)

    def shell(self, command: str, workspace: ArtifactRef | None = None, **options: object) -> ActionExecuted:
        return self.do("shell", workspace, command=command, **options)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    ran: list[tuple[str, ...]] = []

    def noted(process: Process) -> int:
        ran.append(process.argv)
        return interpreter(process)

    backend = MemorySandbox(tmp_path / "v", {"sh": noted, "/bin/sh": noted, "python3": noted})
    artifacts = MemoryArtifacts()
    workspaces = Workspaces(artifacts, backend.volumes)
    registry = Registry([*(t for n in builtin_tools().names if (t := builtin_tools().get(n))), DangerousShell()])
    yield World(Executor(backend, workspaces, artifacts, registry), artifacts, workspaces, ran)
    workspaces.close()


def seen(executed: ActionExecuted) -> tuple[str, str]:
    assert executed.observation is not None
    return executed.observation.status, executed.observation.text


def test_a_steps_effect_is_the_next_steps_start(world: World) -> None:
    first = world.shell("write note.txt hello")
    assert seen(first) == ("ok", "(no output)")
    assert first.workspace is not None
    assert seen(world.shell("cat note.txt", first.workspace)) == ("ok", "hello\n")


def test_a_failure_shows_its_errors_and_its_exit_code(world: World) -> None:
    executed = world.shell("fail it broke")
    assert seen(executed) == ("failed", "it broke\nexit code 3")
    assert executed.observation is not None
    assert executed.observation.exit_code == 3


@pytest.mark.parametrize(
    ("command", "status", "limit"),
    [("greedy", "limit", "memory_mb=512"), ("hang", "timeout", "wall_s=0.1")],
)
def test_a_limit_is_told(world: World, command: str, status: str, limit: str) -> None:
    executed = world.shell(command, timeout_s=0.1)
    assert executed.observation is not None
    assert (executed.observation.status, executed.observation.limit) == (status, limit)
    assert f"stopped by {limit} after" in executed.observation.text


def test_runaway_output_is_told_with_its_head_and_how_far_it_got(world: World) -> None:
    executed = world.shell("runaway y", limits=LIMITS.model_copy(update={"output_mb": 2}))
    assert executed.observation is not None
    assert (executed.observation.status, executed.observation.limit) == ("limit", "output_mb=2")
    assert executed.observation.text.startswith("the head\nyyyy")
    assert executed.observation.text.endswith("and 2.0 MiB of output")
    assert "stopped by output_mb=2 after" in executed.observation.text


def of_output(most: float, left: float, **limits: object) -> dict[str, object]:
    return {"allowance": Allowance(output_mb=Share(most=most, left=left)), "limits": LIMITS.model_copy(update=limits)}


def test_a_budget_of_the_task_is_told_as_such(world: World) -> None:
    executed = world.shell("runaway y", **of_output(8, 0.25, output_mb=0.25))
    assert executed.observation is not None
    assert (executed.observation.status, executed.observation.limit) == ("limit", "limits.output_mb=8")
    assert "stopped by the task's output_mb=8 (this call had the 0.25 MiB that were left) after" in seen(executed)[1]
    assert executed.usage.output_bytes == 0.25 * (1 << 20)


def test_a_limit_of_the_call_below_what_is_left_is_its_own(world: World) -> None:
    executed = world.shell("runaway y", **of_output(8, 4, output_mb=2))
    assert executed.observation is not None
    assert executed.observation.limit == "output_mb=2"


def test_a_timeout_that_the_agent_chose_is_not_the_tasks(world: World) -> None:
    share = Allowance(tool_s=Share(most=9, left=3))
    executed = world.shell("hang", timeout_s=0.1, allowance=share)
    assert executed.observation is not None
    assert (executed.observation.status, executed.observation.limit) == ("timeout", "wall_s=0.1")


def test_the_commands_of_one_call_share_what_is_left(world: World) -> None:
    print_half = "flood 60000"  # 0.6 MiB
    checks = (CommandCheck(name="first", run=print_half), CommandCheck(name="second", run=print_half))
    checks += (CommandCheck(name="third", run="echo hi"),)
    executed = world.do("submit", answer="1", checks=checks, **of_output(3, 1))
    assert [check.passed for check in executed.checks] == [True, False, False]
    assert executed.checks[1].detail.startswith("stopped by the task's output_mb=3 (this call had the 0.")
    assert executed.checks[2].detail.startswith("stopped by the task's output_mb=3 (this call had the 0 MiB")
    assert [check.error for check in executed.checks] == [None, None, None]


def test_output_that_is_no_text_hides_neither_the_errors_nor_the_ending(world: World) -> None:
    status, text = seen(world.shell("binary"))
    assert status == "failed"
    assert text.startswith("[3200 bytes, most of them not text;")
    assert text.endswith("\nit broke\nexit code 3")


def test_long_output_is_cut_and_kept_whole(world: World) -> None:
    executed = world.shell("flood 5000")
    assert executed.observation is not None
    assert executed.observation.full is not None
    whole = world.artifacts.get(executed.observation.full).decode()
    assert whole.split("\n")[:-1] == [f"line {n}" for n in range(5000)]
    assert len(executed.observation.text.encode()) <= 8192
    assert executed.observation.full.key in executed.observation.text
    assert executed.observation.full.key.startswith("session/observation/")


@pytest.mark.parametrize(
    ("tool", "options", "status", "text"),
    [
        ("fly", {}, "invalid", "there is no tool 'fly'; the tools are shell, python"),
        ("noop", {}, "denied", "this task may not call noop; its tools are shell"),
        ("shell", {"command": "echo", "tools": ("python", "submit")}, "denied", "its tools are python, submit"),
        ("delegate", {"tasks": []}, "denied", "carried out by the planner"),
        ("shell", {"cmd": "ls"}, "invalid", "command: Field required"),
        ("shell", {"command": 5}, "invalid", "command: Input should be a valid string"),
    ],
)
def test_what_is_not_carried_out_changes_nothing(
    world: World, tool: str, options: dict[str, object], status: str, text: str
) -> None:
    before = world.shell("write a 1").workspace
    world.ran.clear()
    executed = world.do(tool, before, **options)
    assert executed.observation is not None
    assert executed.observation.status == status
    assert text in executed.observation.text
    assert executed.workspace == before
    assert world.ran == []


def test_noop_touches_nothing(world: World, tmp_path: Path) -> None:
    executed = world.do("noop", tools=("noop",))
    assert seen(executed) == ("ok", "done")
    assert executed.workspace is None
    assert not list((tmp_path / "v").iterdir())


def test_a_stronger_boundary_is_an_error_and_no_observation(world: World) -> None:
    executed = world.shell("echo hi", isolation="microvm")
    assert executed.observation is None
    assert executed.error is not None
    assert "needs microvm isolation" in executed.error
    assert world.ran == []


def test_an_unusable_input_is_the_tasks_error(world: World) -> None:
    gone = ArtifactRef(key="session/input/" + "0" * 64, sha256="0" * 64, size=9)
    executed = world.shell("echo hi", inputs=(InputFile(path="data.csv", ref=gone),))
    assert executed.observation is None
    assert executed.input_error is not None
    assert "input 'data.csv' is not in the artifact store" in executed.input_error


def test_a_lost_workspace_is_the_stores_error(world: World) -> None:
    ref = world.shell("write a 1").workspace
    assert ref is not None
    world.workspaces.forget("task")
    world.artifacts.delete(ref.key)
    with pytest.raises(ArtifactMissing):
        world.shell("cat a", ref)


@pytest.mark.parametrize(
    ("approvals", "approved", "tool", "asked"),
    [
        ("never", False, "launch", False),
        ("unsafe", False, "launch", True),
        ("unsafe", False, "shell", False),
        ("unsafe", True, "launch", False),
        ("always", False, "shell", True),
        ("always", True, "shell", False),
    ],
)
def test_a_person_is_asked_where_the_task_says_so(
    world: World, approvals: str, approved: bool, tool: str, asked: bool
) -> None:
    executed = world.do(
        tool, command="echo hi", approvals=approvals, approved=approved, tools=("shell", "launch", "submit")
    )
    assert executed.needs_review is asked
    assert bool(executed.review) is asked
    assert bool(world.ran) is not asked


def test_a_workspace_that_cannot_be_kept_is_told_and_undone(world: World) -> None:
    before = world.shell("write note.txt kept").workspace
    executed = world.shell("fill", before)
    status, text = seen(executed)
    assert status == "limit"
    assert "disk_mb=1" in text
    assert text.endswith("The workspace is as it was before this call.")
    assert executed.workspace == before
    assert seen(world.shell("cat note.txt", before)) == ("ok", "kept\n")


def test_a_cancelled_call_leaves_the_state_before_it(world: World) -> None:
    before = world.shell("write note.txt before").workspace
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(ExecutionCancelled):
        world.shell("hang", before, cancelled=cancelled)
    assert seen(world.shell("cat note.txt", before)) == ("ok", "before\n")


def test_a_cancellation_after_the_work_counts_too(world: World) -> None:
    class Late:
        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > 2

    before = world.shell("write note.txt before").workspace
    with pytest.raises(ExecutionCancelled):
        world.shell("write note.txt after", before, cancelled=Late())
    assert seen(world.shell("cat note.txt", before)) == ("ok", "before\n")


def test_a_broken_sandbox_raises_and_loses_nothing(world: World) -> None:
    before = world.shell("write note.txt before").workspace
    with pytest.raises(SandboxFailed):
        world.shell("break", before)
    assert seen(world.shell("cat note.txt", before)) == ("ok", "before\n")


def test_a_full_host_is_infrastructure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = world.shell("write note.txt before").workspace

    def full(*_: object, **__: object) -> ArtifactRef:
        raise OSError(errno.ENOSPC, "No space left on device", "artifacts")

    with monkeypatch.context() as patch:
        patch.setattr(world.artifacts, "put", full)
        with pytest.raises(StorageFull, match="no room is left"):
            world.shell("write other.txt x", before)
    assert seen(world.shell("write other.txt x", before))[0] == "ok"


# -- submissions --------------------------------------------------------------------------------------------------------


def submitted(world: World, answer: str, *checks: Check, **options: object) -> ActionExecuted:
    ref = world.shell("write out.txt right").workspace
    return world.do("submit", ref, answer=answer, checks=checks, **options)


def test_checks_of_each_kind_judge_a_submission(world: World) -> None:
    executed = submitted(
        world,
        "42",
        AnswerCheck(number=42, weight=2),
        AnswerCheck(name="form", matches=r"\d+"),
        FileCheck(path="out.txt", equals="right"),
        CommandCheck(run="answer 42"),
        CommandCheck(name="tests", run="hidden", files=(InputFile(path="expected.txt", text="secret"),)),
    )
    assert [(c.name, c.passed, c.score, c.weight) for c in executed.checks] == [
        ("answer", True, 1.0, 2.0),
        ("form", True, 1.0, 1.0),
        ("file", True, 1.0, 1.0),
        ("command", True, 1.0, 1.0),
        ("tests", True, 1.0, 1.0),
    ]
    assert seen(executed) == ("ok", "5 of 5 checks passed")


def test_failures_say_why_and_a_score_is_partial_credit(world: World) -> None:
    executed = submitted(
        world,
        "41",
        AnswerCheck(number=42),
        FileCheck(path="missing.txt", equals="x"),
        FileCheck(name="up", path="../secret", equals="x"),
        CommandCheck(run="fail expected 42"),
        CommandCheck(name="half", run="half"),
        CommandCheck(name="slow", run="hang", timeout_s=0.1),
    )
    assert [(c.passed, c.score, c.error) for c in executed.checks] == [
        (False, 0.0, None),
        (False, 0.0, None),
        (False, 0.0, None),
        (False, 0.0, None),
        (False, 0.5, None),
        (False, 0.0, None),
    ]
    assert executed.checks[1].detail == "missing.txt: no such file or directory"
    assert executed.checks[3].detail == "exit code 3\nexpected 42"
    assert executed.checks[5].detail.startswith("stopped by wall_s=0.1")
    assert seen(executed) == ("ok", "0 of 6 checks passed")


def test_a_check_that_cannot_run_is_no_verdict(world: World) -> None:
    gone = ArtifactRef(key="session/input/" + "0" * 64, sha256="0" * 64, size=9)
    executed = submitted(
        world,
        "x",
        CommandCheck(name="program", run="missing pytest"),
        CommandCheck(name="file", run="hidden", files=(InputFile(path="expected.txt", ref=gone),)),
        CommandCheck(name="sandbox", run="break"),
        CommandCheck(name="own file", run="missing /run/longstride/checks/test.sh"),
        CommandCheck(name="agents file", run="missing ./app"),
        CommandCheck(name="the agents word", run="missing python3"),
    )
    assert [bool(c.error) for c in executed.checks] == [True, True, True, True, False, False]
    assert (
        executed.checks[0].error
        == "the check needs the program 'pytest', which is not installed on the executor's host"
    )


@pytest.mark.parametrize(
    "check",
    [
        CommandCheck(run="missing break"),
        CommandCheck(
            run="missing /run/longstride/checks/test.sh", files=(InputFile(path="test.sh", text="#!break\n"),)
        ),
    ],
    ids=["a program", "the check's own file"],
)
def test_a_second_look_that_breaks_fails_its_check_alone(world: World, check: CommandCheck) -> None:
    executed = submitted(world, "42", check, AnswerCheck(number=42))
    assert [(c.passed, c.error) for c in executed.checks] == [(False, "the sandbox broke"), (True, None)]
    assert seen(executed)[0] == "ok"


def test_the_task_does_not_pay_for_a_second_look(world: World) -> None:
    """Nor is there none where the check has used the budget up."""
    check = CommandCheck(run="missing loud")
    free = submitted(world, "x", check)
    assert free.usage.output_bytes == len(b"/bin/sh: 1: loud: not found\n")
    assert free.checks[0].error is None
    said = len(b"/bin/sh: 1: pytest: not found\n")
    spent = submitted(world, "x", CommandCheck(run="missing pytest"), **of_output(1, said / 2**20))
    assert spent.checks[0].error, "pytest is not there, whoever asks"


def test_a_check_harms_neither_the_workspace_nor_the_next_check(world: World) -> None:
    executed = submitted(world, "x", CommandCheck(run="spoil"), FileCheck(path="out.txt", equals="right"))
    assert [c.passed for c in executed.checks] == [False, True]
    assert seen(world.shell("cat out.txt", executed.workspace)) == ("ok", "right\n")


def test_files_are_handed_in_under_their_names(world: World) -> None:
    executed = submitted(world, "x", artifacts=["/workspace/out.txt", "./out.txt"])
    assert [artifact.name for artifact in executed.artifacts] == ["out.txt", "out.txt"]
    assert world.artifacts.get(executed.artifacts[0].ref) == b"right"


@pytest.mark.parametrize("path", ["missing.txt", "../out.txt", "/etc/passwd", "."])
def test_a_file_that_cannot_be_handed_in_undoes_the_submission(world: World, path: str) -> None:
    executed = submitted(world, "x", AnswerCheck(equals="x"), artifacts=[path])
    status, text = seen(executed)
    assert status == "invalid"
    assert text.startswith("not submitted: artifact")
    assert executed.checks == ()


def test_a_submission_without_checks_is_accepted(world: World) -> None:
    assert seen(submitted(world, "x")) == ("ok", "submitted")


# Redaction


def test_what_is_redacted_is_in_no_observation_and_no_object(world: World) -> None:
    rules = [{"pattern": "AK[0-9]+"}, {"pattern": "line 1[0-9]{3}", "replacement": "-"}]
    executed = world.shell("echo the key is AK4711", redactions=rules)
    assert executed.observation is not None
    assert executed.observation.text.strip() == "the key is [redacted]"
    flood = world.shell("flood 3000", redactions=rules).observation
    assert flood is not None
    assert flood.full is not None
    kept = world.artifacts.get(flood.full).decode()
    assert ("line 999\n-\n" in kept, "line 1000" in kept, "line 2000" in kept) == (True, False, True)


def test_a_refusal_and_a_check_that_quote_are_redacted(world: World) -> None:
    rules = [{"pattern": "AK[0-9]+"}]
    refused = world.do("fly", redactions=[{"pattern": "fly"}])
    assert refused.observation is not None
    assert "'[redacted]'" in refused.observation.text
    checks = (CommandCheck(name="c", run="fail AK4711"),)
    judged = world.do("submit", answer="x", checks=checks, redactions=rules)
    assert "AK4711" not in judged.model_dump_json()
    assert "[redacted]" in judged.checks[0].detail


WAY_OUT = Egress(rules=(EgressRule(host="api.example.com"),))


def test_what_an_action_asked_of_the_network_is_in_its_record_and_refusals_in_its_observation(world: World) -> None:
    executed = world.shell("connect api.example.com:443 other.example.com:443", egress=WAY_OUT)
    assert executed.traffic is not None
    assert [(c.host, c.verdict) for c in executed.traffic.connections] == [
        ("api.example.com", "allowed"),
        ("other.example.com", "refused"),
    ]
    assert (executed.traffic.total, executed.traffic.refused, executed.traffic.log) == (2, 1, None)
    refusal = "other.example.com:443 is not on this task's allow-list, which is api.example.com:443"
    assert seen(executed) == ("ok", f"[network: {refusal}]\n")


def test_a_task_without_a_way_out_has_no_record_of_one(world: World) -> None:
    assert world.shell("connect api.example.com:443").traffic is None


def test_more_connections_than_a_message_holds_are_kept_whole_in_an_artifact(world: World) -> None:
    executed = world.shell("connect" + " api.example.com:443" * 30, egress=WAY_OUT)
    assert executed.traffic is not None
    assert (len(executed.traffic.connections), executed.traffic.total) == (24, 30)
    assert executed.traffic.log is not None
    assert world.artifacts.get(executed.traffic.log).count(b"api.example.com") == 60, "as host, and in the rule"


def test_the_checks_of_a_submission_have_no_way_out(world: World) -> None:
    check = CommandCheck(kind="command", name="c", run="connect api.example.com:443")
    executed = world.do("submit", answer="x", checks=(check,), egress=WAY_OUT)
    assert executed.checks[0].passed
    assert executed.traffic is not None
    assert executed.traffic.total == 0


def test_a_backend_without_a_proxy_refuses_a_task_that_needs_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = Capabilities("closed", frozenset({"process"}), ())
    monkeypatch.setattr(world.executor._backend, "capabilities", lambda: closed)
    executed = world.shell("echo hi", egress=WAY_OUT)
    assert executed.error is not None
    assert "may reach api.example.com:443, and the closed backend gives no way out" in executed.error
    assert world.ran == []
