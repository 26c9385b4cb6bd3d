"""Who sits at the terminal, also where nobody knows."""

import getpass
import os
from pathlib import Path

import pytest

from longstride.client import person


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 4711"), OSError("No username set")])
def test_an_unknown_user_is_a_number(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def unknown() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert person.name() == f"uid {os.getuid()}"


def test_no_command_asks_for_the_user_by_itself() -> None:
    package = Path(person.__file__).parent
    asking = [path.name for path in package.rglob("*.py") if "getuser" in path.read_text()]
    assert asking == ["person.py"]
