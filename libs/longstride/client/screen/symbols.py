"""Marks, and what stands in for them where the output cannot show them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Symbols:
    """One mark a meaning."""

    good: str = "✓"
    bad: str = "✗"
    open: str = "○"
    wait: str = "‖"
    step: str = "·"
    mend: str = "↻"
    hint: str = "↳"
    task: str = "▸"
    dot: str = "·"


ASCII = Symbols(good="+", bad="x", open="o", wait="=", step="-", mend="~", hint=">", task=">", dot="|")


def symbols(encoding: str) -> Symbols:
    """The marks that ``encoding`` can carry."""
    try:
        "✓✗○↻↳…".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return Symbols()
