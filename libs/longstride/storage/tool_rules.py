"""Rules on tools, in versions, and the counts behind their rate limits."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from psycopg.types.json import Jsonb

from longstride.contracts.v1.audit_entry import RulesSetEntry
from longstride.contracts.v1.tool_rules import RulesInForce, ToolRules
from longstride.storage.audit import Audit
from longstride.storage.columns import columns
from longstride.storage.transaction import Transaction


@dataclass(frozen=True, slots=True)
class StoredRules:
    """See ``tables.ToolRulesRow``."""

    tenant: str
    agent: str
    version: int
    rules: dict[str, Any]
    set_by: str
    set_at: datetime

    @property
    def in_force(self) -> RulesInForce:
        """As a task keeps them."""
        return RulesInForce(version=self.version, rules=ToolRules.model_validate(self.rules))


_COLUMNS = columns(StoredRules)
_LATEST = f"""
    SELECT {_COLUMNS} FROM tool_rules WHERE tenant = %s AND agent = %s ORDER BY version DESC LIMIT 1"""
_LIST = f"""
    SELECT DISTINCT ON (tenant, agent) {_COLUMNS} FROM tool_rules WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s
    ORDER BY tenant, agent, version DESC"""
_SET = f"""
    INSERT INTO tool_rules (tenant, agent, version, rules, set_by)
    SELECT %(tenant)s, %(agent)s, coalesce(max(version), 0) + 1, %(rules)s, %(by)s
    FROM tool_rules WHERE tenant = %(tenant)s AND agent = %(agent)s
    RETURNING {_COLUMNS}"""
_RECENT = """
    INSERT INTO tool_calls AS c (tenant, tool, calls) VALUES (%(tenant)s, %(tool)s, '{}')
    ON CONFLICT (tenant, tool) DO UPDATE
    SET calls = ARRAY(SELECT at FROM unnest(c.calls) AS at WHERE at > %(now)s::timestamptz - interval '1 minute' ORDER BY at)
    RETURNING cardinality(calls)"""
_COUNT = "UPDATE tool_calls SET calls = calls || %s::timestamptz WHERE tenant = %s AND tool = %s"


class ToolRulesets:
    """The ``tool_rules`` and ``tool_calls`` tables."""

    def __init__(self, transaction: Transaction, audit: Audit) -> None:
        self._transaction = transaction
        self._audit = audit

    def latest(self, tenant: str, agent: str) -> StoredRules | None:
        """What holds for new tasks; ``None``: nobody has set any."""
        return self._transaction.row(StoredRules, _LATEST, (tenant, agent))

    def list(self, tenant: str | None = None) -> "list[StoredRules]":
        """The latest of each agent definition."""
        return self._transaction.rows(StoredRules, _LIST, {"tenant": tenant})

    def set(self, tenant: str, agent: str, rules: ToolRules, by: str) -> StoredRules:
        """Make them the next version, and tell the audit. Tasks that were accepted keep theirs.

        Raises:
            AlreadyExists: somebody else has set some at the same moment.
        """
        stored = Jsonb(rules.model_dump(mode="json", exclude_none=True))
        found = self._transaction.row(StoredRules, _SET, {"tenant": tenant, "agent": agent, "rules": stored, "by": by})
        assert found is not None, "an aggregate has one row"
        digest = sha256(rules.model_dump_json(exclude_none=True).encode()).hexdigest()
        entry = RulesSetEntry(agent=agent, version=found.version, rules_sha256=digest, by=by)
        self._audit.append(tenant, entry.model_dump(mode="json"))
        return found

    def recent_calls(self, tenant: str, tool: str, now: datetime) -> int:
        """Calls of a tool in the minute before ``now``. Other transactions that ask the same wait until this one ends."""
        calls: int = self._transaction.value(_RECENT, {"tenant": tenant, "tool": tool, "now": now})
        return calls

    def count_call(self, tenant: str, tool: str, now: datetime) -> None:
        """One more; ``recent_calls`` was asked before."""
        self._transaction.later(_COUNT, (now, tenant, tool))
