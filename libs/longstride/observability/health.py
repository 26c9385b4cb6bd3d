"""Whether a process is well, as an orchestrator asks."""

from collections.abc import Callable, Mapping

Check = Callable[[], str | None]
"""``None`` when well, else what is wrong. It must answer at once: from state kept elsewhere, never from the network."""


class Health:
    """Named checks."""

    def __init__(self, checks: Mapping[str, Check] | None = None) -> None:
        self._checks: dict[str, Check] = dict(checks or {})

    def register(self, name: str, check: Check) -> None:
        """Add a check, or replace the one of that name."""
        self._checks[name] = check

    def withdraw(self, name: str) -> None:
        """Ask it no more."""
        self._checks.pop(name, None)

    def report(self) -> dict[str, str | None]:
        """What each check says; one that raises is not well."""
        return {name: _ask(check) for name, check in list(self._checks.items())}


def _ask(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - a check that fails is an answer: not well
        return f"{type(error).__name__}: {error}"
