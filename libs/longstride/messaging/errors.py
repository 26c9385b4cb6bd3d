"""What can go wrong at the broker's boundary: one flat family."""


class MessagingError(Exception):
    """The message broker refused."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class BusUnavailable(MessagingError):
    """The broker cannot be reached, or did not confirm in time: whether it has the message is unknown."""


class Unroutable(MessagingError):
    """No queue wants this message; the broker gave it back."""


class Refused(MessagingError):
    """The broker does not take the message: the queue is full, or it said no."""


class UnsuitableBroker(MessagingError):
    """The broker's version or an existing queue does not suit this build."""


class HandlerTableError(MessagingError):
    """A service's handlers do not match the flow."""
