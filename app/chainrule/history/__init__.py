"""Runs: a training in one SQLite file, `chainrule.run/1`, written while it trains and read at any time. Needs no torch.

schema.py   the tables, and the errors of SQLite in words
writer.py   `RunWriter`: commits at least once a second, and thins out old steps
reader.py   `Run`, `Runs` and `runs`: steps, rows and events as tables
board.py    a folder of runs for the live page: the changes, thinned
export.py   CSV, Parquet, TensorBoard
summary.py  the summary that a terminal and a notebook show
follow.py   the terminal
picture.py  the notebook: curves as SVG
"""

from chainrule.history.reader import Run, Runs, runs
from chainrule.history.writer import RunWriter

__all__ = ["Run", "RunWriter", "Runs", "runs"]
