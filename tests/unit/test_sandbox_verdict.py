"""How an end is judged from what the kernel counted."""

import signal

import pytest

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.capture import Capture
from longstride.sandbox.errors import SandboxFailed
from longstride.sandbox.supervisor import Outcome
from longstride.sandbox.verdict import Evidence, judge

LIMITS = SandboxLimits(wall_s=7, cpu_s=2.5, memory_mb=64, processes=9, disk_mb=3, files=40, output_mb=5)


def evidence(exit_code: int | None, **changes: object) -> Evidence:
    outcome = Outcome(
        exit_code=exit_code,
        stopped_by=changes.pop("stopped_by", None),
        stdout=Capture(100),
        stderr=Capture(100),
        wall_s=0.25,
        launcher_code=1,
    )
    known = {"out_of_memory": 0, "refused_processes": 0, "exhausted": None, "cpu_s": 0.5, "peak_memory_bytes": 3 << 20}
    return Evidence(outcome, LIMITS, **{**known, **changes})


@pytest.mark.parametrize(
    ("seen", "status", "limit"),
    [
        (evidence(0), "ok", None),
        (evidence(3), "failed", None),
        (evidence(None, stopped_by="wall_s"), "timeout", "wall_s=7"),
        (evidence(137, stopped_by="wall_s"), "timeout", "wall_s=7"),
        (evidence(137, stopped_by="cpu_s"), "limit", "cpu_s=2.5"),
        (evidence(137, stopped_by="memory_mb"), "limit", "memory_mb=64"),
        (evidence(137, stopped_by="output_mb"), "limit", "output_mb=5"),
        (evidence(None, stopped_by="output_mb", out_of_memory=1), "limit", "output_mb=5"),
        (evidence(128 + signal.SIGXCPU), "limit", "cpu_s=2.5"),
        (evidence(137, cpu_s=2.6), "limit", "cpu_s=2.5"),
        (evidence(137), "failed", None),
        (evidence(137, out_of_memory=1), "limit", "memory_mb=64"),
        (evidence(None, out_of_memory=2), "limit", "memory_mb=64"),
        (evidence(0, out_of_memory=1), "ok", None),
        (evidence(128 + signal.SIGXFSZ), "limit", "disk_mb=3"),
        (evidence(1, exhausted="files=40"), "limit", "files=40"),
        (evidence(2, refused_processes=5), "limit", "processes=9"),
        (evidence(0, refused_processes=5), "ok", None),
        (evidence(2, refused_processes=5, out_of_memory=1), "limit", "memory_mb=64"),
    ],
)
def test_an_end_has_a_status_and_names_its_limit(seen: Evidence, status: str, limit: str | None) -> None:
    execution = judge(seen)
    assert (execution.status, execution.limit) == (status, limit)


@pytest.mark.parametrize(
    ("said", "changes", "limit"),
    [
        (b"OSError: [Errno 27] File too large\n", {}, "disk_mb=3"),
        (b"tar: a: Cannot write: No space left on device\n", {}, "disk_mb=3 or files=40"),
        (b"tar: a: Cannot write: No space left on device\n", {"bounded": False}, "memory_mb=64"),
        (b"No space left on device\n", {"exhausted": "files=40"}, "files=40"),
        (b"File too large\n", {"refused_processes": 1}, "processes=9"),
        (b"Permission denied\n", {}, None),
    ],
)
def test_what_nothing_counts_is_read_from_the_commands_errors(
    said: bytes, changes: dict[str, object], limit: str | None
) -> None:
    seen = evidence(1, **changes)
    seen.outcome.stderr.feed(said)
    assert judge(seen).limit == limit
    fine = evidence(0)
    fine.outcome.stderr.feed(said)
    assert (judge(fine).limit, judge(fine).passed) == (None, ())


def test_limits_that_a_command_reached_on_its_way_to_a_good_end_are_kept() -> None:
    seen = judge(evidence(0, out_of_memory=1, refused_processes=2, exhausted="disk_mb=3"))
    assert (seen.status, seen.limit) == ("ok", None)
    assert seen.passed == ("memory_mb=64", "disk_mb=3", "processes=9")
    assert judge(evidence(1, out_of_memory=1)).passed == ()


def test_all_output_is_counted_whatever_was_kept() -> None:
    seen = evidence(0)
    seen.outcome.stdout.feed(b"x" * 1000)
    seen.outcome.stderr.feed(b"y" * 70)
    assert judge(seen).written == 1070


def test_usage_is_in_the_contracts_units() -> None:
    usage = judge(evidence(0)).usage
    assert (usage.wall_ms, usage.cpu_ms, usage.max_memory_mb) == (250.0, 500.0, 3.0)


def test_a_cancelled_command_says_nothing_but_that() -> None:
    execution = judge(evidence(None, stopped_by="cancelled"))
    assert execution.killed
    assert execution.exit_code is None


def test_an_end_that_nothing_explains_is_the_sandboxs() -> None:
    with pytest.raises(SandboxFailed, match="launcher exit code 1"):
        judge(evidence(None))
