"""Anybody's training, watched: statistics of some steps in a run, and events where it goes wrong.

events.py    which figures of a step are an event
trainers.py  Trainers of Lightning and transformers, and the wrappers of accelerate and Fabric
watch.py     `watch`: the hooks that take the figures
"""
