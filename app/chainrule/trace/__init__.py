"""Recording: one forward and backward pass of anything that computes with torch.

graph.py       what a recording consists of: Module, Op, Tensor, Trace (frozen); Fault, what is wrong with it
scope.py       named scopes, by which plain functions group like layers do
recorder.py    `record` and `trace_model`
observer.py    sees every op while it happens
gradients.py   sees every gradient: a hook on each node of autograd's graph
by_hand.py     gradients that layers written by hand keep as `.g`
entry_points.py, custom_functions.py    the ways into a backward pass; where an autograd.Function begins and ends
journal.py     the recording while it is being made; takes the statistics
saved.py       what a node of autograd's graph keeps
plan.py        at which call which statistics are taken: the same program again, for the numbers only
units.py       dead units, saturation
owners.py      the paths of a model's modules, objects and tensors
ops.py, flops.py    names, attributes and costs of ops
nested.py      the tensors among the arguments of an op
sources.py     the user's line behind an op
assemble.py    journal → trace: names, twins, ids
layers.py      the layers of a trace that was not made from a list of them
records.py     ops and tensors as fields, made into objects when they are looked at
"""

from chainrule.trace.graph import Failure, Fault, Layer, Module, Op, Saved, Source, Tensor, Trace
from chainrule.trace.layers import find_layers
from chainrule.trace.plan import Known, Plan, repeat
from chainrule.trace.recorder import record, trace_model
from chainrule.trace.scope import loss_scope, scope

__all__ = [
    "Failure",
    "Fault",
    "Known",
    "Layer",
    "Module",
    "Op",
    "Plan",
    "Saved",
    "Source",
    "Tensor",
    "Trace",
    "find_layers",
    "loss_scope",
    "record",
    "repeat",
    "scope",
    "trace_model",
]
