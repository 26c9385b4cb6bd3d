"""What an audit entry tells of an action that could reach the network, and of people who steer a task."""

from datetime import UTC, datetime

from longstride.contracts.envelope import seal
from longstride.contracts.v1.audit_entry import ActionEntry, TaskEndedEntry, TaskSteeredEntry
from longstride.contracts.v1.commands import CancelTask, MessageTask, PauseTask, ResumeTask
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


def test_whoever_steers_a_task_is_told_of() -> None:
    play = Rehearsal().start().hear(PauseTask(by="ada")).hear(ResumeTask(by="bob"))
    play.hear(MessageTask(text="in cents", by="cyd")).hear(CancelTask(reason="enough", by="dan"))
    trail = [entry for decision in play.decisions for entry in entries(decision, seal(CancelTask()))]
    steered = [entry for entry in trail if isinstance(entry, TaskSteeredEntry)]
    assert [(entry.what, entry.by, entry.step) for entry in steered] == [
        ("pause", "ada", 1),
        ("resume", "bob", 1),
        ("message", "cyd", 1),
    ]
    # printf 'in cents' | sha256sum
    assert steered[2].text_sha256 == "ded87d6a1dfe421d8137a59407c57e9cffe8cad5b729d11f4c5da36d184124d9"
    assert [type(play.events[entry.event - 1]).__name__ for entry in steered] == [
        "PauseRequested",
        "Resumed",
        "MessageReceived",
    ]
    (end,) = [entry for entry in trail if isinstance(entry, TaskEndedEntry)]
    assert (end.by, end.detail) == ("dan", "cancelled by dan: enough")
