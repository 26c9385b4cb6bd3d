"""constraints.txt pins all that a deployment or a developer installs, and not only what is asked for by name."""

import tomllib
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("client", "services", "model", "local", "mcp", "dev", "docker", "kubernetes", "stack")
PINS = {
    requirement.name: requirement
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
    for requirement in [Requirement(line)]
}
PINNED = {canonicalize_name(name) for name in PINS}


def needed(requirement: Requirement, extra: str, found: set[str]) -> None:
    """Add what a requirement installs here, in the end."""
    name = canonicalize_name(requirement.name)
    if (requirement.marker and not requirement.marker.evaluate({"extra": extra})) or name in found:
        return
    found.add(name)
    for below in requires(requirement.name) or []:
        for own in requirement.extras or {""}:
            needed(Requirement(below), own, found)


@pytest.mark.parametrize("extra", EXTRAS)
def test_everything_that_an_extra_installs_is_pinned(extra: str) -> None:
    found: set[str] = set()
    for line in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]:
        needed(Requirement(line), "", found)
    assert found - PINNED == set()
    assert len(found) > 8


def test_a_pin_is_one_exact_version() -> None:
    assert len(PINNED) == len(PINS)
    for requirement in PINS.values():
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        assert "*" not in specifier.version


def test_torch_is_the_version_that_is_tested_with() -> None:
    """Any build of it: the CPU's, or a GPU's."""
    assert distribution("torch").version.partition("+")[0] == "2.13.0"
    assert str(PINS["torch"].specifier) == "==2.13.0"
