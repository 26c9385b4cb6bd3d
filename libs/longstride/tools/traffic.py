"""What an action asked of the network: for the agent in a few lines, for the record whole."""

from collections.abc import Sequence

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.egress import LISTED, Connection, Traffic
from longstride.sandbox.content import ContentStore

TOLD = 3
"""Refusals that an observation names."""
JSON_LINES = "application/jsonl"


def refused_connections(connections: Sequence[Connection]) -> str:
    """Lines for the agent, one for each different reason; programs seldom show what the proxy answered them."""
    reasons = list(dict.fromkeys(c.why for c in connections if c.verdict != "allowed"))
    lines = [f"[network: {why}]" for why in reasons[:TOLD]]
    return "\n".join([*lines, f"[network: and {len(reasons) - TOLD} more such]"] if len(reasons) > TOLD else lines)


def traffic(connections: Sequence[Connection], artifacts: ContentStore, session: str) -> Traffic:
    """The record of an action; all of it goes to the artifact store when a message cannot hold it."""
    log = _log(connections, artifacts, session) if len(connections) > LISTED else None
    return Traffic(
        connections=tuple(connections[:LISTED]),
        total=len(connections),
        refused=sum(c.verdict == "refused" for c in connections),
        sent=sum(c.sent for c in connections),
        received=sum(c.received for c in connections),
        log=log,
    )


def _log(connections: Sequence[Connection], artifacts: ContentStore, session: str) -> ArtifactRef:
    lines = "".join(f"{connection.model_dump_json()}\n" for connection in connections)
    return artifacts.put(lines.encode(), session=session, kind="connections", media_type=JSON_LINES)
