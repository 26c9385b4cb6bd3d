"""JUnit's XML reports: pytest, Maven, Jest, Go and others write them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from longstride.tools.tally import Case, CaseVerdict

VERDICTS: dict[str, CaseVerdict] = {"failure": "failed", "error": "error", "skipped": "skipped"}
ROOTS = ("testsuites", "testsuite")
DEEPEST = 64
"""Elements in each other. A report has about five."""
PIECE = 64 << 10
"""Bytes that are parsed at once."""
MOST_SAID = 4096
"""Characters that are kept of what a test said."""


class ReportRefused(ValueError):
    """The report cannot be read; the text says why."""


def cases_of_junit(report: bytes) -> list[Case]:
    """The test cases of a report.

    Raises:
        ReportRefused: it is not such a report. One that declares a document type is not read, in whatever encoding: it was made
            to be large.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    try:
        for at in range(0, len(report), PIECE):
            parser.Parse(report[at : at + PIECE], False)
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        if isinstance(error, ReportRefused):
            raise
        raise ReportRefused(f"the report is not XML: {error}") from error
    return reader.cases


@dataclass
class _Reader:
    """Keeps the cases alone: a tree of the report could take a hundred times its bytes."""

    cases: list[Case] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _name: str = ""
    _verdict: CaseVerdict = "passed"
    _said: str = ""
    _listening: bool = False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if not self._open and tag not in ROOTS:
            raise ReportRefused(f"the report is not JUnit's: it starts with <{tag[:100]}>")
        if len(self._open) == DEEPEST:
            raise ReportRefused(f"the report nests more than {DEEPEST} elements")
        if tag == "testcase":
            names = filter(None, (attributes.get("classname"), attributes.get("name")))
            self._name, self._verdict, self._said = "::".join(names) or "(without a name)", "passed", ""
        elif self._open[-1:] == ["testcase"] and self._verdict == "passed" and tag in VERDICTS:
            self._verdict, self._said = VERDICTS[tag], attributes.get("message", "")[:MOST_SAID]
            self._listening = not self._said
        self._open.append(tag)

    def text(self, data: str) -> None:
        if self._listening and self._open[-1] in VERDICTS:
            self._said += data[: MOST_SAID - len(self._said)]

    def end(self, tag: str) -> None:
        self._open.pop()
        if tag in VERDICTS:
            self._listening = False
        if tag == "testcase":
            said = self._said.strip()
            self.cases.append(Case(self._name, self._verdict, said.splitlines()[0] if said else ""))


def _refuse_doctype(*_: object) -> None:
    raise ReportRefused("the report declares a document type, which no JUnit report does")
