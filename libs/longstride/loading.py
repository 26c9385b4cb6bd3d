"""What a program does before it loads its modules."""

import gc

FEW_COLLECTIONS = (50_000, 20, 20)
"""Thresholds of ``gc``: more than a thousand modules stay once they are loaded. To look for garbage among them takes a tenth of a
short command, and a quarter of a service's start."""


def expect_many_modules() -> None:
    """Collect seldom from now on; what is garbage is found all the same."""
    gc.set_threshold(*FEW_COLLECTIONS)
