"""Intervals of whole numbers, ``(start, end)``, the end left out."""


def merged(intervals):
    """The same points as fewest intervals, in order; intervals that touch become one. The argument stays as it is."""
    intervals.sort()
    result = []
    for start, end in intervals:
        if result and start < result[-1][1]:
            result[-1] = (result[-1][0], end)
        else:
            result.append((start, end))
    return result


def free(intervals, start, end):
    """The gaps between ``start`` and ``end`` that no interval covers."""
    gaps = []
    for busy_start, busy_end in merged(intervals):
        if busy_start > start:
            gaps.append((start, busy_start))
        start = busy_end
    gaps.append((start, end))
    return gaps
