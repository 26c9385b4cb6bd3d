"""A policy's name as it is typed, and as services find it, which run in other folders."""

from pathlib import Path

from longstride.client.errors import UsageProblem
from longstride.client.working_directory import working_directory


def seen_from_here(name: str) -> str:
    """The name, a relative path in it made absolute.

    Raises:
        UsageProblem: no policy is called so.
    """
    from longstride.policies.base import PolicyUnavailable
    from longstride.policies.naming import found_from

    try:
        return found_from(name, working_directory() or Path())
    except PolicyUnavailable as error:
        raise UsageProblem(str(error)) from error
