"""``run_tests``: a test run, with what became of each test."""

import secrets
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from longstride.sandbox.base import Execution
from longstride.tools.junit import ReportRefused, cases_of_junit
from longstride.tools.observation import printable
from longstride.tools.runner_output import cases_of_pytest, cases_of_unittest
from longstride.tools.shell import FIND_SHELL
from longstride.tools.tally import Tally
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult, of_execution

SCRIPTS = {
    "pytest": 'python3 -m pytest -q -p no:cacheprovider --junitxml=/tmp/report.xml "$@"',
    "unittest": 'python3 -m unittest -v "$@"',
}
REPORTING = (
    '{run}; code=$?; report={report}; [ -f "$report" ] && printf "\\n%s\\n" "$0" && cat -- "$report"; exit $code'
)
"""The report follows the output, after a line that nobody can guess: /tmp does not outlive the sandbox."""
REPORT_BYTES = 16 << 20
"""Output that is kept to read a report from, half of it for each stream."""


class RunTestsArguments(Arguments):
    """Arguments of ``run_tests``."""

    framework: Literal["unittest", "pytest", "command"] = "unittest"
    """Which runner; command is any other, as a command line."""
    arguments: Annotated[tuple[Annotated[str, StringConstraints(max_length=4096)], ...], Field(max_length=256)] = ()
    """For unittest and pytest: files, names of tests, options. Without any, all tests that are found are run."""
    command: Annotated[str, StringConstraints(min_length=1, max_length=65_536)] | None = None
    """For command: the command line."""
    report: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None
    """For command: the JUnit XML file that it writes, if it does."""
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds to allow, when less than the task's own limit will do."""

    @model_validator(mode="after")
    def _fit(self) -> "RunTestsArguments":
        if (self.framework == "command") != (self.command is not None):
            raise ValueError("command is given with framework command, and with no other")
        if self.framework != "command" and self.report is not None:
            raise ValueError("report is given with framework command alone")
        return self


class RunTests(Tool[RunTestsArguments]):
    """Runs in a new sandbox, as ``shell``. A share of tests is partial credit, and tells the agent whether it gets on."""

    name = "run_tests"
    description = (
        "Run the tests in the workspace with unittest, pytest or a command of your own, and read how many pass, "
        "which do not and why, and the end of the output."
    )
    arguments = RunTestsArguments
    example = {"framework": "pytest", "arguments": ["tests/test_app.py"]}
    offered = False

    def run(self, arguments: RunTestsArguments, bench: Bench) -> ToolResult:
        """Run them; tests that fail are a failed call, so that it is not taken for a success."""
        mark = secrets.token_hex(16)
        execution = bench.run(*_argv(arguments, mark, bench), wall_s=arguments.timeout_s, output_bytes=REPORT_BYTES)
        stdout, found, report = execution.stdout.partition(f"\n{mark}\n".encode())
        shown = replace(execution, stdout=stdout)
        try:
            tally = _tally(arguments, shown, report if found else None)
        except ReportRefused as refused:
            return _told(str(refused), shown, good=False)
        if not tally.cases and arguments.framework == "command":
            return _told("no test is told of in the output: the exit code alone counts", shown, good=True)
        return _told(tally.text(), shown, good=tally.good)


def _argv(arguments: RunTestsArguments, mark: str, bench: Bench) -> tuple[str, ...]:
    if arguments.command is None:
        script = REPORTING.format(run=SCRIPTS[arguments.framework], report="/tmp/report.xml")
        return ("sh", "-c", script, mark, *arguments.arguments)
    script = REPORTING.format(run=f'sh -c {_quoted(FIND_SHELL)} sh "$1"', report='"$2"')
    return ("sh", "-c", script, mark, arguments.command, bench.inside(arguments.report or "/dev/null"))


def _tally(arguments: RunTestsArguments, execution: Execution, report: bytes | None) -> Tally:
    """From the report where there is one, else from what was printed.

    Raises:
        ReportRefused: the report cannot be read.
    """
    if report is not None:
        return Tally.of(cases_of_junit(report))
    if arguments.report is not None:
        raise ReportRefused(f"the command wrote no report {arguments.report}")
    printed, errors = printable(execution.stdout), printable(execution.stderr)
    return Tally.of([*cases_of_unittest(errors), *cases_of_pytest(printed)])


def _told(summary: str, execution: Execution, *, good: bool) -> ToolResult:
    """The summary, then the output; a run that says of itself that all is well is believed only where its tests are."""
    result = of_execution(execution)
    status = "failed" if result.status == "ok" and not good else result.status
    return replace(result, status=status, output=f"{summary}\n--- output\n".encode() + result.output)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
