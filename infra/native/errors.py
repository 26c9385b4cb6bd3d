"""The one error of this package."""


class StackError(Exception):
    """A server of the stack cannot be installed, started, reached or stopped; the text says which, where and what to do."""
