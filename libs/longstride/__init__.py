"""Longstride: long-horizon, tool-using agents as durable, event-driven services that learn from what they did."""
