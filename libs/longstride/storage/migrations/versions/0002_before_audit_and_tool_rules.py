"""before the audit is written: heads of the chains, retention and holds; rules on tools and their counts

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.alter_column("audit", "entry", type_=postgresql.JSON(), postgresql_using="entry::text::json")
    op.create_index("ix_audit_occurred", "audit", ["occurred_at"], postgresql_using="brin")
    op.create_index(
        "ix_audit_checkpoints",
        "audit",
        ["tenant", "seq"],
        postgresql_where=sa.text("entry ->> 'kind' = 'rows_removed'"),
    )
    op.create_table(
        "audit_heads",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant"),
        postgresql_with={"fillfactor": "10"},
    )
    op.create_table(
        "audit_retention",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("days", sa.Integer(), nullable=False),
        sa.CheckConstraint("days > 0", name="days"),
        sa.PrimaryKeyConstraint("tenant"),
    )
    op.create_table(
        "audit_holds",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("placed_by", sa.Text(), nullable=False),
        sa.Column("placed_at", TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("released_by", sa.Text(), nullable=True),
        sa.Column("released_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_audit_holds_open", "audit_holds", ["tenant"], postgresql_where=sa.text("released_at IS NULL"))
    op.create_table(
        "tool_rules",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("rules", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", TIME, server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "agent", "version"),
    )
    op.create_table(
        "tool_calls",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("calls", postgresql.ARRAY(TIME), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "tool"),
    )


def downgrade() -> None:
    for table in ("tool_calls", "tool_rules", "audit_holds", "audit_retention", "audit_heads"):
        op.drop_table(table)
    op.drop_index("ix_audit_checkpoints", table_name="audit")
    op.drop_index("ix_audit_occurred", table_name="audit")
    op.alter_column("audit", "entry", type_=postgresql.JSONB(), postgresql_using="entry::jsonb")
