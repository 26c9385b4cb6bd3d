"""From what was seen and what the kernel counted to how a command ended, and which limit ended it."""

import errno
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from longstride.contracts.v1.action import Usage
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Execution, ExecutionStatus
from longstride.sandbox.errors import SandboxFailed
from longstride.sandbox.supervisor import Outcome

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a sandbox that has ended."""

    outcome: Outcome
    limits: SandboxLimits
    out_of_memory: int
    """Processes killed for memory; not asked for where the command was stopped."""
    refused_processes: int
    exhausted: str | None
    """The file system limit that was reached, by name."""
    cpu_s: float
    peak_memory_bytes: int
    bounded: bool = True
    """Whether the workspace's own file system refuses what is too much."""


def judge(evidence: Evidence) -> Execution:
    """The command's end.

    Raises:
        SandboxFailed: it has no end that the command or a limit explains.
    """
    outcome = evidence.outcome
    status, limit = _status(evidence)
    return Execution(
        status=status,
        exit_code=outcome.exit_code if outcome.stopped_by is None else None,
        stdout=outcome.stdout.bytes(),
        stderr=outcome.stderr.bytes(),
        limit=limit,
        written=outcome.stdout.total + outcome.stderr.total,
        usage=Usage(
            wall_ms=outcome.wall_s * 1e3,
            cpu_ms=evidence.cpu_s * 1e3,
            max_memory_mb=evidence.peak_memory_bytes / MEBIBYTE,
        ),
        killed=outcome.stopped_by == "cancelled",
        passed=tuple(_reached(evidence)) if status == "ok" else (),
    )


def _status(evidence: Evidence) -> tuple[ExecutionStatus, str | None]:
    outcome, limits = evidence.outcome, evidence.limits
    if outcome.stopped_by == "wall_s":
        return "timeout", f"wall_s={limits.wall_s:g}"
    if outcome.stopped_by == "cancelled":
        return "failed", None
    if outcome.exit_code == 0 and outcome.stopped_by is None:
        return "ok", None
    if limit := _limit(evidence):
        return "limit", limit
    if outcome.exit_code is None:
        raise SandboxFailed(_how_it_broke(outcome))
    return "failed", None


def _limit(evidence: Evidence) -> str | None:
    """The limit that explains a failure, the surest sign first."""
    outcome, limits = evidence.outcome, evidence.limits
    code = outcome.exit_code
    if outcome.stopped_by == "output_mb":
        return f"output_mb={limits.output_mb:g}"
    if outcome.stopped_by == "cpu_s" or code == 128 + signal.SIGXCPU:
        return f"cpu_s={limits.cpu_s:g}"
    if evidence.out_of_memory or outcome.stopped_by == "memory_mb":
        return f"memory_mb={limits.memory_mb}"
    if code == 128 + signal.SIGXFSZ:
        return f"disk_mb={limits.disk_mb}"
    if code == 128 + signal.SIGKILL and evidence.cpu_s >= limits.cpu_s:
        return f"cpu_s={limits.cpu_s:g}"
    return next(_reached(evidence), None) or _told(evidence)


def _reached(evidence: Evidence) -> Iterator[str]:
    """Limits that the kernel counted, or that a file system is at now."""
    if evidence.out_of_memory:
        yield f"memory_mb={evidence.limits.memory_mb}"
    if evidence.exhausted:
        yield evidence.exhausted
    if evidence.refused_processes:
        yield f"processes={evidence.limits.processes}"


def _told(evidence: Evidence) -> str | None:
    """What only the command's own errors tell: nothing counts a file that was refused as too large, nor a file system that
    was full and was cleaned up before the end, as temporary folders are."""
    said, limits = evidence.outcome.stderr.bytes(), evidence.limits
    if os.strerror(errno.EFBIG).encode() in said:
        return f"disk_mb={limits.disk_mb}"
    if os.strerror(errno.ENOSPC).encode() in said:
        full = f"disk_mb={limits.disk_mb} or files={limits.files}"
        return full if evidence.bounded else f"memory_mb={limits.memory_mb}"
    return None


def _how_it_broke(outcome: Outcome) -> str:
    said = outcome.stderr.bytes().decode(errors="replace").strip()[-1000:]
    return f"the sandbox did not start or broke (launcher exit code {outcome.launcher_code}): {said or 'no output'}"
