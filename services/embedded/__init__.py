"""Every service in one process: PostgreSQL from a wheel, a broker in memory, artifacts in a folder."""
