"""Anybody's training, watched: statistics of some steps in a run, and events where it goes wrong.

events.py   which figures of a step are an event
watch.py    `watch`: the hooks that take the figures
"""
