"""Who sits at this terminal."""

import getpass
import os
from typing import TypeVar

from longstride.contracts.model import Contract

MOST = 255
C = TypeVar("C", bound=Contract)


def name() -> str:
    """The user's name; in a container that does not know its user, the user's number."""
    try:
        return getpass.getuser()[:MOST]
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def signed(command: C) -> C:
    """The command, by whoever runs this program where it does not say whose it is."""
    if "by" not in type(command).model_fields or "by" in command.model_fields_set:
        return command
    return command.model_copy(update={"by": name()})
