"""A small transformer of ours that acts: it writes whole tool calls for questions about CSV tables, token by token."""
