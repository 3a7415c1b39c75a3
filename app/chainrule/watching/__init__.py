"""Watches a user's own training loop: records statistics of some steps, and reports steps that went wrong as events.

events.py       decides which numbers of a step are an event
statistics.py   the statistics of one step, from hooks
live.py         the output of a notebook's cell
trainers.py     Trainers of Lightning and transformers, and the wrappers of accelerate and Fabric
watch.py        `watch`
"""
