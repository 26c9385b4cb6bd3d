"""For `pytest -p`, against servers in containers: what talks to RabbitMQ, PostgreSQL or S3, and says what it leaves out."""

import signal

import pytest


def pytest_configure() -> None:
    """A termination ends the run as Ctrl-C does: fixtures stop what they started. And Ctrl-C reaches what tests start:
    a shell starts its background jobs deaf to it, and they would inherit that."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the rest out; pytest's last line counts it, and a line here says why."""
    reasons = {item: _left_out(item) for item in items}
    config.stash[LEFT_OUT] = [reason for reason in reasons.values() if reason]
    config.hook.pytest_deselected(items=[item for item in items if reasons[item]])
    items[:] = [item for item in items if not reasons[item]]


LEFT_OUT = pytest.StashKey[list[str]]()


def _left_out(item: pytest.Item) -> str | None:
    """Why; ``None``: it stays."""
    fixtures = getattr(item, "fixturenames", ())
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    if item.path.name == "test_compose.py":
        return None
    if "servers" not in fixtures:
        return "talk to no server: `make test` runs them"
    if "stack" in fixtures:
        return "kill servers as native processes: `make test` runs them, and test_compose.py kills containers"
    if parameters.get("broker_url") == "memory":
        return "use the in-memory broker: `make test` runs them"
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out."""
    reasons = config.stash.get(LEFT_OUT, [])
    for reason in sorted(set(reasons)):
        terminalreporter.write_line(f"left out: {reasons.count(reason)} that {reason}")
