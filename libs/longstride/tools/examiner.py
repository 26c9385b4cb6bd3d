"""Judging a submission: each check, against the workspace as it was submitted."""

import re
from dataclasses import dataclass, field

from longstride.agent.checks import cannot_run, judge_answer, judge_command, judge_file, verdict
from longstride.contracts.v1.action import CheckResult, Usage
from longstride.contracts.v1.check import AnswerCheck, Check, CommandCheck, FileCheck
from longstride.contracts.v1.input_file import InputFile
from longstride.observability import names
from longstride.observability.spans import set_attributes, span
from longstride.sandbox.base import SUPPORT, Command, Execution
from longstride.sandbox.content import ContentStore
from longstride.sandbox.errors import SandboxFailed
from longstride.sandbox.files import FileRefused
from longstride.sandbox.secrets import mounted
from longstride.storage.errors import ArtifactCorrupt, ArtifactMissing
from longstride.tools.matching import bounded_match
from longstride.tools.observation import printable
from longstride.tools.packages.place import LAST, installed, seeing_last
from longstride.tools.tool import Bench, named

CHECKS = f"{SUPPORT}/checks"
ANSWER = f"{SUPPORT}/answer"
MAX_COMPARED = 16 << 20
DETAIL = 2000
NOT_FOUND, NOT_RUNNABLE = 127, 126
COMPLAINT = re.compile(
    rb"^\S*sh: (?:line )?\d+: (?:exec: )?(?P<what>.+?): (?:command not found|not found|Permission denied)$",
    re.MULTILINE,
)
"""How dash and bash say that something cannot be run."""


@dataclass
class Examiner:
    """Runs the checks of one submission."""

    bench: Bench
    artifacts: ContentStore
    answer: str
    usage: Usage = field(default_factory=Usage)

    def judge(self, check: Check) -> CheckResult:
        """One check's word on the submission.

        Raises:
            ExecutionCancelled: the call was cancelled.
        """
        with span(names.EVALUATE, check.name, attributes={names.CHECK_NAME: check.name}) as current:
            result = self._judged(check)
            label = "pass" if result.passed else "fail"
            set_attributes(current, {names.CHECK_SCORE: result.score, names.CHECK_LABEL: label})
        return result

    def _judged(self, check: Check) -> CheckResult:
        if isinstance(check, AnswerCheck):
            return judge_answer(check, self.answer, bounded_match)
        if isinstance(check, FileCheck):
            return self._judge_file(check)
        return self._judge_command(check)

    def _judge_file(self, check: FileCheck) -> CheckResult:
        try:
            content = self.bench.workspace.files.read(check.path, MAX_COMPARED)
            text = content.data.decode()
        except FileRefused as refused:
            return verdict(check, False, str(refused))
        except UnicodeDecodeError:
            return judge_file(check, None, "not a UTF-8 text file")
        if content.size > MAX_COMPARED:
            return judge_file(check, None, f"{content.size} bytes are too many")
        return judge_file(check, text)

    def _judge_command(self, check: CommandCheck) -> CheckResult:
        """In a fresh sandbox and on a copy, so that no check harms the workspace or the next check."""
        try:
            files = {f"checks/{file.path}": self._content(file) for file in check.files}
            execution = self._run(check, files)
        except (ArtifactMissing, ArtifactCorrupt, SandboxFailed) as error:
            return cannot_run(check, str(error))
        self.usage = self.usage + execution.usage
        if why := broken(execution):
            return cannot_run(check, why)
        return judge_command(check, execution.exit_code, printable(execution.stdout), _detail(execution))

    def _content(self, file: InputFile) -> bytes:
        return self.artifacts.get(file.ref) if file.ref else (file.text or "").encode()

    def _run(self, check: CommandCheck, files: dict[str, bytes]) -> Execution:
        limits = self.bench.limits.model_copy(
            update={"wall_s": check.timeout_s, "cpu_s": max(self.bench.limits.cpu_s, check.timeout_s)}
        )
        run, seen = ("/bin/sh", "-c", check.run), installed(self.bench.workspace.volume)
        with self.bench.still():
            copied = self.bench.workspace.copy()
        with copied as copy:
            command = Command(
                seeing_last(run) if seen else run,
                copy.volume,
                limits,
                self.bench.isolation,
                env={**self.bench.environment.variables, "LONGSTRIDE_CHECKS": CHECKS, "LONGSTRIDE_ANSWER": ANSWER},
                files={
                    **mounted(self.bench.secrets),
                    **(LAST if seen else {}),
                    **files,
                    "answer": self.answer.encode(),
                },
                links=self.bench.environment.links,
            )
            return self.bench.carry_out(command)


def broken(execution: Execution) -> str | None:
    """Why a check cannot be run at all: it names a program that the host does not have, or one of its own files is no program.

    A missing ``./program`` is the agent's affair: the check asked for it.
    """
    if execution.exit_code not in (NOT_FOUND, NOT_RUNNABLE):
        return None
    complaints = [found["what"].decode(errors="replace") for found in COMPLAINT.finditer(execution.stderr)]
    if not complaints:
        return None
    what = complaints[-1]
    if "/" not in what:
        return f"the check needs the program {what!r}, which is not installed on the executor's host"
    return f"the check's own file {what!r} cannot be run" if what.startswith(CHECKS) else None


def _detail(execution: Execution) -> str:
    how = f"stopped by {named(execution)}" if execution.limit else f"exit code {execution.exit_code}"
    said = printable(execution.stdout + execution.stderr).strip()
    return f"{how}\n{said[-DETAIL:]}".strip()
