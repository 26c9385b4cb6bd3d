"""The tables. PostgreSQL is the truth: what is not here did not happen."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.dialects.postgresql import JSON as TEXT_JSON
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

TIME = DateTime(timezone=True)
JSON = dict[str, Any]


class Base(DeclarativeBase):
    """Text, JSONB and time-zoned times by default."""

    type_annotation_map = {str: Text, JSON: JSONB, list[Any]: JSONB, datetime: TIME, float: Double, bytes: LargeBinary}


class TaskRow(Base):
    """The head of a task: what claim queries, lists and dashboards read. The events are its truth."""

    __tablename__ = "tasks"
    id: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[str] = mapped_column(index=True)
    tenant: Mapped[str]
    status: Mapped[str]
    """queued, running, parked, succeeded, failed or cancelled."""
    version: Mapped[int] = mapped_column(BigInteger)
    """The seq of the last event; every write checks it."""
    instruction: Mapped[str]
    """The first 500 characters, for lists."""
    policy: Mapped[str | None]
    track: Mapped[str]
    priority: Mapped[int] = mapped_column(SmallInteger)
    concurrency_key: Mapped[str | None]
    idempotency_key: Mapped[str | None]
    group_id: Mapped[str | None]
    parent_task_id: Mapped[str | None]
    reply_to: Mapped[str | None]
    """The queue that wants the outcome."""
    correlation_id: Mapped[str | None]
    earlier_askers: Mapped[list[Any] | None]
    """Who submitted the same task before and wants the outcome too: pairs of a queue and a correlation id, latest first."""
    outcome: Mapped[str | None]
    reason: Mapped[str | None]
    answer: Mapped[str | None]
    reward: Mapped[float | None]
    steps: Mapped[int] = mapped_column(Integer, server_default="0")
    input_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    output_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    cost_usd: Mapped[float] = mapped_column(server_default="0")
    traceparent: Mapped[str | None]
    """The task's root span."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    ended_at: Mapped[datetime | None]

    __table_args__ = (
        UniqueConstraint("tenant", "idempotency_key"),
        CheckConstraint("status IN ('queued','running','parked','succeeded','failed','cancelled')", name="status"),
        CheckConstraint("(outcome IS NULL) = (ended_at IS NULL)", name="ended_with_outcome"),
        Index(
            "ix_tasks_queue",
            "tenant",
            text("priority DESC"),
            "created_at",
            "id",
            postgresql_where=text("status = 'queued'"),
        ),
        Index(
            "ix_tasks_queue_by_key",
            "tenant",
            "concurrency_key",
            text("priority DESC"),
            "created_at",
            postgresql_where=text("status = 'queued' AND concurrency_key IS NOT NULL"),
        ),
        Index("ix_tasks_active", "tenant", "concurrency_key", postgresql_where=text("status IN ('running','parked')")),
        Index("ix_tasks_parent", "parent_task_id", postgresql_where=text("parent_task_id IS NOT NULL")),
        Index("ix_tasks_created", "created_at"),
        Index("ix_tasks_group", "tenant", "group_id", postgresql_where=text("group_id IS NOT NULL")),
        {"postgresql_with": {"fillfactor": "70"}},
    )


class TenantTurnRow(Base):
    """Whose turn it is: tenants are admitted round-robin, the one served longest ago first."""

    __tablename__ = "tenant_turns"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    turn: Mapped[int] = mapped_column(BigInteger)
    """The number of the tenant's last admission; a tenant without a row was never served."""


class TaskEventRow(Base):
    """The append-only history of a task."""

    __tablename__ = "task_events"
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    """1, 2, 3 … without gaps."""
    type: Mapped[str]
    payload: Mapped[JSON]
    causation_id: Mapped[str | None]
    """The message that caused it."""
    occurred_at: Mapped[datetime] = mapped_column(server_default=func.now())


class AttemptRow(Base):
    """One try of one phase of a step: the lease under which its result may commit, once."""

    __tablename__ = "attempts"
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int] = mapped_column(Integer, primary_key=True)
    phase: Mapped[str] = mapped_column(primary_key=True)
    """generate or execute."""
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    status: Mapped[str]
    """dispatched → leased → answered → settled; or lost."""
    message_id: Mapped[str] = mapped_column(unique=True)
    """The command's."""
    command: Mapped[JSON | None]
    """The command's envelope, until it is settled or lost."""
    answer: Mapped[JSON | None]
    """The answer's envelope, until it is settled."""
    owner: Mapped[str | None]
    """The incarnation that holds the lease."""
    generation: Mapped[int] = mapped_column(Integer, server_default="0")
    """The fencing number: each claim adds one."""
    lease_expires_at: Mapped[datetime | None]
    dispatched_at: Mapped[datetime] = mapped_column(server_default=func.now())
    leased_at: Mapped[datetime | None]
    answered_at: Mapped[datetime | None]
    hindrance: Mapped[str | None]
    """What its worker last failed for and waits to end, e.g. a full disk of the artifact store."""
    hindered_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint("phase IN ('generate','execute')", name="phase"),
        CheckConstraint("status IN ('dispatched','leased','answered','settled','lost')", name="status"),
        Index(
            "ix_attempts_open",
            "status",
            "lease_expires_at",
            postgresql_where=text("status IN ('dispatched','leased','answered')"),
        ),
    )


class OutboxRow(Base):
    """A message that its transaction promised; it is deleted once the broker has confirmed it."""

    __tablename__ = "outbox"
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    """From the column's own sequence; producers draw them in blocks, so ids are unique but not in commit order."""
    message_id: Mapped[str]
    carrier: Mapped[str]
    """kombu (topic exchange), celery (a job), reply (a client's queue) or queue (one of ours, past the exchange)."""
    routing_key: Mapped[str]
    correlation_id: Mapped[str | None]
    reply_to: Mapped[str | None]
    """The queue that waits for an answer to this message."""
    wire: Mapped[str]
    """The encoded envelope."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    not_before: Mapped[datetime] = mapped_column(server_default=func.now())
    tries: Mapped[int] = mapped_column(Integer, server_default="0")
    error: Mapped[str | None]

    __table_args__ = (Index("ix_outbox_due", "not_before"),)


class InboxRow(Base):
    """A message that a consumer has handled; written with the change it made."""

    __tablename__ = "inbox"
    consumer: Mapped[str] = mapped_column(primary_key=True)
    message_id: Mapped[str] = mapped_column(primary_key=True)
    handled_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)


class DeliveryFailureRow(Base):
    """Our own count of how often a message could not be handled."""

    __tablename__ = "delivery_failures"
    consumer: Mapped[str] = mapped_column(primary_key=True)
    message_id: Mapped[str] = mapped_column(primary_key=True)
    failures: Mapped[int] = mapped_column(Integer)
    error: Mapped[str]
    failed_at: Mapped[datetime] = mapped_column(server_default=func.now())


class TimerRow(Base):
    """A message to send at a time; keyed, so that it can be moved or removed."""

    __tablename__ = "timers"
    key: Mapped[str] = mapped_column(primary_key=True)
    due_at: Mapped[datetime] = mapped_column(index=True)
    carrier: Mapped[str]
    routing_key: Mapped[str]
    wire: Mapped[str]
    every_s: Mapped[float | None]
    """Set for a schedule: it is moved on instead of removed."""
    correlation_id: Mapped[str | None]
    reply_to: Mapped[str | None]
    """The queue that waits for an answer to this message."""


class DeadLetterRow(Base):
    """A message that could not be understood or handled, whole, with the reason."""

    __tablename__ = "dead_letters"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    queue: Mapped[str]
    message_id: Mapped[str | None]
    type: Mapped[str | None]
    reason: Mapped[str]
    body: Mapped[bytes]
    headers: Mapped[JSON]
    dead_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)
    replayed_at: Mapped[datetime | None]


class StepRow(Base):
    """A projection of the events for Grafana and the command line; it can be rebuilt from them."""

    __tablename__ = "steps"
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int] = mapped_column(Integer, primary_key=True)
    tool: Mapped[str | None]
    arguments: Mapped[JSON | None]
    """Cut to 2 KiB a value."""
    thought: Mapped[str | None]
    status: Mapped[str] = mapped_column(server_default="generating")
    """generating, acting, waiting, ok, failed, timeout, limit, denied, invalid, format_error."""
    observation: Mapped[str | None]
    """The first 2 KiB."""
    checks_passed: Mapped[int | None]
    checks_total: Mapped[int | None]
    input_tokens: Mapped[int] = mapped_column(Integer, server_default="0")
    output_tokens: Mapped[int] = mapped_column(Integer, server_default="0")
    cost_usd: Mapped[float] = mapped_column(server_default="0")
    model_ms: Mapped[float | None]
    tool_ms: Mapped[float | None]
    policy: Mapped[str | None]
    policy_version: Mapped[int | None]
    revises: Mapped[int | None]
    """The failed step that this one corrects."""
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    ended_at: Mapped[datetime | None]


class ArtifactRow(Base):
    """One reference of a committed transaction to an object; an object without any is an orphan."""

    __tablename__ = "artifacts"
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    key: Mapped[str]
    session_id: Mapped[str] = mapped_column(index=True)
    task_id: Mapped[str | None] = mapped_column(index=True)
    step: Mapped[int | None]
    kind: Mapped[str]
    """workspace, blob, context, observation, tokens, trajectory, output, input, batch or policy."""
    name: Mapped[str | None]
    """The file name, for outputs."""
    sha256: Mapped[str]
    size: Mapped[int] = mapped_column(BigInteger)
    media_type: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())

    __table_args__ = (
        Index(
            "uq_artifacts_reference",
            "key",
            text("coalesce(task_id, '')"),
            text("coalesce(step, 0)"),
            text("coalesce(name, '')"),
            unique=True,
        ),
    )


class TrajectoryRow(Base):
    """A finished episode, ready to be learned from."""

    __tablename__ = "trajectories"
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True)
    session_id: Mapped[str]
    tenant: Mapped[str]
    group_id: Mapped[str | None] = mapped_column(index=True)
    policy: Mapped[str]
    policy_version: Mapped[int | None]
    """``None`` when the policy gave no token records: it can be read but not trained on."""
    outcome: Mapped[str]
    reason: Mapped[str]
    ref: Mapped[JSON]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class RewardRow(Base):
    """A reward of a trajectory; a new judgement is a new version, the highest counts."""

    __tablename__ = "rewards"
    task_id: Mapped[str] = mapped_column(ForeignKey("trajectories.task_id", ondelete="CASCADE"), primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True)
    value: Mapped[float | None]
    """``None``: no verdict (an infrastructure failure is never a reward of 0)."""
    components: Mapped[list[Any]]
    source: Mapped[str]
    """checks or feedback."""
    reason: Mapped[str] = mapped_column(server_default="")
    """Why there is no value, or the person's comment."""
    by: Mapped[str | None]
    """Who gave the feedback."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class PolicyRow(Base):
    """A published policy version."""

    __tablename__ = "policies"
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True)
    parent_version: Mapped[int | None]
    manifest: Mapped[JSON]
    """An ArtifactRef."""
    batch_id: Mapped[str | None] = mapped_column(unique=True)
    metrics: Mapped[JSON] = mapped_column(server_default=text("'{}'::jsonb"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class TrainingLedgerRow(Base):
    """Which update trained on which trajectory: once a policy."""

    __tablename__ = "training_ledger"
    policy: Mapped[str] = mapped_column(primary_key=True)
    task_id: Mapped[str] = mapped_column(primary_key=True)
    batch_id: Mapped[str] = mapped_column(index=True)
    policy_version: Mapped[int | None]
    """The version the update published; ``None`` while it runs."""
    refused: Mapped[str | None]
    """Why the batch cannot be trained on. Its trajectories stay claimed, or the next batch would be refused as well."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class AuditRow(Base):
    """Who did what: append-only, hash-chained a tenant."""

    __tablename__ = "audit"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    entry: Mapped[JSON] = mapped_column(TEXT_JSON)
    """Kept as it was written: its text is what is hashed."""
    previous: Mapped[str]
    """``sha256`` of the row before, 64 zeros for the first."""
    sha256: Mapped[str]
    """Of the canonical JSON of [previous, tenant, seq, occurred_at, entry]; see ``audit_chain.py``."""
    occurred_at: Mapped[datetime] = mapped_column(server_default=func.now())

    __table_args__ = (
        Index("ix_audit_occurred", "occurred_at", postgresql_using="brin"),
        Index("ix_audit_checkpoints", "tenant", "seq", postgresql_where=text("entry ->> 'kind' = 'rows_removed'")),
    )


class AuditHeadRow(Base):
    """The end of a tenant's chain: what the next row follows, and by which a cut-off end shows."""

    __tablename__ = "audit_heads"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger)
    previous: Mapped[str]
    sha256: Mapped[str]

    __table_args__ = ({"postgresql_with": {"fillfactor": "10"}},)


class AuditRetentionRow(Base):
    """How long a tenant's audit rows are kept; a tenant without a row keeps them for ever."""

    __tablename__ = "audit_retention"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    days: Mapped[int] = mapped_column(Integer)

    __table_args__ = (CheckConstraint("days > 0", name="days"),)


class AuditHoldRow(Base):
    """A legal hold: it stops the removal of what it covers."""

    __tablename__ = "audit_holds"
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    tenant: Mapped[str]
    task_id: Mapped[str | None]
    """``None``: all of the tenant's rows."""
    reason: Mapped[str]
    placed_by: Mapped[str]
    placed_at: Mapped[datetime] = mapped_column(server_default=func.now())
    released_by: Mapped[str | None]
    released_at: Mapped[datetime | None]

    __table_args__ = (Index("ix_audit_holds_open", "tenant", postgresql_where=text("released_at IS NULL")),)


class ToolRulesRow(Base):
    """What the tasks of a tenant and agent definition may do with tools; the highest version is for new tasks."""

    __tablename__ = "tool_rules"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    agent: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True)
    rules: Mapped[JSON]
    """A ``contracts.v1.tool_rules.ToolRules``."""
    set_by: Mapped[str]
    set_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ToolCallsRow(Base):
    """When a tenant's tasks called a tool that has a rate limit, over the last minute."""

    __tablename__ = "tool_calls"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    tool: Mapped[str] = mapped_column(primary_key=True)
    calls: Mapped[list[datetime]] = mapped_column(ARRAY(TIME))
    """Oldest first."""


class SpanRow(Base):
    """A finished span, so that ``longstride trace`` needs nothing else running."""

    __tablename__ = "spans"
    trace_id: Mapped[str] = mapped_column(primary_key=True)
    span_id: Mapped[str] = mapped_column(primary_key=True)
    parent_span_id: Mapped[str | None]
    name: Mapped[str]
    kind: Mapped[str]
    service: Mapped[str]
    task_id: Mapped[str | None] = mapped_column(index=True)
    step: Mapped[int | None]
    status: Mapped[str]
    """unset, ok or error."""
    status_detail: Mapped[str | None]
    started_ns: Mapped[int] = mapped_column(BigInteger)
    """Unix nanoseconds."""
    ended_ns: Mapped[int] = mapped_column(BigInteger)
    attributes: Mapped[JSON]
    links: Mapped[list[Any]]
    events: Mapped[list[Any]]

    __table_args__ = (Index("ix_spans_started", "started_ns"),)


class WorkerRow(Base):
    """A live process: one row an incarnation, kept fresh by its heartbeat."""

    __tablename__ = "workers"
    incarnation: Mapped[str] = mapped_column(primary_key=True)
    service: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    seen_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)
