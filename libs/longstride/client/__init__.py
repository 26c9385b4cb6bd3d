"""The client's side: publish a task, follow it, steer it. ``longstride.client.sdk`` is what programs import."""
