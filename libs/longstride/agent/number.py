"""Numbers for people and models."""

from decimal import Decimal


def plain(amount: float, digits: int = 10) -> str:
    """A number without an exponent, rounded to so many digits, but never to tens."""
    return f"{amount:.0f}" if amount >= 10 ** (digits - 1) else f"{Decimal(f'{amount:.{digits}g}'):f}"
