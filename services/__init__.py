"""The deployables: one composition root each, thin over the library."""
