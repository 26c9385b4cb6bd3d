"""Numbers as people read them."""

from datetime import UTC, datetime

ID_TAIL = 8


def seconds(value: float | None) -> str:
    """``0.31 s``, ``12 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if value is None:
        return ""
    if value < 10:
        return f"{value:.2f} s"
    if value < 60:
        return f"{value:.0f} s"
    if value < 3600:
        return f"{value // 60:.0f} min {value % 60:02.0f} s"
    return f"{value // 3600:.0f} h {value % 3600 // 60:02.0f} min"


def size(count: int) -> str:
    """``812 B``, ``1.4 KiB``, ``3.0 MiB``."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def tokens(count: int) -> str:
    """``238 tok``."""
    return f"{count:,} tok"


def reward(value: float | None) -> str:
    """Two decimals; ``–`` is no verdict."""
    return "–" if value is None else f"{value:.2f}"


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    """``5 s``, ``12 min``, ``3 h``, ``4 d``: how long since."""
    if moment is None:
        return ""
    passed = ((now or datetime.now(UTC)) - moment).total_seconds()
    for span, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if passed >= span:
            return f"{passed / span:.0f} {unit}"
    return f"{max(0, passed):.0f} s"


def short(task_id: str) -> str:
    """The end of an id: its random part, by which people can name it."""
    return task_id[-ID_TAIL:]
