"""before attempts tell what they wait for

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("hindrance", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("hindered_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("attempts", "hindered_at")
    op.drop_column("attempts", "hindrance")
