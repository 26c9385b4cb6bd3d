"""Judging a submission: each check, against the workspace as it was submitted."""

import re
from collections.abc import Mapping
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
ABSENT = 3
FIND = f'command -v -- "$1" >/dev/null || exit {ABSENT}'
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
            self.usage = self.usage + execution.usage
            why = self._broken(check, files, execution)
        except (ArtifactMissing, ArtifactCorrupt, SandboxFailed) as error:
            return cannot_run(check, str(error))
        if why:
            return cannot_run(check, why)
        return judge_command(check, execution.exit_code, printable(execution.stdout), _detail(execution))

    def _broken(self, check: CommandCheck, files: Mapping[str, bytes], execution: Execution) -> str | None:
        """Why a check cannot be run at all: it names a program that the host does not have, or one of its own files is no program.

        The agent's own code may have said so: the check must name it, and it must be missing for others, too. A missing
        ``./program`` is the agent's affair: the check asked for it.
        """
        what = complaint(execution)
        if what is None:
            return None
        name = what.removeprefix(f"{CHECKS}/")
        asked_for = any(name in text for text in (check.run, *map(_text, files.values())))
        if name != what:
            own = files.get(f"checks/{name}")
            missing = asked_for if own is None else self._lacks(_interpreter(own))
            return f"the check's own file {what!r} cannot be run" if missing else None
        if "/" in what or not asked_for or not self._lacks(what):
            return None
        return f"the check needs the program {what!r}, which is not installed on the executor's host"

    def _lacks(self, program: str) -> bool:
        """Whether a sandbox in which the agent has nothing lacks it, too. The agent does not pay for this look."""
        volume = self.bench.backend.volumes.create(self.bench.limits)
        try:
            execution = self.bench.look(
                Command(
                    ("/bin/sh", "-c", FIND, "sh", program),
                    volume,
                    self.bench.limits,
                    self.bench.isolation,
                    env=self.bench.environment.variables,
                )
            )
        finally:
            self.bench.backend.volumes.destroy(volume)
        return execution.exit_code == ABSENT

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


def complaint(execution: Execution) -> str | None:
    """What could not be run, by the last word on it."""
    if execution.exit_code not in (NOT_FOUND, NOT_RUNNABLE):
        return None
    complaints = [_text(found["what"]) for found in COMPLAINT.finditer(execution.stderr)]
    return complaints[-1] if complaints else None


def _interpreter(program: bytes) -> str:
    """Of a script; without a first line that names one, the shell's own."""
    line = program.partition(b"\n")[0]
    words = line.removeprefix(b"#!").split()
    return _text(words[0]) if line.startswith(b"#!") and words else "/bin/sh"


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _detail(execution: Execution) -> str:
    how = f"stopped by {named(execution)}" if execution.limit else f"exit code {execution.exit_code}"
    said = printable(execution.stdout + execution.stderr).strip()
    return f"{how}\n{said[-DETAIL:]}".strip()
