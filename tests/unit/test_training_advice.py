"""What a person is told who asks for an update when there is nothing to learn."""

import pytest

from longstride.learning.samples import Batch, Dropped, batch_identity
from longstride.training.batches import advice


@pytest.mark.parametrize(
    ("dropped", "told"),
    [
        (Dropped(), "longstride run … --group 8"),
        (Dropped(all_equal=8), "raise --temperature"),
        (Dropped(all_equal=2, not_sampled=8), "--temperature 1"),
        (Dropped(no_siblings=1), "--group 8"),
        (Dropped(unrewarded=3), "--expect"),
        (Dropped(incomplete=3), "longstride run … --group 8"),
    ],
)
def test_the_commonest_reason_gives_the_advice(dropped: Dropped, told: str) -> None:
    batch_id = batch_identity("builtin", 0, ())
    batch = Batch(batch_id=batch_id, policy="builtin", base_version=0, groups=(), dropped=dropped)
    assert told in advice(batch)
    assert "3 rollouts of groups still run" in advice(batch, running=3)
