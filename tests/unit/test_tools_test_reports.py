"""Test runs as tallies. The outputs are those of the real runners."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from longstride.tools.junit import ReportRefused, cases_of_junit
from longstride.tools.runner_output import cases_of_pytest, cases_of_unittest
from longstride.tools.tally import Case, Tally

BOMB = (
    '<!DOCTYPE t [<!ENTITY a "' + "A" * 1000 + '"><!ENTITY b "' + "&a;" * 1000 + '">]>'
    '<testsuite><testcase name="n"><failure>&b;</failure></testcase></testsuite>'
)
UNITTESTS = '''
import sys
import unittest


class Numbers(unittest.TestCase):
    def test_good(self):
        pass

    def test_told(self):
        """This one has a docstring."""

    def test_noisy(self):
        print("noise", file=sys.stderr)

    def test_bad(self):
        self.assertEqual(1, 2)

    def test_broken(self):
        raise KeyError("gone")

    @unittest.skip("not now")
    def test_skipped(self):
        pass

    @unittest.expectedFailure
    def test_known(self):
        self.fail()

    def test_parts(self):
        for part in range(3):
            with self.subTest(part=part):
                self.assertNotEqual(part, 1)


class Unready(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise OSError("no disk")

    def test_never(self):
        pass
'''
PYTESTS = """
import pytest


def test_good():
    pass


def test_bad():
    assert 1 == 2


@pytest.mark.parametrize("n", [1, 2])
def test_each(n):
    assert n == 1


@pytest.fixture
def broken():
    raise OSError("no disk")


def test_broken(broken):
    pass


@pytest.mark.skip(reason="not now")
def test_skipped():
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_numbers.py").write_text(UNITTESTS)
    (tmp_path / "pt").mkdir()
    (tmp_path / "pt" / "test_things.py").write_text(PYTESTS)
    return tmp_path


def verdicts(cases: list[Case]) -> dict[str, str]:
    return {case.name.rpartition(".")[2].rpartition("::")[2]: case.verdict for case in Tally.of(cases).cases}


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_unittests_output_is_read(folder: Path) -> None:
    cases = cases_of_unittest(run(folder, "unittest", "-v", "test_numbers").stderr)
    tally = Tally.of(cases)
    assert {case.name: case.verdict for case in tally.cases} == {
        "test_numbers.Numbers.test_good": "passed",
        "test_numbers.Numbers.test_told": "passed",
        "test_numbers.Numbers.test_noisy": "passed",
        "test_numbers.Numbers.test_known": "passed",
        "test_numbers.Numbers.test_bad": "failed",
        "test_numbers.Numbers.test_parts": "failed",
        "test_numbers.Numbers.test_broken": "error",
        "test_numbers.Unready.setUpClass": "error",
        "test_numbers.Numbers.test_skipped": "skipped",
    }
    details = {case.name.rpartition(".")[2]: case.detail for case in tally.cases if case.detail}
    assert details == {
        "test_bad": "AssertionError: 1 != 2",
        "test_parts": "AssertionError: 1 == 1",
        "test_broken": "KeyError: 'gone'",
        "setUpClass": "OSError: no disk",
        "test_skipped": "'not now'",
    }
    assert (tally.counted, tally.score) == (8, 0.5)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("test_a (m.C) ... ok\ntest_b (m.C) ... FAIL\n", {"test_a": "passed", "test_b": "failed"}),
        ("test_a (m.C.test_a) ... ok\ntest_b (m.C.test_b) ... ", {"test_a": "passed", "test_b": "error"}),
        ("nothing of the kind (really) ok\n", {}),
        ("", {}),
    ],
)
def test_older_and_broken_off_output_is_read(output: str, expected: dict[str, str]) -> None:
    assert verdicts(cases_of_unittest(output)) == expected


PYTEST_VERDICTS = {
    "test_good": "passed",
    "test_bad": "failed",
    "test_each[1]": "passed",
    "test_each[2]": "failed",
    "test_broken": "error",
}


def test_pytests_report_and_its_summary_say_the_same(folder: Path) -> None:
    done = run(folder / "pt", "pytest", "-rA", "-p", "no:cacheprovider", "--junitxml=report.xml")
    report = cases_of_junit((folder / "pt" / "report.xml").read_bytes())
    assert verdicts(report) == {**PYTEST_VERDICTS, "test_skipped": "skipped"}
    assert verdicts(cases_of_pytest(done.stdout)) == PYTEST_VERDICTS
    assert Tally.of(report).score == pytest.approx(2 / 5)
    assert "test_things::test_bad: assert 1 == 2" in Tally.of(report).text()


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (b"", "not XML"),
        (b"<testsuite>", "not XML"),
        (b"<html/>", "starts with <html>"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><testsuite/>', "declares a document type"),
        (('<?xml version="1.0" encoding="UTF-16"?>' + BOMB).encode("utf-16"), "declares a document type"),
        (f"<?xml version='1.0' encoding='UTF-16'?>{BOMB}".encode("utf-16-be"), "declares a document type"),
        (b"<?xml version='1.0' encoding='none-such'?><testsuite/>", "not XML"),
        (b"<testsuite>" * 1_000_000, "nests more than 64 elements"),
        (b"<" + b"a" * 1_000_000 + b"/>", "starts with <" + "a" * 100 + ">"),
    ],
)
def test_what_is_no_report_is_refused(report: bytes, why: str) -> None:
    with pytest.raises(ReportRefused, match=why):
        cases_of_junit(report)


def test_a_report_of_millions_of_elements_is_read_without_a_tree_of_them() -> None:
    cases = b"".join(b'<testcase classname="c" name="%d"/>' % number for number in range(1000))
    report = b"<testsuite>" + b"<properties/>" * 50_000 + cases + b"</testsuite>"
    tracemalloc.start()
    try:
        found = cases_of_junit(report)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert found == [Case(f"c::{number}", "passed") for number in range(1000)]


def test_what_a_test_said_is_its_first_verdict() -> None:
    report = (
        b"<testsuites><testsuite><testcase name='a'><system-out>no</system-out><failure>first\nmore</failure><error>second"
        b"</error></testcase><testcase name='b'><error message='why'>trace</error></testcase></testsuite></testsuites>"
    )
    assert cases_of_junit(report) == [Case("a", "failed", "first"), Case("b", "error", "why")]


def test_a_tally_says_the_share_first_and_what_to_mend_next() -> None:
    cases = [
        Case("a", "passed"),
        Case("b", "failed", "1 != 2"),
        Case("c", "skipped"),
        Case("d", "error"),
        Case("e", "passed"),
    ]
    tally = Tally.of([*cases, Case("e", "failed")])
    assert tally.text().splitlines() == [
        "1 of 4 tests pass (score 0.25), 2 failed, 1 broke, 1 skipped",
        "broke: d",
        "failed: b: 1 != 2",
        "failed: e",
        "passed: a",
        "skipped: c",
    ]
    assert Tally.of([Case(str(n), "failed") for n in range(50)]).text().splitlines()[-1] == "[and 10 more]"


@pytest.mark.parametrize(
    ("cases", "good", "text"),
    [
        ([], False, "no test was run"),
        ([Case("a", "skipped")], False, "no test was run, 1 were skipped"),
        ([Case("a", "passed"), Case("b", "skipped")], True, "1 of 1 tests pass (score 1.00)"),
    ],
)
def test_only_tests_that_ran_are_good(cases: list[Case], good: bool, text: str) -> None:
    assert Tally.of(cases).good is good
    assert Tally.of(cases).text().startswith(text)
