"""Intervals of whole numbers, ``(start, end)``, the end left out."""


def merged(intervals):
    """The same points as fewest intervals, in order; intervals that touch become one. The argument stays as it is."""
    result = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def free(intervals, start, end):
    """The gaps between ``start`` and ``end`` that no interval covers."""
    gaps = []
    for busy_start, busy_end in merged(intervals):
        if busy_start > start:
            gaps.append((start, min(busy_start, end)))
        start = max(start, busy_end)
        if start >= end:
            return gaps
    return [*gaps, (start, end)]
