"""Sweeps: one measure of many nets, as a map over two or more keys of a spec.

spec, axes, seeds, measure ─▶ Sweep ─▶ stacks ─▶ tasks ─▶ any executor ─▶ values in a file, a table, a stream
"""
