"""Run from the project's folder: python3 -m unittest discover -s tests"""

import sys
import unittest
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from schedule.intervals import free, merged
from schedule.recurring import monthly, workdays


class Monthly(unittest.TestCase):
    def test_the_same_day(self):
        self.assertEqual(monthly(date(2026, 3, 9), 3), [date(2026, 3, 9), date(2026, 4, 9), date(2026, 5, 9)])

    def test_a_short_month_does_not_shorten_the_next(self):
        self.assertEqual(monthly(date(2026, 1, 31), 3), [date(2026, 1, 31), date(2026, 2, 28), date(2026, 3, 31)])

    def test_a_new_year(self):
        self.assertEqual(monthly(date(2026, 12, 5), 2)[1], date(2027, 1, 5))


class Workdays(unittest.TestCase):
    def test_a_weekend_is_left_out(self):
        self.assertEqual(workdays(date(2026, 1, 2), 2), [date(2026, 1, 2), date(2026, 1, 5)])


class Intervals(unittest.TestCase):
    def test_an_overlap(self):
        self.assertEqual(merged([(1, 5), (3, 8)]), [(1, 8)])

    def test_one_inside_another(self):
        self.assertEqual(merged([(1, 9), (2, 4)]), [(1, 9)])

    def test_the_argument_stays(self):
        given = [(3, 4), (1, 2)]
        merged(given)
        self.assertEqual(given, [(3, 4), (1, 2)])

    def test_gaps(self):
        self.assertEqual(free([(2, 3), (5, 6)], 0, 8), [(0, 2), (3, 5), (6, 8)])

    def test_no_gap_at_the_end(self):
        self.assertEqual(free([(4, 8)], 0, 8), [(0, 4)])


if __name__ == "__main__":
    unittest.main()
