"""Dates that recur."""

import calendar
from datetime import date, timedelta


def monthly(first, count):
    """``count`` dates, a month apart, on the day of ``first``; on the last day of a month that is shorter."""
    return [_months_after(first, months) for months in range(count)]


def _months_after(first, months):
    years, month = divmod(first.month - 1 + months, 12)
    year = first.year + years
    return date(year, month + 1, min(first.day, calendar.monthrange(year, month + 1)[1]))


def workdays(first, count):
    """``count`` dates from ``first`` on that are neither Saturday nor Sunday."""
    found = []
    day = first
    while len(found) < count:
        if day.weekday() < 5:
            found.append(day)
        day += timedelta(days=1)
    return found
