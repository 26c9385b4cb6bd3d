"""Patterns over what agents write: RE2's regular expressions, linear in the text, and JSONPaths without filters.

Both libraries are loaded when the first pattern is used: most deployments have no rules, and clients never do.
"""

from functools import lru_cache
from typing import Any


class InvalidPattern(ValueError):
    """It cannot be understood; the text says why."""


@lru_cache(512)
def regex(pattern: str) -> Any:
    """A compiled regular expression.

    Raises:
        InvalidPattern: it is none of RE2's; back-references and look-around are not.
    """
    import re2

    try:
        pattern.encode()
    except UnicodeEncodeError as error:
        raise InvalidPattern(f"{pattern!r} is not a regular expression of RE2: it is no text") from error
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else str(error)
        raise InvalidPattern(f"{pattern!r} is not a regular expression of RE2: {why}") from error


@lru_cache(512)
def path(text: str) -> Any:
    """A compiled JSONPath.

    Raises:
        InvalidPattern: it is none, or has a filter: those could run regular expressions that take for ever.
    """
    import jsonpath

    if "?" in text:
        raise InvalidPattern(f"{text!r} has a filter; give the value's path alone, and match it with pattern")
    try:
        return jsonpath.compile(text)
    except jsonpath.JSONPathError as error:
        why = str(error).partition("\n")[0]
        raise InvalidPattern(f"{text!r} is not a JSONPath: {why}") from error


def values_at(text: str, document: Any) -> list[Any] | None:
    """The values that a JSONPath finds; ``None``: the document is nested too deeply to say."""
    from jsonpath import JSONPathError

    try:
        return list(path(text).findall(document))
    except (JSONPathError, RecursionError):
        return None
