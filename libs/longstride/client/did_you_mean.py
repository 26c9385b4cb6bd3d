"""What may have been meant by a name that is not there."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(wrong: str, known: Iterable[str], otherwise: str = "") -> str:
    """``did you mean run?``, or ``otherwise`` where no known name is near."""
    near = get_close_matches(wrong, list(known), n=1)
    return f"did you mean {near[0]}?" if near else otherwise
