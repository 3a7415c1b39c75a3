"""Chainrule: run a neural net's forward and backward pass, record all of it, and look at it."""

__version__ = "0.1.0"
