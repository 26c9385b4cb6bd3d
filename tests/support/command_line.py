"""The command line, called in this process."""

import pytest

from longstride.client.application import application
from longstride.client.errors import ClientError
from longstride.client.screen import console


def longstride(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)."""
    console.out.cache_clear()  # each command is a process of its own to its user: with another width, say
    console.err.cache_clear()
    try:
        code = application(list(arguments), standalone_mode=False) or 0
    except ClientError as error:
        console.complain(str(error))
        code = error.exit_code
    told = capsys.readouterr()
    return code, told.out, told.err
