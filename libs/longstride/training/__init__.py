"""Updates of a policy's weights (torch) and how a version is published (``weights``, without torch)."""
