"""Anybody's training, watched: statistics of some steps in a run, and events where it goes wrong.

events.py       which figures of a step are an event
statistics.py   the statistics of one step, by hooks
live.py      the output of a notebook's cell
trainers.py     Trainers of Lightning and transformers, and the wrappers of accelerate and Fabric
watch.py        `watch`
"""
