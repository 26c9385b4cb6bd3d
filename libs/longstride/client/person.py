"""Who sits at this terminal."""

import getpass
import os

MOST = 255


def name() -> str:
    """The user's name; in a container that does not know its user, the user's number."""
    try:
        return getpass.getuser()[:MOST]
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
