"""What an audit entry tells of an action that could reach the network."""

from datetime import UTC, datetime

from longstride.contracts.envelope import seal
from longstride.contracts.v1.audit_entry import ActionEntry
from longstride.contracts.v1.egress import Connection, Egress, EgressRule, Traffic
from longstride.contracts.v1.events import ActionExecuted
from services.planner.audit_trail import entries
from tests.support.rehearsal import Rehearsal

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def action_entry(play: Rehearsal) -> ActionEntry:
    found = [
        entry
        for decision in play.decisions
        for entry in entries(decision, seal(ActionExecuted(step=1)))
        if isinstance(entry, ActionEntry)
    ]
    (entry,) = found
    return entry


def test_every_connection_of_an_action_is_in_its_entry() -> None:
    refused = Connection(
        host="other.example.com", port=443, started_at=NOW, ended_at=NOW, verdict="refused", why="not on the list"
    )
    traffic = Traffic(connections=(refused,), total=1, refused=1)
    rules = (EgressRule(host="api.example.com"), EgressRule(host="*.example.org", ports=(80, 443)))
    play = Rehearsal(egress=Egress(rules=rules)).start().propose(command="curl").observe(traffic=traffic)
    entry = action_entry(play)
    assert entry.egress == ("api.example.com:443", "*.example.org:80,443")
    assert entry.traffic == traffic


def test_an_action_without_a_way_out_says_so() -> None:
    entry = action_entry(Rehearsal().start().step())
    assert (entry.egress, entry.traffic) == (None, None)
