"""What can go wrong for somebody who uses Longstride: one flat family, each with the exit code of the command line."""


class ClientError(Exception):
    """The request failed."""

    exit_code = 1

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class UsageProblem(ClientError):
    """The request itself is not sound."""

    exit_code = 2


class TaskRefused(ClientError):
    """The planner did not accept the task."""

    exit_code = 2


class Unreachable(ClientError):
    """The broker, the database or the artifact store cannot be reached."""

    exit_code = 3


class Unroutable(ClientError):
    """The broker has no queue for this message: no planner has ever started on it."""

    exit_code = 3


class BrokerRefused(ClientError):
    """The broker did not take the message."""

    exit_code = 3


class NotFound(ClientError):
    """There is no such thing."""

    exit_code = 4


class WrongState(ClientError):
    """The task is not in a state for this: it has ended, or has not, or waits for nobody."""

    exit_code = 6


class NoAnswer(ClientError):
    """The answer did not come in time; the task goes on."""

    exit_code = 3
