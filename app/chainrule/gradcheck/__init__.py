"""Gradient checks of a user's own functions.

    file.py:Function ─▶ command ─▶ sample (inputs) ─▶ check ─▶ report
    a node of a trace ─▶ node ─▶ check

The numerical check itself is `foundations/gradient_check.py`.
"""
