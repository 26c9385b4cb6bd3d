"""before all askers are told

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tasks", sa.Column("earlier_askers", JSONB(), nullable=True))


def downgrade() -> None:
    op.drop_column("tasks", "earlier_askers")
