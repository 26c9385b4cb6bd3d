"""What can go wrong at the sandbox boundary. What the agent's code does wrong is an ``Execution``, never one of these."""


class SandboxError(Exception):
    """The sandbox could not be used."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class SandboxUnavailable(SandboxError):
    """This host cannot isolate code, and code never runs without isolation."""


class IsolationUnavailable(SandboxError):
    """The task needs a stronger boundary than this backend gives."""


class SandboxFailed(SandboxError):
    """The sandbox broke before the code's outcome was known; the same call may succeed when it is made again."""


class NetworkGone(SandboxFailed):
    """The sandbox whose network was to be shared has ended; nothing was started."""


class ProgramEnded(SandboxError):
    """The program has ended, or reads nothing more."""


class ExecutionCancelled(SandboxError):
    """The call was cancelled; its workspace is discarded."""


class InputUnusable(SandboxError):
    """An input file cannot be laid into the workspace."""


class WorkspaceUnusable(SandboxError):
    """The workspace cannot be kept as it is."""


class WorkspaceCorrupt(SandboxError):
    """The stored workspace is not one that this build can restore."""
