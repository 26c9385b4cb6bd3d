"""What is in a Grafana dashboard file, and its SQL with the macros as Grafana's PostgreSQL source expands them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

INFRA = Path(__file__).parents[2] / "infra"
DASHBOARDS = sorted((INFRA / "grafana/dashboards").glob("*.json"))
FROM, TO = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
"""The range that statements are run for."""
_INTERVAL_S = 60
_MACROS = [
    (r"\$__timeFilter\(([^()]*)\)", rf"\1 BETWEEN '{FROM}' AND '{TO}'"),
    (
        r"\$__timeGroupAlias\(([^(),]*),[^()]*\)",
        rf'floor(extract(epoch from \1)/{_INTERVAL_S})*{_INTERVAL_S} AS "time"',
    ),
]


class Statement(NamedTuple):
    """One SQL statement of a dashboard, and where it is."""

    title: str
    sql: str


def load(path: Path) -> dict[str, Any]:
    """The dashboard's JSON."""
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All panels, those of collapsed rows included."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def statements(dashboard: dict[str, Any]) -> Iterator[Statement]:
    """Every SQL statement: of panels and of variables."""
    for panel in panels(dashboard):
        yield from (
            Statement(panel["title"], target["rawSql"]) for target in panel.get("targets", []) if "rawSql" in target
        )
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query" and "postgres" in variable["datasource"]["type"]:
            yield Statement(f"variable {variable['name']}", variable["query"])


def expanded(sql: str, variables: dict[str, str]) -> str:
    """The statement as it reaches the database. Raises ``AssertionError`` for a macro or variable that is not known here."""
    for macro, meaning in _MACROS:
        sql = re.sub(macro, meaning, sql)
    for name, value in variables.items():
        sql = sql.replace(f"${{{name}:sqlstring}}", f"'{value}'")
    assert "$" not in sql, f"not expanded: {sql}"
    return sql
