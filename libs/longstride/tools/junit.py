"""JUnit's XML reports: pytest, Maven, Jest, Go and others write them."""

from xml.etree import ElementTree

from longstride.tools.tally import Case, CaseVerdict

VERDICTS: dict[str, CaseVerdict] = {"failure": "failed", "error": "error", "skipped": "skipped"}


class ReportRefused(ValueError):
    """The report cannot be read; the text says why."""


def cases_of_junit(report: bytes) -> list[Case]:
    """The test cases of a report.

    Raises:
        ReportRefused: it is not such a report. One that declares entities is not read: it was made to be large.
    """
    if b"<!DOCTYPE" in report or b"<!ENTITY" in report:
        raise ReportRefused("the report declares a document type, which no JUnit report does")
    try:
        root = ElementTree.fromstring(report)
    except ElementTree.ParseError as error:
        raise ReportRefused(f"the report is not XML: {error}") from error
    if root.tag not in ("testsuites", "testsuite"):
        raise ReportRefused(f"the report is not JUnit's: it starts with <{root.tag}>")
    return [_case(element) for element in root.iter("testcase")]


def _case(element: ElementTree.Element) -> Case:
    name = "::".join(filter(None, (element.get("classname"), element.get("name")))) or "(without a name)"
    for child in element:
        if verdict := VERDICTS.get(child.tag):
            said = (child.get("message") or child.text or "").strip()
            return Case(name, verdict, said.splitlines()[0] if said else "")
    return Case(name, "passed")
