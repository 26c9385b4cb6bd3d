"""What is wrong with a setting, by the name of its variable."""

import re
from typing import TYPE_CHECKING

from pydantic import AliasChoices, ValidationError
from pydantic_settings import BaseSettings, SettingsError

from longstride.contracts.envelope import OUR_OWN

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

WRONG = (ValidationError, SettingsError)
"""What reading settings raises: of a value, and of one that is to be JSON and is none."""
FIELD = re.compile(r'field "(\w+)"')


def told(error: ValidationError | SettingsError) -> str:
    """Each variable that does not fit, and why; never its value."""
    if isinstance(error, ValidationError):
        return "; ".join(_fault(each, error.title) for each in error.errors(include_url=False, include_input=False))
    found = FIELD.search(str(error))
    return f'{_variable(found[1])}: several values are written as JSON, such as ["a", "b"]' if found else str(error)


def _fault(fault: "ErrorDetails", title: str) -> str:
    why = fault["msg"].removeprefix(OUR_OWN)
    return f"{_variable(str(fault['loc'][0]), title)}: {why}" if fault["loc"] else why


def _variable(field: str, title: str | None = None) -> str:
    """``slots`` of ``ToolExecutorSettings`` as ``LONGSTRIDE_TOOL_EXECUTOR_SLOTS``."""
    kinds = [kind for kind in BaseSettings.__subclasses__() if title is None or kind.__name__ == title]
    kind = next((kind for kind in kinds if field in kind.model_fields), None)
    if kind is None:
        return field.upper()
    alias = kind.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):  # the last one is the variable that others use, too
        return str(alias.choices[-1])
    return f"{kind.model_config.get('env_prefix', '')}{field}".upper()
