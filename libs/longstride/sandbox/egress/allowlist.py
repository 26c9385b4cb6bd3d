"""Which hosts and ports a task may reach."""

from datetime import UTC, datetime

from longstride.contracts.v1.egress import Connection, Egress, EgressRule


def rule_for(egress: Egress, host: str, port: int) -> EgressRule | None:
    """The first rule that allows it.

    Args:
        egress: the task's.
        host: as ``contracts.v1.egress.host_name`` gives it.
        port: the server's.
    """
    return next((rule for rule in egress.rules if port in rule.ports and _names(rule.host, host)), None)


def _names(pattern: str, host: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def told(egress: Egress, most: int = 6) -> str:
    """The rules in a few words, e.g. ``api.example.com:443, *.example.org:80,443``."""
    shown = ", ".join(map(str, egress.rules[:most]))
    return shown + (f" and {len(egress.rules) - most} more" if len(egress.rules) > most else "")


def not_listed(egress: Egress, host: str, port: int) -> str:
    """Why a place that no rule names is refused."""
    return f"{host}:{port} is not on this task's allow-list, which is {told(egress)}"


def judged(egress: Egress, host: str, port: int) -> Connection:
    """What the rules alone say of a connection, recorded as one that moved nothing."""
    rule, now = rule_for(egress, host, port), datetime.now(UTC)
    why = f"rule {rule}" if rule else not_listed(egress, host, port)
    return Connection(
        host=host, port=port, started_at=now, ended_at=now, verdict="allowed" if rule else "refused", why=why
    )
