"""The deployables: one composition root each, thin over the library."""

import gc

# A service loads more than a thousand modules that stay: to look for garbage among them takes a quarter of its start.
gc.set_threshold(50_000, 20, 20)
