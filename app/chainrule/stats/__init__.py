"""Exact statistics of tensors: moments, counts of the special values, and a histogram of 64 bins.

summary.py     what a summary is, and the table that holds one row per tensor
kernel.py      `summarize`: the fast implementation, torch and numpy on the tensor's own memory
reference.py   `summarize_reference`: the same definitions in plain float64 numpy, the oracle of the tests
"""

from chainrule.stats.kernel import summarize, unsupported
from chainrule.stats.summary import BINS, COLUMNS, COUNT_COLUMNS, StatisticsSlab, StatisticsTable, Summary

__all__ = [
    "BINS",
    "COLUMNS",
    "COUNT_COLUMNS",
    "StatisticsSlab",
    "StatisticsTable",
    "Summary",
    "summarize",
    "unsupported",
]
