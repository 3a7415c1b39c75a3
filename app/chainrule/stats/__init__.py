"""Exact statistics of tensors: moments, counts of the special values, and a histogram of 64 bins.

summary.py     what a summary is, and the table that holds one row per tensor
slab.py        the rows while they are being taken, wherever they wait
kernel.py      `summarize` on the host, by the compiled kernel or by torch and numpy; why a tensor has no statistics
device.py      on a CUDA device: launched there without waiting, fetched in one copy when the pass is over
pieces.py      a tensor in pieces of bounded size
_kernel.c      the compiled kernel: moments and bins in two readings of the memory, for each instruction set
native.py      whether this installation has it
units.py       dead units and saturation of an activation
"""

from chainrule.stats.device import StreamCapturedError
from chainrule.stats.kernel import summarize, unsupported
from chainrule.stats.native import instruction_set, kernel_name
from chainrule.stats.slab import StatisticsSlab
from chainrule.stats.summary import BINS, COLUMNS, COUNT_COLUMNS, SMALL, StatisticsTable, Summary
from chainrule.stats.units import dead_fraction, saturation

__all__ = [
    "BINS",
    "COLUMNS",
    "COUNT_COLUMNS",
    "SMALL",
    "StatisticsSlab",
    "StatisticsTable",
    "StreamCapturedError",
    "Summary",
    "dead_fraction",
    "instruction_set",
    "kernel_name",
    "saturation",
    "summarize",
    "unsupported",
]
