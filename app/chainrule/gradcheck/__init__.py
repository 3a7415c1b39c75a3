"""Gradient checks of a user's functions; the numerical check itself is `foundations/gradient_check.py`.

    file.py:Function  ─▶ command ─────────▶ check ─▶ report ─▶ text
    a node of a trace ─▶ node ─▶ sample ─▶ check ─▶ report

command.py  runs the files that the command line names
node.py     finds the call of a custom Function in a model, with its arguments
sample.py   reduces a call with large tensors to some of their elements
check.py    checks a function in float64 and in the dtype given
report.py   a check as JSON
text.py     a report as a table for the terminal
"""
