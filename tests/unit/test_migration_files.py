"""The migrations' files: their names tell their revisions, so that a start need not load them."""

from alembic.script import ScriptDirectory

from longstride.storage import migrations
from longstride.storage.migrations import history


def test_files_are_named_for_their_revisions() -> None:
    scripts = ScriptDirectory.from_config(history.config())
    assert migrations.revisions() == [script.revision for script in scripts.walk_revisions()][::-1]
    assert migrations.head() == scripts.get_current_head()
