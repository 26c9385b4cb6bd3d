"""Dates that recur."""

import calendar
from datetime import date, timedelta


def monthly(first, count):
    """``count`` dates, a month apart, on the day of ``first``; on the last day of a month that is shorter."""
    found = [first]
    while len(found) < count:
        last = found[-1]
        month = last.month % 12 + 1
        day = min(last.day, calendar.monthrange(last.year, month)[1])
        found.append(date(last.year, month, day))
    return found


def workdays(first, count):
    """``count`` dates from ``first`` on that are neither Saturday nor Sunday."""
    found = []
    day = first
    while len(found) < count:
        if day.weekday() < 6:
            found.append(day)
        day += timedelta(days=1)
    return found
