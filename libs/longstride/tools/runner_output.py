"""What test runners print for people, read: unittest's verbose output, and pytest's summary (``-rA``)."""

import re
from collections.abc import Iterator

from longstride.tools.tally import Case, CaseVerdict

STARTED = re.compile(r"^\s*(?P<test>\w+) \((?P<where>[\w.<>]+)\)(?P<rest>.*)$")
"""``test_a (module.Class.test_a) ... ok``; before Python 3.11 without the second name."""
ENDED = re.compile(r"(?:^|\s)(?P<word>ok|FAIL|ERROR|expected failure|unexpected success|skipped .*)$")
REPORTED = re.compile(r"^(?:FAIL|ERROR): (?P<test>\w+) \((?P<where>[\w.<>]+)\)")
RULE, THIN_RULE = "=" * 70, "-" * 70
WORDS: dict[str, CaseVerdict] = {
    "ok": "passed",
    "expected failure": "passed",
    "FAIL": "failed",
    "unexpected success": "failed",
    "ERROR": "error",
}
SUMMARY = re.compile(
    r"^(?P<word>PASSED|FAILED|ERROR|XFAIL|XPASS) (?P<name>\S+::\S.*?|\S+\.py)(?: - (?P<why>.*))?$", re.MULTILINE
)
SUMMARY_WORDS: dict[str, CaseVerdict] = {
    "PASSED": "passed",
    "XFAIL": "passed",
    "FAILED": "failed",
    "XPASS": "failed",
    "ERROR": "error",
}


def cases_of_unittest(output: str) -> list[Case]:
    """The tests that ``python3 -m unittest -v`` told of, in order. One without an end broke off the run."""
    running, *reports = output.split(f"\n{RULE}\n") if RULE in output else [output]
    reasons = dict(_reasons(reports))
    return [
        Case(name, verdict, detail or (reasons.get(name, "") if verdict in ("failed", "error") else ""))
        for name, verdict, detail in _run(running)
    ]


def cases_of_pytest(output: str) -> list[Case]:
    """The tests that pytest's short summary names."""
    return [Case(found["name"], SUMMARY_WORDS[found["word"]], found["why"] or "") for found in SUMMARY.finditer(output)]


def _run(text: str) -> Iterator[tuple[str, CaseVerdict, str]]:
    open_test: str | None = None
    for line in text.splitlines():
        if line == THIN_RULE:
            break
        if found := STARTED.match(line):
            if open_test and not line.startswith(" "):
                yield open_test, "error", "it did not end"
            open_test, line = _name(found), found["rest"]
        if open_test and (ended := ENDED.search(line)):
            word = ended["word"]
            yield (
                open_test,
                WORDS.get(word, "skipped"),
                word.removeprefix("skipped ") if word.startswith("skipped") else "",
            )
            open_test = None
    if open_test:
        yield open_test, "error", "it did not end"


def _reasons(reports: list[str]) -> Iterator[tuple[str, str]]:
    """(test, the last line of its traceback)."""
    for report in reports:
        found = REPORTED.match(report)
        lines = (
            [line for line in report.split(THIN_RULE)[1].splitlines() if line.strip()] if THIN_RULE in report else []
        )
        if found and lines:
            errors = [line for line in lines if re.match(r"\w[\w.]*(?:: |$)", line)]
            yield _name(found), (errors or lines)[-1]


def _name(found: re.Match[str]) -> str:
    test, where = found["test"], found["where"]
    return where if where.rpartition(".")[2] == test else f"{where}.{test}"
