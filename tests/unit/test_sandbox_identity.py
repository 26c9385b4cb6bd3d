"""Which host ids sandboxes get."""

from longstride.sandbox.base import Owner
from longstride.sandbox.identity import COUNT, FIRST, OVERFLOW, Identities

ALL = "         0          0 4294967295\n"
ROOTLESS = "0 1000 1\n1 100000 65536\n"


def test_each_workspace_has_ids_of_its_own() -> None:
    identities = Identities(ALL, privileged=True)
    drawn = {identities.draw() for _ in range(100)}
    assert len(drawn) > 90
    assert all(FIRST <= owner.uid < FIRST + COUNT and owner.uid == owner.gid for owner in drawn if owner)
    assert identities.separate


def test_a_user_namespace_that_maps_few_ids_leaves_one() -> None:
    identities = Identities(ROOTLESS, privileged=True)
    assert identities.draw() == Owner(OVERFLOW, OVERFLOW)
    assert not identities.separate


def test_a_user_keeps_its_own() -> None:
    assert Identities(ALL, privileged=False).draw() is None
