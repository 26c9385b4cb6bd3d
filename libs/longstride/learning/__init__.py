"""What an episode is worth and what may be learned from it: pure, no I/O, no torch."""
